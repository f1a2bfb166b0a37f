"""INT8: what was tried, and what it is worth beside the dense model's own INT8 form."""

from __future__ import annotations

from sparing.core.record import Record
from sparing.report.content import Block
from sparing.report.slim_results import SlimResults, number_of
from sparing.report.slim_wording import scale_of, score_name, speed_interval, speed_text


def int8_blocks(results: SlimResults) -> list[Block]:
    """One block where INT8 was tried or left out for a reason, else none."""
    trials = results.all.all("int8_trial")
    skipped = results.all.empty("int8_skipped")
    if not trials:
        reason = skipped.labels.get("reason") if skipped else None
        words = f"INT8 was left out: {reason}."
        return [Block("int8", "In INT8", words)] if reason else []
    explain = (
        "Each way to quantise was timed against the same form in float32 and scored on the inputs "
        "that plans were chosen on; the best of each form stands in the table above."
    )
    heads = (
        "Form",
        "Settings",
        "Speed",
        "Interval",
        score_name(results).capitalize(),
        "In float32",
    )
    rows = tuple(_row(results, trial) for trial in trials)
    return [Block("int8", "In INT8", f"{_against_dense(results)}{explain}", heads, rows)]


def _row(results: SlimResults, trial: Record) -> tuple[str, ...]:
    scale, value = scale_of(results), trial.value or 0.0
    return (
        str(trial.labels.get("arm")).removesuffix(" int8"),
        str(trial.labels.get("settings")),
        speed_text(value, trial.interval),
        speed_interval(trial.interval),
        scale.text(number_of(trial, "score")),
        scale.text(number_of(trial, "float32_score")),
    )


def _against_dense(results: SlimResults) -> str:
    found = results.all.find("int8_speed_up")
    if found is None or found.value is None:
        return ""
    text = speed_text(found.value, found.interval)
    interval = speed_interval(found.interval)
    if not text.endswith(("faster", "slower")):
        return f"Slim and dense INT8 forms: {text} in time ({interval}). "
    return f"In INT8 the slim form is {text} ({interval}) than the dense model's own INT8 form. "
