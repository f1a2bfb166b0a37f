"""Where a page of documentation keeps what a run fills in: between two marks."""

from __future__ import annotations

from pathlib import Path

from sparing.experiment.run import write_atomically


def put_between(page: Path, name: str, content: str) -> None:
    """Put the content between the marks of this name; a page without them is left as it is."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise SystemExit(f"{page} has no lines {begin} and {end}")
    write_atomically(page, f"{before}{begin}\n{content}\n{end}{after}")
