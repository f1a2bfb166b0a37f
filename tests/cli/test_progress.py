"""Progress of long work without a terminal."""

from __future__ import annotations

import pytest

from sparing.cli.shared import common
from sparing.cli.shared.common import in_words


def test_a_log_has_a_line_for_each_piece_of_work_and_few_of_what_goes_on_inside(
    monkeypatch, capsys
):
    now = [100.0]
    monkeypatch.setattr("sparing.cli.shared.common.time.monotonic", lambda: now[0])
    with common.progress_bar() as tell:
        for piece in ("one", "two"):
            tell(0.0, piece)
            for epoch in range(1, 31):
                now[0] += 1
                tell(epoch / 30, f"{piece}: epoch {epoch}")
    lines = [
        line.split(maxsplit=1)[1].partition(" [")[0]
        for line in capsys.readouterr().err.splitlines()
    ]
    inside = [10, 20, 30]
    assert lines == [
        text
        for piece in ("one", "two")
        for text in (piece, *(f"{piece}: epoch {n}" for n in inside))
    ]


def test_the_time_left_follows_from_what_this_process_did(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr("sparing.cli.shared.common.time.monotonic", lambda: now[0])
    with common.progress_bar() as tell:
        for fraction in (0.5, 0.501, 0.6, 0.75, 1.0):  # half was done before
            tell(fraction, f"at {fraction}")
            now[0] += 100
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" [")[2].rstrip("]") for line in lines] == [
        "",
        "",
        "about 13 min left",
        "about 5 min left",
        "",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "1 s"), (59.0, "59 s"), (150.0, "2 min"), (9000.0, "2.5 h")]
)
def test_seconds_in_words(seconds, words):
    assert in_words(seconds) == words
