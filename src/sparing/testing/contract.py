"""The contract, run: every check on a mechanism, with one line for each that fails."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sparing.core.catalogue import mechanism_class
from sparing.core.errors import UsageError, nearest
from sparing.core.mechanism import Mechanism
from sparing.testing import behaviour, masking, mathematics
from sparing.testing.subject import Subject, Violation
from sparing.testing.subjects import subjects

Check = Callable[[Subject], None]


def _checks() -> dict[str, Check]:
    checks: dict[str, Check] = {}
    for module in (masking, behaviour, mathematics):
        for name, value in vars(module).items():
            if name.startswith("check_"):
                checks[name.removeprefix("check_")] = value
    return checks


CHECKS: dict[str, Check] = _checks()


@dataclass(frozen=True)
class Outcome:
    """The result of one check on one subject; ``failure`` is empty when it passed."""

    check: str
    options: dict[str, object]
    failure: str = ""


class ContractError(AssertionError):
    """A mechanism breaks its contract; one line for each failed check."""


def run_check(name: str, subject: Subject) -> Outcome:
    """One check on one subject; an exception inside it counts as failure."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            CHECKS[name](subject)
    except Violation as error:
        return Outcome(name, subject.options, str(error))
    except Exception as error:
        return Outcome(name, subject.options, f"{type(error).__name__}: {error}")
    return Outcome(name, subject.options)


def run_contract(
    mechanism: str | type[Mechanism] | Subject, checks: Iterable[str] | None = None
) -> list[Outcome]:
    """All checks (or those named) on a mechanism, under each of its configurations.

    ``mechanism`` is a name, a class, or a ``Subject`` with options and claims of its own. Raises
    ``UsageError`` for a check that does not exist.
    """
    names = list(CHECKS if checks is None else checks)
    for name in names:
        if name not in CHECKS:
            raise UsageError(f"unknown check {name!r}{nearest(name, CHECKS)}")
    return [run_check(name, subject) for subject in _subjects(mechanism) for name in names]


def check_mechanism(
    mechanism: str | type[Mechanism] | Subject, checks: Iterable[str] | None = None
) -> None:
    """Check a mechanism against the whole contract; ``ContractError`` lists the failures.

    For a mechanism of your own pass a ``Subject`` with small options and its claims, without which
    the contract fails. Or pass its class, or the name of a module that lists them in ``ENTRIES``::

        from sparing.testing import Equals, Subject, check_mechanism

        limit = Equals("softmax", {"radius": 99})
        check_mechanism(Subject(MyAttention, {"radius": 2}, claims=(limit,)))
    """
    failed = [outcome for outcome in run_contract(mechanism, checks) if outcome.failure]
    if failed:
        lines = [f"{outcome.check} {outcome.options}: {outcome.failure}" for outcome in failed]
        raise ContractError(f"{len(failed)} checks failed\n" + "\n".join(lines))


def _subjects(mechanism: str | type[Mechanism] | Subject) -> list[Subject]:
    if isinstance(mechanism, Subject):
        return [mechanism]
    if isinstance(mechanism, str):
        kind = mechanism_class(mechanism, allowed=(mechanism,))
        return subjects(mechanism, kind)
    home, _, name = mechanism.__module__.rpartition(".")
    return subjects(name if home == "sparing.mechanisms" else mechanism.__module__, mechanism)
