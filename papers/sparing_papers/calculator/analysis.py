"""What the trainings of the calculator study come to: scores, means over seeds, claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import mean
from typing import Any

from sparing.core.record import Label, Record
from sparing.measure.statistics import mean_difference
from sparing.tasks.shared.calculation_scores import bounded_score, legacy_score_of
from sparing_papers.calculator.arms import BASELINE

BOUNDED_SETS = ("in", "out", "long", "out+long")
PER_SEED = ("exact", "mean_error", "relative_error", "worst_error", "legacy_score", "bounded_score")
Seeds = dict[Any, float]


@dataclass
class Values:
    """The records of a run, to be asked for one quantity of one arm by seed."""

    records: Sequence[Record]
    _known: dict[tuple[Any, ...], list[Record]] = field(default_factory=dict)

    def by_seed(self, name: str, arm: str, **labels: Label) -> Seeds:
        """Values by seed of the records that have these labels and no others."""
        wanted = {"arm": arm, **labels}
        return {
            r.labels.get("seed"): float(r.value)
            for r in self._named.get((name, arm), [])
            if r.value is not None and {k: v for k, v in r.labels.items() if k in _KEYS} == wanted
        }

    @cached_property
    def _named(self) -> dict[tuple[str, Any], list[Record]]:
        found: dict[tuple[str, Any], list[Record]] = {}
        for each in self.records:
            found.setdefault((each.name, each.labels.get("arm")), []).append(each)
        return found

    @cached_property
    def arms(self) -> list[str]:
        """Every arm that was judged, in the order of the run."""
        return list(dict.fromkeys(str(r.labels["arm"]) for r in self.records if r.name == "exact"))


_KEYS = ("arm", "set", "operands", "largest", "part", "place", "size", "of", "component")


def analyse(records: Sequence[Record]) -> list[Record]:
    """Both scores of each training, against the baseline's mean errors, and means over seeds."""
    values = Values(records)
    scored = [*_legacy(values), *_bounded(values)]
    whole = Values([*records, *scored])
    return [*scored, *_means(whole)]


def _legacy(values: Values) -> Iterable[Record]:
    """The published score; the spread is what other seeds of the baseline would have given."""
    parts = ("in", "out", "long", "pooled")
    errors = {part: values.by_seed("legacy_error", BASELINE, part=part) for part in parts}
    if not all(errors.values()):
        return
    seeds = sorted(errors["in"], key=str)
    baselines = [
        {
            **{part: errors[part][seed] for part in ("in", "out", "long")},
            "relative": errors["pooled"][seed],
        }
        for seed in seeds
    ]
    middle = {name: mean(each[name] for each in baselines) for name in baselines[0]}
    for arm in values.arms:
        own = {
            part: values.by_seed("legacy_error", arm, part=part)
            for part in ("in", "out", "long", "relative")
        }
        for seed in own["in"]:
            one = {part: own[part][seed] for part in own}
            if min(one.values()) < 1e-9:
                continue  # an exact model has no finite score
            score = legacy_score_of(one, middle)
            spread = [legacy_score_of(one, each) for each in baselines]
            labels: dict[str, Label] = {"arm": arm, "seed": seed}
            labels |= {"lowest": min(spread), "highest": max(spread)}
            yield Record("legacy_score", score, "", "measured", labels)


def _bounded(values: Values) -> Iterable[Record]:
    baseline = {
        name: mean(found.values())
        for name in BOUNDED_SETS
        if (found := values.by_seed("mean_error", BASELINE, set=name))
    }
    if len(baseline) < len(BOUNDED_SETS):
        return
    for arm in values.arms:
        errors = {name: values.by_seed("mean_error", arm, set=name) for name in BOUNDED_SETS}
        for seed in errors["in"]:
            if all(seed in each for each in errors.values()):
                score = bounded_score({n: each[seed] for n, each in errors.items()}, baseline)
                labels: dict[str, Label] = {"arm": arm, "seed": seed}
                yield Record("bounded_score", score, "", "measured", labels)


def _means(values: Values) -> Iterable[Record]:
    """The mean over seeds of every quantity of an arm, with Student's interval."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for each in values.records:
        if each.value is None or "arm" not in each.labels:
            continue
        kept = tuple(sorted((k, v) for k, v in each.labels.items() if k in _KEYS))
        groups.setdefault((each.name, each.unit, each.obtained, kept), []).append(each)
    for (name, unit, obtained, kept), found in groups.items():
        numbers = [float(each.value or 0.0) for each in found]
        spread = mean_difference(numbers, [0.0] * len(numbers))
        labels = {**dict(kept), "over": "seeds"}
        yield Record(
            f"mean_{name}", spread.value, unit, obtained, labels, spread.interval, len(numbers)
        )


def paired(
    ours: Mapping[Any, float], theirs: Mapping[Any, float], *, confidence: float = 0.95
) -> Record | None:
    """The mean difference over the seeds that both have, with Student's interval."""
    seeds = [seed for seed in ours if seed in theirs]
    if not seeds:
        return None
    a, b = [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]
    found = mean_difference(a, b, confidence=confidence)
    return Record("paired", found.value, "", "measured", {}, found.interval, len(seeds))
