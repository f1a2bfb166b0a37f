"""What an undecided goal would need: so many seeds more, or something else first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sparing.core.errors import DataError, listed, quoted
from sparing.measure.forecast import FEWEST, MOST, fewest
from sparing.measure.statistics import Interval

SEEDS, ROUNDS = "seeds", "rounds of timing"
TOO_SMALL = "the effect is too small to matter here"
EXAMPLES = "more test examples: no number of seeds is enough"
KINDS = {"count": int, "of": str, "now": int, "beyond": bool, "why": str}  # of a need's fields
ENDLESS, WIDE = 10**9, 0.01  # an interval that stays wide does not rest on seeds alone


@dataclass(frozen=True)
class Forecast:
    """The interval ``at`` another number of ``of``, such as seeds; ``count`` is today's number.

    ``at`` holds for the confidence of the estimate that has the forecast. ``besides`` says what is
    needed where test examples alone make the interval too wide.
    """

    of: str
    count: int
    at: Callable[[int], Interval]
    besides: str = EXAMPLES


@dataclass(frozen=True)
class Need:
    """``count`` of ``of`` in all would decide, where there are ``now`` some already.

    ``beyond`` says that even so many would not. ``why`` is in words what is needed besides, or
    instead where there is no number.
    """

    count: int = 0
    of: str = ""
    now: int = 0
    beyond: bool = False
    why: str = ""

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Need:
        """What ``to_dict`` gave; raises ``DataError`` for anything else."""
        known = {name: entry[name] for name in KINDS if name in entry}
        if known.keys() != entry.keys():
            raise DataError(f"a need has no {listed(sorted({*entry} - {*KINDS}))}")
        wrong = [name for name, value in known.items() if type(value) is not KINDS[name]]
        if wrong:
            raise DataError(f"a need's {wrong[0]} is {quoted(known[wrong[0]])}")
        return cls(**known)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, without what is empty."""
        return {name: value for name, value in asdict(self).items() if value}

    def __str__(self) -> str:
        if not self.count:
            return self.why
        if self.beyond:
            return f"more than {self.count:,} {self.of}: {TOO_SMALL}"
        amount = f"about {self.count:,} {self.of} ({self.now:,} now)"
        return f"{amount}; {self.why}" if self.why else amount


def needed(forecast: Forecast, decides: Callable[[Interval], bool]) -> Need:
    """How many would decide, were mean and spread as now; at most ``MOST`` or ten times today's."""
    most = max(MOST, 10 * forecast.count)
    count = fewest(lambda number: decides(forecast.at(number)), most)
    if count is not None:
        return Need(count, forecast.of, forecast.count)
    low, high = forecast.at(ENDLESS)
    if forecast.of == SEEDS and high - low > WIDE * _width(forecast):
        return Need(why=forecast.besides)
    return Need(most, forecast.of, forecast.count, beyond=True)


def _width(forecast: Forecast) -> float:
    low, high = forecast.at(forecast.count)
    return high - low


def joined(
    forecasts: Sequence[Forecast | None], join: Callable[[list[Interval]], Interval]
) -> Forecast | None:
    """One forecast of several that grow together; None where one of them is missing.

    ``join`` makes one interval of all.
    """
    known = [forecast for forecast in forecasts if forecast is not None]
    if not known or len(known) < len(forecasts):
        return None
    least = min(forecast.count for forecast in known)
    first = known[0]
    return replace(first, count=least, at=lambda count: join([f.at(count) for f in known]))


def smallest_effect(forecast: Forecast, value: float, count: int) -> float | None:
    """How far an interval of ``count`` would reach from a value, on its wider side.

    A target that is farther away is excluded. None for a count that gives no interval.
    """
    if count < FEWEST:
        return None
    low, high = forecast.at(count)
    return max(value - low, high - value)
