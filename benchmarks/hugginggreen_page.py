"""Put the tables of HuggingGreen runs between the marks of their page of documentation.

python benchmarks/hugginggreen_page.py STANDARD docs/hugginggreen.md --grid GRID
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pages import put_between
from sparing.report.estimates import points_text
from sparing.report.markdown import plain_table
from sparing.report.run import read_run
from sparing_papers.hugginggreen.groups import Group
from sparing_papers.hugginggreen.names import ATTENTION, BOXES, PATCHES, STAGES
from sparing_papers.hugginggreen.page.content import groups_of, margin, of, verdict
from sparing_papers.hugginggreen.page.tables import (
    arm_blocks,
    box_blocks,
    half_blocks,
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
    groups = groups_of(run)
    patches, attention = of(groups, PATCHES), of(groups, ATTENTION)
    decided = verdict(run, groups)
    parts = [f"**{decided.lead}**{decided.because}", *(text for text in decided.second if text)]
    goals = tuple((goal["name"], MET.get(goal["met"], "undecided")) for goal in run.goals)
    parts.append(plain_table(("Declared goal", "Met"), goals))
    for block in arm_blocks([*patches, *attention], margin(run)):
        rows = tuple(row[COLUMNS] for row in block.rows)
        pairs = f"{block.explain.partition(';')[0]}."
        parts += [f"### {block.title}", pairs, plain_table(block.heads[COLUMNS], rows)]
    stages, boxes = stage_blocks(of(groups, STAGES)), box_blocks(of(groups, BOXES))
    for block in (*rival_blocks(patches), *half_blocks(attention), *stages, *boxes):
        parts += [f"### {block.title}", plain_table(block.heads, block.rows)]
    return "\n\n".join(parts)


def every_choice(folder: Path) -> str:
    """Every score, way and share beside each rival of the same cost, in points."""
    run = read_run(folder)
    groups = groups_of(run)
    group = max(of(groups, PATCHES), key=lambda group: len(group.arms))
    parts = [verdict(run, groups).second[0]]
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
    return points_text(group.records.find("rival_difference", arm=arm, rival=rival))


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
