"""Look-ups, means and comparisons of a run's records for the page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Literal

from sparing.core.errors import DataError
from sparing.core.reading import parse_json
from sparing.core.record import Label, Record
from sparing.experiment.records import RecordTable
from sparing_papers.adaattention.names import ADAPTIVE, CONTROLS, FULL, INT8, MEAN, SEEDS, SHAPE

Config = Mapping[str, Any]
Side = Literal["above", "below", ""]
QUOTING = ("source", "reason", "row", "column", "printed")
"""Labels of a printed figure that cite the paper; the others select the measured record."""


def tasks_of(config: Config) -> list[str]:
    """The tasks of a run."""
    return [str(name) for name in config.get("tasks") or []]


def ablations_of(config: Config) -> list[str]:
    """The tasks that run every variant: means are over these."""
    return [str(name) for name in config.get("ablations") or tasks_of(config)]


def recipes_of(config: Config) -> dict[str, Config]:
    """How the models of each task were trained."""
    recipes = config.get("recipes")
    entries = recipes.items() if isinstance(recipes, dict) else ()
    return {str(task): recipe for task, recipe in entries if isinstance(recipe, dict)}


def seeds_of(config: Config) -> int:
    """How many seeds were trained."""
    seeds = config.get("seeds")
    return len(seeds) if isinstance(seeds, list) else 0


def is_image(config: Config, records: RecordTable, task: str) -> bool:
    """Whether a task's inputs are images.

    The configuration has the kind of the first task; other tasks show it by model or examples.
    """
    if task in tasks_of(config)[:1]:
        return bool(config["task"].get("kind") == "image")
    identity = config.get("identity")
    known = identity.get("image_model") if isinstance(identity, dict) else None
    model = str(recipes_of(config).get(task, {}).get("model") or "")
    if model and model in ("vit", str(known or "").rstrip("/").rpartition("/")[2]):
        return True
    return any("grey" in record.labels for record in records.all("kept_tokens", task=task))


def kind_of_inputs(config: Config, records: RecordTable) -> str:
    """The kind of inputs of the tasks that run every variant: texts, images, or inputs for both."""
    kinds = {is_image(config, records, task) for task in ablations_of(config)}
    return "inputs" if len(kinds) > 1 else "images" if True in kinds else "texts"


def arms_of(records: RecordTable) -> list[str]:
    """The variants with a mean score, in the study's order."""
    scored = [str(record.labels["arm"]) for record in records.all("score", task=MEAN)]
    return list(dict.fromkeys([*(arm for arm in records.arms if arm in scored), *scored]))


def arms_of_any_task(records: RecordTable) -> list[str]:
    """The variants that were trained on any task, in the study's order; INT8 forms last."""
    scored = {record.labels["arm"] for record in records.all("seed_score")} - {"dense"}
    return sorted((arm for arm in records.arms if arm in scored), key=_is_int8)


def _is_int8(arm: str) -> bool:
    return arm.endswith(f" {INT8}")


def speed(records: RecordTable, arm: str) -> Record | None:
    """The mean speed over the tasks' inputs, against full."""
    return records.find("speed_up", arm=arm, task=MEAN, inputs="all")


def speed_on(records: RecordTable, arm: str, task: str) -> Record | None:
    """The speed on one task's inputs, against full, from the variant's group."""
    return _first(own_group_first(records.all("speed_up", arm=arm, task=task, inputs="all")))


def speed_at(records: RecordTable, form: str, tokens: int) -> Record | None:
    """The speed of a form at BERT-base's shape, against full."""
    return records.find("speed_up", arm=form, shape=SHAPE, tokens=tokens)


def lengths_of(records: RecordTable) -> list[int]:
    """The lengths of the speeds at BERT-base's shape."""
    lengths = {record.labels.get("tokens") for record in records.all("latency_ms", shape=SHAPE)}
    return sorted(tokens for tokens in lengths if isinstance(tokens, int))


def difference(records: RecordTable, arm: str, task: str = MEAN) -> Record | None:
    """The score less full's, over the tasks that run every variant unless one is named."""
    return records.find("score_difference", arm=arm, task=task)


def latency(records: RecordTable, tasks: Sequence[str], arm: str, of: str) -> Record | None:
    """Milliseconds on the first of these tasks that has them, from the variant's group."""
    by_task = (records.all("latency_ms", arm=arm, task=task, of=of) for task in tasks)
    return _first([record for timed in by_task for record in own_group_first(timed)])


def own_group_first(records: Sequence[Record]) -> list[Record]:
    """Sorted: means over seeds first, timings beside the INT8 forms last."""
    order = {SEEDS: 0, INT8: 2}
    return sorted(records, key=lambda record: order.get(str(record.labels.get("group")), 1))


def _first(records: Sequence[Record]) -> Record | None:
    return records[0] if records else None


def speeds_by_length(
    records: RecordTable, tasks: Sequence[str], classes: Sequence[str]
) -> dict[tuple[str, Label], dict[Label, Record]]:
    """The speed on inputs of each class of length, by task and variant."""
    speeds: dict[tuple[str, Label], dict[Label, Record]] = {}
    for task in tasks:
        for record in own_group_first(records.all("speed_up", task=task)):
            length = record.labels.get("inputs")
            if length in classes:
                speeds.setdefault((task, record.labels["arm"]), {}).setdefault(length, record)
    return speeds


def flops_share(records: RecordTable, tasks: Sequence[str], arm: str) -> float | None:
    """The executed FLOPs over full's, the mean over tasks."""
    names = (arm, FULL)
    counted = [[records.value("flops", arm=name, task=task) for name in names] for task in tasks]
    ratios = [ours / full for ours, full in counted if ours is not None and full]
    return fmean(ratios) if ratios else None


def training_ratio(records: RecordTable, tasks: Sequence[str], arm: str) -> Record | None:
    """The training time over full's, of one of these tasks if there is one.

    It is that of the whole training; in runs without it, that of one step. A run never mixes the
    two, since they do not compare.
    """
    name = "train_time_ratio" if records.all("train_time_ratio") else "train_step_ratio"
    ratios = records.all(name, arm=arm)
    return _first([*(r for r in ratios if r.labels.get("task") in tasks), *ratios])


def ours_beside(records: RecordTable, tasks: Sequence[str], printed: Record) -> Record | None:
    """The newest measured record for a printed figure; of speeds that of the variant's group."""
    labels = {name: value for name, value in printed.labels.items() if name not in QUOTING}
    ours = records.all(printed.name, **labels)
    if "task" not in labels:
        ours = [record for record in ours if record.labels.get("task") in tasks] or ours
    if printed.name == "speed_up":
        ours = [record for record in ours if record.labels.get("group") != INT8] or ours
    return ours[-1] if ours else None


def side_of(record: Record, level: float) -> Side:
    """The side of a level that the whole interval is on; empty if it contains the level."""
    if record.interval is None or record.interval[0] <= level <= record.interval[1]:
        return ""
    return "above" if record.interval[0] > level else "below"


def control_differences(records: RecordTable) -> dict[str, Record]:
    """The adaptive variant's paired difference to each control, where that was computed."""
    paired = (
        (arm, records.find("control_difference", arm=ADAPTIVE, to=arm, task=MEAN))
        for arm in CONTROLS
    )
    return {arm: record for arm, record in paired if record is not None and record.interval}


def side_of_controls(records: RecordTable) -> Side:
    """The side of any control that the adaptive variant is on, with disjoint intervals."""
    ours = difference(records, ADAPTIVE)
    for control in (difference(records, arm) for arm in CONTROLS):
        if ours is None or control is None or not ours.interval or not control.interval:
            continue
        if ours.interval[0] > control.interval[1]:
            return "above"
        if ours.interval[1] < control.interval[0]:
            return "below"
    return ""


def width_differences(records: RecordTable) -> dict[float, dict[str, list[Record]]]:
    """The untrained differences to full, by the share of each head that is kept and by basis."""
    by_share: dict[float, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records.all("width_difference"):
        by_share[number(record, "kept_share")][str(record.labels.get("basis"))].append(record)
    return by_share


def mean_alone(records: Sequence[Record]) -> Record | None:
    """A single record as it is; of several their mean, without an interval."""
    if len(records) < 2:
        return _first(records)
    mean = fmean(float(record.value or 0.0) for record in records)
    return Record(records[0].name, mean, records[0].unit, "measured", {}, count=len(records))


def heads_scores(records: RecordTable, task: str) -> dict[float, float]:
    """The score without training, by the share of heads left."""
    curve = records.all("heads_score", task=task)
    return {number(record, "heads_left"): float(record.value or 0.0) for record in curve}


def stage_scores(records: RecordTable, task: str) -> dict[float, tuple[float, float]]:
    """The first seed's scores on removal and after training, by the share of heads left."""
    record = records.empty("arm", arm="prune-gradual", task=task)
    try:
        report = parse_json(str(record.labels["told"])) if record else {"stages": {"stages": []}}
        return {
            round(stage["left"] / int(report["heads"]), 4): (
                float(stage["before"]),
                float(stage["after"]),
            )
            for stage in report["stages"]["stages"]
        }
    except (KeyError, ValueError, TypeError):
        return {}


EPOCH_NAMES = ("epoch_score", "epoch_latency", "epoch_head_score")


def epoch_means(
    records: RecordTable, task: str, arm: str
) -> dict[float, tuple[list[float | None], int]]:
    """The means over seeds of ``EPOCH_NAMES`` after each epoch, and the number of seeds."""
    values: dict[float, dict[str, list[float]]] = defaultdict(dict)
    for name in EPOCH_NAMES:
        for record in records.all(name, task=task, arm=arm):
            of_epoch = values[number(record, "epoch")].setdefault(name, [])
            of_epoch.append(float(record.value or 0.0))
    return {
        epoch: (
            [fmean(by_name[name]) if name in by_name else None for name in EPOCH_NAMES],
            max(map(len, by_name.values())),
        )
        for epoch, by_name in sorted(values.items())
    }


def number(record: Record, label: str) -> float:
    """A label that is a number, or 0."""
    value = record.labels.get(label)
    return float(value) if isinstance(value, int | float) else 0.0


def kept_parts(record: Record) -> tuple[list[tuple[str | float, bool]], int]:
    """The tokens or grey levels of an example, each with whether it is kept, and its columns.

    A text has 0 columns. Raises ``DataError`` if the record has no example.
    """
    labels = record.labels
    try:
        flags = map(bool, parse_json(str(labels["kept"])))
        image = "grey" in labels
        shown = parse_json(str(labels["grey" if image else "tokens"]))
        columns = int(parse_json(str(labels["columns"]))) if image else 0
        parts = [float(part) if image else str(part) for part in shown]
        return list(zip(parts, flags, strict=True)), columns
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"record {record.name!r} carries no example: {error}") from error
