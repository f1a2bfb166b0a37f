"""The chosen plan in INT8: the settings that keep the floor, and the speed over dense INT8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparing.core.record import Label, Record
from sparing.experiment.run import Cell
from sparing.export.dense import dense_segment
from sparing.export.folder import describe_chain
from sparing.export.int8 import Int8Settings, quantise, quantise_module, sensitivities
from sparing.export.onnx import export_onnx
from sparing.measure.calibration import upper_bound
from sparing.measure.inputs import InputTimes, SpeedUp, fastest, speed_up, time_inputs
from sparing.slim.engines import Runs, logits_of
from sparing.slim.fixed_width import train_dense, train_slim, trained_dense, trained_slim
from sparing.slim.models import inputs_of
from sparing.slim.search.choose import sample
from sparing.slim.search.resampling import good_enough
from sparing.slim.state import Int8Form
from sparing.slim.steps import DENSE, OURS, Steps, logits_one_by_one, records_of, speed_record
from sparing.train import TrainResult

SCALES = ("tensor", "channel", "blocks")
SENSITIVE = (2, 4)
SENSITIVITY_BATCH = 32
SAMPLE = 60
FLOAT32 = "float32"
UNTIMED = SpeedUp(1.0, None, 0)
# All forms are timed in turns, round by round: a disturbance affects all of them alike.
ROUNDS = 5
# A form that takes at most 5 % more time than the fastest counts as equally fast.
ALIKE = 1.05


@dataclass(frozen=True, eq=False)
class Source:
    """Float32 segments to quantise; ``trained`` for INT8 or as they were distilled."""

    paths: list[Path]
    threshold: float
    trained: bool = False


@dataclass(frozen=True, eq=False)
class Trial:
    """A source in INT8: its speed over the variant's float32 form, and its score.

    ``float32_score`` is the score of that form. ``good``: the loss is within the floor, or beyond
    it by at most one standard error of the paired difference. ``slower``: the whole interval of
    the paired times is over 5 % more time than the fastest good one.
    """

    source: Source
    settings: Int8Settings
    paths: list[Path]
    gain: SpeedUp
    float32_score: float
    score: float
    good: bool
    slower: bool = False

    @property
    def folder(self) -> Path:
        """The folder of its segments."""
        return self.paths[0].parent

    @property
    def preference(self) -> tuple[float, bool, int, int]:
        """The order of equally fast forms: the best score first, then the simplest form.

        Simpler: not trained for INT8, fewer layers in float32, more shared scales.
        """
        settings = self.settings
        layers, scales = len(settings.float32_layers), SCALES.index(settings.scales)
        return -self.score, self.source.trained, layers, scales


def int8_cells(steps: Steps) -> list[Cell]:
    """Training for INT8, slim and dense alike, if ``int8_epochs`` is set; then the choice."""
    models, epochs = steps.models, steps.options.int8_epochs

    def ours() -> list[Record]:
        plan, path = steps.served().plan, _trained_path(steps, OURS)
        result = train_slim(models, steps.model(), plan, path, epochs, rounded=True)
        return _train_records(result, OURS)

    def dense() -> list[Record]:
        return _train_records(train_dense(models, _trained_path(steps, DENSE), epochs), DENSE)

    aware = [Cell(f"int8/train-{OURS}", ours, 3.0), Cell(f"int8/train-{DENSE}", dense, 4.0)]
    return [*(aware if epochs else []), Cell("int8", lambda: int8_plan(steps))]


def int8_plan(steps: Steps) -> list[Record]:
    """Try settings on the first half of validation, then evaluate the best of each variant on the
    test.

    The dense model gets the same choice among the same settings, so that the comparison is fair.
    """
    records: list[Record] = []
    chosen: dict[str, Trial] = {}
    sources = {DENSE: _dense_sources(steps), OURS: _our_sources(steps)}
    for arm, of_arm in sources.items():
        trials = _trials(steps, arm, of_arm)
        best = chosen[arm] = best_trial(trials)
        alike = len(alike_trials(trials))
        records += [_trial_record(arm, trial, trial is best, alike) for trial in trials]
        longest = steps.engines.longest
        threshold = best.source.threshold
        describe_chain(
            best.folder,
            best.paths,
            threshold=threshold,
            longest=longest,
            precision="int8",
        )
    plain = {arm: of_arm[0] for arm, of_arm in sources.items()}
    records += _verify(steps, chosen, plain) + _bound(steps, chosen[OURS])
    steps.keep(int8=tuple(Int8Form(arm, trial.folder.name) for arm, trial in chosen.items()))
    return records


def best_trial(trials: Sequence[Trial]) -> Trial:
    """The best, then simplest, of the good trials that are not clearly slower than the fastest.

    If none is good, all trials compete. Times differ between runs, scores hardly do. So two runs
    keep the same form unless one of them shows it to be slower.
    """
    return min(alike_trials(trials) or trials, key=lambda trial: trial.preference)


def alike_trials(trials: Sequence[Trial]) -> list[Trial]:
    """The good trials that are not clearly slower than the fastest of them."""
    return [trial for trial in trials if trial.good and not trial.slower]


def int8_folder(steps: Steps) -> Path | None:
    """The folder of slim's chosen INT8 form, a chain; None if there is none."""
    folders = [steps.engines.folder / form.folder for form in steps.state.int8 if form.arm == OURS]
    return next((folder for folder in folders if folder.is_dir()), None)


def int8_runs(steps: Steps) -> Runs:
    """The chosen INT8 forms, by variant; empty if INT8 was not tried."""
    runs: Runs = {}
    for form in steps.state.int8:
        threshold = steps.served().plan.threshold if form.arm == OURS else 1.0
        files = (steps.engines.folder / form.folder).glob("*.onnx")
        paths = sorted(files, key=lambda path: (len(path.name), path.name))
        runs[f"{form.arm} int8"] = logits_of(steps.engines.chain(paths, threshold))
    return runs


def _trained_path(steps: Steps, arm: str) -> Path:
    return steps.models.folder / "models" / f"{arm}-int8"


def _train_records(result: TrainResult, arm: str) -> list[Record]:
    labels: dict[str, Label] = {"arm": f"{arm} int8"}
    return [
        Record("train_time_s", result.train_time_s, "s", "measured", labels),
        Record("train_examples", result.examples_seen, "examples", "measured", labels),
    ]


def _is_trained(steps: Steps, arm: str) -> bool:
    return (_trained_path(steps, arm) / "result.json").is_file()


def _dense_sources(steps: Steps) -> list[Source]:
    engines = steps.engines
    path = engines.folder / "dense" / "dense.onnx"
    if not path.is_file():
        export_onnx(dense_segment(steps.models.baseline()).eval(), engines.example(), path)
    sources = [Source([path], 1.0)]
    if _is_trained(steps, DENSE):
        segment = dense_segment(trained_dense(_trained_path(steps, DENSE))).eval()
        path = engines.folder / "dense-trained" / "dense.onnx"
        sources.append(Source([export_onnx(segment, engines.example(), path)], 1.0, trained=True))
    return sources


def _our_sources(steps: Steps) -> list[Source]:
    plan = steps.served().plan
    paths = steps.engines.exported(steps.model(), plan, "int8-from")
    sources = [Source(paths, plan.threshold)]
    if _is_trained(steps, OURS):
        model = trained_slim(_trained_path(steps, OURS))
        paths = steps.engines.exported(model, model.plan, "int8-from-trained")
        sources.append(Source(paths, plan.threshold, trained=True))
    return sources


def _trials(steps: Steps, arm: str, sources: list[Source]) -> list[Trial]:
    """Every source with every settings, against the first source in float32."""
    examples = steps.parts[0]
    inputs = sample(steps, examples, SAMPLE)
    float32 = steps.engines.chain(sources[0].paths, sources[0].threshold)
    float32_logits = logits_one_by_one(steps, logits_of(float32), examples)
    pairs = [
        (source, settings) for source in sources for settings in _candidates(steps, source.paths)
    ]
    trials = []
    calls: Runs = {FLOAT32: logits_of(float32)}
    for number, (source, settings) in enumerate(pairs):
        folder = steps.engines.folder / f"{arm}-int8-{number}"
        paths = quantise(source.paths, folder, settings)
        chain = steps.engines.chain(paths, source.threshold)
        logits = logits_one_by_one(steps, logits_of(chain), examples)
        scored = good_enough(
            steps.task.metric, logits, float32_logits, examples.labels, steps.options.floor
        )
        calls[folder.name] = logits_of(chain)
        trials.append(Trial(source, settings, paths, UNTIMED, *scored))
    times = time_inputs(calls, inputs, rounds=ROUNDS, threads=steps.engines.thread_count)
    return with_times(trials, times)


def with_times(trials: Sequence[Trial], times: Mapping[str, InputTimes[Any]]) -> list[Trial]:
    """The trials with their speeds, by the names of their folders, and which are clearly slower.

    No trial counts as slower if the machine was busy.
    """
    names = [trial.folder.name for trial in trials]
    gains = [speed_up(times[name], times[FLOAT32]) for name in names]
    good = [name for name, trial in zip(names, trials, strict=True) if trial.good]
    top = fastest(times, good) if good else ""
    slower = [
        bool(top) and name != top and _clearly_slower(times[name], times[top]) for name in names
    ]
    return [
        replace(trial, gain=gain, slower=behind)
        for trial, gain, behind in zip(trials, gains, slower, strict=True)
    ]


def _clearly_slower(times: InputTimes[Any], top: InputTimes[Any]) -> bool:
    if times.load is not None and times.load.disturbance:
        return False
    behind = speed_up(top, times)
    return behind.interval is not None and behind.interval[0] > ALIKE


def _trial_record(arm: str, trial: Trial, chosen: bool, alike: int) -> Record:
    """``alike`` counts the variant's good forms that are not clearly slower than the fastest."""
    labels: dict[str, Label] = {
        "arm": f"{arm} int8",
        "settings": str(trial.settings),
        "trained": trial.source.trained,
        "score": trial.score,
        "float32_score": trial.float32_score,
        "folder": trial.folder.name,
        "good": trial.good,
        "slower": trial.slower,
        "alike": alike,
        "chosen": chosen,
    }
    gain = trial.gain
    return Record("int8_trial", gain.value, "ratio", "measured", labels, gain.interval, gain.inputs)


def _candidates(steps: Steps, paths: list[Path]) -> list[Int8Settings]:
    """All ways to share scales, and per channel with the most sensitive layers in float32."""
    plain = [Int8Settings(scales) for scales in SCALES]  # type: ignore[arg-type]
    batch = next(iter(inputs_of(steps.task, steps.parts[0], SENSITIVITY_BATCH)))[1]
    order = sensitivities(paths, batch, steps.engines.folder / "sensitivities")
    names = [name for name, _ in order]
    return [*plain, *(Int8Settings("channel", None, tuple(names[:count])) for count in SENSITIVE)]


def _verify(steps: Steps, chosen: dict[str, Trial], plain: dict[str, Source]) -> list[Record]:
    """Dense and slim, float32 and INT8, on the same test inputs one by one.

    Dense also runs in PyTorch's INT8, which many users use.
    """
    forms = {
        f"{arm} onnxruntime": steps.engines.chain(form.paths, form.threshold)
        for arm, form in plain.items()
    }
    int8 = {
        f"{arm} int8 onnxruntime": steps.engines.chain(form.paths, form.source.threshold)
        for arm, form in chosen.items()
    }
    eager = quantise_module(dense_segment(steps.models.baseline()).eval())
    int8[f"{DENSE} int8 torch.ao"] = steps.engines.chain([eager], 1.0)
    runs = {name: logits_of(chain) for name, chain in (forms | int8).items()}
    for name, run in steps.dense_runs().items():
        runs.setdefault(name, run)  # speed is over the fastest of them
    times, logits = steps.time(runs, steps.timed, 1, steps.options.rounds)
    float32 = [name for name in runs if name.startswith(DENSE) and name not in int8]
    reference = fastest(times, float32)
    truth = steps.timed.labels
    records = []
    for name in int8:
        arm, _, engine = name.rpartition(" ")
        labels: dict[str, Label] = {"arm": arm, "engine": engine, "batch": 1}
        pair, taken = (logits[name], logits[reference]), times[name]
        metric = steps.task.metric
        records += records_of(metric, taken, times[reference], pair, truth, labels)
    baseline = fastest(times, [name for name in int8 if name.startswith(DENSE)])
    labels = {"arm": f"{OURS} int8", "engine": "onnxruntime", "batch": 1}
    labels["against"] = baseline.rpartition(" ")[2]
    ours = times[f"{OURS} int8 onnxruntime"]
    return [*records, speed_record("int8_speed_up", ours, times[baseline], labels)]


def _bound(steps: Steps, chosen: Trial) -> list[Record]:
    """The bound on answers of the INT8 form that differ from dense float32.

    It is evaluated on the second half of validation, which was not used for the choice.
    """
    held = steps.parts[1]
    dense = steps.engines.chain([dense_segment(steps.models.baseline()).eval()], 1.0)
    ours = steps.engines.chain(chosen.paths, chosen.source.threshold)
    both = (logits_of(dense), logits_of(ours))
    answers = [logits_one_by_one(steps, run, held).argmax(-1) for run in both]
    differing, count = int((answers[0] != answers[1]).sum()), len(held)
    labels: dict[str, Label] = {"delta": steps.options.delta, "disagreements": differing}
    bound = upper_bound(differing, count, steps.options.delta)
    return [Record("int8_disagreement_bound", bound, "share", "measured", labels, count=count)]
