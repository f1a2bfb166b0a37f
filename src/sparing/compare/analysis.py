"""Compute from a comparison's measurements: differences, ratios, verdicts, crossovers."""

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
from sparing.measure.statistics import (
    Ratio,
    as_record,
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
SIZES = ("scope", "tokens", "batch", "component")
EXACT_RATIOS = {"peak_bytes": "peak_ratio", "flops": "flops_ratio"}


def analyse(
    records: Sequence[Record], arms: Sequence[str], baseline: str, margin: float, test_examples: int
) -> list[Record]:
    """Everything that is computed from the measurements rather than measured."""
    others, table = [arm for arm in arms if arm != baseline], RecordTable(records)
    differences = _accuracy_differences(table, others, baseline, margin, test_examples)
    results = _with_verdicts(differences, margin) + _latency_verdicts(table, others)
    for arm in others:
        results += _ratios(table, arm, baseline)
        results += _crossovers(table, arm)
    return results


def _values(table: RecordTable, name: str, **labels: Label) -> dict[Label, float]:
    """The values of records that carry the labels, by seed (or by round where there is one)."""
    return {
        record.labels.get("seed", record.labels.get("round")): record.value
        for record in table.all(name, **labels)
        if record.value is not None
    }


def _accuracy_differences(
    table: RecordTable, others: list[str], baseline: str, margin: float, examples: int
) -> list[Record]:
    scores = {arm: _values(table, "accuracy", arm=arm, split="test") for arm in (baseline, *others)}
    pairs = {arm: paired(scores[arm], scores[baseline]) for arm in others}
    pairs = {arm: pair for arm, pair in pairs.items() if pair[0]}
    obtained = least_sure(table.all("accuracy"))
    adjusted = holm([sign_flip_p_value(*pair) for pair in pairs.values()]) if pairs else []
    differences = []
    for (arm, pair), p_value in zip(pairs.items(), adjusted, strict=True):
        gap = mean_difference(*pair, resolution=1 / examples)
        labels: dict[str, Label] = {"arm": arm, "baseline": baseline}
        labels |= {"margin": margin, "p_value": p_value}
        differences.append(as_record("accuracy_difference", gap, "share", labels, obtained))
    return differences


def _with_verdicts(differences: list[Record], margin: float) -> list[Record]:
    """Each difference with the verdict of its claim, as the goals decide it."""
    arms = [str(record.labels["arm"]) for record in differences]
    results = decide(accuracy_claims(arms, margin), RecordTable(differences))
    return [
        replace(record, labels={**record.labels, "verdict": accuracy_verdict(result)})
        for record, result in zip(differences, results, strict=True)
    ]


def _latency_verdicts(table: RecordTable, others: list[str]) -> list[Record]:
    """Each variant's verdict on the whole model's latency on one input, as the goals decide it.

    The interval is the one that decided: wider than 95 % where several variants are open.
    """
    verdicts = []
    for arm, result in zip(others, decide(latency_claims(others, 0), table), strict=True):
        labels: dict[str, Label] = {"arm": arm, "verdict": speed_verdict(result)}
        if result.value is not None:
            ratio = Ratio(result.value, result.interval, 1)
            obtained = least_sure(table.all("latency_ratio", arm=arm, scope="model", batch=1))
            verdicts.append(as_record("latency_verdict", ratio, "ratio", labels, obtained))
    return verdicts


def _ratios(table: RecordTable, arm: str, baseline: str) -> list[Record]:
    ratios = []
    for (name, sizes), obtained in _settings(table, arm, baseline).items():
        labels: dict[str, Label] = {"arm": arm, **dict(sizes)}
        baseline_labels = {**labels, "arm": baseline}
        pair = paired(_values(table, name, **labels), _values(table, name, **baseline_labels))
        if not pair[0] or min(*pair[0], *pair[1]) <= 0:
            continue
        ratio = geometric_mean_ratio(*pair)
        if name in EXACT_RATIOS:
            ratio = Ratio(ratio.value, None, ratio.count)
        elif disturbance := _disturbance(table, name, labels, baseline_labels):
            labels["disturbance"] = disturbance
        ratio_name = RATIOS.get(name) or EXACT_RATIOS[name]
        ratios.append(as_record(ratio_name, ratio, "ratio", labels, obtained))
    return ratios


def _disturbance(table: RecordTable, name: str, *sets: dict[str, Label]) -> str:
    """Why the ratio of two variants' times or energies decides nothing; empty where it may."""
    records = (record for labels in sets for record in table.all(name, **labels))
    return next(filter(None, map(table.disturbance, records)), "")


def _settings(table: RecordTable, arm: str, baseline: str) -> dict[Setting, Obtained]:
    """The quantities with a ratio, each at every size and component it was taken at."""
    settings: dict[Setting, Obtained] = {}
    mixed: set[Setting] = set()
    for record in table.records:
        known = record.name in RATIOS or record.name in EXACT_RATIOS
        if known and record.labels.get("arm") in (arm, baseline):
            sizes = {key: value for key, value in record.labels.items() if key in SIZES}
            setting = (record.name, tuple(sizes.items()))
            if settings.setdefault(setting, record.obtained) != record.obtained:
                mixed.add(setting)  # counted here and estimated there: no ratio
    return {setting: how for setting, how in settings.items() if setting not in mixed}


def _crossovers(table: RecordTable, arm: str) -> list[Record]:
    """The least length from which on the variant's attention core is always faster."""
    ratios = table.all("latency_ratio", scope="attention", arm=arm)
    if not ratios or any(map(table.disturbance, ratios)):
        return []  # a curve that was disturbed at one length shows no crossing
    points = [(int(record.labels["tokens"] or 0), record.interval) for record in ratios]
    curve = sorted(points, key=lambda point: point[0])
    crossover: float | None = None
    for tokens, interval in reversed(curve):
        if interval is None or interval[1] >= 1:
            break
        crossover = float(tokens)
    labels: dict[str, Label] = {"arm": arm, "longest_tokens": curve[-1][0]}
    obtained = least_sure(ratios)
    return [Record("crossover_tokens", crossover, "tokens", obtained, labels)]
