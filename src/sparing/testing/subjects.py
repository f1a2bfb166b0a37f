"""Each mechanism's configurations under test and its claims: one entry for each file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparing.core.mechanism import Mechanism
from sparing.testing.claims import Claim, Equals
from sparing.testing.subject import Subject


@dataclass(frozen=True)
class Entry:
    """The configurations in which a mechanism is tested; the first carries its defaults' claims."""

    options: tuple[dict[str, Any], ...]
    claims: tuple[Claim, ...]
    row_sums: bool = True


ENTRIES: dict[str, Entry] = {
    "softmax": Entry(({},), (Equals("eager"),)),
    "eager": Entry(({},), (Equals("softmax"),)),
}


def subjects(name: str, build: type[Mechanism]) -> list[Subject]:
    """The configurations of a mechanism by name; a stranger is tested with its defaults."""
    entry = ENTRIES.get(name)
    if entry is None:
        return [Subject(build)]
    return [Subject(build, options, entry.row_sums, entry.claims) for options in entry.options]
