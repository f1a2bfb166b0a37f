"""The verbs that only look: list, show, check, doctor; and what holds for the whole line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from sparing.cli import application
from sparing.core.folder import Folder

VERBS = Folder("sparing.cli", "verb").names()


def test_list_names_the_folder(command):
    names = Folder("sparing.mechanisms", "mechanism").names()
    assert command("list").out.split() == names
    assert command("list", "--json").json == {"mechanisms": names}
    assert "fashion-mnist" in command("list", "tasks").out.split()
    assert command("list", "models", "--json").json == {"models": ["bert", "vit"]}
    assert "compare" in command("list", "studies").out.split()


def test_list_with_traits(command):
    rows = command("list", "--traits", "--json").json["mechanisms"]
    assert rows["softmax"]["exact"]
    assert not rows["linformer"]["causal"]
    lines = command("list", "--traits").out.splitlines()
    assert any(line.startswith("softmax") and "permutable" in line for line in lines)
    wrong = command("list", "tasks", "--traits")
    assert (wrong.code, wrong.out) == (2, "")


def test_show_tells_formula_options_and_cost(command):
    shown = command("show", "linformer", "--heads", 2, "--dim", 8)
    assert "slots=" in shown.out
    assert "2 heads of 8" in shown.out
    facts = command("show", "linformer", "--json").json
    flops = {n: cost["matmul_flops"] for n, cost in facts["cost"].items()}
    assert flops["8192"] == 4 * flops["2048"]


def test_check_passes_and_fails(command, tmp_path, monkeypatch):
    good = command("check", "softmax", "--checks", "refusals,determinism", "--json")
    assert good.code == 0
    assert good.json["passed"]
    source = Path(Folder("sparing.mechanisms", "mechanism").load("softmax").__file__)
    broken = source.read_text().replace("causal=True, dropout", "causal=False, dropout")
    assert broken != source.read_text()
    (tmp_path / "my_lab").mkdir()
    (tmp_path / "my_lab" / "attention.py").write_text(broken)
    monkeypatch.syspath_prepend(tmp_path)
    bad = command("check", "my_lab.attention", "--checks", "causality")
    assert bad.code == 1
    assert "FAILED causality" in bad.out


def test_doctor_says_how_energy_is_known(command):
    facts = command("doctor", "--json").json
    assert facts["machine"]["cores"] >= 1
    assert set(facts["energy"].values()) <= {"measured", "integrated", "estimated"}
    assert "energy" in command("doctor").out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_json(command, verb):
    shown = command(verb, "--help")
    assert shown.code == 0
    assert "--json" in shown.out


def _documented():
    """The commands in the documentation, a line each."""
    page = Path(__file__).parents[2] / "docs" / "command-line.md"
    lines = page.read_text().replace("\\\n", "").splitlines()
    return [line.split("#")[0].split() for line in lines if line.startswith("    sparing ")]


def test_every_verb_is_documented_with_options_that_exist():
    commands = typer.main.get_command(application()).commands
    assert {words[1] for words in _documented()} == set(commands) == set(VERBS)
    for _, verb, *words in _documented():
        known = {name for parameter in commands[verb].params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, verb


def test_help_tells_the_exit_codes(command):
    shown = command("--help")
    assert shown.code == 0
    assert "130" in shown.out
    assert all(verb in shown.out for verb in VERBS)
    assert command("--version").out.startswith("sparing ")


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
    place = Path("/dev/full")
    if not place.exists():
        pytest.skip("this system has no /dev/full")
    with place.open("w") as full:
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
    assert json.loads(done.stdout) == {"models": ["bert", "vit"]}
    assert done.stderr == ""
