"""The tables of the AdaAttention page: every printed figure with ours beside it, and speeds."""

from __future__ import annotations

from sparing.core.record import Label, Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing_papers.adaattention.page.results import (
    FULL,
    SHAPE,
    AdaResults,
    Claim,
    name_of_arm,
    number,
    own_group_first,
)

TITLES = {
    "Table IV": "Table IV: what each part brings",
    "Table V": "Table V: the size of the scorer",
    "Table VI": "Table VI: the weight \N{GREEK SMALL LETTER LAMDA} of the loss",
    "Section III.D": "Section III.D: length, uniform widths, INT8",
    "Section IV.B": "Section IV.B: what training costs",
    "Table I": "Table I: GLUE",
    "Table II": "Table II: SQuAD",
    "Table III": "Table III: ImageNet",
}
# The one arm that several tables share has in each the name that belongs there.
_OWN_NAMES = {
    ("Table V", "adaptive"): "scorer d/4, the adaptive arm",
    ("Table VI", "adaptive"): "\N{GREEK SMALL LETTER LAMDA} 0.01, the adaptive arm",
}
LENGTHS = ("10-50", "50-200", "200+")
MAIN = ("Table IV", "Table V", "Table VI", "Section III.D", "Section IV.B")
REST = ("Table I", "Table II", "Table III")
_NOT_RUN, _NOTHING = "not run", "\N{EN DASH}"


def printed_blocks(results: AdaResults, sources: tuple[str, ...]) -> list[Block]:
    """A table for each source: rows as printed, for each column the paper's figure and ours."""
    return [block for source in sources if (block := _block(results, source)) is not None]


def _block(results: AdaResults, source: str) -> Block | None:
    claims = results.claims(source)
    if not claims:
        return None
    columns = list(dict.fromkeys(claim.column for claim in claims))
    rows = []
    for row in dict.fromkeys(claim.row for claim in claims):
        cells = [_OWN_NAMES.get((source, row), name_of_arm(row))]
        for column in columns:
            found = next((c for c in claims if (c.row, c.column) == (row, column)), None)
            cells += [_NOTHING, _NOTHING] if found is None else [found.printed, here(found)]
        rows.append(tuple(cells))
    heads = ["Row"]
    for column in columns:
        heads += [f"{column}, paper", "here"]
    if source == "Table I":
        heads, rows = _long(claims)
    key = source.lower().replace(" ", "-").replace(".", "-")
    return Block(key, TITLES[source], _reasons(claims), tuple(heads), tuple(rows))


def _long(claims: list[Claim]) -> tuple[list[str], list[tuple[str, ...]]]:
    """One line for each figure, where a table has too many columns for their pairs."""
    rows: list[tuple[str, ...]] = [
        (name_of_arm(c.row), c.column, c.printed, here(c)) for c in claims
    ]
    return ["Row", "Column", "Paper", "Here"], rows


def _reasons(claims: list[Claim]) -> str:
    """Why ours differ, once for each reason, with the columns that it is for."""
    found: dict[str, list[str]] = {}
    for claim in claims:
        column = "speed" if claim.column.startswith("speed,") else claim.column
        if claim.source == "Table I" and column != "speed":
            column = "accuracy"
        named = found.setdefault(claim.reason, [])
        if column not in named:
            named.append(column)
    sentences = [f"{wording.listing(names)}: {reason}." for reason, names in found.items()]
    return "Why ours differ. " + " ".join(text[0].upper() + text[1:] for text in sentences)


def here(claim: Claim) -> str:
    """Our figure in the words of its kind."""
    if claim.own_baseline:
        return "baseline"
    if claim.ours is None or claim.ours.value is None:
        return _NOT_RUN
    record, value = claim.ours, claim.ours.value
    if record.name == "speed_up":
        return _factor(record)
    if record.name == "score":
        stand_in = str(record.labels.get("stand_in", ""))
        on = f" on {stand_in}, standing in" if stand_in not in ("", "squad") else ""
        return f"{wording.share(value)}{on}"
    if record.name == "score_difference":
        return f"{wording.points(value, *(record.interval or ()))} points{_between(record)}"
    if record.name == "scorer_params":
        return f"{value:,.0f} in each layer"
    if record.name in ("train_step_ratio", "train_time_ratio"):
        return f"{wording.signed(100 * (value - 1), 0)} % longer{_longer(record)}"
    if record.name == "memory_ratio":
        return f"{value:.2f} of full"
    return wording.number(value, 2)


def _factor(record: Record) -> str:
    """A speed as a factor, below 1 where it is slower, with its interval and length."""
    where = record.labels.get("tokens")
    at = f" at {where} tokens" if isinstance(where, int) else ""
    ends = ""
    if record.interval:
        ends = f" ({record.interval[0]:.2f}{wording.DASH}{record.interval[1]:.2f})"
    return f"{record.value or 0.0:.2f}{wording.TIMES}{at}{ends}"


def _between(record: Record) -> str:
    if record.interval is None or record.value is None:
        return ""
    return f" ({wording.points_interval(record.value, record.interval)})"


def _longer(record: Record) -> str:
    if record.interval is None:
        return ""
    low, high = (wording.signed(100 * (end - 1), 0) for end in record.interval)
    return f" ({low} to {high})"


def length_block(results: AdaResults) -> Block:
    """Speeds on the tasks' own inputs by their length: a row for each arm on each task."""
    found: dict[tuple[str, Label], dict[Label, Record]] = {}
    for task in results.tasks:
        for record in own_group_first(results.all.all("speed_up", task=task)):
            length = record.labels.get("inputs")
            if length in LENGTHS:
                row = found.setdefault((task, record.labels["arm"]), {})
                row.setdefault(length, record)
    columns = [name for name in LENGTHS if any(name in row for row in found.values())]
    several = len({task for task, _ in found}) > 1
    rows = [
        (
            *((task,) if several else ()),
            name_of_arm(arm),
            *(_factor_alone(row[name]) if name in row else _NOTHING for name in columns),
        )
        for (task, arm), row in found.items()
    ]
    explain = (
        "The times of inputs one by one, against full on the same inputs, by the tokens of an "
        "input; classes of too few are left out."
    )
    heads = (*(("Task",) if several else ()), "Arm", *(f"{name} tokens" for name in columns))
    return Block("lengths", "By length of the inputs", explain, heads, tuple(rows))


def impossible_block(results: AdaResults) -> Block:
    """What arithmetic refuses."""
    rows = tuple(
        tuple(str(r.labels.get(key, "")) for key in ("source", "printed", "found", "because"))
        for r in results.all.all("impossible")
    )
    explain = (
        "These printed figures contradict arithmetic, each other, or the sources they come from; "
        "no measurement is needed to see it."
    )
    heads = ("Where", "Printed", "What it comes to", "Why")
    return Block("impossible", "What cannot be so", explain, heads, rows)


def shape_block(results: AdaResults) -> Block:
    """Speeds, times and memory at BERT-base's shape."""
    lengths = results.lengths
    heads = ["Form", *(f"{tokens} tokens" for tokens in lengths)]
    longest = max(lengths, default=0)
    heads += [f"p50 at {longest}", f"p99 at {longest}", "Peak of a call", "With weights"]
    rows = [tuple(_shape_row(results, form, lengths)) for form in results.forms]
    explain = (
        "Random weights, batch 1, one thread, eager PyTorch: speed alone, no claim of accuracy. "
        "\N{LEFT DOUBLE QUOTATION MARK}As printed\N{RIGHT DOUBLE QUOTATION MARK} cuts q and k of "
        "half the heads to 0.3 of their width and runs the scorer. No attention at all is the "
        "bound of whatever changes attention alone. Speeds are against full, above 1 is faster."
    )
    title = "Speed and memory at the shape of BERT-base"
    return Block("shape", title, explain, tuple(heads), tuple(rows) if lengths else ())


def _shape_row(results: AdaResults, form: str, lengths: list[int]) -> list[str]:
    cells = [name_of_arm(form)]
    for tokens in lengths:
        found = results.shape_speed(form, tokens)
        text = _NOTHING if found is None else _factor_alone(found)
        cells.append("baseline" if form == FULL else text)
    for of in ("p50", "p99"):
        value = results.all.value(
            "latency_ms", arm=form, shape=SHAPE, tokens=max(lengths, default=0), of=of
        )
        cells.append(_NOTHING if value is None else wording.latency(value))
    longest = max(lengths, default=0)
    peak = results.all.value("peak_bytes", arm=form, shape=SHAPE, tokens=longest)
    ratio = results.all.value("memory_ratio", arm=form, shape=SHAPE, tokens=longest)
    cells.append(_NOTHING if peak is None else wording.size_of_bytes(peak))
    cells.append(_NOTHING if ratio is None else f"{ratio:.2f} of full")
    return cells


def span(interval: tuple[float, float]) -> str:
    """The ends of a factor's interval."""
    return f"{interval[0]:.2f}{wording.DASH}{interval[1]:.2f}"


def _factor_alone(record: Record) -> str:
    ends = f" ({span(record.interval)})" if record.interval else ""
    return f"{record.value or 0.0:.2f}{wording.TIMES}{ends}"


def certificate_block(results: AdaResults) -> Block:
    """The bound from discarded singular values beside the true error."""
    shares = [number(r.labels, "kept_share") for r in results.all.all("bound_over_error")]
    rows = tuple(_certificate_row(results, share) for share in dict.fromkeys(shares))
    explain = (
        "The full model's own heads on its own inputs, in float64. The scores that a cut leaves "
        "out are bounded by the largest singular value left out times the norms; the output then "
        "by the total variation of the softmax. Where it is the trivial bound it says "
        "nothing; what it certifies then needs no bound at all. slim calibrates on held-out inputs "
        "instead."
    )
    heads = (
        "Width kept",
        "Score error of its bound",
        "Output error of its bound",
        "Bound over error",
        "Bound says nothing",
        "Under 10 %: certified of true",
    )
    title = "The certificate from discarded singular values is vacuous"
    return Block("certificate", title, explain, heads, rows)


def _certificate_row(results: AdaResults, share: float) -> tuple[str, ...]:
    def value(name: str) -> float:
        return results.all.value(name, kept_share=share) or 0.0

    errors = wording.share(value("output_error"), 0), wording.share(value("output_error_bound"), 0)
    certified, true = wording.share(value("certified")), wording.share(value("truly_small"))
    return (
        wording.share(share, 0),
        f"{value('score_error'):.2f} of {value('score_error_bound'):.1f}",
        f"{errors[0]} of {errors[1]}",
        wording.factor(max(1.0, value("bound_over_error"))),
        wording.share(value("bound_saturated"), 0),
        f"{certified} of {true}",
    )
