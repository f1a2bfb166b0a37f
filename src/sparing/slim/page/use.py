"""The first table of the page: the form to use, and the others."""

from __future__ import annotations

from sparing.experiment.claims import Met
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.run import Run
from sparing.report.sections import Verdict
from sparing.report.table import Column, table
from sparing.slim.choices import Choice, choices, recommended
from sparing.slim.page import lookups, prose
from sparing.slim.page.verdict import decide
from sparing.slim.page.wording import (
    form_name,
    per_cent,
    score_name,
    share_between,
    speed_interval,
    speed_text,
    upper_share,
)

KEEPS: dict[Met, str] = {True: "yes", False: "no", "undecided": "not shown"}
FILES = {"slim": "model/onnx", "slim int8": "model/onnx-int8"}
BOUNDS = {"slim": "disagreement_bound", "slim int8": "int8_disagreement_bound"}


def use_blocks(run: Run) -> list[Block]:
    """Every model in its fastest engine, as one block; empty before forms were timed."""
    listed = _listed(run)
    if not listed:
        return []
    columns = [
        Column("Form", _name),
        Column("Speed", _speed),
        Column(f"Share of {score_name(run)} kept", _kept),
        Column(f"Keeps {per_cent(lookups.floor(run))}", lambda choice: KEEPS[choice.keeps]),
        Column("Answers changed, at most", lambda choice: _changed(run, choice)),
        Column("Where", _where),
    ]
    explain = prose("use", batch=lookups.batches(run)[0])
    return [table("use", "The form to use", explain, listed, columns)]


def verdict(run: Run) -> Verdict:
    """The form to use and whether the target was reached; before timing only the latter."""
    reached, listed = decide(run), _listed(run)
    if not listed:
        return reached
    lead, because = _advice(run, listed)
    return Verdict(lead, f": {because}.", (f"{reached.lead}{reached.because}", *reached.second))


def _listed(run: Run) -> list[Choice]:
    listed = choices(run.table, lookups.batches(run)[0], lookups.floor(run))
    return listed if len(listed) > 1 else []


def _advice(run: Run, listed: list[Choice]) -> tuple[str, str]:
    """Which form to use, and why."""
    chosen = recommended(listed)
    if any(choice.disturbance for choice in listed):
        return "No form is recommended", "the machine was busy while times were taken"
    if chosen is None:
        return "No form is recommended", "the dense model was not timed"
    floor_text = f"{per_cent(lookups.floor(run))} of the dense {score_name(run)}"
    if chosen.arm != "dense":
        return f"Use {_name(chosen)}", f"the fastest form that is shown to keep {floor_text}"
    if all(choice.factor <= 1 for choice in listed):
        return f"Keep {_name(chosen)}", "no other form is faster"
    return f"Keep {_name(chosen)}", f"no faster form is shown to keep {floor_text}"


def _name(choice: Choice) -> str:
    return form_name(choice.arm, choice.engine)


def _speed(choice: Choice) -> str:
    if choice.speed is None:
        return "fastest dense"
    if choice.disturbance:
        return "not decided"
    text = speed_text(choice.factor, choice.speed.interval)
    return f"{text} ({speed_interval(choice.speed.interval)})"


def _kept(choice: Choice) -> str:
    if choice.kept_share is None:
        return "not scored"
    share = wording.share(choice.kept_share.value)
    if choice.kept_share.interval is None or choice.kept_share.interval == (1.0, 1.0):
        return share
    return f"{share} ({share_between(choice.kept_share.interval)})"


def _changed(run: Run, choice: Choice) -> str:
    if choice.arm == "dense":
        return "none"
    bound = run.table.value(BOUNDS.get(choice.arm, ""))
    return "not bounded" if bound is None else upper_share(bound)


def _where(choice: Choice) -> str:
    if choice.engine != "onnxruntime":
        return "model" if choice.arm == "slim" else "your model"
    return FILES.get(choice.arm, "your model, exported")
