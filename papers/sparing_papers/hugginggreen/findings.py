"""Results of a run's groups: whether selecting patches saves energy and beats chance."""

from __future__ import annotations

from collections.abc import Sequence

from sparing.core.record import Record
from sparing.measure.pairs import FEWEST_FOR_A_CLAIM
from sparing_papers.hugginggreen.groups import Group
from sparing_papers.hugginggreen.names import DENSE, PATCHES

LEVEL = 0.05


def declared_groups(groups: Sequence[Group], arm: str) -> list[Group]:
    """Each task's group of patches at its first depth, where the declared variant was trained."""
    first: dict[str, Group] = {}
    for group in groups:
        if group.question == PATCHES and arm in group.arms:
            first.setdefault(group.task, group)
    return list(first.values())


def gain_left(group: Group) -> Record | None:
    """The gain of the dense variant's last quarter, if it was not at its plateau."""
    gain = group.records.find("last_quarter_gain")
    return None if gain is None or gain.labels.get("at_plateau") else gain


def saving(group: Group, arm: str) -> Record | None:
    """The variant's energy to the target, if it is clearly less and the accuracy is not worse.

    None if the dense model would still improve, as it is then no baseline for either.
    """
    ratio = group.records.find("target_energy_ratio", arm=arm)
    difference = group.records.find("accuracy_difference", arm=arm, to=DENSE)
    if gain_left(group) or ratio is None or ratio.interval is None or difference is None:
        return None
    enough = (ratio.count or 0) >= FEWEST_FOR_A_CLAIM
    clear = _is_small(difference.labels.get("non_inferior_p")) and ratio.interval[1] < 1
    return ratio if enough and clear else None


def beats_random(group: Group, arm: str) -> bool:
    """Whether the variant is clearly more accurate than random patches of its share."""
    difference = group.records.find("baseline_difference", arm=arm, baseline_kind="random")
    return difference is not None and side(difference) > 0


def choice_sides(groups: Sequence[Group]) -> list[int]:
    """1, -1 or 0 for each selection: better than random patches, worse, or undecided."""
    patches = (group for group in groups if group.question == PATCHES)
    return [
        side(r)
        for group in patches
        for r in group.records.all("baseline_difference", baseline_kind="random")
    ]


def side(difference: Record) -> int:
    """1 or -1 if the difference is significant, else 0."""
    if not _is_small(p_of(difference)) or not difference.value:
        return 0
    return 1 if difference.value > 0 else -1


def p_of(difference: Record | None) -> object:
    """The sign flip's p-value, with Holm's correction if the record has one."""
    labels = {} if difference is None else difference.labels
    return labels.get("holm_p", labels.get("sign_flip_p"))


def _is_small(p: object) -> bool:
    return isinstance(p, int | float) and p < LEVEL
