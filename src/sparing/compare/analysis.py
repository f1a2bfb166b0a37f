"""What follows from a comparison's measurements: differences, ratios, verdicts, crossovers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparing.compare.claims import (
    accuracy_claims,
    accuracy_verdict,
    latency_claims,
    speed_verdict,
)
from sparing.core.record import Label, Obtained, Record, least_sure
from sparing.experiment.claims import decide
from sparing.experiment.records import RecordTable
from sparing.experiment.summary import paired
from sparing.measure.load import disturbances
from sparing.measure.statistics import (
    Ratio,
    geometric_mean_ratio,
    holm,
    mean_difference,
    sign_flip_p_value,
)

RATIOS = {
    "train_time_s": "train_time_ratio",
    "train_energy_j": "train_energy_ratio",
    "energy_j": "energy_ratio",
}
Setting = tuple[str, tuple[tuple[str, Label], ...]]
EXACT_RATIOS = {"peak_bytes": "peak_ratio", "flops": "flops_ratio"}


def values(records: Sequence[Record], name: str, **labels: Label) -> dict[Label, float]:
    """The values of records that carry the labels, by seed (or by round where there is one)."""
    return {
        record.labels.get("seed", record.labels.get("round")): record.value
        for record in records
        if record.name == name
        and record.value is not None
        and labels.items() <= record.labels.items()
    }


def analyse(
    records: Sequence[Record], arms: Sequence[str], baseline: str, margin: float, test_examples: int
) -> list[Record]:
    """Everything that is computed from the measurements rather than measured."""
    others = [arm for arm in arms if arm != baseline]
    found = _accuracy_differences(records, others, baseline, margin, test_examples)
    found = _with_verdicts(found, margin) + _latency_verdicts(records, others)
    for arm in others:
        found += _ratios(records, arm, baseline)
        found += _crossovers(records, arm)
    return found


def _accuracy_differences(
    records: Sequence[Record], others: list[str], baseline: str, margin: float, examples: int
) -> list[Record]:
    dense = values(records, "accuracy", arm=baseline, split="test")
    pairs = {
        arm: paired(values(records, "accuracy", arm=arm, split="test"), dense) for arm in others
    }
    pairs = {arm: pair for arm, pair in pairs.items() if pair[0]}
    obtained = least_sure(record for record in records if record.name == "accuracy")
    adjusted = holm([sign_flip_p_value(*pair) for pair in pairs.values()]) if pairs else []
    found = []
    for (arm, pair), p_value in zip(pairs.items(), adjusted, strict=True):
        gap = mean_difference(*pair, resolution=1 / examples)
        labels: dict[str, Label] = {
            "arm": arm,
            "baseline": baseline,
            "margin": margin,
            "p_value": p_value,
        }
        found.append(
            Record(
                "accuracy_difference",
                gap.value,
                "share",
                obtained,
                labels,
                gap.interval,
                gap.count,
            )
        )
    return found


def _with_verdicts(differences: list[Record], margin: float) -> list[Record]:
    """Each difference with the verdict of its claim, as the goals decide it."""
    arms = [str(record.labels["arm"]) for record in differences]
    results = decide(accuracy_claims(arms, margin), RecordTable(differences))
    return [
        replace(record, labels={**record.labels, "verdict": accuracy_verdict(result)})
        for record, result in zip(differences, results, strict=True)
    ]


def _latency_verdicts(records: Sequence[Record], others: list[str]) -> list[Record]:
    """What the whole model's latency on one input says of each arm, as the goals decide it.

    The interval is the one that decided: wider than 95 % where several arms are open.
    """
    table, found = RecordTable(records), []
    results = decide(latency_claims(others, 0), table)
    for arm, result in zip(others, results, strict=True):
        labels: dict[str, Label] = {"arm": arm, "verdict": speed_verdict(result)}
        if result.value is not None:
            obtained = least_sure(table.all("latency_ratio", arm=arm, scope="model", batch=1))
            found.append(
                Record("latency_verdict", result.value, "ratio", obtained, labels, result.interval)
            )
    return found


def _ratios(records: Sequence[Record], arm: str, baseline: str) -> list[Record]:
    found, busy = [], disturbances(records)
    for (name, sizes), obtained in _settings(records, arm, baseline).items():
        own = dict(sizes)
        disturbed = name in RATIOS and _disturbance(records, busy, name, (arm, baseline), own)
        noted: dict[str, Label] = {"disturbance": disturbed} if disturbed else {}
        ours = values(records, name, arm=arm, **own)
        theirs = values(records, name, arm=baseline, **own)
        pair = paired(ours, theirs)
        if not pair[0] or min(*pair[0], *pair[1]) <= 0:
            continue
        ratio = geometric_mean_ratio(*pair)
        if name in EXACT_RATIOS:
            ratio = Ratio(ratio.value, None, ratio.count)
        ratio_name = RATIOS.get(name) or EXACT_RATIOS[name]
        found.append(
            Record(
                ratio_name,
                ratio.value,
                "ratio",
                obtained,
                {"arm": arm, **own, **noted},
                ratio.interval,
                ratio.count,
            )
        )
    return found


def _disturbance(
    records: Sequence[Record],
    busy: dict[str, str],
    name: str,
    arms: tuple[str, str],
    labels: dict[str, Label],
) -> str:
    """Why the ratio of two arms' times or energies decides nothing; empty where it may."""
    cells = [
        record.cell
        for record in records
        if record.name == name
        and record.labels.get("arm") in arms
        and labels.items() <= record.labels.items()
    ]
    return next((busy[cell] for cell in cells if cell in busy), "")


def _settings(records: Sequence[Record], arm: str, baseline: str) -> dict[Setting, Obtained]:
    """The quantities with a ratio, each at every size and component it was taken at."""
    found: dict[Setting, Obtained] = {}
    mixed: set[Setting] = set()
    for record in records:
        known = record.name in RATIOS or record.name in EXACT_RATIOS
        if known and record.labels.get("arm") in (arm, baseline):
            sizes = {
                key: value
                for key, value in record.labels.items()
                if key in ("scope", "tokens", "batch", "component")
            }
            setting = (record.name, tuple(sizes.items()))
            if found.setdefault(setting, record.obtained) != record.obtained:
                mixed.add(setting)  # counted here and estimated there: no ratio
    return {setting: how for setting, how in found.items() if setting not in mixed}


def _crossovers(records: Sequence[Record], arm: str) -> list[Record]:
    """From which length on the arm's attention core is faster, at that and every longer length."""
    curve = sorted(
        (int(record.labels["tokens"] or 0), record)
        for record in records
        if record.name == "latency_ratio"
        and record.labels.get("scope") == "attention"
        and record.labels.get("arm") == arm
    )
    if not curve:
        return []
    busy = disturbances(records)
    if any(record.cell in busy for _, record in curve):
        return []  # a curve that was disturbed at one length says nothing of where it crosses
    crossover: int | None = None
    for tokens, record in reversed(curve):
        if record.interval is None or record.interval[1] >= 1:
            break
        crossover = tokens
    labels: dict[str, Label] = {"arm": arm, "longest_tokens": curve[-1][0]}
    value = None if crossover is None else float(crossover)
    obtained = least_sure(record for _, record in curve)
    return [Record("crossover_tokens", value, "tokens", obtained, labels)]
