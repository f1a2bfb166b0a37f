"""Scores, speeds and plans of ``slim`` in words."""

from __future__ import annotations

from collections.abc import Sequence

from sparing.core.record import Record
from sparing.layers.plan import Plan
from sparing.report import wording
from sparing.report.estimates import NONE, interval_text, points_text
from sparing.report.facts import metric_heading
from sparing.report.figures.chart import Interval
from sparing.report.run import Run
from sparing.slim.answer import Entities, Number, OneClass, Vector
from sparing.slim.texts import LABELLESS
from sparing.tasks.shared.scores import ENTITY_SCORES

NOT_DECIDED = "not decided: the machine was busy"
_OF_LABELS = ("micro_f1", "macro_f1", "same_labels")
_SHARES = (
    *("accuracy", "top5", "f1", OneClass.metric, Entities.metric),
    *ENTITY_SCORES,
    *_OF_LABELS,
)
# Numbers, vectors and entities differ by something without a unit.
_PLAIN = (Number.metric, Vector.metric, Entities.metric, "pearson", "spearman", *ENTITY_SCORES)


def score_text(run: Run, value: float) -> str:
    """A score: shares in per cent, correlations as plain numbers."""
    return _text_of(_metric(run), value)


def chosen_text(run: Run, value: float) -> str:
    """The same of the score that plans are chosen by."""
    return _text_of(_chosen_by(run), value)


def _text_of(metric: str, value: float) -> str:
    return wording.share(value) if metric in _SHARES else f"{value:.3f}".replace("-", wording.MINUS)


def gap_text(run: Run, record: Record | None) -> str:
    """A difference of two scores with its interval, in points or as plain numbers."""
    if _metric(run) not in _SHARES:
        return interval_text(record, lambda value: wording.signed(value, 3))
    return points_text(record)


def _metric(run: Run) -> str:
    return str(run.config["task"].get("metric") or "accuracy")


def _chosen_by(run: Run) -> str:
    """The metric that plans are chosen by: the agreement, if only a test split has labels."""
    return str(run.config["task"].get("chosen_by") or _metric(run))


def score_name(run: Run) -> str:
    """The name of the task's metric, as a heading."""
    return metric_heading(run.config)


def chosen_name(run: Run) -> str:
    """The name of the metric that plans are chosen by, as a heading."""
    return metric_heading({"task": {"metric": _chosen_by(run)}})


def labelless(run: Run) -> bool:
    """Whether the dense model's answers took the place of labels: the score is agreement."""
    return str(run.config["task"].get("metric")) in LABELLESS


def divergence_unit(run: Run) -> str:
    """The unit of a divergence: nats of classes and labels; other answers have none."""
    return "" if str(run.config["task"].get("metric")) in _PLAIN else " nats"


def speed_text(value: float, interval: Interval) -> str:
    """A speed-up in words; where its interval holds 1, no direction is claimed."""
    if interval is not None and interval[0] < 1 < interval[1]:
        return "no clear difference"
    return wording.ratio(value, "slower", "faster")


def record_speed(run: Run, record: Record) -> str:
    """A recorded speed-up in words; none where the machine was busy."""
    if run.table.disturbance(record):
        return NOT_DECIDED
    return speed_text(record.value or 0.0, record.interval)


def speed_interval(interval: Interval) -> str:
    """The interval of a speed-up, turned the way ``speed_text`` turns the value."""
    return wording.ratio_interval(interval) if interval else "no interval"


def speed_cell(run: Run, record: Record | None) -> str:
    """A recorded speed-up with its interval."""
    if record is None:
        return NONE
    words = record_speed(run, record)
    return words if words == NOT_DECIDED else f"{words} ({speed_interval(record.interval)})"


def times(value: float) -> str:
    """A stated factor, such as the target's."""
    return f"{value:g}{wording.TIMES}"


def per_cent(share: float) -> str:
    """A stated share, such as the target's, without trailing zeros."""
    return f"{100 * share:.4g} %"


def divergence_text(value: float) -> str:
    """A divergence in nats, with two significant digits."""
    return wording.number(value, 2) if value >= 1e-4 else "under 0.0001"


def plan_words(plan: Plan) -> str:
    """Layers, heads, neurons and tokens of a plan without exits, in a few words."""
    layers = wording.count_of(plan.layers, "layer")
    words = f"{layers} of {range_of(plan.heads)} heads and {range_of(plan.neurons)} neurons"
    if plan.drops_tokens:
        words += f"; {per_cent(plan.tokens_kept)} of tokens after layer {plan.tokens_after}"
    return words


def range_of(counts: Sequence[int]) -> str:
    """One number where all are alike, else the least and the most."""
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
