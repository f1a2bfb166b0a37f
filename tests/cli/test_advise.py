"""``sparing advise``: its two forms of output, and what it refuses."""

from __future__ import annotations

import pytest

QUICK = ("--tokens", "16", "--quick", "--lengths", "16", "--mechanisms", "linear", "--threads", "1")
ALONE = (*QUICK, "--no-engines")


def test_the_recommendation_comes_first(command, bert, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("the film was good\nbad\n\nlong and long and good\n" * 4, encoding="utf-8")
    ended = command("advise", bert, *QUICK, "--texts", texts, "--output-dir", tmp_path / "out")
    assert ended.code == 0, ended.err
    first = ended.out.split(maxsplit=1)[0]
    assert first in ("Keep", "Swap", "Drop", "Serve", "In", "Undecided", "No", "The")
    shown = ("ONNX Runtime INT8", "sparing slim", "Where the time goes", "Padding on 12 texts")
    for words in (*shown, "Attention cores", "--distil-from"):
        assert words in ended.out
    assert "where the time goes" in ended.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "advice.json",
        "records.jsonl",
    ]


def test_json_is_one_object(command, bert):
    advice = command("advise", bert, *ALONE, "--json").json
    assert next(iter(advice)) == "recommendation"
    assert advice["tokens"] == 16
    assert advice["threads"] == 1
    assert advice["padding"] is None
    assert [mechanism["name"] for mechanism in advice["mechanisms"]] == ["linear"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--tokens", "49"), "at most 48 tokens"),
        (("--tokens", "0"), "at least 1"),
        (("--batch", "0"), "at least 1"),
        (("--lengths", "a"), "--lengths takes whole numbers"),
        (("--mechanisms", "linar"), "did you mean 'linear'"),
    ],
)
def test_wrong_use_is_one_line(command, bert, arguments, words):
    ended = command("advise", bert, *arguments)
    assert ended.code == 2
    assert words in ended.error


def test_texts_that_cannot_be_read_are_one_line(command, bert, tmp_path):
    ended = command("advise", bert, "--texts", tmp_path / "none.txt")
    assert ended.code == 1
    assert "there is no file" in ended.error


def test_no_such_model_is_one_line(command, tmp_path):
    ended = command("advise", tmp_path / "none")
    assert ended.code == 2
    assert "no such folder" in ended.error
