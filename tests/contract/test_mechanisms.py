"""Every check of the contract on every file of ``mechanisms/``, in every configuration listed."""

from __future__ import annotations

import pytest

from sparing.core.catalogue import MECHANISMS, mechanism_class
from sparing.testing import CHECKS, run_check
from sparing.testing.subjects import entries, subjects


def _cases():
    for name in MECHANISMS.names():
        for number, subject in enumerate(subjects(name, mechanism_class(name))):
            for check in CHECKS:
                if check == "traits_of_defaults" and number > 0:
                    continue
                yield pytest.param(check, subject, id=f"{name}{number or ''}-{check}")


@pytest.mark.parametrize(("check", "subject"), list(_cases()))
def test_contract(check, subject):
    outcome = run_check(check, subject)
    assert not outcome.failure, f"{outcome.options}: {outcome.failure}"


def test_every_mechanism_has_an_entry_with_claims():
    for name in MECHANISMS.names():
        assert entries(name), name
        assert all(entry.claims for entry in entries(name)), name
