"""A run's metrics as JSON lines: appended while it runs, rewound when it resumes."""

from __future__ import annotations

import json
from pathlib import Path

from sparing.core.ranks import is_first
from sparing.core.reading import parse_json
from sparing.core.writing import append, write_atomically

Entry = dict[str, float | int | str]


class MetricsFile:
    """Append-only lines; each has a ``kind`` (train or validation), a step and an epoch."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, entry: Entry) -> None:
        """Add one line, in process 0 alone."""
        if is_first():
            append(self.path, (json.dumps(entry) + "\n").encode())

    def rewind(self, step: int) -> None:
        """Drop the lines after ``step``, and a half-written line."""
        if not is_first() or not self.path.exists():
            return
        lines = []
        for line in self.path.read_text().splitlines():
            try:
                if parse_json(line)["step"] <= step:
                    lines.append(line + "\n")
            except (ValueError, KeyError, TypeError):
                continue
        write_atomically(self.path, "".join(lines))
