"""What trainings come to: means over seeds, paired differences, and which tasks tell anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparing.core.record import Label, Record
from sparing.measure.statistics import mean_difference
from sparing.studies._long_arms import DENSE, UNIFORM
from sparing.studies._long_work import ABOVE_CHANCE

Key = tuple[tuple[str, Label], ...]
PAIRED = ("seed",)
NOT_AVERAGED = ("validation_score", "answers")


@dataclass(frozen=True)
class Decides:
    """Whether a task tells mechanisms apart, and if not, why."""

    task: str
    decided: bool
    why: str


def by_seed(records: Iterable[Record], name: str, **labels: Label) -> dict[int, float]:
    """Values by seed of the records that have these labels, others but the seed being free."""
    wanted = labels.items()
    return {
        int(r.labels["seed"] or 0): float(r.value)
        for r in records
        if r.name == name and r.value is not None and wanted <= r.labels.items()
    }


def analyse(records: Sequence[Record], chances: Mapping[str, float]) -> list[Record]:
    """Means with Student's intervals, differences from dense attention and from ``uniform``.

    Every record with an arm and a seed counts; the rest of its labels say what it is a mean of.
    ``chances`` are the scores of guessing by task.
    """
    groups = _groups(records)
    found = []
    for (name, unit, key), values in groups.items():
        spread = mean_difference(list(values.values()), [0.0] * len(values))
        labels = {**dict(key), "over": "seeds"}
        found.append(
            Record(
                f"mean_{name}", spread.value, unit, "measured", labels, spread.interval, len(values)
            )
        )
        for other in (DENSE, UNIFORM):
            rival = groups.get((name, unit, _with_arm(key, other)), {})
            gap = None if other == dict(key).get("arm") else _paired(values, rival)
            if gap is not None:
                own = {**labels, "less": other}
                found.append(Record(f"{name}_difference", gap[0], unit, "measured", own, *gap[1:]))
    return [*found, *_deciding(groups, chances)]


def _groups(records: Sequence[Record]) -> dict[tuple[str, str, Key], dict[int, float]]:
    found: dict[tuple[str, str, Key], dict[int, float]] = {}
    for each in records:
        labels = each.labels
        if each.value is None or "arm" not in labels or labels.get("seed") is None:
            continue
        if each.name in NOT_AVERAGED:
            continue
        key = tuple(sorted((k, v) for k, v in labels.items() if k not in (*PAIRED, "method")))
        seeds = found.setdefault((each.name, each.unit, key), {})
        seeds[int(labels["seed"] or 0)] = float(each.value)
    return found


def _with_arm(key: Key, arm: str) -> Key:
    return tuple((k, arm if k == "arm" else v) for k, v in key)


def _paired(
    ours: Mapping[int, float], theirs: Mapping[int, float]
) -> tuple[float, tuple[float, float] | None, int] | None:
    seeds = [seed for seed in ours if seed in theirs]
    if not seeds:
        return None
    gap = mean_difference([ours[n] for n in seeds], [theirs[n] for n in seeds])
    return gap.value, gap.interval, gap.count


def _deciding(
    groups: Mapping[tuple[str, str, Key], Mapping[int, float]], chances: Mapping[str, float]
) -> Iterable[Record]:
    """For each task: is dense attention 5 points above chance, and better than ``uniform``?"""
    for (name, _, key), dense in groups.items():
        labels = dict(key)
        if name != "score" or labels.get("arm") != DENSE or len(labels) != 3:
            continue
        uniform = groups.get((name, "share", _with_arm(key, UNIFORM)), {})
        chance = chances.get(str(labels["task"]), 0.0)
        told = decides(str(labels["task"]), dense, uniform, chance)
        own = {"question": labels["question"], "task": labels["task"], "why": told.why}
        yield Record("decides", float(told.decided), "", "measured", own, count=len(dense))


def decides(
    task: str, dense: Mapping[int, float], uniform: Mapping[int, float], chance: float
) -> Decides:
    """A task tells mechanisms apart where the dense arm's whole intervals lie above both bounds."""
    seeds = [seed for seed in dense if seed in uniform]
    if len(seeds) < 2:
        return Decides(task, False, "fewer than two seeds of both")
    ours, theirs = [dense[n] for n in seeds], [uniform[n] for n in seeds]
    above = mean_difference(ours, [chance] * len(seeds)).interval
    over = mean_difference(ours, theirs).interval
    if above is None or above[0] < ABOVE_CHANCE:
        return Decides(task, False, "softmax is not 5 points above chance in every likely seed")
    if over is None or over[0] <= 0:
        return Decides(task, False, "softmax is not clearly better than uniform")
    return Decides(task, True, "softmax is above chance and better than uniform")
