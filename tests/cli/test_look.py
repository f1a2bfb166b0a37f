"""The verbs that only look: list, show, check and doctor."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from sparing.cli.list import HEADS
from sparing.cli.shared import mechanism_facts
from sparing.cli.shared.mechanism_facts import SECTIONS
from sparing.core.folder import Folder
from sparing.core.traits import FAMILIES, FLAGS
from sparing.testing.claims import Equals, Matches
from sparing.testing.subjects import entries

OURS = Folder("sparing.mechanisms", "mechanism").names()
MODELS = ["bert", "long_range", "regnet", "vit", "vit_detector"]


def test_list_names_the_folder(command):
    names = Folder("sparing.mechanisms", "mechanism").names()
    rows = [line.split(maxsplit=1) for line in command("list").out.splitlines()]
    assert [name for name, _ in rows] == names
    assert dict(rows)["window"].startswith("Sliding-window attention: exact softmax")
    assert command("list", "--json").json == {"mechanisms": names}
    assert "fashion-mnist  Fashion-MNIST: 28 x 28 pictures" in command("list", "tasks").out
    assert command("list", "models", "--json").json == {"models": MODELS}
    assert "Which attention a model should use" in command("list", "studies").out


def test_list_shows_a_study_that_cannot_be_loaded(command, monkeypatch):
    entry = EntryPoint("broken", "no_such_package.study:STUDY", "sparing.studies")
    monkeypatch.setattr("sparing.experiment.installed.installed", lambda: {"broken": entry})
    assert command("list", "studies").out.startswith("broken  cannot be loaded: No module named")


def test_list_the_records_of_a_study(command):
    lines = command("list", "records", "compare").out.splitlines()
    assert next(line for line in lines if line.startswith("latency_ratio ")).split() == [
        *("latency_ratio", "ratio"),
        *["Time", "over", "the", "baseline's,", "paired"],
    ]
    entry = command("list", "records", "compare", "--json").json["records"]["peak_ratio"]
    assert (entry["units"], entry["labels"]) == (["ratio"], ["arm", "scope", "tokens", "batch"])
    for words, message in (
        (("records",), "needs a study"),
        (("records", "compar"), "unknown study 'compar'"),
        (("tasks", "compare"), "a study belongs to records, not to tasks"),
        (("record",), "did you mean 'records'"),
    ):
        wrong = command("list", *words)
        assert (wrong.code, wrong.out) == (2, "")
        assert message in wrong.err


def test_list_with_traits(command):
    rows = command("list", "--traits", "--json").json["mechanisms"]
    assert rows["softmax"]["exact"]
    assert rows["softmax"]["family"] == "dense"
    assert rows["uniform"]["arm"]
    assert not rows["linformer"]["causal"]
    wrong = command("list", "tasks", "--traits")
    assert (wrong.code, wrong.out) == (2, "")


def test_the_support_matrix_is_aligned_text(command):
    """A column for each trait, in 80 columns, and families together."""
    lines = command("list", "--traits").out.splitlines()
    head, rows = lines[0], [line.split() for line in lines[1 : lines.index("")]]
    assert head.split()[:3] == ["name", "family", "year"]
    assert all(len(line.rstrip()) <= 80 for line in lines)
    cells = {row[0]: dict(zip(head.split(), row, strict=True)) for row in rows}
    assert sorted(cells) == Folder("sparing.mechanisms", "mechanism").names()
    assert (cells["softmax"]["exact"], cells["linformer"]["causal"]) == ("yes", "no")
    families = [row[1] for row in rows]
    groups = [family for family, _ in itertools.groupby(families)]
    assert groups == sorted(set(families), key=FAMILIES.index)
    assert len(HEADS) == len(FLAGS)


def test_show_tells_formula_options_and_cost(command):
    shown = command("show", "linformer", "--heads", 2, "--dim", 8)
    assert "slots=" in shown.out
    assert "2 heads of 8" in shown.out
    assert "key_projection  (128, 8192)  parameter" in shown.out
    assert "not causal" in shown.out
    assert "equals softmax with slots=tokens" in shown.out
    facts = command("show", "linformer", "--json").json
    flops = {n: cost["matmul_flops"] for n, cost in facts["cost"].items()}
    assert flops["8192"] == 4 * flops["2048"]
    assert facts["tensors"][0]["shape"] == [128, 8192]
    assert set(facts["sections"]) == {"Summary", *SECTIONS}
    assert facts["sections"]["Formula"].startswith("out = softmax over slots")
    assert "Linformer" in facts["traits"]["paper"]


def test_show_names_the_path_of_a_call_and_why(command):
    shown = command("show", "softmax", "--device", "mps", "--dtype", "bfloat16", "--padded").out
    assert "Path on mps, bfloat16, 8192 tokens, padded: accelerator (plain PyTorch" in shown
    assert "Its accelerator form launches " in shown
    facts = command("show", "uniform", "--tokens", 64, "--causal", "--training", "--json").json
    path = facts["path"]
    assert (path["device"], path["path"], path["dtype"]) == ("cpu", "cpu", "float32")
    assert (path["causal"], path["recorded"], path["visible"]) == (True, True, True)
    assert 0 < path["accelerator"]["operations"] <= 10
    assert "cannot be causal" in command("show", "linformer", "--causal").error
    assert "did you mean 'cuda'" in command("show", "linear", "--device", "cude").error


def test_growth_is_the_exponent_of_the_tokens(command):
    costs = command("show", "eager", "--json").json["cost"]
    assert all(cost["flops_growth"] == cost["peak_growth"] == 2 for cost in costs.values())
    costs = command("show", "linear", "--json", "--tokens", 3000).json["cost"]
    assert [*costs] == ["128", "512", "2048", "3000"]
    assert costs["3000"]["flops_growth"] == pytest.approx(1, abs=0.01)
    assert costs["3000"]["flops_over_softmax"] < 0.1
    assert command("show", "none", "--json").json["cost"]["512"]["flops_growth"] is None
    assert command("show", "none").code == 0


def test_the_steps_of_a_call_are_counted(command):
    steps = command("show", "eager", "--json", "--heads", 2, "--dim", 8).json["steps"]
    assert [step["step"] for step in steps["products"]] == [
        "bmm (2, 512, 8) (2, 8, 512)",
        "bmm (2, 512, 512) (2, 512, 8)",
    ]
    assert [(step["share"], step["growth"]) for step in steps["products"]] == [(0.5, 2.0)] * 2
    shown = command("show", "window", "--tokens", 400).out
    assert "400 tokens, batch 1" in shown
    assert "attention (" in shown


def test_a_crossover_is_told_where_it_was_measured(command, tmp_path, monkeypatch):
    monkeypatch.setattr(mechanism_facts.resources, "files", lambda package: tmp_path)
    assert "Measured: not measured" in command("show", "window").out
    assert command("show", "window", "--json").json["measured"] is None
    common = {"longest_tokens": 4096, "speedup": {"512": 0.5, "4096": 2.25}, "peak_ratio": {}}
    mechanisms = {
        "window": {"crossover_tokens": 1024, **common},
        "linear": {"crossover_tokens": None, **common},
    }
    record = {"machine": "two cores", "month": "2026-11", "commit": "abc", "mechanisms": mechanisms}
    file = tmp_path / "_measured.json"
    file.write_text(json.dumps(record))
    shown = command("show", "window").out
    assert "faster than softmax from 1024 tokens on" in shown
    assert "4096: 2.25 (two cores, 2026-11, commit abc)" in shown
    assert "not faster than softmax up to 4096 tokens" in command("show", "linear").out
    assert "not measured" in command("show", "kerformer").out
    assert command("show", "window", "--json").json["measured"]["machine"] == "two cores"
    file.write_text('{"mechanisms": {"window": {}}}')
    broken = command("show", "window")
    assert broken.code == 1
    assert "_measured.json is damaged" in broken.error


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """A module of somebody else whose mechanism sees the future."""
    source = Path(Folder("sparing.mechanisms", "mechanism").load("softmax").__file__)
    broken = source.read_text().replace("causal=True, dropout", "causal=False, dropout")
    assert broken != source.read_text()
    (tmp_path / "my_lab").mkdir()
    (tmp_path / "my_lab" / "attention.py").write_text(broken)
    monkeypatch.syspath_prepend(tmp_path)
    return "my_lab.attention"


def test_check_passes_and_fails(command, foreign):
    good = command("check", "softmax", "--checks", "refusals,determinism", "--json")
    assert good.code == 0
    assert good.json["passed"]
    assert len(good.json["mechanisms"]["softmax"]["outcomes"]) == 2
    bad = command("check", foreign, "uniform", "--checks", "causality")
    assert bad.code == 1
    assert "FAILED causality" in bad.out
    assert "ok      uniform           1 passed, 0 failed" in bad.out
    assert "1 mechanisms keep the contract, 1 do not" in bad.out
    facts = command("check", foreign, "uniform", "--checks", "causality", "--json").json
    assert not facts["passed"]
    assert [result["passed"] for result in facts["mechanisms"].values()] == [False, True]


def test_a_module_of_ones_own_lists_its_claims(command, foreign, tmp_path):
    without = command("check", foreign, "--checks", "claims")
    assert "states no limit" in without.out
    file = tmp_path / "my_lab" / "attention.py"
    added = """
from sparing.testing.claims import Equals
from sparing.testing.subjects import Entry
ENTRIES = (Entry(({}, {"dropout": 0.1}), (Equals("softmax", {}),)),)
"""
    file.write_text(file.read_text() + added)
    sys.modules.pop(foreign)
    checked = command("check", foreign, "--checks", "claims,empty", "--json").json
    outcomes = checked["mechanisms"][foreign]["outcomes"]
    assert [outcome["check"] for outcome in outcomes] == ["claims", "claims", "empty", "empty"]


def test_check_all_has_a_line_for_each_mechanism(command):
    ended = command("check", "--all", "--checks", "empty")
    lines = ended.out.splitlines()
    names = Folder("sparing.mechanisms", "mechanism").names()
    assert ended.code == 0
    assert [line.split()[:2] for line in lines[:-1]] == [["ok", name] for name in names]
    assert "100%" not in ended.out
    assert names[-1] in ended.err


@pytest.mark.parametrize("words", [(), ("softmax", "--all"), ("sofmax",)])
def test_check_wants_names_or_all(command, words):
    ended = command("check", *words)
    assert (ended.code, ended.out) == (2, "")
    assert "softmax" in ended.error if words == ("sofmax",) else "--all" in ended.error


def test_every_claim_tells_what_it_claims():
    claims = {
        name: [claim.describe() for e in entries(name) for claim in e.claims] for name in OURS
    }
    assert "equals softmax with radius=tokens" in claims["window"]
    assert any(claim.startswith("matches dense_window: Softmax") for claim in claims["window"])
    assert claims["eager"] == ["equals softmax"]
    assert Equals("softmax", lambda n: {"a": 2 * n, "b": n + 1}).describe() == (
        "equals softmax with a=2 tokens, b=1001 at 1000 tokens"
    )
    assert Equals("softmax", {"a": "x"}, relative=1e-7).describe() == (
        "equals softmax with a='x', to 1e-07"
    )
    assert Matches(lambda: None).describe() == "matches <lambda>: <lambda>"


def test_doctor_says_how_energy_is_known_and_which_engines_there_are(command):
    facts = command("doctor", "--json").json
    assert facts["machine"]["cores"] >= 1
    assert set(facts["energy"].values()) <= {"measured", "integrated", "estimated"}
    shown = command("doctor").out
    assert "energy" in shown
    for engine in ("onnxruntime", "openvino", "nncf"):
        assert facts["extras"][engine][0].isdigit()
        assert f"engine         {engine}: {facts['extras'][engine]}" in shown


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["list", "tasks", "--json"]])
def test_names_come_without_heavy_libraries(arguments):
    script = (
        "import sys\n"
        "from sparing.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit as ended:\n    code = ended.code\n"
        "heavy = {'torch', 'numpy', 'scipy', 'transformers', 'sklearn', 'matplotlib'}\n"
        "print(sorted(heavy & set(sys.modules)), code, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[] 0"
    assert done.stdout


def test_a_full_device_on_stdout_gives_one_line():
    device = Path("/dev/full")
    if not device.exists():
        pytest.skip("this system has no /dev/full")
    with device.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "sparing", "list", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "sparing: No space left on device\n"


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "sparing", "list", "models", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {"models": MODELS}
    assert done.stderr == ""


def test_show_draws_the_products_of_a_mechanism(command, tmp_path):
    drawn = command("show", "linformer", "--draw", "--tokens", 256, "--dim", 8)
    assert drawn.code == 0
    assert "n = 256 tokens, k = 128 slots, d = 8 features of a head" in drawn.out
    assert "1. E times K: k x n times n x d is k x d" in drawn.out
    facts = command("show", "linformer", "--draw", "--json").json
    assert [step["result"] for step in facts["steps"]] == ["E K", "F V", "scores", "out"]
    figure = tmp_path / "shapes.svg"
    assert command("show", "linformer", "--draw", "--output", figure).out.strip() == str(figure)
    assert "<svg" in figure.read_text(encoding="utf-8")
    refused = command("show", "kerformer", "--draw")
    assert refused.code == 2
    assert "kerformer has no drawing; these have one: linformer, softmax" in refused.error
    assert ".png or .svg" in command("show", "linformer", "--output", tmp_path / "a.gif").error
