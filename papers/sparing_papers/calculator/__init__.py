"""A Predictive Calculator: which small network learns arithmetic best."""

from __future__ import annotations

from sparing.experiment.registry import Study

STUDY = Study("calculator", f"{__name__}.study", f"{__name__}.page.build")
