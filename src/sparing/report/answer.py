"""The one sentence that a run answers with: the first of its page."""

from __future__ import annotations

from pathlib import Path

from sparing.report.run import read_run
from sparing.report.slim_results import SlimResults
from sparing.report.slim_verdict import judge
from sparing.report.verdict import decide

DECIDED_BY_ARMS = ("compare",)


def answer_of(folder: Path) -> str:
    """What the run in a folder says to do; empty for studies whose goals are the answer.

    Raises ``DataError`` for a folder that is no run or is damaged.
    """
    run = read_run(folder)
    study = run.config.get("study")
    if study == "slim":
        verdict = judge(SlimResults(run))
        return " ".join(f"{verdict.lead}{verdict.because}".split())
    if study in DECIDED_BY_ARMS:
        return " ".join(decide(run.records, run.config, run.failed).first.split())
    return ""
