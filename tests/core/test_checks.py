"""Conditions that fields declare: what they let through, and what a refusal says."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import pytest

from sparing.core.checks import (
    Count,
    NotNegative,
    Positive,
    check_fields,
    distinct,
    one_of,
    require_names,
    some,
    within,
)
from sparing.core.errors import UsageError


@dataclass(frozen=True)
class Settings:
    rounds: Count = 3
    limit: Count | None = None
    skipped: NotNegative = 0
    rate: Positive = 0.1
    share: Annotated[float, within(0, 1, ends="(]")] = 1.0
    lengths: Annotated[tuple[Count, ...], some, distinct] = (16, 32)
    ways: tuple[Annotated[str, one_of("top", "random")], ...] = ()
    free: int = -1

    def __post_init__(self) -> None:
        check_fields(self, "cost")


def test_what_is_allowed():
    Settings()
    Settings(limit=1, skipped=0, rate=1e-9, share=1e-9, ways=("top", "random"), lengths=(1,))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rounds": 0}, "cost.rounds must be at least 1; got 0"),
        ({"limit": 0}, "cost.limit must be at least 1; got 0"),
        ({"skipped": -1}, "cost.skipped must be at least 0; got -1"),
        ({"rate": 0.0}, "cost.rate must be above 0 and finite; got 0.0"),
        ({"rate": math.inf}, "cost.rate must be above 0 and finite; got inf"),
        ({"rate": math.nan}, "cost.rate must be above 0 and finite; got nan"),
        ({"share": 0.0}, "cost.share must be in (0, 1]; got 0.0"),
        ({"share": 1.1}, "cost.share must be in (0, 1]; got 1.1"),
        ({"share": math.nan}, "cost.share must be in (0, 1]; got nan"),
        ({"lengths": ()}, "cost.lengths must name at least one"),
        ({"lengths": (8, 8)}, "cost.lengths are named twice: 8, 8"),
        ({"lengths": (8, 0)}, "cost.lengths must be at least 1; got 0"),
        ({"lengths": [8, 0]}, "cost.lengths must be at least 1; got 0"),
        ({"rounds": "3"}, "cost.rounds must be at least 1; got '3'"),
        ({"ways": ("topp",)}, "cost: ways is 'topp', not one of top, random; did you mean 'top'?"),
    ],
)
def test_what_is_refused_and_how(given, message):
    with pytest.raises(UsageError) as error:
        Settings(**given)
    assert str(error.value) == message


def test_a_name_that_there_is_not():
    require_names("trained.digits", ["epochs"], ("epochs", "batch_size"))
    with pytest.raises(UsageError, match=r"trained.digits has no 'epoch'; did you mean 'epochs'"):
        require_names("trained.digits", ["epoch"], ("epochs", "batch_size"))
