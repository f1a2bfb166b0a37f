"""Which attention a model should use on a task: dense and efficient forms side by side."""

from __future__ import annotations

from sparing.experiment.registry import Study

STUDY = Study("compare", f"{__name__}.study", f"{__name__}.page.build")
