"""Records as texts of table cells: the value, its interval in brackets, a dash for nothing."""

from __future__ import annotations

from collections.abc import Callable

from sparing.core.record import Record
from sparing.report import wording

NONE = wording.DASH
"""The cell of what was not measured."""
Form = Callable[[float], str]


def value_text(record: Record | None, form: Form) -> str:
    """The value alone, such as ``87.3 %``."""
    return NONE if record is None or record.value is None else form(float(record.value))


def interval_text(record: Record | None, form: Form, unit: str = "") -> str:
    """The value and its interval in one form, such as ``0.98x (0.91 to 1.05)``.

    ``unit`` follows the value alone.
    """
    if record is None or record.value is None:
        return NONE
    return with_ends(record.value, record.interval, form, unit)


def with_ends(value: float, ends: tuple[float, float] | None, form: Form, unit: str = "") -> str:
    """``interval_text`` of numbers that are no record."""
    text = form(float(value)) + unit
    if ends is None:
        return text
    low, high = (form(float(end)) for end in ends)
    return f"{text} ({low} to {high})"


def share_text(record: Record | None) -> str:
    """A share of one in per cent."""
    return value_text(record, wording.share)


def points_text(record: Record | None) -> str:
    """A difference of shares in percentage points with its interval.

    All three numbers have one decimal, or two where all are below one point.
    """
    if record is None or record.value is None:
        return NONE
    text = wording.points(record.value, *(record.interval or ()))
    if record.interval is None:
        return text
    return f"{text} ({wording.points_interval(record.value, record.interval)})"


def p_text(value: object) -> str:
    """A p-value; anything that is no number is a dash."""
    if not isinstance(value, int | float):
        return NONE
    return "under 0.001" if value < 0.001 else f"{value:.3f}"
