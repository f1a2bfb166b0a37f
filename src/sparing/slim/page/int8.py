"""INT8: what was tried, and what it is worth beside the dense model's own INT8 form."""

from __future__ import annotations

import re

from sparing.core.record import Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.slim.page.results import OURS, SlimResults, number_of
from sparing.slim.page.wording import (
    NOT_DECIDED,
    engine_name,
    record_speed,
    scale_of,
    score_name,
    speed_interval,
    speed_text,
    upper_share,
)

_KEPT = re.compile(r"(.*; float32: )(.+)")
_IN_LAYER = re.compile(r"(?:.*\.)?layers?\.(\d+)\.(.+)")
_SAY_NOTHING = ("dense", "self")


def int8_blocks(results: SlimResults) -> list[Block]:
    """One block where INT8 was tried, else none."""
    trials = results.all.all("int8_trial")
    if not trials:
        return []
    explain = _choice_words(trials)
    heads = (
        "Form",
        "Settings",
        "Speed",
        "Interval",
        score_name(results).capitalize(),
        "In float32",
    )
    rows = tuple(_row(results, trial) for trial in trials)
    words = f"{_against_dense(results)}{_promise(results)}{explain}"
    return [Block("int8", "In INT8", words, heads, rows)]


def _choice_words(trials: list[Record]) -> str:
    """How a form was chosen; runs that timed each form by itself had another rule."""
    same = "The dense model had the same choice. The best of each form stands in the table above."
    if not all("alike" in trial.labels for trial in trials):
        return (
            "Each way to quantise was timed against the same form in float32 and scored on the "
            "inputs that plans were chosen on. Taken is the fastest that loses no more than the "
            "floor allows and one standard error; of those as fast as it, within 5 %, the one with "
            f"the best score. {same}"
        )
    return (
        "All ways to quantise were timed in turns, round by round, with the form in float32, and "
        "scored on the inputs that plans were chosen on. Of those that lose no more than the floor "
        "allows and one standard error, and that do not surely take over 5 % more time than the "
        "fastest of them, the one with the best score is taken; of equal scores the simplest form. "
        f"{_noise_words(trials)}{same}"
    )


def _noise_words(trials: list[Record]) -> str:
    """Where time did not decide between forms, for each model."""
    counts = {
        str(trial.labels.get("arm")).removesuffix(" int8"): number_of(trial, "alike")
        for trial in trials
    }
    open_ = [f"{count:.0f} forms of {arm}" for arm, count in counts.items() if count > 1]
    if not open_:
        return ""
    return f"Time does not tell {wording.listing(open_)} apart: between these the score decided. "


def settings_text(settings: str, stops: tuple[int, ...] = ()) -> str:
    """Settings with short names of layers; ``stops`` are the layers after which segments end.

    "scales per channel; float32: 1.layers.0.fall" is, where the first segment ends after layer 3,
    "scales per channel; float32: layer 4 fall".
    """
    found = _KEPT.fullmatch(settings)
    if found is None:
        return settings
    return found[1] + ", ".join(_layer_text(name, stops) for name in found[2].split(", "))


def _layer_text(name: str, stops: tuple[int, ...]) -> str:
    number, _, rest = name.partition(".")
    if not number.isdecimal() or int(number) > len(stops):
        return name
    place = int(number)
    found = _IN_LAYER.fullmatch(rest)
    if found is None:
        parts = rest.split(".")
        if parts[0] == "exit":
            return f"exit {place + 1} {parts[-1]}"
        return next((part for part in reversed(parts) if part not in _SAY_NOTHING), rest)
    before = stops[place - 1] if place else 0
    words = [part for part in found[2].split(".") if part not in _SAY_NOTHING]
    return f"layer {before + int(found[1]) + 1} {' '.join(words)}"


def _row(results: SlimResults, trial: Record) -> tuple[str, ...]:
    scale = scale_of(results)
    arm = str(trial.labels.get("arm")).removesuffix(" int8")
    plan = results.final_plan
    stops = plan.stops if plan is not None and arm == OURS else ()
    taken = " (taken)" if trial.labels.get("chosen") is True else ""
    return (
        f"{arm}, trained for INT8" if trial.labels.get("trained") is True else arm,
        settings_text(str(trial.labels.get("settings")), stops) + taken,
        record_speed(results, trial),
        speed_interval(trial.interval),
        scale.text(number_of(trial, "score")),
        scale.text(number_of(trial, "float32_score")),
    )


def _against_dense(results: SlimResults) -> str:
    found = results.all.find("int8_speed_up")
    if found is None or found.value is None:
        return ""
    if results.all.disturbance(found):
        return f"The speed of slim in INT8 beside dense in INT8 is {NOT_DECIDED}. "
    text = speed_text(found.value, found.interval)
    interval = speed_interval(found.interval)
    engine = found.labels.get("against")
    rival = f" ({engine_name(str(engine))})" if engine else ""
    if not text.endswith(("faster", "slower")):
        return f"Slim and dense INT8 forms{rival}: {text} in time ({interval}). "
    return (
        f"In INT8 the slim form is {text} ({interval}) than the dense model's own fastest INT8 "
        f"form{rival}. "
    )


def _promise(results: SlimResults) -> str:
    found = results.all.find("int8_disagreement_bound")
    if found is None or found.value is None:
        return ""
    float32 = results.disagreement
    kept = float32 is not None and float32.labels.get("kept") is True
    seen = ", which its threshold was chosen on in float32," if kept else ""
    return (
        f"One at a time, at most {upper_share(found.value)} of inputs are answered otherwise "
        f"than by the dense model in float32, with "
        f"{wording.share(1 - number_of(found, 'delta'))} confidence "
        f"({found.labels.get('disagreements')} of {found.count} held-out inputs{seen} were). "
    )
