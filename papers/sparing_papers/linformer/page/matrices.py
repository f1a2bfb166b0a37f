"""The tables of the Linformer study that come from attention matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sparing.core.record import Label, Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.estimates import NONE, interval_text, share_text
from sparing.report.run import Run
from sparing.report.table import Column, table
from sparing_papers.linformer.page import prose
from sparing_papers.long_range.page.lookups import named

METHODS = {
    "random": "drawn",
    "learned": "learned",
    "mean_pool": "means",
    "convolution": "learned means",
    "theorem 1": "theorem's form, P R'R V",
    "best rank": "nearest matrix of rank k",
}
THEOREMS = (1, 2)
KEPT: tuple[int | str, ...] = (16, 32, 64, 128, "n/4")
BEYOND = " (longer than trained)"
SPANS = {"trained": "as long as trained", "all": "all lengths"}
RANKS = {"effective_rank": "effective rank", "rank_90": "rank that holds 90 %"}
Place = tuple[str, int, int]
"""The source of matrices, their number of tokens, and of slots."""


def matrix_blocks(run: Run) -> list[Block]:
    """Spectra, growth with the length, errors with the bounds, and what ranks say of errors."""
    bounds = [Column(f"theorem {n} promises", partial(_bound, run, n)) for n in THEOREMS]
    title = "Errors of the output"
    errors = _by_method(run, "errors", title, prose("errors"), "mean_output_error", bounds)
    linked = _by_method(
        run, "correlation", "Rank and error", prose("correlation"), "rank_correlation"
    )
    return [block for block in (_spectra(run), _growth(run), errors, linked) if block.rows]


def _spectra(run: Run) -> Block:
    def length(rank: Record) -> str:
        return f"{rank.labels['tokens']:,}{BEYOND if rank.labels['beyond'] else ''}"

    def ninety(rank: Record) -> str:
        return plain_text(run.table.find("mean_rank_90", **_source(rank)))

    def share(count: Label, rank: Record) -> str:
        at = _source(rank)
        return share_text(run.table.exact("mean_kept_share", over="heads", kept=count, **at))

    columns = [
        Column[Record]("whose", lambda rank: str(rank.labels["source"])),
        Column("tokens", length),
        Column[Record]("effective rank", plain_text),
        Column("rank that holds 90 %", ninety),
        *(Column(f"in the first {count}", partial(share, count)) for count in KEPT),
    ]
    rows = run.table.all("mean_effective_rank")
    return table("spectrum", "Singular values", prose("spectrum"), rows, columns)


def _source(record: Record) -> dict[str, Label]:
    return {name: record.labels[name] for name in ("source", "tokens")}


def _growth(run: Run) -> Block:
    def span(record: Record) -> str:
        shortest, longest = (record.labels[name] for name in ("shortest", "longest"))
        return f"{SPANS[str(record.labels['range'])]}, {shortest} to {longest}"

    columns = (
        Column[Record]("whose", lambda record: str(record.labels["source"])),
        Column[Record]("rank", lambda record: RANKS[str(record.labels["of"])]),
        Column("lengths", span),
        Column[Record]("exponent", plain_text),
        Column("in words", growth_words),
    )
    title, rows = "Does the rank grow with the length?", run.table.all("exponent")
    return table("growth", title, prose("growth"), rows, columns)


def growth_words(record: Record) -> str:
    """What an exponent's interval says."""
    if record.interval is None:
        return "undecided"
    low, high = record.interval
    if high <= 0:
        return "does not grow"
    if low > 1:
        return "grows faster than n"
    if high < 1:
        return "grows, slower than n" if low > 0 else "grows slower than n, if at all"
    return "undecided"


def _by_method(
    run: Run,
    key: str,
    title: str,
    explain: str,
    name: str,
    more: Sequence[Column[Place]] = (),
) -> Block:
    """One quantity of every method by source, length and slots."""

    def length(row: Place) -> str:
        source, tokens, _ = row
        errors = run.table.all("mean_output_error", source=source, tokens=tokens)
        return f"{tokens:,}{BEYOND if any(r.labels.get('beyond') for r in errors) else ''}"

    def cell(method: str, row: Place) -> str:
        return plain_text(run.table.find(name, method=method, **_at(row)))

    columns = [
        Column[Place]("whose", lambda row: row[0]),
        Column("tokens", length),
        Column[Place]("k", lambda row: str(row[2])),
        *(Column(head, partial(cell, method)) for method, head in METHODS.items()),
        *more,
    ]
    places = [
        (source, tokens, slots)
        for source in named(run, name, "source")
        for tokens, slots in sorted(
            {
                (int(r.labels["tokens"] or 0), int(r.labels["slots"] or 0))
                for r in run.table.all(name, source=source)
            }
        )
    ]
    return table(key, title, explain, places, columns)


def _at(row: Place) -> dict[str, Label]:
    return dict(zip(("source", "tokens", "slots"), row, strict=True))


def _bound(run: Run, theorem: int, row: Place) -> str:
    bound = run.table.find("mean_bound", theorem=theorem, **_at(row))
    if bound is None or bound.value is None:
        unsolved = run.table.empty("mean_bound", theorem=theorem, **_at(row))
        return "vacuous: no solution" if unsolved else NONE
    text = wording.number(bound.value)
    return f"vacuous: {text}" if bound.value >= 1 else text


def plain_text(record: Record | None) -> str:
    """A number with its interval."""
    return interval_text(record, _short)


def _short(value: float) -> str:
    return wording.number(value) if abs(value) >= 1e-3 else f"{value:.0e}" if value else "0"
