"""Put the tables of a calculator study between the marks of its page of documentation.

python benchmarks/predictors_page.py benchmarks/results/predictors-... docs/predictors.md
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sparing.report.markdown import plain_table
from sparing.report.run import read_run
from sparing.report.value_content import verdict
from sparing.report.value_results import SETS, ValueResults
from sparing.report.value_tables import claims_block, network_block
from sparing.studies._run import write_atomically

BEGIN, END = "<!-- calculator study: begin -->", "<!-- calculator study: end -->"


def tables(folder: Path) -> str:
    """The verdict, a narrow form of the networks' table, and the claims."""
    results = ValueResults(read_run(folder))
    decided, networks, claims = verdict(results), network_block(results), claims_block(results)
    kept = ("Network", "Weights", *(f"Exact, {name}" for name in SETS), "Error, out", "Error, long")
    kept += ("Bounded score", "Published score", "Energy")
    columns = [networks.heads.index(head) for head in kept]
    rows = [[row[column] for column in columns] for row in networks.rows]
    parts = [
        f"**{decided.lead}**{decided.because}",
        *decided.second,
        networks.explain,
        plain_table(kept, rows),
        claims.explain,
        plain_table(claims.heads, claims.rows),
    ]
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
