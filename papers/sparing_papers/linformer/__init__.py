"""Linformer: low-rank attention, and its referee's open questions."""

from __future__ import annotations

from sparing.experiment.registry import Study

STUDY = Study("linformer", f"{__name__}.study", f"{__name__}.page.build")
