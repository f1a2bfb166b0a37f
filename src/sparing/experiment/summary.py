"""Means of measurements over seeds, with intervals, and paired differences."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from sparing.core.record import Label, Obtained, Record
from sparing.measure.statistics import mean_difference

K = TypeVar("K", bound=Hashable)
Key = tuple[str, str, Obtained, tuple[tuple[str, Label], ...]]
Seeds = dict[Label, Record]


@dataclass(frozen=True)
class Summary:
    """Which records are averaged over seeds, and what their means are compared with.

    Records with an arm and a seed are averaged where all labels but the seed and ``free`` agree.
    The mean has the labels named in ``mean_labels``, by default all of them. ``left_out`` are names
    that are not averaged. Each mean is compared, seed by seed, with the same quantity of each of
    ``baselines``, but those named in ``uncompared``. ``step`` gives the smallest step of a
    measurement: seeds that agree to this step still have a spread.
    """

    baselines: Sequence[str] = ()
    free: Collection[str] = ()
    mean_labels: Collection[str] | None = None
    left_out: Collection[str] = ()
    uncompared: Collection[str] = ()
    step: Callable[[Iterable[Record]], float] = field(default=lambda records: 0.0)

    def grouped(self, records: Iterable[Record]) -> dict[Key, Seeds]:
        """Records by name, unit, how they were obtained and their labels, then by seed."""
        groups: dict[Key, Seeds] = {}
        for record in records:
            labels = record.labels
            if record.value is None or record.name in self.left_out or "arm" not in labels:
                continue
            if labels.get("seed") is not None:
                key = (record.name, record.unit, record.obtained, self._labels(labels))
                groups.setdefault(key, {})[labels["seed"]] = record
        return groups

    def _labels(self, labels: Mapping[str, Label]) -> tuple[tuple[str, Label], ...]:
        free = {"seed", *self.free}
        names: Collection[str] = labels if self.mean_labels is None else self.mean_labels
        return tuple(
            (name, labels[name]) for name in sorted(labels) if name in names and name not in free
        )


def summarise(records: Iterable[Record], summary: Summary) -> list[Record]:
    """``mean_NAME`` of every quantity, and its ``NAME_difference`` from each baseline.

    Means carry the label ``over`` = "seeds", differences ``less`` = the baseline besides; intervals
    are Student's, at 95 %.
    """
    groups, means = summary.grouped(records), []
    for (name, unit, obtained, key), by_seed in groups.items():
        arm_values, step = values(by_seed), summary.step(by_seed.values())
        labels = {**dict(key), "over": "seeds"}
        made = partial(mean_record, step=step, obtained=obtained)
        means.append(made(f"mean_{name}", list(arm_values.values()), unit, labels))
        for baseline in () if name in summary.uncompared else summary.baselines:
            other = groups.get((name, unit, obtained, with_arm(key, baseline)), {})
            arm_side, baseline_side = paired(arm_values, values(other))
            if arm_side and baseline != labels["arm"]:
                gaps = [one - two for one, two in zip(arm_side, baseline_side, strict=True)]
                less = {**labels, "less": baseline}
                means.append(made(f"{name}_difference", gaps, unit, less))
    return means


def values(by_seed: Mapping[K, Record]) -> dict[K, float]:
    """The values of records by seed."""
    return {seed: float(record.value or 0.0) for seed, record in by_seed.items()}


def paired(
    candidate: Mapping[K, float], baseline: Mapping[K, float]
) -> tuple[list[float], list[float]]:
    """Both sides where both have a value, in the order of the candidate."""
    shared = [seed for seed in candidate if seed in baseline]
    return [candidate[seed] for seed in shared], [baseline[seed] for seed in shared]


def with_arm(key: tuple[tuple[str, Label], ...], arm: str) -> tuple[tuple[str, Label], ...]:
    """The same labels of another arm."""
    return tuple((name, arm if name == "arm" else value) for name, value in key)


def mean_record(
    name: str,
    numbers: Sequence[float],
    unit: str,
    labels: dict[str, Label],
    *,
    step: float = 0.0,
    obtained: Obtained = "measured",
) -> Record:
    """The mean of numbers with Student's interval, never finer than the ``step`` of one."""
    spread = mean_difference(numbers, [0.0] * len(numbers), resolution=step)
    return Record(name, spread.value, unit, obtained, labels, spread.interval, spread.count)
