"""How much of the dense score a form keeps on the whole test split."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from sparing.core.record import Label
from sparing.experiment.claims import Estimate
from sparing.experiment.forecasts.needs import Forecast
from sparing.experiment.records import RecordTable
from sparing.measure.forecast import resized

CONFIDENCE, EXAMPLES = 0.9, "test examples"
# The labels that name a form.
FORM = ("arm", "engine", "precision", "settings", "threshold", "cascade", "layers")


def kept_share(records: RecordTable, form: Mapping[str, Label]) -> Estimate | None:
    """The share of the dense score that a form keeps, with its 90 % interval over inputs."""
    score = records.find("whole_score", primary=True, **form)
    gap = records.find("whole_difference", primary=True, **form)
    if score is None or gap is None or gap.interval is None:
        return None
    dense = float(score.value or 0.0) - float(gap.value or 0.0)
    if dense <= 0:
        return None
    value = 1 + float(gap.value or 0.0) / dense
    low, high = (1 + float(end) / dense for end in gap.interval)
    more = partial(resized, value, (low, high), gap.count, confidence=CONFIDENCE)
    return Estimate(value, (low, high), forecast=Forecast(EXAMPLES, gap.count, more))
