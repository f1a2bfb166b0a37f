"""Put a run's verdict and table into README.md, between its two markers.

    python benchmarks/readme_table.py runs/demo

What stands there is taken from the run's own report.md and from nowhere else; the run's records
and page are copied to benchmarks/results/demo and packed, so that the table can be checked.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from pages import put_between
from sparing.core.record import RECORDS
from sparing.report.packing import pack

ROOT = Path(__file__).parents[1]
KEPT = ("config.json", RECORDS, f"{RECORDS}.gz", "goals.json", "failed.json", "report.md")


COLUMNS = ("Arm", "Accuracy", "Against dense", "Latency", "Peak memory", "Inference")


def excerpt(report: str) -> str:
    """The verdict before the first heading, and some columns of the table under "All arms"."""
    verdict = re.split(r"^## ", report, flags=re.MULTILINE)[0].split("\n\n", 2)[2].strip()
    section = re.search(r"^## All arms.*?\n\n(\|.*?)\n\n", report, re.MULTILINE | re.DOTALL)
    if section is None:
        raise SystemExit("report.md has no table of arms")
    rows = [line.strip("| ").split(" | ") for line in section.group(1).splitlines()]
    chosen = [i for i, head in enumerate(rows[0]) if head.startswith(COLUMNS)]
    lines = ["| " + " | ".join(row[i] for i in chosen) + " |" for row in rows]
    return "\n".join([verdict, "", *lines])


def setting(config: dict[str, Any]) -> str:
    """One line: on what machine, with what code, and where the records lie."""
    return (
        f"Measured on {config['machine']['cpu']}, {config['threads']} thread, "
        f"{config['started'][:10]}, commit {config['commit']}; "
        "records in [benchmarks/results/demo](benchmarks/results/demo)."
    )


def main() -> None:
    """Rewrite README.md from the run named on the command line."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    run = Path(sys.argv[1])
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    found = excerpt((run / "report.md").read_text(encoding="utf-8")) + "\n\n" + setting(config)
    put_between(ROOT / "README.md", "demo table", found)
    target = ROOT / "benchmarks" / "results" / "demo"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in KEPT:
        if (run / name).is_file():
            shutil.copy(run / name, target / name)
    pack(target)


if __name__ == "__main__":
    main()
