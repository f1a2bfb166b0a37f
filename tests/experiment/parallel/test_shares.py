"""Shares of a study's cells, and the script of a job array."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparing.core.errors import UsageError
from sparing.experiment.merge import merge
from sparing.experiment.parallel.shares import cells_in_share, job_array
from sparing.experiment.run import Cell
from tests.experiment.parallel import tiny
from tests.experiment.parallel.test_side_by_side import run, scores


def cell(key: str, weight: float = 1.0, *needs: str, beside: bool = True) -> Cell:
    return Cell(key, list, weight, beside=beside, needs=needs)


CELLS = [
    cell("time", beside=False),
    cell("a"),
    cell("a1", 1.0, "a"),
    cell("b", 5.0),
    cell("c", 2.0),
    cell("bound", 1.0, "time"),
    cell("d", 1.0),
]


def test_shares_are_disjoint_balanced_and_keep_together_what_needs_each_other() -> None:
    shares = [[c.key for c in cells_in_share(CELLS, f"{n}/3")] for n in (1, 2, 3)]
    assert sorted(key for keys in shares for key in keys) == ["a", "a1", "b", "c", "d"]
    assert ["b"] in shares
    assert any({"a", "a1"} <= {*keys} for keys in shares)
    assert sorted(sum(c.weight for c in CELLS if c.key in keys) for keys in shares) == [2, 3, 5]
    assert [c.key for c in cells_in_share(CELLS, "1/1")] == ["a", "a1", "b", "c", "d"]


@pytest.mark.parametrize(
    ("share", "words"),
    [("0/3", "shares are 1/3 to 3/3"), ("4/3", "does not exist"), ("1/9", "at most 4 shares")],
)
def test_shares_that_do_not_exist_are_refused(share: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        cells_in_share(CELLS, share)


def test_a_study_without_cells_to_share_says_so() -> None:
    with pytest.raises(UsageError, match="no shares"):
        cells_in_share(CELLS[:1], "1/2")


def test_merged_shares_go_on_as_the_whole_run(tmp_path: Path) -> None:
    # all squares need the root: one share is all that there is
    tiny.STUDY.run(tiny.Options(), tmp_path / "1", cells="1/1")
    assert len(scores(tmp_path / "1")) == 5
    tiny.STUDY.run(tiny.Options(), tmp_path / "2", cells="alone/first")
    merge([tmp_path / "1", tmp_path / "2"], tmp_path / "all")
    run(tmp_path / "all", None)
    run(tmp_path / "whole", None)
    assert scores(tmp_path / "all") == scores(tmp_path / "whole")


# Runs a submitted job, or every job of an array, at once.
SBATCH = """#!/bin/sh
for word; do
  case "$word" in --array=1-*) jobs=$(seq "${word#--array=1-}");; esac
  last=$word
done
for number in ${jobs:-0}; do SLURM_ARRAY_TASK_ID=$number sh -c "$last" >> log 2>&1; done
echo 7
"""


@pytest.mark.slow
def test_the_script_of_a_job_array_makes_the_whole_run(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "sbatch").write_text(SBATCH)
    (programs / "sparing").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sparing "$@"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    settings = (
        *("mechanisms=softmax,uniform", "seeds=0,", "recipe.epochs=1", "lengths=16,"),
        *("memory_lengths=16,", "rounds=2", "energy_seconds=0.01"),
    )
    command = ["sparing", "study", "compare"]
    command += [word for setting in settings for word in ("--set", setting)]
    script = tmp_path / "a run-jobs.sh"
    script.write_text(job_array(2, command, Path("a run")))
    path = os.pathsep.join((str(programs), os.environ["PATH"]))
    imports = os.pathsep.join(entry for entry in sys.path if entry)
    subprocess.run(
        ["sh", str(script)],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": imports},
        check=True,
        timeout=600,
    )
    log = (tmp_path / "log").read_text()
    assert (tmp_path / "a run" / "report.html").exists(), log
    assert sorted(p.name for p in (tmp_path / "a run-shares").iterdir()) == ["1", "2"]


def test_an_array_has_two_jobs_or_more() -> None:
    with pytest.raises(UsageError, match="2 jobs or more; got 1"):
        job_array(1, ["sparing"], Path("x"))
