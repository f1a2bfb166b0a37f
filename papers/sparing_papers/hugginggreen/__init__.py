"""HuggingGreen: attention, patches and training stages of vision transformers, by energy."""

from __future__ import annotations

from sparing.experiment.registry import Study

STUDY = Study("hugginggreen", f"{__name__}.study", f"{__name__}.page.build")
