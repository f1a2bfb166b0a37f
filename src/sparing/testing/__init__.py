"""The contract as a tool: test any mechanism, built in or your own, against it.

``sparing check NAME`` does the same from the command line.
"""

from __future__ import annotations

from sparing.testing.claims import Equals, Matches
from sparing.testing.contract import (
    CHECKS,
    ContractError,
    Outcome,
    check_mechanism,
    run_check,
    run_contract,
)
from sparing.testing.subject import Subject, Violation

__all__ = [
    "CHECKS",
    "ContractError",
    "Equals",
    "Matches",
    "Outcome",
    "Subject",
    "Violation",
    "check_mechanism",
    "run_check",
    "run_contract",
]
