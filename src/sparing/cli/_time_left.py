"""The time left, estimated from the progress since this process started."""

from __future__ import annotations

import time
from collections.abc import Callable

LEAST_SECONDS, LEAST_SHARE = 5.0, 0.01  # no estimate before


class TimeLeft:
    """Called with the progress from 0 to 1: the time left in words, or nothing yet.

    Work before the first call does not count: it took this process no time.
    """

    def __init__(self) -> None:
        self._start, self._first, self._last = time.monotonic(), -1.0, 0.0

    def __call__(self, fraction: float) -> str:
        """Words such as ``about 3 min left``."""
        if self._first < 0 or fraction < self._last:
            self._start, self._first = time.monotonic(), fraction
        self._last = fraction
        elapsed, done = time.monotonic() - self._start, fraction - self._first
        if elapsed < LEAST_SECONDS or done < LEAST_SHARE or fraction >= 1:
            return ""
        return f"about {in_words(elapsed * (1 - fraction) / done)} left"

    def added_to(self, show: Callable[[float, str], None]) -> Callable[[float, str], None]:
        """The same progress, with the time left in brackets after every text."""
        last = ""

        def shown(fraction: float, text: str) -> None:
            nonlocal last
            left = self(fraction)
            if text != last:
                show(fraction, f"{text} [{left}]" if left else text)
            last = text

        return shown


def in_words(seconds: float) -> str:
    """Seconds in words: 40 s, 3 min, 2.5 h."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
