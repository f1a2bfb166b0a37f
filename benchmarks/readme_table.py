"""The table of README.md and its line on slim, and the run that the table is made from.

    python benchmarks/readme_table.py runs/demo
    make tables

The first copies a run's records and page to benchmarks/results/demo and packs them. The second
writes the table from what is there, and the line on slim from its pooled results.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from slim_before import speeds
from sparing.core.record import RECORDS
from sparing.experiment.registry import find_study
from sparing.report.packing import pack
from sparing.report.run import read_run
from sparing.report.wording import factor, points, points_interval

DEMO = Path(__file__).parent / "results" / "demo"
KEPT = ("config.json", RECORDS, f"{RECORDS}.gz", "goals.json", "failed.json", "report.md")


COLUMNS = ("Variant", "Accuracy", "Against dense", "Latency")


def excerpt(report: str) -> str:
    """The verdict and some columns of the table under "All variants" without smaller notes."""
    verdict = re.split(r"^## ", report, flags=re.MULTILINE)[0].split("\n\n")[2].strip()
    section = re.search(r"^## All variants.*?\n\n(\|.*?)\n\n", report, re.MULTILINE | re.DOTALL)
    if section is None:
        raise SystemExit("report.md has no table of variants")
    rows = [line.strip("| ").split(" | ") for line in section.group(1).splitlines()]
    chosen = [i for i, head in enumerate(rows[0]) if head.startswith(COLUMNS)]
    lines = [f"| {' | '.join(_short(row[i], notes=i > 0) for i in chosen)} |" for row in rows]
    return "\n".join([verdict, "", *lines])


def _short(cell: str, notes: bool) -> str:
    """What a cell says first, and its first note where notes are wanted, on one line."""
    first, *rest = re.sub("</?sub>", "", cell).split("<br>")
    return f"{first} ({rest[0]})" if notes and rest else first


def slim_line(record: dict[str, Any]) -> str:
    """Speed and accuracy of slim over all runs of a pooled record, with their intervals."""
    runs = [row for row in record["runs"] if (row["arm"], row["batch"]) == ("slim", 1)]
    speed = [row["speed_up"] for row in runs]
    accuracy = record["pooled_accuracy"]["slim"]
    assert accuracy["runs"] == len(runs)
    mean = factor(speeds(runs, "slim", 1) or 0)
    low, high = accuracy["interval"]
    interval = points_interval(accuracy["value"], (low, high))
    return (
        f"{len(runs)} runs on {len({row['task'] for row in runs})} tasks: **{mean} faster** than "
        f"the fastest dense form ({factor(min(speed))} to {factor(max(speed))} by run), accuracy "
        f"{points(accuracy['value'], low, high)} percentage points "
        f"(95 % {interval})."
    )


def setting(config: dict[str, Any]) -> str:
    """One line: on what machine, when, and where the records are."""
    return (
        f"[Records](benchmarks/results/demo): {config['machine']['cpu']}, "
        f"{config['threads']} thread, {config['started'][:10]}."
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
        if (run / name).is_file():
            shutil.copy(run / name, target / name)
    pack(target)


if __name__ == "__main__":
    main()
