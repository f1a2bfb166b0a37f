"""What the page leads with: the form to use, beside the others that one could."""

from __future__ import annotations

from sparing.experiment.claims import Met
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.sections import Verdict
from sparing.report.table import Column, table
from sparing.slim.choices import Choice, choices, recommended
from sparing.slim.page.results import SlimResults
from sparing.slim.page.verdict import judge
from sparing.slim.page.wording import (
    engine_name,
    per_cent,
    score_name,
    speed_interval,
    speed_text,
    upper_share,
)

_KEEPS: dict[Met, str] = {True: "yes", False: "no", "undecided": "not shown"}
_FILES = {"slim": "model/onnx", "slim int8": "model/onnx-int8"}
_BOUNDS = {"slim": "disagreement_bound", "slim int8": "int8_disagreement_bound"}


def use_blocks(results: SlimResults) -> list[Block]:
    """One block once forms were timed: every model in its fastest engine."""
    listed = _listed(results)
    if not listed:
        return []
    columns = [
        Column("Form", _name),
        Column("Speed", _speed),
        Column(f"Share of {score_name(results)} kept", _kept),
        Column(f"Keeps {per_cent(results.floor)}", lambda choice: _KEEPS[choice.keeps]),
        Column("Answers changed, at most", lambda choice: _changed(results, choice)),
        Column("Where", _where),
    ]
    explain = (
        f"At batch {results.batches[0]}, each model in its fastest engine. Speed is over the "
        "fastest dense form in float32. A share kept has its 90 % interval, whose lower end "
        "decides; each form is decided by itself."
    )
    return [table("use", "The form to use", explain, listed, columns)]


def verdict(results: SlimResults) -> Verdict:
    """The form to use, then whether the target was reached; that alone before forms were timed."""
    target, listed = judge(results), _listed(results)
    if not listed:
        return target
    lead, because = _advice(results, listed)
    return Verdict(lead, f": {because}.", (f"{target.lead}{target.because}", *target.second))


def _listed(results: SlimResults) -> list[Choice]:
    listed = choices(results.all, results.batches[0], results.floor)
    return listed if len(listed) > 1 else []


def _advice(results: SlimResults, listed: list[Choice]) -> tuple[str, str]:
    """Which form to use, and why, from what was decided."""
    chosen = recommended(listed)
    if any(choice.disturbance for choice in listed):
        return "No form is recommended", "the machine was busy while times were taken"
    if chosen is None:
        return "No form is recommended", "the dense model was not timed"
    kept = f"{per_cent(results.floor)} of the dense {score_name(results)}"
    if chosen.arm != "dense":
        return f"Use {_name(chosen)}", f"the fastest form that is shown to keep {kept}"
    if all(choice.factor <= 1 for choice in listed):
        return f"Keep {_name(chosen)}", "no other form is faster"
    return f"Keep {_name(chosen)}", f"no faster form is shown to keep {kept}"


def _name(choice: Choice) -> str:
    return f"{choice.arm.replace('int8', 'INT8')}, {engine_name(choice.engine)}"


def _speed(choice: Choice) -> str:
    if choice.speed is None:
        return "fastest dense"
    if choice.disturbance:
        return "not decided"
    text = speed_text(choice.factor, choice.speed.interval)
    return f"{text} ({speed_interval(choice.speed.interval)})"


def _kept(choice: Choice) -> str:
    if choice.kept is None:
        return "not scored"
    if choice.kept.interval in (None, (1.0, 1.0)):
        return wording.share(choice.kept.value)
    low, high = (wording.share(end) for end in choice.kept.interval or ())
    return f"{wording.share(choice.kept.value)} ({low.removesuffix(' %')} to {high})"


def _changed(results: SlimResults, choice: Choice) -> str:
    if choice.arm == "dense":
        return "none"
    bound = results.all.value(_BOUNDS.get(choice.arm, ""))
    return "not bounded" if bound is None else upper_share(bound)


def _where(choice: Choice) -> str:
    if choice.engine != "onnxruntime":
        return "model" if choice.arm == "slim" else "your model"
    return _FILES.get(choice.arm, "your model, exported")
