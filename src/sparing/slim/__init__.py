"""A fine-tuned encoder made faster, with a bound on how many answers change."""

from __future__ import annotations

from sparing.experiment.registry import Study

STUDY = Study("slim", f"{__name__}.study", f"{__name__}.page.build", shards=False)
