"""AdaAttention, held against its own tables: what is printed, what is true, and what saves instead.

``sparing study adaattention`` fine-tunes one dense model, changes its attention in every way that
the paper compares, trains each on with the same recipe, and measures whole models on the task's own
texts. Expected: the printed method is a few per cent slower than the dense model, not 1.76 times
faster. Quick takes about a quarter of an hour on one core.

Source: Balajee, "Adaptive Attention Mechanisms for Efficient Transformer Models".
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sparing.core.errors import UsageError
from sparing.core.record import Record
from sparing.models import default_model
from sparing.studies import _ada_speed as shapes
from sparing.studies._ada_analysis import analyse
from sparing.studies._ada_arithmetic import bounds, impossible, scorers
from sparing.studies._ada_arms import (
    ADAPTIVE,
    BATCH,
    FULL,
    OURS,
    Arm,
    Length,
    Work,
    chosen,
)
from sparing.studies._ada_cells import (
    INT8,
    QUANTISED,
    Timing,
    arm_cell,
    dense_cell,
    int8_cell,
    require_classes,
    timing_cell,
)
from sparing.studies._ada_certificate import certificate_cell
from sparing.studies._ada_paper import MEAN_SPEED, printed
from sparing.studies._ada_patterns import kept_cell, patterns_cell
from sparing.studies._goals import Goal, GoalResult
from sparing.studies._run import Cell, Progress, Run, open_run
from sparing.studies._study import StudyResult, base_config, write_goals
from sparing.studies._task import load_for
from sparing.tasks import options_of

DATA = "SPARING_DATA"
WITH_DATA, WITHOUT_DATA = "sst2", "digits"
TEXT_SIZES: Mapping[str, Any] = {"layers": 4, "width": 128, "heads": 4, "dropout": 0.1}
IMAGE_SIZES: Mapping[str, Any] = {"layers": 4, "width": 64, "heads": 4}
GLUE = ("sst2", "mrpc", "cola", "rte", "qnli", "qqp", "mnli", "wnli")
FEW_WORDS = 1000  # takes no time to look up, and memory that is not looked at
MEMORY_FORMS = (FULL, shapes.AS_PRINTED, "linformer", "bigbird", "skip", "prune")

_TIMES = "\N{MULTIPLICATION SIGN}"
_TEXTS: Mapping[str, Any] = {"task": "mean"}
# Each with the record that decides it, by name and labels.
GOALS: tuple[tuple[Goal, str, Mapping[str, Any]], ...] = (
    (
        Goal(f"printed: adaptive {MEAN_SPEED}{_TIMES} on the tasks' texts", MEAN_SPEED, "ratio"),
        "speed_up",
        {**_TEXTS, "arm": ADAPTIVE},
    ),
    (
        Goal(f"printed: 1.9{_TIMES} at 512 tokens, BERT-base's shape", 1.9, "ratio"),
        "speed_up",
        {"arm": shapes.AS_PRINTED, "shape": shapes.SHAPE, "tokens": 512},
    ),
    (
        Goal("printed: adaptive loses at most 0.2 points", -0.002, "score"),
        "score_difference",
        {**_TEXTS, "arm": ADAPTIVE},
    ),
    (
        Goal(f"printed: 2.3{_TIMES} with INT8", 2.3, "ratio"),
        "speed_up",
        {**_TEXTS, "arm": f"{ADAPTIVE} {INT8}"},
    ),
    (
        Goal("printed: at most 0.8 of the memory", 0.8, "ratio", at_most=True),
        "memory_ratio",
        {"arm": shapes.AS_PRINTED},
    ),
    (
        Goal(f"ours: {MEAN_SPEED}{_TIMES}, same engine", MEAN_SPEED, "ratio"),
        "speed_up",
        {**_TEXTS, "arm": OURS},
    ),
    (
        Goal("ours: loses at most 0.5 points", -0.005, "score"),
        "score_difference",
        {**_TEXTS, "arm": OURS},
    ),
)


@dataclass(frozen=True)
class Options:
    """What is run, and how long it may take.

    ``tasks`` empty is sst2 where there is a data folder and digits, which needs none, elsewhere;
    ``model`` is a path or hub name of a pretrained encoder, empty a small one of random weights
    with ``sizes``. ``arms`` empty is all. ``examples`` and ``max_tokens`` limit tasks that take
    them (0: no limit), ``timed_examples`` the test inputs that are timed. Counts of epochs of 0 and
    a rate of 0 take the task's defaults. ``lengths`` are those of the speed at BERT-base's shape,
    which has ``shape_layers`` layers (0: that part is left out).
    """

    tasks: tuple[str, ...] = ()
    model: str = ""
    sizes: Mapping[str, Any] = field(default_factory=dict)
    arms: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    examples: int = 0
    max_tokens: int = 0
    dense_epochs: int = 0
    epochs: int = 0
    batch_size: int = BATCH
    learning_rate: float = 0.0
    timed_examples: int = 1000
    rounds: int = 3
    lengths: tuple[int, ...] = (16, 32, 48, 64, 128, 197, 256, 384, 512)
    shape_layers: int = 12
    shape_rounds: int = 15
    thread_count: int = 1
    needs: str = ""

    def __post_init__(self) -> None:
        for name in ("tasks", "seeds", "arms", "lengths"):
            values = getattr(self, name)
            if len(set(values)) != len(values):
                raise UsageError(f"{name} are named twice: {', '.join(map(str, values))}")
        if not self.seeds:
            raise UsageError("the study needs at least one seed")
        for name in ("timed_examples", "rounds", "shape_rounds", "thread_count"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.lengths and self.shape_layers and min(self.lengths) < 1:
            raise UsageError(f"lengths must be at least 1, got {min(self.lengths)}")
        chosen(self.arms)


BUDGETS = {
    "quick": Options(
        examples=12000,
        max_tokens=64,
        timed_examples=300,
        lengths=(32, 128, 512),
        shape_rounds=5,
    ),
    "standard": Options(tasks=("sst2", "mrpc", "cola", "rte"), seeds=(0, 1, 2), examples=20000),
    "paper": Options(
        tasks=GLUE,
        model="google-bert/bert-base-uncased",
        seeds=(0, 1, 2),
        dense_epochs=3,
        epochs=4,
        learning_rate=5e-5,
        needs="accelerator",
    ),
}


def run(
    options: Options,
    folder: Path,
    *,
    data: Path | None = None,
    on_progress: Progress = lambda fraction, text: None,
    overwrite: bool = False,
) -> StudyResult:
    """Run the study in a folder that can be continued after any interruption.

    Finished cells are never repeated. Raises ``UsageError`` for unknown names, for tasks whose
    answers are no classes, for a budget that this machine cannot serve, and for a folder that holds
    another run; a cell that fails is noted in the result, and the others go on.
    """
    _require_machine(options)
    works, told = _works(options, folder, data)
    config = base_config("adaattention", _plain({**asdict(options), "tasks": told}))
    config |= _described(options, works, folder.name)
    with open_run(folder, config, overwrite=overwrite) as opened:
        failures = opened.do(_cells(options, works), on_progress)
        return _finish(opened, options, works, list(failures))


def _require_machine(options: Options) -> None:
    """Raise ``UsageError`` where a budget needs an accelerator and there is none."""
    import torch

    if options.needs and not torch.accelerator.is_available():
        raise UsageError(
            "the paper's own setting (BERT-base, GLUE, 18 arms, 3 seeds, 4 epochs of up to 393,000 "
            "texts) needs an accelerator: on this machine it would take months; use the budget "
            "standard, or --set needs= to run it all the same"
        )


def _works(
    options: Options, folder: Path, data: Path | None
) -> tuple[list[Work], dict[str, dict[str, Any]]]:
    """The tasks with their models, and the options each was loaded with."""
    has_data = data is not None or bool(os.environ.get(DATA))
    names = options.tasks or ((WITH_DATA if has_data else WITHOUT_DATA),)
    works, told = [], {}
    for name in names:
        known = options_of(name)
        wanted = {"examples": options.examples, "max_tokens": options.max_tokens}
        given = {key: value for key, value in wanted.items() if value and key in known}
        task, told[name] = load_for(name, given, options.model, data)
        usual = TEXT_SIZES if task.kind == "tokens" else IMAGE_SIZES
        length = Length(
            options.dense_epochs,
            options.epochs,
            options.batch_size,
            options.learning_rate,
        )
        work = Work(name, task, folder, options.model, options.sizes or usual, length)
        require_classes(work)
        works.append(work)
    return works, told


def _cells(options: Options, works: Sequence[Work]) -> list[Cell]:
    """The small facts, speeds while nothing has heated the machine, then task by task."""
    arms, found = chosen(options.arms), [Cell("arithmetic", _arithmetic, weight=0.1)]
    if options.shape_layers and options.lengths:
        encoder = shapes.Encoder(options.shape_layers, max(512, *options.lengths))
        rounds, threads = options.shape_rounds, options.thread_count
        small = replace(encoder, vocabulary=FEW_WORDS)
        found += [shapes.speed_cell(small, n, rounds, threads) for n in options.lengths]
        longest = max(options.lengths)
        found += [shapes.memory_cell(encoder, name, longest, threads) for name in MEMORY_FORMS]
    for work in works:
        found += _task_cells(options, work, arms)
    return found


def _arithmetic() -> list[Record]:
    return [*bounds(), *scorers(), *impossible(), *(each.record() for each in printed())]


def _task_cells(options: Options, work: Work, arms: Sequence[Arm]) -> list[Cell]:
    timing = Timing(options.timed_examples, options.rounds, options.thread_count)
    found, first, names = [], options.seeds[0], [arm.name for arm in arms]
    for number, seed in enumerate(options.seeds):
        turn = number % len(arms)  # no arm is always first
        found.append(dense_cell(work, seed))
        found += [arm_cell(work, arm, seed) for arm in (*arms[turn:], *arms[:turn])]
    for group in dict.fromkeys(arm.group for arm in arms):
        members = [arm.name for arm in arms if arm.group == group]
        found.append(timing_cell(work, group, members, first, timing))
    found.append(int8_cell(work, options.seeds, [n for n in QUANTISED if n in names], timing))
    found.append(certificate_cell(work, first))
    if ADAPTIVE in names:
        found.append(patterns_cell(work, first))
    if "skip" in names:
        found.append(kept_cell(work, first))
    return found


def _finish(
    opened: Run, options: Options, works: Sequence[Work], failures: list[Any]
) -> StudyResult:
    measured = [r for r in opened.records() if r.cell != "analysis"]
    found = [*analyse(measured, works, options.seeds), *shapes.memory_ratios(measured)]
    opened.replace_analysis(found)
    records = opened.records()
    goals = _judge(records)
    write_goals(opened.folder, goals)
    return StudyResult("adaattention", opened.folder, opened.config, records, goals, failures)


def _judge(records: Sequence[Record]) -> list[GoalResult]:
    """The paper's claims as goals, and ours beside them."""
    own = [record for record in records if record.obtained != "paper"]
    results = []
    for goal, name, labels in GOALS:
        wanted = labels.items()
        found = [r for r in own if r.name == name and wanted <= r.labels.items()]
        if not found:
            results.append(goal.judge(None, None))
            continue
        last = found[-1]
        exact = name == "memory_ratio" and last.value is not None  # counted, not sampled
        interval = (last.value or 0.0, last.value or 0.0) if exact else last.interval
        results.append(goal.judge(last.value, interval))
    return results


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    return value


def _described(options: Options, works: Sequence[Work], name: str) -> dict[str, Any]:
    """What a reader of the page wants to know beside the numbers."""
    first = works[0].task
    return {
        "name": name,
        "task": {
            "name": ", ".join(work.name for work in works),
            "kind": first.kind,
            "metric": first.metric if len(works) == 1 else "each task's own",
            "chance": first.chance if len(works) == 1 else None,
            "classes": first.classes,
            "licence": first.licence,
            "source": first.source,
            "subset": any(work.task.subset for work in works),
            "notes": [f"{work.name}: {note}" for work in works for note in work.task.notes],
            "tokens": max(work.task.tokens for work in works),
            "examples": {
                work.name: {split: len(rows) for split, rows in work.task.splits.items()}
                for work in works
            },
        },
        "tasks": [work.name for work in works],
        "special": {work.name: _special(work) for work in works},
        "model": _model(options, works[0]),
        "recipe": _plain(asdict(works[0].recipe(0, dense=False))),
        "dense_epochs": works[0].recipe(0, dense=True).epochs,
        "arms": [arm.name for arm in chosen(options.arms)],
        "baseline": FULL,
        "seeds": list(options.seeds),
        "threads": options.thread_count,
        "engine": "eager PyTorch, fused attention; INT8 by torch.ao, dynamic",
    }


def _model(options: Options, work: Work) -> dict[str, Any]:
    """The model's name, and its sizes where it is ours."""
    if work.pretrained:
        return {"name": Path(options.model).name}
    return {"name": options.model or default_model(work.task), **_plain(work.sizes)}


def _special(work: Work) -> dict[str, bool]:
    """Whether texts begin with a class token and end with a separator."""
    tokenizer = work.task.tokenizer
    ends = tokenizer is not None and tokenizer.sep_token_id is not None
    return {"first": True, "last": bool(ends)}
