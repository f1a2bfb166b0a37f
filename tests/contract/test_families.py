"""The contract of families with an adaptive form: every check, and every unusual option.

Outcomes are those of the record, which the documentation shows: a family that is suddenly refused
fails here, and so does a refusal in other words.
"""

from __future__ import annotations

import pytest

from sparing.transfer.families.known import FAMILIES as KNOWN
from tests.contract.family_options import OPTIONS, run_option
from tests.contract.family_record import CHECKS, FILES, meanings, read_record
from tests.transfer.classifiers import FAMILIES

# These differ from another family in names alone; their checks are slow tests.
TWINS = ("roberta", "xlm-roberta", "camembert", "electra", "deit")
# Others export in 3 to 7 seconds each.
QUICK_FILES = ("distilbert", "mpnet", "deberta-v2", "modernbert")
RECORD = read_record()


def _marks(family, check=""):
    slow = family in TWINS or (check in FILES and family not in QUICK_FILES)
    return [pytest.mark.slow] if slow else []


def _cases():
    for family in FAMILIES:
        for check in CHECKS:
            yield pytest.param(family, check, id=f"{family}-{check}", marks=_marks(family, check))


def _options():
    for family, options in OPTIONS.items():
        for words in options:
            yield pytest.param(family, words, id=f"{family}-{words}", marks=_marks(family))


@pytest.mark.parametrize(("family", "check"), list(_cases()))
def test_family(family, check):
    assert CHECKS[check](family) == RECORD["families"][family]["checks"][check]


@pytest.mark.parametrize(("family", "words"), list(_options()))
def test_option(family, words):
    assert run_option(family, words) == RECORD["families"][family]["options"][words]


def test_the_record_has_all_families_checks_and_options():
    assert list(FAMILIES) == list(KNOWN)
    assert list(RECORD["families"]) == list(KNOWN)
    for family, outcomes in RECORD["families"].items():
        assert list(outcomes["checks"]) == list(CHECKS), family
        assert list(outcomes["options"]) == list(OPTIONS[family]), family
    assert RECORD["meanings"] == meanings()
