"""The analysis of the HuggingGreen study: variants compared in pairs of equal seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from sparing.core.record import Label, Record
from sparing.measure.pairs import compare_pairs, energy_to_target
from sparing.measure.statistics import (
    holm,
    mean_difference,
    non_inferiority,
    sign_flip_p_value,
)
from sparing.train.boxes import METRIC as MAP
from sparing_papers.hugginggreen.groups import Entry, Group, groups
from sparing_papers.hugginggreen.names import (
    AGAIN,
    BOXES,
    DENSE,
    GAUSSIAN_HALF,
    LONGER,
    SCRATCH,
    SOFTMAX_HALF,
    STAGED,
    STAGES,
    larger_name,
    network_name,
    steps_name,
)

LAST_QUARTER, PLATEAU = 0.75, 0.005
DIFFERENCE = "baseline_difference"
RATIOS = {
    "energy_ratio": "train_energy_j",
    "time_ratio": "train_time_s",
    "flops_ratio": "train_flops",
    "inference_ratio": "inference_energy_j",
}
Cost = Callable[[Entry], float | None]
Reached = dict[str, dict[int, float | None]]


def score_of(group: Group) -> str:
    """The score that variants are compared by."""
    return MAP if group.question == BOXES else "accuracy"


def pairs(
    first: Mapping[int, float], second: Mapping[int, float]
) -> tuple[list[float], list[float]]:
    """The values of the seeds that both variants have."""
    seeds = sorted(first.keys() & second.keys())
    return [first[seed] for seed in seeds], [second[seed] for seed in seeds]


def ratio_record(group: Group, name: str, of: str, arm: str, to: str) -> Record | None:
    """A paired ratio of two variants with its tests; None without a common seed."""
    ours, baseline = pairs(group.values(of, arm), group.values(of, to))
    if not ours or min(*ours, *baseline) <= 0:
        return None
    comparison = compare_pairs(ours, baseline)
    labels: dict[str, Label] = {
        **group.labels,
        "arm": arm,
        "to": to,
        "sign_flip_p": comparison.sign_flip_p,
        "normal_p": comparison.normal_p,
        "follow_up": comparison.follow_up,
        "follow_up_p": comparison.follow_up_p,
        "effect": comparison.effect,
        "rank_effect": comparison.rank_effect,
        "typical": comparison.typical_ratio,
    }
    obtained, ratio = group.obtained_of(of, arm, to), comparison.ratio
    return Record(name, ratio.value, "ratio", obtained, labels, ratio.interval, ratio.count)


def difference_record(group: Group, name: str, arm: str, to: str, margin: float) -> Record | None:
    """The paired difference of the group's score, and the p-value of being worse by the margin."""
    score = score_of(group)
    ours, baseline = pairs(group.values(score, arm), group.values(score, to))
    if not ours:
        return None
    difference = mean_difference(ours, baseline, resolution=1 / group.tested)
    labels: dict[str, Label] = {**group.labels, "arm": arm, "to": to}
    labels["sign_flip_p"] = sign_flip_p_value(ours, baseline)
    if len(ours) > 1:
        labels["non_inferior_p"] = non_inferiority(ours, baseline, margin)
    obtained = group.obtained_of(score, arm, to)
    ends, count = difference.interval, difference.count
    return Record(name, difference.value, "score", obtained, labels, ends, count)


def analyse(records: Sequence[Record], tested: Mapping[str, int], margin: float) -> list[Record]:
    """All comparisons of the trainings, group by group."""
    derived: list[Record] = []
    for group in groups(records, tested):
        if group.question == STAGES:
            derived += _stages(group, margin)
        elif DENSE in group.arms:
            derived += _against_dense(group, margin)
            derived += _targets(group, margin)
            derived += _plateau(group)
    return derived


def _against_dense(group: Group, margin: float) -> list[Record]:
    """Every variant beside dense and its baselines; Holm's correction over the group."""
    derived: list[Record] = []
    for arm in group.arms:
        if arm != DENSE:
            ratios = [ratio_record(group, name, of, arm, DENSE) for name, of in RATIOS.items()]
            difference = difference_record(
                group, f"{score_of(group)}_difference", arm, DENSE, margin
            )
            derived += [record for record in (*ratios, difference) if record]
        derived += _against_baselines(group, arm, margin)
    _correct(r for r in derived if r.name == "energy_ratio" and r.labels["arm"] != AGAIN)
    _correct(r for r in derived if r.name == DIFFERENCE and r.labels["baseline_kind"] == "random")
    return derived


def _correct(records: Iterable[Record]) -> None:
    """Write Holm's p beside the p of the sign flip."""
    held = list(records)
    corrected = holm([float(record.labels["sign_flip_p"] or 0.0) for record in held])
    for record, p in zip(held, corrected, strict=True):
        record.labels["holm_p"] = p


def baselines_of(group: Group, arm: str) -> dict[str, str]:
    """The baselines of a variant, by kind: random patches, and dense or convolutions at equal cost.

    Variants with a schedule have none, as they cost more than the variants that always select.
    Gaussian keys with half the heads are compared with softmax with as many.
    """
    if arm == GAUSSIAN_HALF:
        return {"half the heads": SOFTMAX_HALF} if SOFTMAX_HALF in group.arms else {}
    parts = arm.split(" ")
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


def _against_baselines(group: Group, arm: str, margin: float) -> list[Record]:
    derived = []
    for kind, baseline in baselines_of(group, arm).items():
        records = (
            difference_record(group, DIFFERENCE, arm, baseline, margin),
            ratio_record(group, "baseline_energy_ratio", "train_energy_j", arm, baseline),
            ratio_record(group, "baseline_flops_ratio", "train_flops", arm, baseline),
        )
        for record in records:
            if record is not None:
                record.labels["baseline_kind"] = kind
                derived.append(record)
    return derived


def _flops(entry: Entry) -> float:
    """The FLOPs of a training until a validation; 0 if not counted."""
    return float(entry.get("flops") or 0.0)


def _targets(group: Group, margin: float) -> list[Record]:
    """The cost of training until a validation first comes within the margin of dense's best."""
    derived = []
    costs: dict[str, Cost] = {"target_energy_ratio": group.joules, "target_flops_ratio": _flops}
    for name, cost in costs.items():
        reached = _reached(group, margin, cost)
        better = _better_dense(reached)
        if better is not None:
            arms = [arm for arm in group.arms if arm != better]
            derived += [_target(group, name, arm, better, reached) for arm in arms]
    return derived


def _reached(group: Group, margin: float, cost: Cost) -> Reached:
    """The cost by variant and seed; None where the target was missed.

    Seeds with an unknown cost are left out.
    """
    dense = group.curves(DENSE)
    aims = {seed: max(entry["score"] for entry in curve) - margin for seed, curve in dense.items()}
    reached: Reached = {arm: {} for arm in group.arms}
    for arm, by_seed in reached.items():
        for seed, curve in group.curves(arm).items():
            costs = [cost(entry) for entry in curve]
            known = [spent for spent in costs if spent is not None]
            if seed in aims and len(known) == len(costs):
                scores = [entry["score"] for entry in curve]
                by_seed[seed] = energy_to_target(scores, known, aims[seed])
    return reached


def _better_dense(reached: Reached) -> str | None:
    """The dense variant with the least cost, of those that reach the target with every seed.

    Dense itself always does. The choice favours the baseline, as it uses the same seeds.
    """
    means = {
        arm: sum(cost or 0.0 for cost in by_seed.values()) / len(by_seed)
        for arm, by_seed in reached.items()
        if arm == DENSE or arm.startswith(("fewer steps", "larger patches"))
        if by_seed and all(by_seed.values())
    }
    return min(means, key=lambda arm: means[arm], default=None)


def _target(group: Group, name: str, arm: str, better: str, reached: Reached) -> Record:
    """A variant's cost of the target over the better dense arm's; None where a seed missed it."""
    ours, theirs = ({k: v for k, v in reached[one].items() if v} for one in (arm, better))
    labels: dict[str, Label] = {**group.labels, "arm": arm, "to": better}
    labels |= {"reached": len(ours), "of": len(reached[arm])}
    obtained = group.obtained if "energy" in name else "modelled"
    common = pairs(ours, theirs)
    if not common[0] or len(ours) < len(reached[arm]):
        return Record(name, None, "ratio", obtained, labels)
    compared = compare_pairs(*common)
    labels["sign_flip_p"] = compared.sign_flip_p
    ratio = compared.ratio
    return Record(name, ratio.value, "ratio", obtained, labels, ratio.interval, ratio.count)


def _plateau(group: Group) -> list[Record]:
    """The dense variant's gain on validation in its last quarter, over seeds.

    It is at its plateau if that is under half a point.
    """
    gains = []
    for curve in group.curves(DENSE).values():
        before = curve[: min(len(curve) - 1, round(LAST_QUARTER * len(curve)))]
        best, sooner = (max((e["score"] for e in part), default=0.0) for part in (curve, before))
        gains.append(best - sooner)
    if not gains:
        return []
    gain = mean_difference(gains, [0.0] * len(gains))
    labels: dict[str, Label] = {**group.labels, "arm": DENSE, "at_plateau": gain.value < PLATEAU}
    name, ends = "last_quarter_gain", gain.interval
    obtained = group.obtained_of("curve", DENSE)
    return [Record(name, gain.value, "score", obtained, labels, ends, gain.count)]


def _stages(group: Group, margin: float) -> list[Record]:
    """Staged variants against training from scratch: as short, of equal energy, of equal steps."""
    records: list[Record | None] = []
    for arm in STAGED:
        for baseline in (SCRATCH, *(longer.name for longer in LONGER if longer.of == arm)):
            records += [
                difference_record(group, "stage_difference", arm, baseline, margin),
                ratio_record(group, "stage_energy_ratio", "train_energy_j", arm, baseline),
            ]
    return [record for record in records if record]
