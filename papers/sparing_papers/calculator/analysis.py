"""What the trainings of the calculator study come to: scores, and means over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

from sparing.core.record import Label, Record, least_sure
from sparing.experiment.evaluation import wilson
from sparing.experiment.records import RecordTable
from sparing.experiment.summary import Summary, summarise
from sparing.tasks.shared.calculation_scores import bounded_score, legacy_score_of
from sparing_papers.calculator.names import BASELINE

SETS = ("in", "out", "long", "out+long")
PARTS = ("operands", "largest")
"""Labels of scores of a part of a set."""
KEPT = ("arm", "set", *PARTS, "part", "place", "size", "of", "component")
"""Labels of a mean over seeds; others are of one training."""
SEARCHED = ("search_loss", "search_time_s", "search_epochs", "search_rate")
"""Records of one training each, with a seed that is not among the study's."""
Seeds = dict[Any, float]


def by_seed(table: RecordTable, name: str, arm: str, **labels: Label) -> Seeds:
    """A quantity of a variant by seed; of a part of a set only where labels name the part."""
    parts = set(PARTS) - labels.keys()
    records = table.all(name, arm=arm, **labels)
    whole = [record for record in records if parts.isdisjoint(record.labels)]
    return {record.labels.get("seed"): float(record.value or 0.0) for record in whole}


def mean_of(table: RecordTable, name: str, arm: str, **labels: Label) -> Record | None:
    """The mean over seeds of a quantity of a variant."""
    return table.exact(f"mean_{name}", arm=arm, over="seeds", **labels)


def line_of(
    table: RecordTable, name: str, arm: str, along: str, **labels: Label
) -> list[tuple[int, Record]]:
    """Means over seeds along one label, such as the number of operands."""
    records = table.all(f"mean_{name}", arm=arm, **labels)
    line = [(at, r) for r in records if isinstance(at := r.labels.get(along), int)]
    return sorted(line, key=lambda point: point[0])


def energy_of(table: RecordTable, arm: str) -> Record | None:
    """Mean joules of a training: what was sensed, else what was estimated."""
    records = table.all("mean_train_energy_j", arm=arm)
    sensed = [record for record in records if record.obtained != "estimated"] or records
    if not sensed:
        return None
    joules = sum(float(r.value or 0.0) for r in sensed)
    return replace(sensed[0], value=joules, interval=None, obtained=least_sure(sensed))


def legacy_span(table: RecordTable, arm: str) -> Record | None:
    """The published score, from the least to the largest that one seed and one baseline give."""
    score, records = mean_of(table, "legacy_score", arm), table.all("legacy_score", arm=arm)
    if score is None or not records:
        return None
    low = min(float(record.labels["lowest"] or 0.0) for record in records)
    high = max(float(record.labels["highest"] or 0.0) for record in records)
    return replace(score, interval=(low, high))


def is_exact(table: RecordTable, arm: str) -> bool:
    """Whether a variant errs nowhere on any of the corrected sets."""
    errors = [mean_of(table, "mean_error", arm, set=name) for name in SETS]
    return all(error is not None and (error.value or 0.0) < 1e-9 for error in errors)


def right_share(right: int, count: int) -> Record:
    """The share of right replies with Wilson's interval: of other sums for this one model."""
    interval = wilson(right, count)
    return Record("right_share", right / count, "share", "measured", {}, interval, count)


def analyse(records: Sequence[Record]) -> list[Record]:
    """Both scores of each training, against the baseline's mean errors, and means over seeds."""
    table = RecordTable(records)
    scored = [*_legacy(table), *_bounded(table)]
    return [*scored, *_means(RecordTable([*records, *scored]))]


def _by_value(
    table: RecordTable, name: str, arm: str, label: str, values: Sequence[str]
) -> dict[Any, dict[str, float]]:
    """A quantity by seed and by the value of a label, of the seeds that have it for all values."""
    parts = {value: by_seed(table, name, arm, **{label: value}) for value in values}
    seeds = [seed for seed in parts[values[0]] if all(seed in part for part in parts.values())]
    return {seed: {value: part[seed] for value, part in parts.items()} for seed in seeds}


def _legacy(table: RecordTable) -> Iterable[Record]:
    """The published score; the spread is what other seeds of the baseline would have given."""
    common = ("in", "out", "long")
    pooled = _by_value(table, "legacy_error", BASELINE, "part", (*common, "pooled"))
    if not pooled:
        return
    baselines = [{**errors, "relative": errors["pooled"]} for errors in pooled.values()]
    middle = {part: mean(errors[part] for errors in baselines) for part in baselines[0]}
    for arm in map(str, table.values_of("exact", "arm")):
        by_part = _by_value(table, "legacy_error", arm, "part", (*common, "relative"))
        obtained = least_sure(table.all("legacy_error", arm=arm))
        for seed, errors in by_part.items():
            if min(errors.values()) < 1e-9:
                continue  # an exact model has no finite score
            score = legacy_score_of(errors, middle)
            spread = [legacy_score_of(errors, baseline) for baseline in baselines]
            labels: dict[str, Label] = {"arm": arm, "seed": seed}
            labels |= {"lowest": min(spread), "highest": max(spread)}
            yield Record("legacy_score", score, "", obtained, labels)


def _bounded(table: RecordTable) -> Iterable[Record]:
    """The bounded score, relative to the mean errors of the baseline's seeds."""
    baselines = _by_value(table, "mean_error", BASELINE, "set", SETS).values()
    if not baselines:
        return
    middle = {name: mean(errors[name] for errors in baselines) for name in SETS}
    for arm in map(str, table.values_of("exact", "arm")):
        obtained = least_sure(table.all("mean_error", arm=arm))
        for seed, errors in _by_value(table, "mean_error", arm, "set", SETS).items():
            labels: dict[str, Label] = {"arm": arm, "seed": seed}
            yield Record("bounded_score", bounded_score(errors, middle), "", obtained, labels)


def _means(table: RecordTable) -> list[Record]:
    """The mean over seeds of every quantity of a variant; fixed baselines count as one."""
    seeded = [
        replace(r, labels={**r.labels, "seed": r.labels.get("seed") or 0}) for r in table.records
    ]
    return summarise(seeded, Summary(mean_labels=KEPT, left_out=SEARCHED))
