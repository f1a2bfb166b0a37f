"""A run's metrics as JSON lines: appended while it runs, rewound when it resumes."""

from __future__ import annotations

import json
from pathlib import Path

Entry = dict[str, float | int | str]


class MetricsFile:
    """Append-only lines; each has a ``kind`` (train or validation), a step and an epoch."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, entry: Entry) -> None:
        """Add one line."""
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def rewind(self, step: int) -> None:
        """Drop what was written after ``step``, and a line that was left half-written."""
        if not self.path.exists():
            return
        kept = []
        for line in self.path.read_text().splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except (ValueError, KeyError, TypeError):
                continue
        torn = self.path.with_name(self.path.name + ".part")
        torn.write_text("".join(kept))
        torn.replace(self.path)
