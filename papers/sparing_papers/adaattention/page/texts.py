"""The page's sentences, and the forms of records that several of its parts share."""

from __future__ import annotations

from sparing.core.record import Record
from sparing.report import wording
from sparing.report.estimates import NONE, Form
from sparing.report.prose import Prose
from sparing_papers.adaattention.findings import side_of

TEXT = Prose("sparing_papers.adaattention.page")


def factor(value: float) -> str:
    """A speed as a factor, below 1 if slower."""
    return f"{value:.2f}{wording.TIMES}"


def of_full(value: float) -> str:
    """A share of the full model's value."""
    return f"{value:.2f} of full"


def longer(value: float) -> str:
    """A ratio of times as the per cent that it is above 1, without their sign."""
    return wording.signed(100 * (value - 1), 0)


def whole_share(value: float) -> str:
    """A share in whole per cent."""
    return wording.share(value, 0)


def two_digits(value: float) -> str:
    """A number with two significant digits."""
    return wording.number(value, 2)


def points_words(record: Record) -> str:
    """A difference in points with its interval."""
    value = float(record.value or 0.0)
    ends = f" ({wording.points_interval(value, record.interval)})" if record.interval else ""
    return f"{wording.points(value, *(record.interval or ()))} points{ends}"


def pace(record: Record) -> str:
    """A speed in words, slower or faster, with its interval."""
    if record.interval and not side_of(record, 1.0):
        return TEXT("no-direction", low=record.interval[0], high=record.interval[1])
    words = wording.ratio(float(record.value or 1.0), "slower", "faster")
    return words + (f" ({wording.ratio_interval(record.interval)})" if record.interval else "")


def dash_or(value: float | None, form: Form) -> str:
    """The value in this form; a dash without one."""
    return NONE if value is None else form(value)
