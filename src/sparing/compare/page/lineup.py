"""The order of variants in tables, and the variants that figures show in colour."""

from __future__ import annotations

from dataclasses import dataclass

from sparing.compare.page.lookups import accuracy, far_times, others, times
from sparing.core.traits import FAMILIES
from sparing.report.run import Run

MANY_ARMS = 12
"""From more variants on, tables go by family and figures show in colour only what nothing beats."""


@dataclass(frozen=True)
class Lineup:
    """The variants of a page.

    ``ordered`` is their order in a table, the baseline first, ``families`` their families where
    they are many. ``beaten`` names variants that others beat, with these. ``grey`` are those
    without a colour. ``positions`` give colour and marker in every figure; the baseline is 0.
    """

    ordered: list[str]
    families: dict[str, str]
    beaten: dict[str, list[str]]
    grey: frozenset[str]
    positions: dict[str, int]

    @property
    def crowded(self) -> bool:
        """Whether there are more variants than colours that readers can distinguish."""
        return bool(self.families)


def lineup(run: Run) -> Lineup:
    """The variants as they are; where they are many, by family and without colours for some.

    A variant is beaten where another is at least as accurate on average and as fast, and better in
    one of both. That must hold for the latency at the task's size and for the attention core's at
    the longest length measured. The baseline never counts as beaten. In a table the fastest of each
    family comes first, those without a time last.
    """
    candidates, baseline = others(run), run.config["baseline"]
    first = [baseline] if baseline in run.table.arms else []
    if len(run.table.arms) <= MANY_ARMS:
        positions = {baseline: 0, **{arm: n for n, arm in enumerate(candidates, start=1)}}
        return Lineup([*first, *candidates], {}, {}, frozenset(), positions)
    near, far = times(run), far_times(run)
    families = _families(run)
    beaten = _beaten_everywhere(run, candidates, [near, far])
    rest = [arm for arm in candidates if arm not in beaten]
    rest.sort(key=lambda arm: (far or near).get(arm, float("inf")))
    grey = frozenset((*beaten, *rest[MANY_ARMS - 1 :]))
    coloured = sorted(candidates, key=lambda arm: arm in grey)

    def order(arm: str) -> tuple[int, str, float]:
        family = families[arm]
        known = FAMILIES.index(family) if family in FAMILIES else len(FAMILIES)
        return known, family, near.get(arm, float("inf"))

    positions = {baseline: 0, **{arm: n for n, arm in enumerate(coloured, start=1)}}
    return Lineup([*first, *sorted(candidates, key=order)], families, beaten, grey, positions)


def _families(run: Run) -> dict[str, str]:
    """The family of each variant, empty where the run names none."""
    named = run.config.get("families")
    if not isinstance(named, dict):
        return dict.fromkeys(run.table.arms, "")
    return {arm: str(named.get(arm) or "other") for arm in run.table.arms}


def _beaten_everywhere(
    run: Run, candidates: list[str], timed: list[dict[str, float]]
) -> dict[str, list[str]]:
    """The variants that others beat by each of these times, with those others."""
    scores = {arm: accuracy(run, arm) for arm in run.table.arms}
    measured = [
        _beaten({arm: (score[0], of[arm]) for arm, score in scores.items() if score and arm in of})
        for of in timed
        if of
    ]
    lost = [arm for arm in candidates if measured and all(arm in by for by in measured)]
    return {arm: list(dict.fromkeys(by[arm] for by in measured)) for arm in lost}


def _beaten(results: dict[str, tuple[float, float]]) -> dict[str, str]:
    """Each variant that another beats by its (accuracy, time), with the fastest that does."""
    beaten = {}
    for arm, result in results.items():
        stronger = [other for other in results if _beats(results[other], result)]
        if stronger:
            beaten[arm] = min(stronger, key=lambda other: results[other][1])
    return beaten


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether (accuracy, time) is nowhere worse than the other and somewhere better."""
    return one[0] >= other[0] and one[1] <= other[1] and one != other
