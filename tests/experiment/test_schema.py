"""Records are declared: those of committed runs, those in code, and no others."""

from __future__ import annotations

import sys
import textwrap

import pytest

from sparing.core.errors import DataError, UsageError
from sparing.experiment.registry import Study
from sparing.experiment.schema import Entry, Schema, schema_of
from tests.experiment.record_names import (
    ROOT,
    Code,
    code_of,
    read_names,
    runs_of,
    undeclared,
    unused,
)

SOURCE = ROOT / "src" / "sparing"
RESULTS = ROOT / "benchmarks" / "results"
# Whose code writes the records of a study: advise times as compare does.
STUDIES = {"compare": ("compare",), "slim": ("slim",), "advise": ("advise", "compare")}
STUDIES |= {"agree": ("agree", "answers")}
ENGINE = ("experiment", "measure")


def schema(name: str) -> Schema:
    return schema_of(Study(name, f"sparing.{name}.study", ""))


@pytest.mark.parametrize("name", STUDIES)
def test_records_of_committed_runs_are_declared(name):
    assert undeclared(schema(name), runs_of(RESULTS, name)) == []


@pytest.mark.parametrize("name", STUDIES)
def test_records_in_the_code_are_declared(name):
    assert code_of(SOURCE / name).unknown(schema(name)) == []


@pytest.mark.parametrize("name", STUDIES)
def test_declared_records_are_used(name):
    code = code_of(*(SOURCE / folder for folder in STUDIES[name]))
    assert unused(SOURCE / name / "records.toml", code, runs_of(RESULTS, name)) == []


def test_records_of_the_engine_are_used():
    code = code_of(*(SOURCE / name for name in (*ENGINE, *STUDIES)))
    assert unused(SOURCE / "experiment" / "records.toml", code, {}) == []
    assert code_of(*(SOURCE / name for name in ENGINE)).unknown(schema("compare")) == []


@pytest.mark.parametrize("name", STUDIES)
def test_meanings_are_short(name):
    meanings = {key: entry.means for key, entry in schema(name).entries.items()}
    assert {key: text for key, text in meanings.items() if not 0 < len(text.split()) <= 15} == {}


def test_committed_runs_are_read():
    runs = runs_of(RESULTS, "compare")
    assert runs["latency_ratio"].units == {"ratio"}
    assert runs["latency_ratio"].labels == {"arm", "scope", "tokens", "batch"}
    assert undeclared(schema("slim"), runs) != []


@pytest.mark.parametrize(
    "line",
    [
        'Record("latency_rati", 1.0, "ratio", "measured")',
        'results.find("latency_rati", arm="window")',
        'results.values_of("latency_rati", "arm")',
        'ratio_record(group, "latency_rati", "latency_ms")',
        'results.mean("latency_rati")',
        'NAME = "latency_rati"\nresults.all(NAME)',
        'recorded("latency_rati")',
        'Record(f"{name}_rati", 1.0, "", "measured")',
        'record.name == "latency_rati"',
        'r.name in ("latency_ratio", "latency_rati")',
    ],
)
def test_a_misspelt_name_is_seen(line):
    code = Code()
    read_names(line, "page.py", code)
    assert len(code.unknown(schema("compare"))) == 1
    right = Code()
    read_names(line.replace('rati"', 'ratio"'), "page.py", right)
    assert right.unknown(schema("compare")) == []


def test_a_declared_record_that_nobody_writes_is_seen(tmp_path):
    file = tmp_path / "records.toml"
    file.write_text('[flops]\nunit = "FLOPS"\nlabels = ["arms"]\n[flop]\nunit = "FLOP"\n')
    code = Code(texts={"flops", "FLOP", "arm"})
    problems = ["name flop", "label arms of flops", "unit 'FLOPS' of flops"]
    assert unused(file, code, {}) == problems


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A study of another distribution with these records; its package cannot be imported."""

    def write(text: str, package: str = "a_lab", before: str = "raise AssertionError") -> Study:
        folder = tmp_path.joinpath(*package.split("."))
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(before)
        (folder / "records.toml").write_text(textwrap.dedent(text))
        monkeypatch.syspath_prepend(str(tmp_path))
        return Study(package, f"{package}.study", f"{package}.page")

    return write


def test_a_study_adds_to_the_records_of_the_engine(study):
    schema = schema_of(
        study(
            """
            [score]
            unit = ["share", "score"]
            means = "Test score"
            labels = ["arm", "seed"]
            ["mean_*"]
            means = "Mean over seeds of *"
            labels = ["over", "arm"]
            [latency_ms]
            labels = ["place"]
            """
        )
    )
    assert schema.known("cell")
    assert schema.known("mean_score")
    assert schema.known("mean_latency_ms")
    assert not schema.known("mean_scor")
    assert not schema.known("mean_mean_score")
    assert schema.unit("score") == schema.unit("mean_score") == "share or score"
    assert schema.entry("latency_ms").labels == ("place",)
    assert schema.unit("latency_ms") == "ms"  # what the study leaves out is the engine's
    assert schema.entry("mean_score").means == "Mean over seeds of score"
    assert schema.entry("mean_score").labels == ("arm", "seed", "over")
    with pytest.raises(UsageError, match=r"unknown record 'scor'.*score"):
        schema.unit("scor")


def test_no_package_is_run_to_read_its_file(study):
    assert schema_of(study("")).known("cell")
    assert "a_lab" not in sys.modules


def test_a_study_without_a_file_has_the_records_of_the_engine():
    assert schema_of(Study("alone", "json.tool", "")).known("machine_load")
    assert schema_of(Study("alone", "alone", "")).known("machine_load")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[score", "a_lab: records.toml is not TOML"),
        ('include = ["another_lab"]', "must include packages of sparing or the study.*another_lab"),
        ('include = ["sparing.core"]', "must include packages .*sparing.core"),
        ("include = 3", "must include packages .*got 3"),
        ("score = 3", "'score' needs texts .*got 3"),
        ('[score]\nunit = ""', "'score' needs texts as means"),
        ('[score]\nmeans = ""', "'score' needs texts .* unit"),
        ('[score]\nmeans = ""\nunit = [1]', "'score' needs texts"),
        ('[score]\nmeans = ""\nunit = ""\nlabels = "arm"', "'score' needs texts"),
        ('[score]\nmeans = ""\nunit = ""\nmean = ""', "'score' needs texts"),
        ('["mean_*"]\nmeans = ""\nunit = ""', "unless it is a pattern"),
    ],
)
def test_a_broken_file_is_one_line(study, text, words):
    with pytest.raises(DataError, match=words) as error:
        schema_of(study(text))
    assert "\n" not in str(error.value)


def test_a_study_includes_packages_of_its_distribution(study):
    study_name = study('include = ["a_lab.shared"]\n[kept]\nlabels = ["arm"]', before="")
    study('[kept]\nmeans = "Score kept"\nunit = "share"', "a_lab.shared")
    assert schema_of(study_name).entry("kept") == Entry(("share",), "Score kept", ("arm",))
    assert "a_lab" in sys.modules
    assert "a_lab.shared" not in sys.modules
    del sys.modules["a_lab"]
