"""The page of ``slim``."""

from sparing.report.run import Run


def build(run: Run):
    raise NotImplementedError


def answer(run: Run) -> str:
    return ""
