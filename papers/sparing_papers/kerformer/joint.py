"""Whether one linear mechanism is as good as dense attention, fast and lean at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparing.experiment.claims import Estimate, Measure
from sparing.experiment.claims import at_once as simultaneous
from sparing.experiment.forecasts.needs import SEEDS, Forecast
from sparing.experiment.records import RecordTable
from sparing_papers.kerformer.costs import peak_share, speed_up
from sparing_papers.kerformer.options import ARENA, LINEAR_ARMS
from sparing_papers.kerformer.scores import above
from sparing_papers.long_range.arms import DENSE
from sparing_papers.long_range.work import MARGIN

LONG = 1000  # tokens from which a range is long
SPEED, OF_FUSED, OF_EAGER = 2.5, 1.0, 0.1


@dataclass(frozen=True)
class Condition:
    """A number with its interval, and the side of a bound on which it must be."""

    measured: Estimate | None
    bound: float
    at_most: bool = False

    def states(self) -> tuple[bool, bool, bool]:
        """Whether it surely holds, holds by the number itself, and may hold.

        What was not measured may hold.
        """
        if self.measured is None:
            return False, False, True
        value, ends = self.measured.value, self.measured.interval
        if ends is None:
            return False, self._good(value), True
        worst, best = reversed(ends) if self.at_most else ends
        return self._good(worst), self._good(value), self._good(best)

    def at(self, seeds: int) -> Condition:
        """The same, were there so many seeds of what rests on seeds."""
        forecast = None if self.measured is None else self.measured.forecast
        if self.measured is None or forecast is None or forecast.of != SEEDS:
            return self
        return replace(self, measured=replace(self.measured, interval=forecast.at(seeds)))

    def _good(self, number: float) -> bool:
        return number <= self.bound if self.at_most else number >= self.bound


def at_once(arm: str) -> Measure:
    """How many of four conditions a variant meets, from those it surely does to those it may.

    On long ranges at most ``MARGIN`` below dense attention (one-sided). In training at the longest
    length ``SPEED`` times as fast, with a peak of at most ``OF_FUSED`` of fused dense attention's
    and ``OF_EAGER`` of eager's. Intervals hold for all of ``LINEAR_ARMS`` at once, since one of
    them is enough.
    """
    score = above(ARENA, arm, DENSE, least_tokens=LONG)

    def measure(records: RecordTable, confidence: float) -> Estimate | None:
        sure = simultaneous(confidence, len(LINEAR_ARMS))
        conditions = (
            Condition(score(records, 2 * sure - 1), -MARGIN),
            Condition(speed_up(records, arm, sure), SPEED),
            Condition(peak_share(records, arm, DENSE), OF_FUSED, at_most=True),
            Condition(peak_share(records, arm, "eager"), OF_EAGER, at_most=True),
        )
        if all(condition.measured is None for condition in conditions):
            return None
        held, met, possible = _counted(conditions)
        known = conditions[0].measured
        if known is None or known.forecast is None:
            lacks = "runs on long ranges that pass the sensitivity check, and of time and memory"
            return Estimate(met, (held, possible), lacks=lacks)

        def at(seeds: int) -> tuple[float, float]:
            least, _, most = _counted([condition.at(seeds) for condition in conditions])
            return least, most

        more = Forecast(SEEDS, known.forecast.count, at)
        return Estimate(met, (held, possible), forecast=more)

    return measure


def _counted(conditions: Sequence[Condition]) -> tuple[float, float, float]:
    """How many surely hold, hold by the number itself, and may hold."""
    states = [condition.states() for condition in conditions]
    held, met, possible = (float(sum(side)) for side in zip(*states, strict=True))
    return held, met, possible
