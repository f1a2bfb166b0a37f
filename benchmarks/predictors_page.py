"""Put the tables of a calculator study between the marks of its page of documentation.

python benchmarks/predictors_page.py papers/results/calculator-... docs/predictors.md
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pages import put_between
from sparing.report.markdown import plain_table
from sparing.report.run import read_run
from sparing_papers.calculator.page.content import verdict
from sparing_papers.calculator.page.tables import claims_block, network_blocks


def tables(folder: Path) -> str:
    """The verdict, the networks, and the claims."""
    run = read_run(folder)
    decided, claims = verdict(run), claims_block(run)
    parts = [f"**{decided.lead}**{decided.because}", *(text for text in decided.second if text)]
    for block in (*network_blocks(run), claims):
        parts += [block.explain, plain_table(block.heads, block.rows)]
    return "\n\n".join(parts)


def main() -> None:
    """Write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("page", type=Path)
    given = parser.parse_args()
    put_between(given.page, "calculator study", tables(given.run))


if __name__ == "__main__":
    main()
