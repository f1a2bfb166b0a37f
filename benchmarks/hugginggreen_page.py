"""Put the tables of HuggingGreen runs between the marks of their page of documentation.

python benchmarks/hugginggreen_page.py STANDARD docs/hugginggreen.md --grid GRID
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pages import put_between
from sparing.report.markdown import plain_table
from sparing.report.run import read_run
from sparing_papers.hugginggreen.page.content import verdict
from sparing_papers.hugginggreen.page.results import ATTENTION, BOXES, PATCHES, GreenResults, Group
from sparing_papers.hugginggreen.page.tables import (
    arm_blocks,
    box_blocks,
    half_blocks,
    points_text,
    rival_blocks,
    stage_blocks,
)

SCORES, WAYS = ("contrast", "variance", "entropy"), ("top", "sampled")
SHARES = ("0.9", "0.7", "0.5")
RIVALS = {
    "random": "random patches of the same way and share",
    "fewer steps": "a dense model of fewer steps",
    "larger patches": "a dense model on larger patches",
}
MET = {True: "yes", False: "no"}
COLUMNS = slice(0, 7)  # without the energy of a prediction and the p-values, which the page has


def answers(folder: Path) -> str:
    """The verdict, its goals, and every table that a research question is answered by."""
    run = read_run(folder)
    results = GreenResults(run)
    decided = verdict(results)
    parts = [f"**{decided.lead}**{decided.because}", *(text for text in decided.second if text)]
    goals = tuple((goal["name"], MET.get(goal["met"], "undecided")) for goal in run.goals)
    parts.append(plain_table(("Declared goal", "Met"), goals))
    for question in (PATCHES, ATTENTION):
        for block in arm_blocks(results, question):
            rows = tuple(row[COLUMNS] for row in block.rows)
            pairs = f"{block.explain.partition(';')[0]}."
            parts += [f"### {block.title}", pairs, plain_table(block.heads[COLUMNS], rows)]
    blocks = [*rival_blocks(results), *half_blocks(results), *stage_blocks(results)]
    if results.of(BOXES):
        blocks += box_blocks(results)
    for block in blocks:
        parts += [f"### {block.title}", plain_table(block.heads, block.rows)]
    return "\n\n".join(parts)


def every_choice(folder: Path) -> str:
    """Every score, way and share beside each rival of the same cost, in points."""
    results = GreenResults(read_run(folder))
    group = max(results.of(PATCHES), key=lambda each: len(each.arms))
    parts = [verdict(results).second[0]]
    for rival, words in RIVALS.items():
        parts += [f"Beside {words}:", _beside(group, rival)]
    return "\n\n".join(parts)


def _beside(group: Group, rival: str) -> str:
    heads = ("Choice", *(f"{float(share):.0%} kept" for share in SHARES))
    rows = tuple(
        (f"{score}, {way}", *(_points(group, f"{score} {way} {share}", rival) for share in SHARES))
        for score in SCORES
        for way in WAYS
    )
    return plain_table(heads, rows)


def _points(group: Group, arm: str, rival: str) -> str:
    return points_text(group.find("rival_difference", arm=arm, rival=rival))


def main() -> None:
    """Write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("standard", type=Path)
    parser.add_argument("page", type=Path)
    parser.add_argument("--grid", type=Path, help="a run of every score, way and share")
    given = parser.parse_args()
    put_between(given.page, "standard", answers(given.standard))
    if given.grid is not None:
        put_between(given.page, "grid", every_choice(given.grid))


if __name__ == "__main__":
    main()
