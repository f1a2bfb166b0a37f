"""The tables of the Linformer study that come from attention matrices."""

from __future__ import annotations

from sparing.core.record import Label, Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing_papers.linformer.page.figures import METHODS, sources
from sparing_papers.long_range.page.results import LongResults
from sparing_papers.long_range.page.tables import NONE

KEPT: tuple[int | str, ...] = (16, 32, 64, 128, "n/4")
BEYOND = " (longer than trained)"
SPANS = {"trained": "as long as trained", "all": "all lengths"}
RANKS = {"effective_rank": "effective rank", "rank_90": "rank that holds 90 %"}


def matrix_blocks(results: LongResults) -> list[Block]:
    """Spectra, growth with the length, errors with the bounds, and what ranks say of errors."""
    found = [_spectra(results), _growth(results), _errors(results), _correlations(results)]
    return [block for block in found if block.rows]


def _spectra(results: LongResults) -> Block:
    rows = []
    for rank in results.all("mean_effective_rank"):
        here = {name: rank.labels[name] for name in ("source", "tokens")}
        ninety = results.find("mean_rank_90", **here)
        shares = [_share(results, here, kept) for kept in KEPT]
        beyond = BEYOND if rank.labels["beyond"] else ""
        told = (str(here["source"]), f"{here['tokens']:,}{beyond}")
        rows.append((*told, plain_text(rank), plain_text(ninety), *shares))
    explain = (
        "Attention matrices, softmax of q k / sqrt(d), in float64: means over layers, heads and "
        "inputs, with 95 % intervals over heads. Rows have exactly so many tokens: expressions of "
        "listops are cut there. The effective rank is the exponential of the "
        "entropy of the singular values. Behind it stand how many hold 90 % of their sum, and the "
        "share of it in the first k; the paper's figure 1 shows a quarter of n."
    )
    heads = (
        "whose",
        "tokens",
        "effective rank",
        "rank that holds 90 %",
        *(f"in the first {kept}" for kept in KEPT),
    )
    return Block("spectrum", "Singular values", explain, heads, tuple(rows))


def _share(results: LongResults, here: dict[str, Label], kept: int | str) -> str:
    found = [
        r for r in results.all("mean_kept_share", **here, kept=kept) if "layer" not in r.labels
    ]
    return wording.share(float(found[-1].value or 0)) if found else NONE


def _growth(results: LongResults) -> Block:
    rows = [
        (
            str(r.labels["source"]),
            RANKS[str(r.labels["of"])],
            f"{SPANS[str(r.labels['range'])]}, {r.labels['shortest']} to {r.labels['longest']}",
            plain_text(r),
            growth_words(r),
        )
        for r in results.all("exponent")
    ]
    explain = (
        "The exponent a of rank ~ n^a: each head's own slope of logarithms, then the mean with its "
        "95 % interval over models (over heads of a model that is alone). 0 would be a "
        "rank that no length changes, as a fixed k asks; 1 a fixed share of n."
    )
    heads = ("whose", "rank", "lengths", "exponent", "in words")
    return Block("growth", "Does the rank grow with the length?", explain, heads, tuple(rows))


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


def _errors(results: LongResults) -> Block:
    rows = []
    for source in sources(results, "mean_output_error"):
        places = {
            (int(r.labels["tokens"] or 0), int(r.labels["slots"] or 0))
            for r in results.all("mean_output_error", source=source)
        }
        for tokens, slots in sorted(places):
            here: dict[str, Label] = {"source": source, "tokens": tokens, "slots": slots}
            measured = [
                plain_text(results.find("mean_output_error", **here, method=method))
                for method in METHODS
            ]
            promised = [_bound(results.find("mean_bound", **here, theorem=n)) for n in (1, 2)]
            told = f"{tokens:,}{_beyond(results, source, tokens)}"
            rows.append((source, told, f"{slots}", *measured, *promised))
    explain = (
        "Frobenius norm of the difference from exact attention over that of its output, by head, "
        "mean over heads with 95 % intervals over them, on inputs that nothing was learned from. "
        "Drawn matrices are normal with variance 1/k; learned ones start as means and are fitted "
        "head by head to the outputs. Theorem 1 speaks of P R'R V and promises an error of at most "
        "e where k = 5 ln(n) / (e^2 - e^3), which has no solution below 33.75 ln(n) slots. Theorem "
        "2 is turned into an error of the whole output, the constant that it leaves open being "
        "taken as 1. Where a "
        "bound is 1 or more, or there is none, it is vacuous: an answer of 0 errs by 1. The "
        "matrix of rank k that is nearest to P is no floor for the output, which has only as many "
        "features as a head: what is fitted to the output may err less."
    )
    heads = ("whose", "tokens", "k", *METHODS.values(), "theorem 1 promises", "theorem 2 promises")
    return Block("errors", "Errors of the output", explain, heads, tuple(rows))


def _beyond(results: LongResults, source: str, tokens: int) -> str:
    found = results.all("mean_output_error", source=source, tokens=tokens)
    return BEYOND if any(r.labels.get("beyond") for r in found) else ""


def _bound(record: Record | None) -> str:
    if record is None:
        return NONE
    if record.value is None:
        return "vacuous: no solution"
    value = float(record.value)
    text = wording.number(value)
    return f"vacuous: {text}" if value >= 1 else text


def _correlations(results: LongResults) -> Block:
    rows = []
    for source in sources(results, "rank_correlation"):
        places = {
            (int(r.labels["tokens"] or 0), int(r.labels["slots"] or 0))
            for r in results.all("rank_correlation", source=source)
        }
        for tokens, slots in sorted(places):
            here: dict[str, Label] = {"source": source, "tokens": tokens, "slots": slots}
            told = (
                plain_text(results.find("rank_correlation", **here, method=method))
                for method in METHODS
            )
            length = f"{tokens:,}{_beyond(results, source, tokens)}"
            rows.append((source, length, f"{slots}", *told))
    explain = (
        "Spearman's correlation over heads between a head's effective rank and its error, mean "
        "over models with its 95 % interval (of one model: Fieller's): above 0, heads of a higher "
        "rank lose more."
    )
    heads = ("whose", "tokens", "k", *METHODS.values())
    return Block("correlation", "Rank and error", explain, heads, tuple(rows))


def plain_text(record: Record | None) -> str:
    """A number with its interval."""
    if record is None or record.value is None:
        return NONE
    text = _short(float(record.value))
    if record.interval is not None:
        low, high = (_short(float(end)) for end in record.interval)
        text += f" ({low} to {high})"
    return text


def _short(value: float) -> str:
    return wording.number(value) if abs(value) >= 1e-3 else f"{value:.0e}" if value else "0"
