"""Put the tables of a calculator study between the marks of its page of documentation.

python benchmarks/predictors_page.py benchmarks/results/predictors-... docs/predictors.md
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sparing.report.markdown import plain_table
from sparing.report.run import read_run
from sparing.report.value_content import verdict
from sparing.report.value_results import ValueResults
from sparing.report.value_tables import claims_block, network_blocks
from sparing.studies._run import write_atomically

BEGIN, END = "<!-- calculator study: begin -->", "<!-- calculator study: end -->"


def tables(folder: Path) -> str:
    """The verdict, the networks, and the claims."""
    results = ValueResults(read_run(folder))
    decided, claims = verdict(results), claims_block(results)
    parts = [f"**{decided.lead}**{decided.because}", *(text for text in decided.second if text)]
    for block in (*network_blocks(results), claims):
        parts += [block.explain, plain_table(block.heads, block.rows)]
    return "\n\n".join(parts)


def main() -> None:
    """Write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("page", type=Path)
    given = parser.parse_args()
    if BEGIN not in given.page.read_text():
        raise SystemExit(f"{given.page} has no line {BEGIN}")
    before, rest = given.page.read_text().split(BEGIN)
    after = rest.split(END)[1]
    write_atomically(given.page, f"{before}{BEGIN}\n{tables(given.run)}\n{END}{after}")


if __name__ == "__main__":
    main()
