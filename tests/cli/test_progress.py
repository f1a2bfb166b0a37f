"""What is told of long work where nobody looks at a terminal."""

from __future__ import annotations

from sparing.cli import _shared


def test_a_log_has_a_line_for_each_piece_of_work_and_few_of_what_goes_on_inside(
    monkeypatch, capsys
):
    now = [100.0]
    monkeypatch.setattr("sparing.cli._shared.time.monotonic", lambda: now[0])
    with _shared.progress_bar() as tell:
        for piece in ("one", "two"):
            tell(0.0, piece)
            for epoch in range(1, 31):
                now[0] += 1
                tell(epoch / 30, f"{piece}: epoch {epoch}")
    lines = [line.split(maxsplit=1)[1] for line in capsys.readouterr().err.splitlines()]
    inside = [10, 20, 30]
    assert lines == [
        text
        for piece in ("one", "two")
        for text in (piece, *(f"{piece}: epoch {n}" for n in inside))
    ]
