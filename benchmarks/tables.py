"""Write every generated table of the documentation again, from the committed runs.

    make tables

A page holds a table between ``<!-- generated: NAME -->`` and ``<!-- end -->``. README.md and all
pages below docs are searched for these lines, so a page may be moved or renamed. Nothing is
measured.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import calculator
import calculator_controls
import calculator_stretch
import families
import folding
import half_models
import joined_exits
import packing
import predict_rates
import readme_table
import slim_from_bert
import slim_kinds
import slim_labels
import slim_parts
import slim_pool
import slim_three_layers
import sts_forms
import token_gates
from sparing.core.writing import write_atomically
from sparing_papers.overview.rows import papers
from sparing_papers.overview.tables import OF_ALL, names_of, paper_tables

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
MARKED = re.compile(r"(<!-- generated: ([^\n]+?) -->)\n.*?(<!-- end -->)", re.DOTALL)
Tables = Mapping[str, Callable[[], str]]


def pages() -> Iterator[Path]:
    """The pages that may hold generated tables."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


def tables() -> dict[str, Callable[[], str]]:
    """How each table is made, by the name in its marker."""
    of_papers = cache(lambda: paper_tables(ROOT / "papers" / "results"))
    return {
        "demo table": readme_table.demo_table,
        "families": families.checks_table,
        "folding": lambda: folding.table_of(_json("folding-*.json")["rows"]),
        "packing": lambda: packing.table_of(_json("packing-*.json")["rows"]),
        "half models": lambda: half_models.table_of(_json("half-models-*.json")["rows"]),
        "options of families": families.options_table,
        **_slim_tables(cache(lambda: slim_pool.finished(RESULTS))),
        "token gates sst2": lambda: token_gates.table_of(_json("token-gates-*/summary.json")),
        "joined exits": lambda: joined_exits.table_of(_json("joined-exits-*.json")["rows"]),
        "predict rates": lambda: predict_rates.table_of(_json("predict-rates-*.json")),
        "calculator table": lambda: calculator.table_of(_json("calculator-47c59831-*.json")),
        "calculator controls": lambda: calculator_controls.markdown(
            _json("calculator-controls-*.json")["rows"]
        ),
        "calculator brackets": lambda: calculator_stretch.markdown(
            _json("calculator-stretch-*.json")
        ),
        **{
            name: partial(lambda chosen: of_papers()[chosen], name)
            for name in (*OF_ALL, *(name for paper in papers() for name in names_of(paper)))
        },
    }


def filled(text: str, known: Tables) -> str:
    """A page with every generated table in it written again."""

    def table(match: re.Match[str]) -> str:
        opening, name, closing = match.groups()
        if name not in known:
            raise SystemExit(f"no table is called {name!r}; there are: {', '.join(sorted(known))}")
        return f"{opening}\n\n{known[name]()}\n\n{closing}"

    new, count = MARKED.subn(table, text)
    if count != text.count("<!-- generated:"):
        raise SystemExit("a line <!-- generated: NAME --> has no line <!-- end --> after it")
    return new


def _slim_tables(runs: Callable[[], list[slim_pool.SlimRun]]) -> dict[str, Callable[[], str]]:
    """The tables of slim's runs, with labels and without, and of what was made from them."""
    made = {
        "pooled": slim_pool.pooled_table,
        "speeds": slim_pool.speed_table,
        "accuracy": slim_pool.accuracy_table,
        "frontier": slim_pool.frontier_table,
    }

    def of(table: Callable[[list[slim_pool.SlimRun]], str], labelless: bool) -> str:
        return table([run for run in runs() if run.labelless is labelless])

    return {
        "slim line": lambda: readme_table.slim_line(runs()),
        **{f"slim {name}": partial(of, table, False) for name, table in made.items()},
        **{f"slim texts {name}": partial(of, made[name], True) for name in ("speeds", "frontier")},
        "slim static": lambda: slim_pool.static_table(runs()),
        "slim texts on labels": lambda: slim_labels.show(_json("slim-labels-*.json")["rows"]),
        "slim from bert": lambda: slim_from_bert.show(_json("slim-from-bert-*.json")["rows"]),
        "slim parts": lambda: slim_parts.parts_table(_json("slim-parts-*.json")),
        "slim tuned": lambda: slim_parts.tuned_table(_json("slim-parts-*.json")),
        "slim kinds": lambda: slim_kinds.kinds_table(slim_pool.finished(RESULTS, followed=True)),
        "slim three layers": lambda: slim_three_layers.layers_table(_rows("slim-layers-*.json")),
        "slim vectors": lambda: sts_forms.forms_table(_json("sts-forms-*.json")["rows"]),
    }


def _json(pattern: str) -> Any:
    """The one committed file of a name."""
    (path,) = RESULTS.glob(pattern)
    return json.loads(path.read_text(encoding="utf-8"))


def _rows(pattern: str) -> list[Any]:
    """The rows of all committed files of a name, one after another."""
    paths = sorted(RESULTS.glob(pattern))
    return [row for path in paths for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]


def main() -> None:
    """Rewrite the pages with changed tables, and name them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail where one would change")
    check, known = parser.parse_args().check, tables()
    texts = {page: page.read_text(encoding="utf-8") for page in pages()}
    fresh = {page: filled(text, known) for page, text in texts.items()}
    changed = [page for page in texts if fresh[page] != texts[page]]
    for page in changed:
        print(page.relative_to(ROOT))
        if not check:
            write_atomically(page, fresh[page])
    if check and changed:
        raise SystemExit("the tables of these pages are not those of the runs; run: make tables")


if __name__ == "__main__":
    main()
