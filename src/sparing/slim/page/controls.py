"""Slim and the static pruned model, scores on the whole test split, and memory."""

from __future__ import annotations

from sparing.core.record import Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.run import Run
from sparing.report.table import Column, table
from sparing.slim.page import prose
from sparing.slim.page.lookups import DENSE, batches, handed_on, plan_of
from sparing.slim.page.wording import (
    NOT_DECIDED,
    Scale,
    engine_name,
    per_cent,
    range_of,
    scale_of,
    score_name,
    speed_columns,
)


def control_blocks(run: Run) -> list[Block]:
    """The static pruned model if it was trained, the whole split and memory if measured."""
    return [*_static(run), *_whole(run), *_memory(run)]


def _static(run: Run) -> list[Block]:
    """Slim against the static pruned model, at every batch size."""
    fixed = run.table.find("static_plan")
    ratios = [run.table.find("static_speed_up", batch=batch) for batch in batches(run)]
    pairs = [(ratio, gap) for ratio in ratios if ratio and (gap := _gap(run, ratio))]
    if fixed is None or not pairs:
        return []
    plan, served = plan_of(fixed), handed_on(run)
    explain = prose(
        "static",
        layers=wording.count_of(plan.layers, "layer"),
        heads=range_of(plan.heads),
        neurons=range_of(plan.neurons),
        cost=per_cent(fixed.value or 0.0),
    )
    if served is not None and served.labels.get("attempt") == "alone":
        explain += f" {prose('static-served')}"
    busy = run.table.disturbance(pairs[0][0])
    title = f"Slim and the static pruned model: {NOT_DECIDED if busy else _verdict(*pairs[0])}"
    gaps = {ratio.labels["batch"]: scale_of(run).gap(gap) for ratio, gap in pairs}
    columns = [
        Column[Record]("Batch", lambda ratio: str(ratio.labels["batch"])),
        *speed_columns(run, "Slim over the static model"),
        Column(score_name(run).capitalize(), lambda ratio: gaps[ratio.labels["batch"]]),
    ]
    return [table("static", title, explain, [ratio for ratio, _ in pairs], columns)]


def _gap(run: Run, ratio: Record) -> Record | None:
    return run.table.find("static_difference", batch=ratio.labels["batch"])


def _verdict(ratio: Record, gap: Record) -> str:
    """Whether slim beats the static pruned model at the first batch size."""
    faster, better = _sign(ratio, 1.0), _sign(gap, 0.0)
    if faster >= 0 and better >= 0 and faster + better > 0:
        return "slim is better"
    if faster <= 0 and better <= 0 and faster + better < 0:
        return "the static model is better"
    return (
        "no clear difference" if faster == better == 0 else "one is faster, the other more accurate"
    )


def _sign(record: Record, even: float) -> int:
    """The side of ``even`` that the whole interval is on; 0 where the interval holds it."""
    low, high = record.interval or (even, even)
    return 1 if low > even else -1 if high < even else 0


def _whole(run: Run) -> list[Block]:
    """Every form's score on all test inputs."""
    scores, main_metric = run.table.all("whole_score"), scale_of(run).metric
    if not scores:
        return []

    def name(score: Record) -> str:
        arm, metric = (str(score.labels.get(key)) for key in ("arm", "metric"))
        return arm.replace("int8", "INT8") + ("" if metric == main_metric else f", {metric}")

    def difference(score: Record) -> str:
        labels = {key: str(score.labels.get(key)) for key in ("arm", "metric")}
        gap = run.table.find("whole_difference", **labels)
        if gap is None:
            return "baseline" if labels["arm"] == DENSE else "not measured"
        return Scale(labels["metric"]).gap(gap)

    columns = [
        Column("Form", name),
        Column[Record]("Score", lambda s: Scale(str(s.labels.get("metric"))).text(s.value or 0.0)),
        Column("Difference", difference),
    ]
    explain = prose("whole", inputs=wording.count_of(scores[0].count, "test input"))
    return [table("whole", "On the whole test split", explain, scores, columns)]


def _memory(run: Run) -> list[Block]:
    """What each form adds at its peak, compared with the dense model in the same engine."""
    peaks = run.table.all("peak_bytes")
    if not peaks:
        return []

    def form(peak: Record) -> str:
        return f"{peak.labels.get('arm')}, {engine_name(peak.labels.get('engine'))}"

    def change(peak: Record) -> str:
        if peak.labels.get("arm") == DENSE:
            return "baseline"
        dense = run.table.value("peak_bytes", arm=DENSE, engine=peak.labels.get("engine"))
        share = (peak.value or 0.0) / dense - 1 if dense else None
        return "" if share is None else f"{wording.signed(100 * share, 0)} %"

    def weights(peak: Record) -> str:
        labels = {key: peak.labels.get(key) for key in ("arm", "engine")}
        taken = run.table.value("weight_bytes", **labels)
        return wording.size_of_bytes(taken) if taken else "not measured"

    columns = [
        Column("Form", form),
        Column("Peak", lambda peak: wording.size_of_bytes(peak.value or 0.0)),
        Column("Change", change),
        Column("Weights", weights),
    ]
    inputs = wording.count_of(int(str(peaks[0].labels.get("batch"))), "test input")
    return [table("memory", "Memory", prose("memory", inputs=inputs), peaks, columns)]
