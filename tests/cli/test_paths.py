"""Paths that no file can have, for every verb and option that takes one: one line, exit code 2."""

from __future__ import annotations

import pytest

from sparing.core.errors import UsageError
from sparing.core.paths import expanded

LONG = "x" * 300
OUT = ("--output-dir", "OUT")
VERBS = [
    ("report", "BAD"),
    ("merge", "BAD", "OTHER", *OUT),
    ("pack", "BAD"),
    ("merge", "OTHER", "MORE", "--output-dir", "BAD"),
    ("swap", "BAD", "linear", *OUT),
    ("swap", "BERT", "linear", "--output-dir", "BAD"),
    ("swap", "BERT", "--plan", "BAD", *OUT),
    ("swap", "BERT", "linear", "--texts", "BAD", *OUT),
    ("train", "digits", "--output-dir", "BAD"),
    ("train", "BAD", *OUT),
    ("train", "digits", "--model", "BAD", *OUT),
    ("train", "digits", "--distil-from", "BAD", *OUT),
    ("train", "fashion-mnist", "--data", "BAD", *OUT),
    ("evaluate", "BAD"),
    ("evaluate", "BERT", "--task", "BAD"),
    ("slim", "BAD", "--quick", *OUT),
    ("slim", "vit", "--task", "BAD", *OUT),
    ("slim", "vit", "--output-dir", "BAD"),
    ("slim", "vit", "--data", "BAD", *OUT),
    ("prune", "BAD", "--task", "digits", "--heads", "0.5", *OUT),
    ("prune", "BERT", "--task", "BAD", "--heads", "0.5", *OUT),
    ("prune", "BERT", "--task", "digits", "--heads", "0.5", "--output-dir", "BAD"),
    ("measure", "BAD"),
    ("measure", "BERT", "--against", "BAD"),
    ("agree", "BERT", "BERT", "--texts", "BAD"),
    ("agree", "BERT", "BERT", "--texts", "OTHER", "--changed", "BAD"),
    ("predict", "BAD", "--texts", "OTHER", *OUT),
    ("predict", "BERT", "--texts", "BAD", *OUT),
    ("predict", "BERT", "--texts", "OTHER", "--output-dir", "BAD"),
    ("advise", "BAD", "--tokens", "16"),
    ("advise", "BERT", "--texts", "BAD"),
    ("advise", "BERT", "--tokens", "16", "--output-dir", "BAD"),
    ("compare", "BAD", *OUT),
    ("compare", "digits", "--output-dir", "BAD"),
    ("compare", "digits", "--model", "BAD", *OUT),
    ("study", "compare", "--output-dir", "BAD"),
    ("study", "linformer", "--data", "BAD", *OUT),
    ("patches", "BAD"),
    ("patches", "OTHER", "--output", "BAD"),
    ("calculate", "1+1", "--model", "BAD"),
    ("calculate", "train", "BAD"),
    ("calculate", "web", "--models", "BAD"),
    ("search", "feed_forward", "--trials", "1", "--output-dir", "BAD"),
]


@pytest.mark.parametrize("bad", ["~nouser/x", LONG], ids=["user", "long"])
@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_no_such_path(command, bert, tmp_path, monkeypatch, arguments, bad):
    monkeypatch.chdir(tmp_path)
    given = {"BERT": bert, "OUT": tmp_path / "out"}
    words = [given.get(word, word.replace("BAD", bad)) for word in arguments]
    ended = command(*words)
    assert ended.code == 2, ended.err
    assert "no such file or folder: " in ended.error
    assert len(ended.error) <= 400
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bad", ["~nouser", LONG])
def test_no_such_data_folder(command, tmp_path, monkeypatch, bad):
    monkeypatch.setenv("SPARING_DATA", bad)
    for arguments in (("train", "fashion-mnist"), ("compare", "sst2")):
        ended = command(*arguments, "--output-dir", tmp_path / "out")
        assert ended.code == 2
        assert "no such file or folder: " in ended.error


def test_an_empty_path_is_not_the_current_folder(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments in (
        *(("report", ""), ("pack", ""), ("merge", "a", "b", "--output-dir", "")),
        *(("train", "digits", "--output-dir="), ("measure", ""), ("evaluate", " ")),
        *(("slim", ""), ("advise", "", "--tokens", 16), ("patches", "")),
    ):
        ended = command(*arguments)
        assert ended.code == 2
        assert "empty" in ended.error
    assert list(tmp_path.iterdir()) == []


def test_what_can_be_a_path():
    assert expanded("a/~b").parts == ("a", "~b")
    assert expanded("~/x").is_absolute()
    assert expanded("x" * 255).name == "x" * 255
    for bad in ("a\0b", "ä" * 128, "~nouser"):
        with pytest.raises(UsageError, match="no such file or folder"):
            expanded(bad)


def test_what_stands_in_the_way_of_a_folder(command, bert, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("file", "file/below", "loop", "loop/below"):
        path = tmp_path / name
        for arguments in (
            ("swap", bert, "linear", "--output-dir", path),
            ("train", "digits", "--output-dir", path),
            ("merge", tmp_path / "a", path, "--output-dir", tmp_path / "new"),
            ("report", path),
            ("measure", path, "--tokens", 8),
        ):
            ended = command(*arguments)
            assert ended.code in (1, 2), (arguments, ended)
            assert ended.error
    assert (tmp_path / "file").read_text() == "mine"
