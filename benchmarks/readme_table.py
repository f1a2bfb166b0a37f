"""Put a run's verdict and table into README.md, and the pooled result of slim.

    python benchmarks/readme_table.py runs/demo

Both are written between their markers. The table comes from the run's report.md, which is copied
with its records to benchmarks/results/demo. The result of slim comes from SLIM.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from pages import put_between
from slim_pool import speeds
from sparing.report.wording import factor, points, points_interval

ROOT = Path(__file__).parents[1]
SLIM = ROOT / "benchmarks" / "results" / "slim-pooled-2026-11.json"
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
    put_between(ROOT / "README.md", "slim line", slim_line(json.loads(SLIM.read_text())))
    target = ROOT / "benchmarks" / "results" / "demo"
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
