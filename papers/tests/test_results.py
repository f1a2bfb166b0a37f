"""The committed runs are small, and all that was left out of git is drawn again."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from papers.tests import golden

from sparing.experiment.installed import study_names
from sparing.report.packing import pack
from sparing.report.page import write_report

MOST_BYTES = 8 * 2**20
DRAWN = (".png", ".svg", ".html", ".lock")
UNPACKED = (".jsonl", ".safetensors")
FAST = ("demo", "kerformer-listops-short-aae154d0-2026-11")


def committed():
    """The files of results that are in git or would be added to it."""
    folders = [str(folder) for folder in golden.RESULTS]
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]
    listing = subprocess.run([*command, *folders], cwd=golden.ROOT, capture_output=True, text=True)
    if listing.returncode:  # an archive of a commit: it holds what is in git, and nothing else
        return [path for folder in golden.RESULTS for path in folder.rglob("*") if path.is_file()]
    paths = [golden.ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_results_are_small_and_hold_nothing_that_is_drawn_again():
    paths = committed()
    assert len(paths) > 200
    assert [path for path in paths if path.name.endswith(DRAWN)] == []
    assert [path for path in paths if path.name.endswith(UNPACKED)] == []
    assert sum(path.stat().st_size for path in paths) <= MOST_BYTES


def runs():
    """The committed runs; most are left to the slow tests."""
    for folder in golden.folders():
        marks = [] if folder.name in FAST else [pytest.mark.slow]
        yield pytest.param(folder, marks=marks, id=folder.name)


@pytest.mark.parametrize("folder", list(runs()))
def test_the_page_and_all_figures_are_drawn_from_a_packed_run(folder, tmp_path):
    copy = Path(shutil.copytree(folder, tmp_path / folder.name))
    before = {path.name: path.read_bytes() for path in copy.iterdir() if path.is_file()}
    write_report(copy)
    report = (copy / "report.md").read_bytes()
    assert report == before["report.md"]
    named = set(re.findall(r'figures/([^"]+\.png)', report.decode()))
    drawn = {path.name for path in copy.glob("figures/*.png")}
    assert drawn == named
    assert len(drawn) == 2 * report.decode().count("<picture>")  # each in a light and a dark form
    page = (copy / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") >= report.decode().count("<picture>")
    pack(copy, partial=True)
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before


def test_the_pages_of_all_studies_are_among_them():
    names = {run.values[0].name.partition("-")[0] for run in runs()}
    assert names & {*study_names()} == {*study_names()} - {"compare"}
    assert "demo" in names  # a comparison
