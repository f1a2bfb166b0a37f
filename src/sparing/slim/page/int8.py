"""INT8: the candidates, and the speed over the dense model's INT8 form."""

from __future__ import annotations

import re

from sparing.core.record import Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.run import Run
from sparing.report.table import Column, table
from sparing.slim.page import prose
from sparing.slim.page.lookups import OURS, disagreement, final_plan, number_of
from sparing.slim.page.wording import (
    NOT_DECIDED,
    engine_name,
    record_speed,
    scale_of,
    score_name,
    speed_columns,
    speed_interval,
    upper_share,
)

KEPT = re.compile(r"(.*; float32: )(.+)")
IN_LAYER = re.compile(r"(?:.*\.)?layers?\.(\d+)\.(.+)")
SAY_NOTHING = ("dense", "self")


def int8_blocks(run: Run) -> list[Block]:
    """One block if INT8 was tried, else none."""
    trials, scale, plan = run.table.all("int8_trial"), scale_of(run), final_plan(run)
    if not trials:
        return []

    def form(trial: Record) -> str:
        trained = ", trained for INT8" if trial.labels.get("trained") is True else ""
        return _arm(trial) + trained

    def settings(trial: Record) -> str:
        stops = plan.stops if plan is not None and _arm(trial) == OURS else ()
        taken = " (taken)" if trial.labels.get("chosen") is True else ""
        return settings_text(str(trial.labels.get("settings")), stops) + taken

    columns = [
        Column("Form", form),
        Column("Settings", settings),
        *speed_columns(run),
        Column(score_name(run).capitalize(), lambda t: scale.text(number_of(t, "score"))),
        Column("In float32", lambda trial: scale.text(number_of(trial, "float32_score"))),
    ]
    words = [_against_dense(run), _promise(run), *_choice_words(trials)]
    explain = " ".join([*filter(None, words), prose("int8-same-choice")])
    return [table("int8", "In INT8", explain, trials, columns)]


def _arm(trial: Record) -> str:
    """The model that was quantised."""
    return str(trial.labels.get("arm")).removesuffix(" int8")


def _choice_words(trials: list[Record]) -> list[str]:
    """How a form was chosen, and where the score decided between equally fast forms.

    Runs that timed each form separately had another rule.
    """
    if not all("alike" in trial.labels for trial in trials):
        return [prose("int8-fastest")]
    counts = {_arm(trial): number_of(trial, "alike") for trial in trials}
    alike = [f"{count:.0f} forms of {arm}" for arm, count in counts.items() if count > 1]
    undecided = prose("int8-alike", forms=wording.listing(alike)) if alike else ""
    return [prose("int8-best"), undecided]


def settings_text(settings: str, stops: tuple[int, ...] = ()) -> str:
    """Settings with short names of layers; ``stops`` are the layers after which segments end.

    "scales per channel; float32: 1.layers.0.fall" is, where the first segment ends after layer 3,
    "scales per channel; float32: layer 4 fall".
    """
    match = KEPT.fullmatch(settings)
    if match is None:
        return settings
    return match[1] + ", ".join(_layer_text(name, stops) for name in match[2].split(", "))


def _layer_text(name: str, stops: tuple[int, ...]) -> str:
    number, _, rest = name.partition(".")
    if not number.isdecimal() or int(number) > len(stops):
        return name
    segment = int(number)
    layer = IN_LAYER.fullmatch(rest)
    if layer is None:
        parts = rest.split(".")
        if parts[0] == "exit":
            return f"exit {segment + 1} {parts[-1]}"
        return next((part for part in reversed(parts) if part not in SAY_NOTHING), rest)
    before = stops[segment - 1] if segment else 0
    words = [part for part in layer[2].split(".") if part not in SAY_NOTHING]
    return f"layer {before + int(layer[1]) + 1} {' '.join(words)}"


def _against_dense(run: Run) -> str:
    record = run.table.find("int8_speed_up")
    if record is None or record.value is None:
        return ""
    if run.table.disturbance(record):
        return prose("int8-busy", busy=NOT_DECIDED)
    speed, engine = record_speed(run, record), record.labels.get("against")
    suffix = f" ({engine_name(engine)})" if engine else ""
    key = "int8-speed" if speed.endswith(("faster", "slower")) else "int8-no-speed"
    return prose(key, speed=speed, interval=speed_interval(record.interval), form=suffix)


def _promise(run: Run) -> str:
    bound, float32 = run.table.find("int8_disagreement_bound"), disagreement(run)
    if bound is None or bound.value is None:
        return ""
    keeps_rate = float32 is not None and float32.labels.get("kept") is True
    return prose(
        "int8-promise",
        most=upper_share(bound.value),
        sure=wording.share(1 - number_of(bound, "delta")),
        seen=bound.labels.get("disagreements"),
        count=bound.count,
        chosen=prose("int8-seen") if keeps_rate else "",
    )
