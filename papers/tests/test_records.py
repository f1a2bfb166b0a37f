"""The papers' records are declared: those of committed runs, those in code, and no others."""

from __future__ import annotations

import pytest

from sparing.experiment.registry import Study
from sparing.experiment.schema import Schema, schema_of
from tests.experiment.record_names import ROOT, code_of, runs_of, undeclared, unused

SOURCE = ROOT / "papers" / "sparing_papers"
RESULTS = ROOT / "papers" / "results"
# Whose code and runs have the records that a package declares.
LONG_RANGE = ("long_range", "kerformer", "linformer")
CODE = {"long_range": LONG_RANGE, "kerformer": LONG_RANGE[:2], "linformer": LONG_RANGE[::2]}
ALONE = ("adaattention", "calculator", "hugginggreen")
STUDIES = (*ALONE, *LONG_RANGE[1:])
PACKAGES = (*ALONE, *LONG_RANGE)


def schema(name: str) -> Schema:
    return schema_of(Study(name, f"sparing_papers.{name}.study", ""))


@pytest.mark.parametrize("name", STUDIES)
def test_records_of_committed_runs_are_declared(name):
    runs = runs_of(RESULTS, name)
    assert runs
    assert undeclared(schema(name), runs) == []


@pytest.mark.parametrize("name", PACKAGES)
def test_records_in_the_code_are_declared(name):
    assert code_of(SOURCE / name).unknown(schema(name)) == []


@pytest.mark.parametrize("name", PACKAGES)
def test_declared_records_are_used(name):
    folders = CODE.get(name, (name,))
    code = code_of(*(SOURCE / folder for folder in folders))
    assert unused(SOURCE / name / "records.toml", code, runs_of(RESULTS, *folders)) == []


@pytest.mark.parametrize("name", PACKAGES)
def test_meanings_are_short(name):
    meanings = {key: entry.means for key, entry in schema(name).entries.items()}
    assert {key: text for key, text in meanings.items() if not 0 < len(text.split()) <= 15} == {}
