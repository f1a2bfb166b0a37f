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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slim_pool import (
    OVER_BEST,
    OVER_FLOAT32,
    SERVED,
    SlimRun,
    pooled_accuracy,
    pooled_speed,
)
from sparing.core.record import RECORDS
from sparing.core.rounding import rounded_down
from sparing.experiment.registry import find_study
from sparing.report.packing import pack
from sparing.report.run import read_run
from sparing.report.wording import factor, points

DEMO = Path(__file__).parent / "results" / "demo"
KEPT = ("config.json", RECORDS, f"{RECORDS}.xz", "goals.json", "failed.json", "report.md")


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


def slim_line(runs: Sequence[SlimRun]) -> str:
    """Speed and accuracy of what slim serves over all runs with labels."""
    labelled = [run for run in runs if not run.labelless]
    accuracy = pooled_accuracy(labelled, SERVED)
    assert accuracy is not None
    over_float32, over_best = (
        factor(pooled_speed(labelled, name, 1) or 0) for name in (OVER_FLOAT32, OVER_BEST)
    )
    tasks = len({run.task for run in labelled})
    bound = points(rounded_down(100 * accuracy.bound, 2) / 100)
    return (
        f"{len(labelled)} runs on {tasks} tasks, with at most 5 % of the answers changed: "
        f"**{over_float32} faster** than dense in float32, {over_best} faster than the best dense "
        f"form that keeps as many answers. Accuracy changes by {points(accuracy.value)} percentage "
        f"points (95 % bound: {bound}). {_texts_line(runs)}"
    )


def _texts_line(runs: Sequence[SlimRun]) -> str:
    """The speeds of the run with the most texts without labels."""
    run = max((run for run in runs if run.labelless), key=lambda run: run.count)
    exact, best = (factor(pooled_speed([run], name, 1) or 0) for name in (OVER_FLOAT32, OVER_BEST))
    return f"From {run.count:,} texts without labels: **{exact}** and **{best}**."


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
