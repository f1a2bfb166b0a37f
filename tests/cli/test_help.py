"""``--help``: the verbs by what a person wants, one plain line and one example that works."""

from __future__ import annotations

import re
import shlex
from functools import cache

import pytest
import typer
from PIL import Image

from sparing.cli import application
from sparing.cli.shared.groups import PANELS
from sparing.core.folder import Folder

VERBS = Folder("sparing.cli", "verb").names()
LINE_CHARACTERS = 66  # what fits beside a verb's name in 80 columns
# In this order: the examples work on what those before them made.
CHEAP = (
    *("list", "show", "doctor", "study", "train", "evaluate", "swap", "export", "prune"),
    "patches",
)


@cache
def _commands():
    """Every command by its words, those with sub-commands included."""
    verbs = typer.main.get_command(application()).commands
    parts = {
        f"{name} {part}": command
        for name, verb in verbs.items()
        for part, command in getattr(verb, "commands", {}).items()
    }
    return {**verbs, **parts}


def _example(name):
    """The words after ``sparing`` in the example of a command."""
    return shlex.split(_commands()[name].epilog.removeprefix("Example: "))[1:]


def _parsed(words):
    """The values that the command line gets from these words; nothing is run."""
    app, values = typer.main.get_command(application()), []
    for verb in app.commands.values():
        for command in getattr(verb, "commands", {"": verb}).values():
            command.callback = lambda **given: values.append(given)
    app(list(words), prog_name="sparing", standalone_mode=False)
    return values


def test_every_verb_has_one_panel(command):
    grouped = [verb for verbs in PANELS.values() for verb in verbs]
    assert sorted(grouped) == VERBS
    shown = command("--help").out
    assert [panel for panel in re.findall(r"─ ([\w ]+) ─", shown) if panel != "Options"] == [
        *PANELS
    ]
    assert re.findall(r"^│ (\w+) ", shown, re.MULTILINE) == grouped


def test_a_verb_has_one_line_in_the_list(command):
    lines = {name: one.help.partition("\n")[0] for name, one in _commands().items()}
    assert {n: line for n, line in lines.items() if len(line) > LINE_CHARACTERS} == {}
    shown = command("--help").out
    assert [verb for verb in VERBS if lines[verb] not in shown] == []


@pytest.mark.parametrize("name", sorted(_commands()))
def test_help_ends_with_an_example_that_the_parser_takes(command, name):
    shown = " ".join(command(*name.split(), "--help").out.split())
    assert shown.endswith(_commands()[name].epilog)
    words = _example(name)
    assert words[: len(name.split())] == name.split() or name == "calculate answer"
    (values,) = _parsed(words)
    assert isinstance(values, dict)


def test_an_example_with_a_wrong_option_is_noticed():
    with pytest.raises(Exception, match="No such option: --mechanism"):
        _parsed(["compare", "digits", "--mechanism", "softmax"])


def test_the_cheap_examples_run(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (32, 32), "red").save(tmp_path / "photos" / "red.png")
    for name in (*CHEAP, "calculate", "calculate prove"):
        ended = command(*_example(name))
        assert (name, ended.code) == (name, 0), ended.err
        assert ended.out
    assert (tmp_path / "models" / "pruned" / "config.json").is_file()


@pytest.mark.parametrize("name", sorted(set(_commands()) - {"calculate", "calculate web"}))
def test_every_command_has_json(command, name):
    assert "--json" in command(*name.split(), "--help").out


def test_help_shows_the_exit_codes(command):
    shown = command("--help")
    assert shown.code == 0
    assert "130" in shown.out
    assert command("--version").out.startswith("sparing ")
