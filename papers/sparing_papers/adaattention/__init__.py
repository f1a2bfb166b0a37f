"""AdaAttention: how much attention an input needs, decided by a small network."""

from __future__ import annotations

from sparing.experiment.registry import Study

STUDY = Study("adaattention", f"{__name__}.study", f"{__name__}.page.build")
