"""The table of README.md, and the run that it is made from.

    python benchmarks/readme_table.py runs/demo
    make tables

The first copies a run's records and page to benchmarks/results/demo; the second writes the table
from what is there.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from sparing.experiment.registry import find_study
from sparing.report.run import read_run

DEMO = Path(__file__).parent / "results" / "demo"
KEPT = ("config.json", "records.jsonl", "goals.json", "failed.json", "report.md", "figures")


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


def demo_table() -> str:
    """The verdict of the demo's page, some columns of its table, and where it was run."""
    run = read_run(DEMO)
    return f"{excerpt(find_study('compare').page(run).markdown)}\n\n{setting(run.config)}"


def main() -> None:
    """Keep the run named on the command line as the demo's."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    run = Path(sys.argv[1])
    target = DEMO
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in KEPT:
        source = run / name
        if source.is_dir():
            shutil.copytree(source, target / name)
        else:
            shutil.copy(source, target / name)


if __name__ == "__main__":
    main()
