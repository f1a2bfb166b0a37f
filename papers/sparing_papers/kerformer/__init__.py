"""Kerformer: kernel attention against a dozen efficient mechanisms."""

from __future__ import annotations

from sparing.experiment.registry import Study

STUDY = Study("kerformer", f"{__name__}.study", f"{__name__}.page.build")
