"""The share of one machine in a study's cells, and the script that runs all shares on SLURM."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from sparing.core.errors import UsageError
from sparing.experiment.run import Cell

SHARE = re.compile(r"(\d+)/(\d+)")
NUMBER = "$SLURM_ARRAY_TASK_ID"  # 1, 2, ...: set by SLURM for each job of an array


def is_share(pattern: str) -> bool:
    """Whether a pattern for cells, such as ``3/16``, names a share of them instead."""
    return SHARE.fullmatch(pattern) is not None


def cells_in_share(cells: Sequence[Cell], share: str) -> list[Cell]:
    """The cells of a share, such as ``3/16``, in their order; all shares together are disjoint.

    Only cells that may run beside others are shared out. Those that need each other are together,
    and shares are about as heavy. All else is left for the merged run. Raises ``UsageError`` for a
    share that does not exist or would be empty.
    """
    number, count = map(int, share.split("/"))
    if not 1 <= number <= count:
        raise UsageError(f"share {share} does not exist: shares are 1/{count} to {count}/{count}")
    groups = sorted(_groups(cells), key=lambda group: -sum(cell.weight for cell in group))
    if count > len(groups):
        most = f"at most {len(groups)} shares" if groups else "no shares"
        raise UsageError(f"this study has {most}: {share} is not one")
    shares: list[list[Cell]] = [[] for _ in range(count)]
    for group in groups:
        min(shares, key=lambda taken: sum(cell.weight for cell in taken)).extend(group)
    chosen = {cell.key for cell in shares[number - 1]}
    return [cell for cell in cells if cell.key in chosen]


def _groups(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The cells that may be elsewhere, with the ones that they need, in disjoint groups."""
    group_of: dict[str, list[Cell]] = {cell.key: [cell] for cell in cells}
    for cell in cells:
        for key in cell.needs:
            mine, other = group_of[cell.key], group_of.get(key, [])
            if other and mine is not other:
                mine += other
                group_of |= {member.key: mine for member in other}
    groups = {id(group): group for group in group_of.values()}.values()
    return [group for group in groups if all(cell.beside for cell in group)]


def job_array(count: int, command: Sequence[str], folder: Path) -> str:
    """A shell script that submits an array of ``count`` jobs to SLURM, and a last one after them.

    ``command`` is the study's, without its folder and cells. Each job runs one share in a folder
    of its number, and the last one merges them and runs what is left. Raises ``UsageError`` for
    fewer than two jobs.
    """
    if count < 2:
        raise UsageError(f"--job-array takes 2 jobs or more; got {count}")
    parts = folder.with_name(f"{folder.name}-shares")
    base, inside = shlex.join(command), shlex.quote(str(parts))
    one = f'{base} --cells "{NUMBER}/{count}" --output-dir {inside}/"{NUMBER}"'
    array, one = f"--array=1-{count} --cpus-per-task=1", shlex.quote(one)
    joined = shlex.join(["sparing", "merge", "--output-dir", str(folder)])
    last = f"{joined} {inside}/* && {base} --output-dir {shlex.quote(str(folder))}"
    return "\n".join(
        (
            "#!/bin/sh",
            f"# {count} shares of a study as a job array, and a last job that joins them.",
            "# Add your cluster's options to both lines, such as --time=4:00:00.",
            "set -e",
            f"mkdir -p {inside}",
            f"array=$(sbatch --parsable {array} --wrap {one})",
            f'sbatch --dependency="afterany:$array" --cpus-per-task=1 --wrap {shlex.quote(last)}',
            "",
        )
    )
