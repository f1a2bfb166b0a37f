"""The studies that are installed, by name: nothing of them is imported to list them."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

GROUP = "sparing.studies"
PAPERS = "sparing-papers"  # the distribution with the studies of papers
MISSING_PAPERS = "the studies of papers need: pip install ./papers (in a clone of sparing)"
OURS = ("sparing", PAPERS)


@cache
def installed() -> dict[str, EntryPoint]:
    """Where each installed study is declared, by its name; none replaces one of sparing's."""
    entries = sorted(entry_points(group=GROUP), key=_is_ours)
    return {entry.name: entry for entry in entries}


def _is_ours(entry: EntryPoint) -> bool:
    return entry.dist is not None and entry.dist.name in OURS


def study_names() -> list[str]:
    """The names of all installed studies, sorted."""
    return sorted(installed())


def has_papers() -> bool:
    """Whether the distribution with the studies of papers is installed."""
    return any(entry.dist and entry.dist.name == PAPERS for entry in installed().values())
