"""The contract can fail: each mechanism broken on purpose is rejected by the check meant for it."""

from __future__ import annotations

import pytest

from sparing.mechanisms.eager import Eager
from sparing.testing import (
    ContractError,
    Equals,
    Matches,
    Subject,
    check_mechanism,
    run_check,
    run_contract,
)
from tests import mutants
from tests.broken import ALL, _Broken

LIMIT = (Equals("softmax"),)


@pytest.mark.parametrize("broken", ALL, ids=lambda broken: broken.__name__)
def test_each_broken_mechanism_is_rejected(broken):
    claims = () if broken.__name__ == "NoClaim" else LIMIT
    assert run_check(broken.caught_by, Subject(broken, claims=claims)).failure


def test_the_sound_form_they_start_from_passes_everything():
    subject = Subject(_Broken, row_sums=True, claims=LIMIT)
    assert [o for o in run_contract(subject) if o.failure] == []


def test_there_are_enough_of_them():
    assert len(ALL) >= 15


def test_a_wrong_limit_is_rejected():
    assert run_check(
        "claims", Subject(Eager, claims=(Equals("uniform_that_is_not_there"),))
    ).failure


def test_a_wrong_reference_is_rejected():
    def half(made, q, k, v, *, mask):
        return made(q, k, v, mask=mask) / 2

    assert "off by" in run_check("claims", Subject(Eager, claims=(Matches(half),))).failure


def test_wrong_row_sums_are_rejected():
    class Doubled(_Broken):
        def mix(self, q, k, v, *, mask):
            return 2 * super().mix(q, k, v, mask=mask)

    assert run_check("row_sums", Subject(Doubled, row_sums=True)).failure


def test_check_mechanism_lists_every_failure():
    with pytest.raises(ContractError, match="checks failed") as error:
        check_mechanism(Subject(ALL[0], claims=LIMIT), ["padding_equals_cropping", "lengths"])
    assert str(error.value).count("\n") == 2


def test_every_file_with_changed_lines_has_tests():
    for files in mutants.GROUPS.values():
        for file, more in files.items():
            assert mutants.tests_of(file), file
            assert [name for name in more if not (mutants.TESTS / name).is_file()] == []
