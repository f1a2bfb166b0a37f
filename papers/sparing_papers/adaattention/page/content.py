"""The texts around the tables of the AdaAttention page: verdict, notices, facts."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sparing.core.record import Record
from sparing.experiment.records import RecordTable
from sparing.report import blocks, wording
from sparing.report.facts import facts as run_facts
from sparing.report.run import Run
from sparing.report.sections import Verdict
from sparing_papers.adaattention import findings
from sparing_papers.adaattention.findings import (
    Config,
    ablations_of,
    difference,
    kind_of_inputs,
    lengths_of,
    recipes_of,
    seeds_of,
    speed_at,
)
from sparing_papers.adaattention.names import (
    ADAPTIVE,
    AS_PRINTED,
    CONTROLS,
    FREE,
    FULL_INT8,
    MEAN,
    OURS,
    TAUGHT,
    name_of_arm,
)
from sparing_papers.adaattention.page.texts import TEXT, pace, points_words
from sparing_papers.adaattention.published import MEAN_SPEED

_FEW_EXAMPLES = 3000
_COUNTS = {1: "one comparison", 2: "two comparisons", 3: "three comparisons"}
_NO_HEADS = 0.005


def verdict(run: Run, records: RecordTable) -> Verdict:
    """Whether the printed speed is reached, and what is faster instead."""
    speed = findings.speed(records, ADAPTIVE)
    if speed is None:
        return Verdict("No verdict yet", TEXT("not-timed"))
    low, high = speed.interval or (speed.value or 0.0, speed.value or 0.0)
    reached = "reached" if low >= MEAN_SPEED else "undecided" if high >= MEAN_SPEED else "not there"
    inputs = kind_of_inputs(run.config, records)
    about = {"inputs": inputs, "tasks": wording.listing(ablations_of(run.config))}
    longest = max(lengths_of(records), default=0)
    shaped, free = (speed_at(records, form, longest) for form in (AS_PRINTED, FREE))
    because = TEXT("because-inputs", pace=pace(speed), **about)
    if shaped is not None:
        because = TEXT("because-shape", length=wording.length(longest), pace=pace(shaped))
        most = records.value("largest_speed_up", tokens=longest, kind="printed")
        because += "." if most is None else f"{TEXT('because-bound', most=most)}."
    second = (
        "" if free is None else TEXT("on-inputs", free=pace(free), pace=pace(speed), **about),
        _accuracy(records),
        _ours(records, inputs, longest),
    )
    lead = f"The printed {MEAN_SPEED}{wording.TIMES} is {reached}"
    return Verdict(lead, because, tuple(filter(None, second)))


def _accuracy(records: RecordTable) -> str:
    """The score of adapting to inputs, beside the controls."""
    adaptive, unused = difference(records, ADAPTIVE), _nothing_cut(records)
    if adaptive is None:
        return unused
    text = TEXT("accuracy", points=points_words(adaptive))
    if unused:
        return f"{text}. {unused}"
    others = [
        f"{wording.points(control.value or 0.0, 1.0)} with {name_of_arm(arm)}"
        for arm in CONTROLS
        if (control := difference(records, arm)) is not None
    ]
    if not others:
        return f"{text}."
    compared = _paired(findings.control_differences(records)) or _by_overlap(records)
    return text + TEXT("accuracy-of-controls", others=wording.listing(others), compared=compared)


def _nothing_cut(records: RecordTable) -> str:
    """A note for an adaptive variant with a scorer that cuts almost no heads; else empty."""
    cut = records.value("cut_share", arm=ADAPTIVE, task=MEAN)
    if cut is None or cut >= _NO_HEADS:
        return ""
    share = wording.share(cut)
    few = share != wording.share(0.0)
    return TEXT("nothing-cut", heads=f"no head to speak of ({share} of them)" if few else "no head")


def _paired(differences: dict[str, Record]) -> str:
    """The comparison with each control, without correction for their number."""
    if not differences:
        return ""
    names: dict[str, list[str]] = {"above": [], "below": [], "": []}
    for arm, record in differences.items():
        side = findings.side_of(record, 0.0)
        names[side].append(name_of_arm(arm) + (_gap(record) if side else ""))
    begin = TEXT("paired", comparisons=_COUNTS[len(differences)])
    sides = (("better", names["above"]), ("worse", names["below"]))
    parts = [f"{word} than {wording.listing(arms)}" for word, arms in sides if arms]
    if not parts:
        return f"{begin} {TEXT('paired-alike')}"
    rest = TEXT("paired-rest", others=wording.listing(names[""])) if names[""] else ""
    return f"{begin} does {' and '.join(parts)}{rest}."


def _gap(record: Record) -> str:
    value, ends = record.value or 0.0, record.interval or (0.0, 0.0)
    return f" ({wording.points(value, *ends)} points, {wording.points_interval(value, ends)})"


def _by_overlap(records: RecordTable) -> str:
    """Whether the intervals of the adaptive variant and its controls are disjoint."""
    side = findings.side_of_controls(records)
    return TEXT(f"overlap-{side}" if side else "overlap")


def _ours(records: RecordTable, inputs: str, longest: int) -> str:
    """The speeds of slim and of INT8."""
    speed, gap = findings.speed(records, OURS), difference(records, OURS)
    int8, shaped = findings.speed(records, FULL_INT8), speed_at(records, FULL_INT8, longest)
    parts = []
    if speed is not None and gap is not None:
        parts.append(TEXT("slim", pace=pace(speed), points=points_words(gap)))
    if int8 is not None:
        at_shape = "" if shaped is None else TEXT("int8-shape", pace=pace(shaped))
        parts.append(f"INT8 alone {pace(int8)}{at_shape}")
    return TEXT("saves", inputs=inputs, parts=", ".join(parts)) if parts else ""


def headline(run: Run) -> list[str]:
    """The facts above the verdict."""
    config = run.config
    facts = ["adaattention", *findings.tasks_of(config), wording.count_of(seeds_of(config), "seed")]
    if isinstance(config.get("started"), str):
        facts.append(config["started"][:10])
    return [" ".join(fact.split()) for fact in facts if fact]


def notices(run: Run) -> list[str]:
    """The limits of this run."""
    notes = [
        _unfinished(run),
        *_training_notes(run),
        _model_note(run.config),
        _seeds_note(seeds_of(run.config)),
        _examples_note(run.config),
    ]
    return [*blocks.busy_notices(run), *filter(None, notes), *blocks.data_notices(run)]


def _model_note(config: Config) -> str:
    """The model, where it is not BERT-base."""
    name, layers, width = (config["model"].get(key) for key in ("name", "layers", "width"))
    about = {"own_table": TEXT("own-table"), "name": name or "small model"}
    if layers:
        return TEXT("small-model", layers=layers, width=width, **about)
    notes = []
    if name and not str(name).lower().startswith("bert-base"):
        notes.append(TEXT("pretrained-model", **about))
    small = [
        task for task, recipe in recipes_of(config).items() if recipe.get("pretrained") is False
    ]
    if small:
        notes.append(TEXT("random-weights", tasks=wording.listing(small)))
    return " ".join(notes)


def _seeds_note(seeds: int) -> str:
    """A note on too few seeds."""
    if seeds > 2:
        return ""
    if seeds == 2:
        return TEXT("two-seeds")
    return TEXT("one-seed", seeds=wording.count_of(seeds, "seed").capitalize())


def _examples_note(config: Config) -> str:
    """A note on few test examples of the tasks that run every variant."""
    tasks, examples = ablations_of(config), config["task"].get("examples")
    splits = [examples.get(task) for task in tasks] if isinstance(examples, dict) else []
    tested = [split.get("test") for split in splits if isinstance(split, dict)]
    count = sum(size for size in tested if isinstance(size, int))
    if not 0 < count < _FEW_EXAMPLES:
        return ""
    points = wording.number(196 * (0.1 / count) ** 0.5, 2)
    return TEXT("few-examples", count=count, tasks=wording.listing(tasks), points=points)


def _unfinished(run: Run) -> str:
    """The share of the plan that is done, and what is missing, by task and kind of cell."""
    done = {record.cell for record in run.records}
    planned = [str(key) for key in run.config.get("cells") or []]
    kinds = Counter("/".join(key.split("/")[:2]) for key in planned if key not in done)
    if not kinds:
        return ""
    whole = Counter("/".join(key.split("/")[:2]) for key in planned)
    missing = ", ".join(
        f"{name} ({f'all {count}' if count == whole[name] else f'{count} of {whole[name]}'})"
        for name, count in kinds.items()
    )
    left = len(planned) - kinds.total()
    return TEXT("unfinished", done=left, planned=len(planned), missing=missing)


def _training_notes(run: Run) -> list[str]:
    """Notes on unusual settings of the training."""
    recipes = list(recipes_of(run.config).values())
    notes = []
    named = {str(recipe["precision"]) for recipe in recipes if recipe.get("precision")}
    kinds = sorted(_precision(name) for name in named - {"auto", "float32"})
    if kinds:
        notes.append(TEXT("precision", kinds=wording.listing(kinds)))
    if any(recipe.get("attention_dropout") is False for recipe in recipes):
        notes.append(TEXT("no-dropout"))
    # older runs say it with the time
    names = ("steps", "train_time_s")
    ended = [r for r in run.records if r.name in names and r.labels.get("early")]
    if ended:
        arms = sorted({name_of_arm(record.labels.get("arm")) for record in ended})
        notes.append(TEXT("ended-early", arms=wording.listing(arms)))
    return notes


def _precision(name: str) -> str:
    """A recipe's precision in words."""
    return TEXT("fast") if name == "fast" else name


def facts(run: Run) -> list[tuple[str, str]]:
    """Engine and training of each task, then task and machine."""
    config = run.config
    pairs = [("engine", str(config.get("engine") or ""))]
    pairs += [
        (f"training, {task}", _training(recipe)) for task, recipe in recipes_of(config).items()
    ]
    return [*pairs, *(pair for pair in run_facts(run) if pair[0] != "baseline")]


def glossary(run: Run) -> list[tuple[str, str]]:
    """The words of the page; that of taught layers where a variant has them."""
    taught = any(str(arm).endswith(TAUGHT) for arm in run.config["arms"])
    return [*TEXT.pairs("glossary"), *(TEXT.pairs("glossary-taught") if taught else ())]


def _training(recipe: Config) -> str:
    """One task's training in a line."""
    precision = str(recipe.get("precision", "auto"))
    factor = float(recipe.get("mechanism_rate_factor") or 1.0)
    more = "" if factor == 1 else f" {TEXT('rate-factor', factor=factor)}"
    values: dict[str, Any] = {
        **{name: recipe.get(name) for name in ("dense_epochs", "epochs", "batch_size")},
        "model": f"{recipe['model']}, " if recipe.get("model") else "",
        "rate": f"{recipe.get('learning_rate'):g}{more}",
        "precision": "" if precision == "auto" else f", {_precision(precision)}",
    }
    layers = {name: recipe[name] for name in ("layer_epochs", "layer_rate") if name in recipe}
    return TEXT("training", **values) + (TEXT("layers-taught", **layers) if layers else "")
