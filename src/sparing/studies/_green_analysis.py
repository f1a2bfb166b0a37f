"""What the trainings of the HuggingGreen study come to: pairs of arms with one seed each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sparing.core.record import Label, Obtained, Record
from sparing.measure.pairs import PairedComparison, compare_pairs, energy_to_target
from sparing.measure.statistics import holm, mean_difference, non_inferiority
from sparing.measure.windows import SUFFIX
from sparing.studies._green_arms import (
    AGAIN,
    DENSE,
    larger_name,
    network_name,
    steps_name,
)
from sparing.studies._green_options import BOXES
from sparing.train.boxes import METRIC as MAP

# Energy that is measured is not summed with energy that is estimated: the best kind there is.
BEST: tuple[Obtained, ...] = ("measured", "integrated", "estimated")
LAST_QUARTER = 0.75


@dataclass(frozen=True)
class Group:
    """The records of one question, task and depth."""

    question: str
    task: str
    depth: int
    records: tuple[Record, ...]
    tested: int

    @cached_property
    def labels(self) -> dict[str, Label]:
        """What every record of it has."""
        return {"question": self.question, "task": self.task, "depth": self.depth}

    @property
    def score(self) -> str:
        """What arms are compared by."""
        return MAP if self.question == BOXES else "accuracy"

    @cached_property
    def obtained(self) -> Obtained:
        """The best way in which energy was obtained in every training."""
        kinds = {record.obtained for record in self.records if record.name == "train_energy_j"}
        return next((kind for kind in BEST if kind in kinds), "estimated")

    @cached_property
    def arms(self) -> list[str]:
        """Every arm that has a training, in the order of their names' first records."""
        return list(dict.fromkeys(str(r.labels["arm"]) for r in self.records))

    def values(self, name: str, arm: str) -> dict[int, float]:
        """A quantity of an arm by seed; energies are sums of the components of the best kind."""
        found: dict[int, float] = {}
        for record in self.records:
            if record.name != name or record.labels["arm"] != arm or record.value is None:
                continue
            if record.name.endswith("energy_j") and record.obtained != self.obtained:
                continue
            seed = int(record.labels["seed"] or 0)
            found[seed] = found.get(seed, 0.0) + float(record.value)
        return found

    def curves(self, arm: str) -> dict[int, list[dict[str, Any]]]:
        """Validations of an arm by seed: epoch, score, and energy by component."""
        return {
            int(record.labels["seed"] or 0): json.loads(str(record.labels["told"]))
            for record in self.records
            if record.name == "curve" and record.labels["arm"] == arm
        }

    def components(self) -> set[str]:
        """The components that were obtained in the best way."""
        return {
            str(record.labels["component"])
            for record in self.records
            if record.name == "train_energy_j" and record.obtained == self.obtained
        }


def groups(records: Sequence[Record], tested: Mapping[str, int]) -> list[Group]:
    """The records by question, task and depth; ``tested`` counts each task's test images."""
    found: dict[tuple[str, str, int], list[Record]] = {}
    for record in records:
        labels = record.labels
        if record.cell == "analysis" or not {"question", "task", "depth", "arm"} <= labels.keys():
            continue
        key = (str(labels["question"]), str(labels["task"]), int(labels["depth"] or 0))
        found.setdefault(key, []).append(record)
    return [Group(*key, tuple(of), tested.get(key[1], 1)) for key, of in found.items()]


def pairs(
    first: Mapping[int, float], second: Mapping[int, float]
) -> tuple[list[float], list[float]]:
    """The values of the seeds that both have."""
    seeds = sorted(first.keys() & second.keys())
    return [first[seed] for seed in seeds], [second[seed] for seed in seeds]


def ratio_record(
    group: Group, name: str, of: str, arm: str, to: str
) -> tuple[Record, PairedComparison] | None:
    """A paired ratio of two arms with its tests; None without a common seed."""
    ours, baseline = pairs(group.values(of, arm), group.values(of, to))
    if not ours or min(*ours, *baseline) <= 0:
        return None
    found = compare_pairs(ours, baseline)
    labels: dict[str, Label] = {
        **group.labels,
        "arm": arm,
        "to": to,
        "sign_flip_p": found.sign_flip_p,
        "normal_p": found.normal_p,
        "follow_up": found.follow_up,
        "follow_up_p": found.follow_up_p,
        "effect": found.effect,
        "rank_effect": found.rank_effect,
        "typical": found.typical_ratio,
    }
    obtained = group.obtained if "energy" in of else "measured"
    ratio = found.ratio
    return Record(name, ratio.value, "ratio", obtained, labels, ratio.interval, ratio.count), found


def difference_record(group: Group, name: str, arm: str, to: str, margin: float) -> Record | None:
    """The paired difference of the group's score, and the p-value of being worse by the margin."""
    ours, baseline = pairs(group.values(group.score, arm), group.values(group.score, to))
    if not ours:
        return None
    found = mean_difference(ours, baseline, resolution=1 / group.tested)
    labels: dict[str, Label] = {**group.labels, "arm": arm, "to": to}
    if len(ours) > 1:
        labels["non_inferior_p"] = non_inferiority(ours, baseline, margin)
    return Record(name, found.value, "score", "measured", labels, found.interval, found.count)


def analyse(records: Sequence[Record], tested: Mapping[str, int], margin: float) -> list[Record]:
    """Everything that follows from the trainings, group by group."""
    found: list[Record] = []
    for group in groups(records, tested):
        if DENSE in group.arms:
            found += _against_dense(group, margin)
            found += _targets(group, margin)
            found += _plateau(group)
    return found


def _against_dense(group: Group, margin: float) -> list[Record]:
    found, compared = [], list[tuple[Record, PairedComparison]]()
    for arm in group.arms:
        if arm == DENSE:
            continue
        energy = ratio_record(group, "energy_ratio", "train_energy_j", arm, DENSE)
        if energy is not None:
            compared.append(energy)
        for name, of in (
            ("time_ratio", "train_time_s"),
            ("flops_ratio", "train_flops"),
            ("inference_ratio", "inference_energy_j"),
        ):
            ratio = ratio_record(group, name, of, arm, DENSE)
            found += [ratio[0]] if ratio else []
        difference = difference_record(group, f"{group.score}_difference", arm, DENSE, margin)
        found += [difference] if difference else []
        found += _against_rivals(group, arm, margin)
    held = [each for each in compared if each[0].labels["arm"] != AGAIN]
    for (record, _), p in zip(held, holm([c.sign_flip_p for _, c in held]), strict=True):
        record.labels["holm_p"] = p
    return [*[record for record, _ in compared], *found]


def rivals_of(group: Group, arm: str) -> dict[str, str]:
    """What an arm that selects is held against, by kind: random patches, and equal cost."""
    parts = arm.partition(",")[0].split(" ")
    if len(parts) != 3 or parts[1] not in ("top", "sampled"):
        return {}
    score, way, text = parts
    keep: float | int = int(text) if text.isdigit() else float(text)
    named = {
        "random": f"random {way} {text}",
        "fewer steps": steps_name(keep),
        "larger patches": larger_name(keep),
        "convolutions": network_name(keep),
    }
    if score == "random":
        del named["random"]
    return {kind: name for kind, name in named.items() if name in group.arms}


def _against_rivals(group: Group, arm: str, margin: float) -> list[Record]:
    found = []
    for kind, rival in rivals_of(group, arm).items():
        difference = difference_record(group, "rival_difference", arm, rival, margin)
        ratio = ratio_record(group, "rival_energy_ratio", "train_energy_j", arm, rival)
        for record in (difference, ratio[0] if ratio else None):
            if record is not None:
                record.labels["rival"] = kind
                found.append(record)
    return found


def joules(group: Group, entry: Mapping[str, Any]) -> float:
    """What a training had taken at a validation, of the components that count."""
    counted = group.components()
    spent: dict[str, float] = entry["energy"]
    return sum((v for name, v in spent.items() if name.removesuffix(SUFFIX) in counted), 0.0)


def _targets(group: Group, margin: float) -> list[Record]:
    """The energy until a validation first comes within the margin of the dense arm's best."""
    dense = group.curves(DENSE)
    aims = {seed: max(entry["score"] for entry in curve) - margin for seed, curve in dense.items()}
    reached: dict[str, dict[int, float | None]] = {}
    for arm in group.arms:
        reached[arm] = {
            seed: energy_to_target(
                [entry["score"] for entry in curve],
                [joules(group, entry) for entry in curve],
                aims[seed],
            )
            for seed, curve in group.curves(arm).items()
            if seed in aims
        }
    better = _better_dense(reached)
    if better is None:
        return []
    return [_target(group, arm, better, reached) for arm in group.arms if arm != better]


def _better_dense(reached: Mapping[str, Mapping[int, float | None]]) -> str | None:
    """Of the dense arms that reach the target with every seed, the one that takes least.

    Dense itself always does. All of the better arm's luck counts for it.
    """
    best: tuple[float, str] | None = None
    for arm, by_seed in reached.items():
        known = arm in (DENSE,) or arm.startswith(("fewer steps", "larger patches"))
        values = [value for value in by_seed.values() if value]
        if not known or not values or len(values) < len(by_seed):
            continue
        mean = sum(values) / len(values)
        if best is None or mean < best[0]:
            best = (mean, arm)
    return best[1] if best else None


def _target(
    group: Group, arm: str, better: str, reached: Mapping[str, Mapping[int, float | None]]
) -> Record:
    """An arm's energy to the target over that of the better dense arm; None where it is missed."""
    own, rival = reached[arm], reached[better]
    values = {seed: value for seed, value in own.items() if value}
    labels: dict[str, Label] = {
        **group.labels,
        "arm": arm,
        "to": better,
        "reached": len(values),
        "of": len(own),
    }
    theirs = {seed: value for seed, value in rival.items() if value}
    ours, baseline = pairs(values, theirs)
    if not ours or len(values) < len(own):
        return Record("target_energy_ratio", None, "ratio", group.obtained, labels)
    ratio = compare_pairs(ours, baseline).ratio
    return Record(
        "target_energy_ratio",
        ratio.value,
        "ratio",
        group.obtained,
        labels,
        ratio.interval,
        ratio.count,
    )


def _plateau(group: Group) -> list[Record]:
    """What the dense arm's last quarter still gains on validation, over seeds."""
    gains = []
    for curve in group.curves(DENSE).values():
        before = curve[: max(1, round(LAST_QUARTER * len(curve)))]
        gains.append(max(e["score"] for e in curve) - max(e["score"] for e in before))
    if not gains:
        return []
    found = mean_difference(gains, [0.0] * len(gains))
    labels: dict[str, Label] = {**group.labels, "arm": DENSE}
    return [
        Record(
            "last_quarter_gain",
            found.value,
            "score",
            "measured",
            labels,
            found.interval,
            found.count,
        )
    ]
