"""How texts are read, answered and written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparing.answers import Settings
from sparing.core.errors import UsageError, require_choice

FORMATS, ENGINES = ("parquet", "jsonl"), ("local", "ray")
SHARD = re.compile("([0-9]{1,6})/([0-9]{1,6})")
# What decides the files that are written: another value is another run.
IDENTITY = (
    *("columns", "keep", "encoding", "header", "batch", "rows_a_shard", "format", "threshold"),
    "probabilities",
)


@dataclass(frozen=True)
class Options:
    """How texts are read, answered and written."""

    # The column of the texts, or two of pairs; none: by the rule of the first file.
    columns: tuple[str, ...] = ()
    # Further columns of the input, which are copied beside the answers.
    keep: tuple[str, ...] = ()
    # Of text files: their encoding, and whether a table's first line names its columns.
    encoding: str = "utf-8"
    header: bool | None = None
    # Texts that are answered at a time. Answers may differ with it in their last digits.
    batch: int = 8
    # Rows of one file of the output: the unit of work, and what is lost when a run is stopped.
    rows_a_shard: int = 5_000
    # The files of the output: parquet or jsonl.
    format: str = "parquet"
    # Of several labels: the probability from which one is given; 0.5.
    threshold: float | None = None
    # Whether the probability of every class is written too.
    probabilities: bool = False
    # Whether the first row with an error ends the run.
    strict: bool = False
    # Where it runs: processes of this machine, or a Ray cluster at ``address``.
    engine: str = "local"
    address: str = "auto"
    # Processes that answer, of one thread each; None: one for each processor.
    processes: int | None = None
    # The share of this call, such as 3/16: every 16th file of the output from the third on.
    shard: str = "1/1"

    def __post_init__(self) -> None:
        require_choice("predict", "format", self.format, FORMATS)
        require_choice("predict", "engine", self.engine, ENGINES)
        for name in ("batch", "rows_a_shard", "processes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1; got {value}")
        Settings(self.threshold)
        if len(set(self.keep)) < len(self.keep):
            raise UsageError(f"keep names a column twice: {', '.join(self.keep)}")
        match = SHARD.fullmatch(self.shard)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise UsageError(f"shard is one of several, such as 3/16; got {self.shard!r}")

    @property
    def share(self) -> tuple[int, int]:
        """The number of this share, from 0, and of all shares."""
        number, count = map(int, self.shard.split("/"))
        return number - 1, count

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that decide what is written, as JSON has them."""
        named = {name: getattr(self, name) for name in IDENTITY}
        return {n: list(v) if isinstance(v, tuple) else v for n, v in named.items()}


def names_of(columns: str | Sequence[str] | None) -> tuple[str, ...]:
    """Names of columns: one, several or none."""
    return (columns,) if isinstance(columns, str) else tuple(columns or ())
