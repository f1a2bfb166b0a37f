"""What adapting is worth beside a fixed model, and scores on the whole test split."""

from __future__ import annotations

from sparing.core.record import Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.slim.page.results import DENSE, SlimResults, plan_of
from sparing.slim.page.wording import (
    NOT_DECIDED,
    Scale,
    engine_name,
    per_cent,
    range_of,
    record_speed,
    scale_of,
    score_name,
    speed_interval,
)


def control_blocks(results: SlimResults) -> list[Block]:
    """The fixed control where it was trained, and the whole split where it was answered."""
    return [*_static(results), *_whole(results), *_memory(results)]


def _static(results: SlimResults) -> list[Block]:
    """Ours against the fixed model, at every batch size."""
    fixed = results.all.find("static_plan")
    pairs = [
        (batch, ratio, gap)
        for batch in results.batches
        if (ratio := results.all.find("static_speed_up", batch=batch))
        and (gap := results.all.find("static_difference", batch=batch))
    ]
    if fixed is None or not pairs:
        return []
    plan = plan_of(fixed)
    explain = (
        f"The control has {wording.count_of(plan.layers, 'layer')} of {range_of(plan.heads)} heads "
        f"and {range_of(plan.neurons)} neurons for every input: the best fixed plan of the survey "
        f"that takes about the chosen one's arithmetic, no more ({per_cent(fixed.value or 0.0)} of "
        "dense), cut from the same dense model and distilled alone for as many steps. Positive is "
        "in favour of adapting; differences have their 90 % interval."
    )
    if results.served is not None and results.served.labels.get("attempt") == "alone":
        explain += " It was the better one where plans were chosen, so that it is what is served."
    scale = scale_of(results)
    heads = ("Batch", "Slim beside the control", "Interval", score_name(results).capitalize())
    verdict = _verdict(pairs[0])
    if results.all.disturbance(pairs[0][1]):
        verdict = NOT_DECIDED
    rows = tuple(
        (
            str(batch),
            record_speed(results, ratio),
            speed_interval(ratio.interval),
            _gap(scale, gap),
        )
        for batch, ratio, gap in pairs
    )
    return [Block("static", f"What adapting is worth: {verdict}", explain, heads, rows)]


def _verdict(pair: tuple[int, Record, Record]) -> str:
    """Whether adapting beats the fixed model at the batch size that decides."""
    _, ratio, gap = pair
    faster, better = _sign(ratio, 1.0), _sign(gap, 0.0)
    if faster >= 0 and better >= 0 and faster + better > 0:
        return "it beats the fixed model"
    if faster <= 0 and better <= 0 and faster + better < 0:
        return "the fixed model beats it"
    return "no clear difference" if faster == better == 0 else "one is faster, the other better"


def _sign(record: Record, even: float) -> int:
    """Which side of ``even`` the whole interval lies on; 0 where it holds it."""
    low, high = record.interval or (even, even)
    return 1 if low > even else -1 if high < even else 0


def _whole(results: SlimResults) -> list[Block]:
    """Every form's score on all test inputs."""
    scores = results.all.all("whole_score")
    if not scores:
        return []
    own = scale_of(results).metric
    rows = []
    for score in scores:
        arm, metric = str(score.labels.get("arm")), str(score.labels.get("metric"))
        scale = Scale(metric)
        gap = results.all.find("whole_difference", arm=arm, metric=metric)
        name = arm.replace("int8", "INT8") + ("" if metric == own else f", {metric}")
        told = _gap(scale, gap) if gap else ("the rival" if arm == DENSE else "not measured")
        rows.append((name, scale.text(score.value or 0.0), told))
    explain = (
        f"All {wording.count_of(scores[0].count, 'test input')}, answered one at a time by each "
        "form; the logits lie in answers.safetensors. Differences are to the dense rival, with "
        "their 90 % interval over inputs, whose lower end is the one-sided 95 % bound."
    )
    heads = ("Form", "Score", "Difference")
    return [Block("whole", "On the whole test split", explain, heads, tuple(rows))]


def _memory(results: SlimResults) -> list[Block]:
    """What each form adds to its weights at its peak, beside the dense model in the same engine."""
    peaks = results.all.all("peak_bytes")
    if not peaks:
        return []
    rows = []
    for peak in peaks:
        labels = {name: peak.labels.get(name) for name in ("arm", "engine")}
        weights = results.all.value("weight_bytes", **labels)
        rival = results.all.value("peak_bytes", arm=DENSE, engine=labels.get("engine"))
        own = peak.value or 0.0
        change = f"{wording.signed(100 * (own / rival - 1), 0)} %" if rival else ""
        rows.append(
            (
                f"{labels['arm']}, {engine_name(str(labels['engine']))}",
                wording.size_of_bytes(own),
                "the rival" if labels["arm"] == DENSE else change,
                wording.size_of_bytes(weights) if weights else "not measured",
            )
        )
    explain = (
        f"What one call adds at its peak on the longest batch of "
        f"{wording.count_of(int(str(peaks[0].labels.get('batch'))), 'test input')}, each form in a "
        "process of its own; the weights come on top. The change is to the dense model in the same "
        "engine."
    )
    heads = ("Form", "Peak", "Change", "Weights")
    return [Block("memory", "Memory", explain, heads, tuple(rows))]


def _gap(scale: Scale, gap: Record) -> str:
    value, interval = gap.value or 0.0, gap.interval
    text = scale.difference(value, interval)
    return f"{text} ({scale.interval(value, interval)})" if interval else text
