"""Scores, speeds and plans of ``slim`` in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from sparing.core.record import Record
from sparing.core.rounding import rounded_up
from sparing.layers.plan import Plan
from sparing.report import wording
from sparing.report.facts import metric_name
from sparing.report.figures.chart import Interval
from sparing.report.run import Run
from sparing.report.table import Column

NOT_DECIDED = "not decided: the machine was busy"
ENGINES = {"onnxruntime": "ONNX Runtime", "eager": "eager PyTorch", "compiled": "torch.compile"}

_SHARES = ("accuracy", "top5", "f1")


@dataclass(frozen=True)
class Scale:
    """How a metric is written: shares in per cent and points, correlations as plain numbers."""

    metric: str

    @property
    def shares(self) -> bool:
        """Whether it is a share of something."""
        return self.metric in _SHARES

    @property
    def factor(self) -> float:
        """The factor of a score on an axis."""
        return 100.0 if self.shares else 1.0

    def text(self, value: float) -> str:
        """A score."""
        return wording.share(value) if self.shares else f"{value:.3f}".replace("-", wording.MINUS)

    def difference(self, value: float, interval: Interval = None) -> str:
        """A difference of two scores, signed, with as many digits as its interval needs."""
        if self.shares:
            return f"{wording.points(value, *(interval or ()))} points"
        return wording.signed(value, 3)

    def interval(self, value: float, interval: tuple[float, float]) -> str:
        """The interval of a difference, with as many digits as the value."""
        if self.shares:
            return wording.points_interval(value, interval)
        return " to ".join(wording.signed(end, 3) for end in interval)

    def gap(self, record: Record) -> str:
        """A recorded difference with its interval."""
        value, interval = record.value or 0.0, record.interval
        text = self.difference(value, interval)
        return f"{text} ({self.interval(value, interval)})" if interval else text


def scale_of(run: Run) -> Scale:
    """How this run's metric is written."""
    return Scale(str(run.config["task"].get("metric") or "accuracy"))


def score_name(run: Run) -> str:
    """The name of the task's metric."""
    return metric_name(run.config)


def engine_name(engine: object) -> str:
    """The display name of an engine."""
    return ENGINES.get(str(engine), str(engine))


def form_name(arm: str, engine: object) -> str:
    """A form's name: model and engine."""
    return f"{arm.replace('int8', 'INT8')}, {engine_name(engine)}"


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


def speed_columns(run: Run, head: str = "Speed") -> tuple[Column[Record], Column[Record]]:
    """A recorded speed-up, and its interval."""
    speed = Column[Record](head, lambda record: record_speed(run, record))
    return speed, Column("Interval", lambda record: speed_interval(record.interval))


def times(value: float) -> str:
    """A stated factor, such as the target's."""
    return f"{value:g}{wording.TIMES}"


def per_cent(share: float) -> str:
    """A stated share, such as the target's, without trailing zeros."""
    return f"{100 * share:.4g} %"


def small_share(share: float) -> str:
    """A share with two significant digits where it is below one per cent."""
    return wording.share(share, 1 if share >= 0.01 or share == 0 else 2)


def upper_share(share: float) -> str:
    """An upper bound as ``small_share`` writes shares, but never below what was shown."""
    if share <= 0:
        return small_share(share)
    return small_share(rounded_up(share, 3 if share >= 0.01 else 4))


def share_between(interval: tuple[float, float]) -> str:
    """The interval of a share, with one sign of per cent."""
    low, high = (wording.share(end) for end in interval)
    return f"{low.removesuffix(' %')} to {high}"


def width_name(width: float) -> str:
    """A width in words: its share of heads and neurons as a fraction."""
    if width == 1:
        return "full width"
    near = Fraction(width).limit_denominator(12)
    exact = abs(float(near) - width) < 0.002
    return f"width {near if exact else wording.share(width, 0)}"


def plan_words(plan: Plan) -> str:
    """Where inputs exit, and how many tokens are kept, in a few words."""
    words = _exit_words(plan)
    if plan.drops_tokens:
        words += f"; {per_cent(plan.tokens_kept)} of tokens after layer {plan.tokens_after}"
    return words


def _exit_words(plan: Plan) -> str:
    if not plan.stops:
        return f"all inputs run {wording.count_of(plan.layers, 'layer')}"
    layers = wording.listing([str(stop) for stop in plan.stops], 9)
    noun = "layer" if len(plan.stops) == 1 else "layers"
    return f"exits after {noun} {layers} at confidence above {plan.threshold:g}"


def token_words(plan: Plan) -> str:
    """Which tokens are dropped; empty where none are."""
    if not plan.drops_tokens:
        return ""
    text = f"the {per_cent(plan.tokens_kept)} of its tokens with the most attention"
    if plan.tokens_above > 0:
        text += f", if that is at least {plan.tokens_above:g} times an even share"
    return f"After layer {plan.tokens_after} each input keeps {text}."


def range_of(counts: Sequence[int]) -> str:
    """One number where all are alike, else the least and the most."""
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
