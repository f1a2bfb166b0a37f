"""README's table of the demo: what the page says that is drawn from its committed records."""

from __future__ import annotations

import re
from pathlib import Path

from sparing.compare.page.verdict import decide
from sparing.report.run import read_run

ROOT = Path(__file__).parents[2]


def test_the_readme_has_the_verdict_of_the_committed_records():
    run = read_run(ROOT / "benchmarks" / "results" / "demo")
    verdict = decide(run)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    page = (ROOT / "benchmarks/results/demo/report.md").read_text(encoding="utf-8")
    assert f"**{verdict.lead}**{verdict.because}" in readme
    assert f"**{verdict.lead}**{verdict.because}" in page
    assert verdict.second in page
    share = float(re.search(r"attention is ([\d.]+) %", verdict.second)[1]) / 100
    gain = re.search(r"more than ([\d.]+)× faster", verdict.second)[1]
    assert f"{1 / (1 - share):.1f}" == gain
