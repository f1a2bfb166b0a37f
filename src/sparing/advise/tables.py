"""The numbers that a recommendation rests on, as tables, and the notes below them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparing.advise.curves import Candidate, WholeModel
from sparing.advise.decision import too_short
from sparing.advise.numbers import (
    DASH,
    factor,
    milliseconds,
    percent,
    percents,
    ratio_words,
    speed,
)
from sparing.advise.padding import FILE, MAXIMUM, SINGLE, Padding
from sparing.advise.remedies import Findings, remedies


@dataclass(frozen=True)
class Table:
    """A titled table of plain text."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(findings: Findings) -> tuple[Table, ...]:
    """The remedies, where the time goes, padding, the mechanisms, and the whole model."""
    shown = [_remedies_table(findings), _parts_table(findings)]
    if findings.padding is not None:
        shown.append(_padding_table(findings.padding, findings.disturbance))
    if not findings.subject.obstacle:  # else the notes say once why none can serve
        shown.append(_mechanisms_table(findings))
    if findings.whole is not None:
        shown.append(_whole_table(findings.whole, findings.disturbance))
    return tuple(shown)


def _remedies_table(findings: Findings) -> Table:
    rows = tuple((each.name, each.effect, each.answers, each.how) for each in remedies(findings))
    title = "What could make it faster, measured here; attention last"
    return Table(title, ("remedy", "whole model", "answers", "how"), rows)


def _parts_table(findings: Findings) -> Table:
    parts = findings.parts
    rows = [
        (part.name, milliseconds(part.time_ms), percent(part.share.value), percents(part.share))
        for part in parts.parts
    ]
    rows.append(("whole model", milliseconds(parts.model.p50_ms), "100 %", ""))
    low, high = parts.gain.interval or (parts.gain.value, parts.gain.value)
    limit = f"{factor(low)}{DASH}{factor(high)}"
    rows.append(("largest gain of any attention", "", factor(parts.gain.value), limit))
    title = f"Where the time goes, {findings.tokens:,} tokens, batch {findings.batch}"
    return Table(title, ("part", "time", "share", "95 % interval"), tuple(rows))


def _padding_table(padding: Padding, busy: str) -> Table:
    rows = []
    for name, share in padding.pad_shares.items():
        ratio = padding.ratios.get(name)
        time = "1 (baseline)" if name == FILE else ratio_words(ratio, busy)
        rows.append((_arrangement(name, padding), percent(share), time))
    title = (
        f"Padding on {padding.texts:,} texts (median {padding.median_tokens}, 95 % up to "
        f"{padding.p95_tokens}, longest {padding.longest_tokens} tokens), timed on "
        f"{padding.sample:,}"
    )
    return Table(title, ("batches", "pads", "whole model, against file order"), tuple(rows))


def _arrangement(name: str, padding: Padding) -> str:
    if name == SINGLE:
        return "one text each, no padding"
    if name == MAXIMUM:
        return f"{padding.batch} in file order, padded to {padding.tokens:,}"
    return f"{padding.batch} {'in ' if name == FILE else ''}{name}, padded to the longest"


def _mechanisms_table(findings: Findings) -> Table:
    busy = findings.disturbance
    rows = tuple(_mechanism_row(each, findings.tokens, busy) for each in findings.chosen)
    subject, batch = findings.subject, findings.batch
    heads = f"{subject.heads} heads of {subject.dim}, batch {batch}"
    causal = ", causal" if subject.causal else ""
    title = f"Attention cores against fused dense attention ({heads}{causal})"
    columns = ("mechanism", f"at {findings.tokens:,} tokens", "faster from", "outputs", "can serve")
    return Table(title, columns, rows)


def _mechanism_row(each: Candidate, tokens: int, busy: str) -> tuple[str, ...]:
    ratio = each.curve.get(tokens)
    at_tokens = ratio_words(ratio, busy) if ratio else each.skipped.get(tokens, "not measured")
    outputs = "kept (exact)" if each.exact else "needs training"
    return (each.name, at_tokens, crossover(each), outputs, each.obstacle or "yes")


def crossover(each: Candidate) -> str:
    """From which length on a core is faster, in words."""
    if not each.curve:
        return "not measured"
    if each.disturbance:
        return "not decided"
    if each.crossover is None:
        perhaps = "" if each.earliest is None else f", perhaps from {each.earliest:,}"
        return f"not up to {each.longest:,} tokens{perhaps}"
    since = f"{each.crossover:,} tokens"
    if each.earliest is not None and each.earliest < each.crossover:
        since += f" (perhaps {each.earliest:,})"
    return since


def _whole_table(whole: WholeModel, busy: str) -> Table:
    fused = whole.predicted is not None
    predicted = ratio_words(whole.predicted, busy) if fused else "not predicted: not fused"
    layers = f"{whole.swapped_layers} swapped, {whole.left_layers} left"
    row = (whole.mechanism, predicted, ratio_words(whole.measured, busy), layers)
    columns = ("best mechanism", "predicted", "measured", "layers")
    return Table("The whole model with it, against dense", columns, (row,))


def notes(findings: Findings, extra: Sequence[str]) -> tuple[str, ...]:
    """What a reader must know to believe and use the numbers."""
    parts, padding = findings.parts, findings.padding
    said = list(extra)
    if findings.subject.obstacle:
        said.append(f"Swap cannot serve this model: {findings.subject.obstacle}.")
    if not parts.fused:
        said.append(
            "The model's own dense attention is not PyTorch's fused kernel; the cores below are "
            "held against that kernel all the same."
        )
    if padding is not None and too_short(padding):
        said.append(
            f"95 % of your texts have {padding.p95_tokens} tokens or fewer: what is said of "
            f"attention at {findings.tokens:,} tokens is not about them."
        )
    if padding is not None and MAXIMUM in padding.ratios and not findings.disturbance:
        said.append(
            f"Padding every batch to {padding.tokens:,} tokens would be "
            f"{speed(padding.ratios[MAXIMUM])} than padding to the longest of each batch."
        )
    said.append(
        "Exact mechanisms keep the outputs. All others need training: sparing train TASK --model "
        "MODEL --mechanism NAME --distil-from DENSE, where DENSE is the model trained for the task."
    )
    said.append(
        f"The parts, replayed alone, and the named modules of the rest explain "
        f"{percent(parts.accounted.value)} of the whole; {parts.model.threads} thread"
        f"{'' if parts.model.threads == 1 else 's'}, {parts.model.ratio.count} rounds."
    )
    return tuple(said)
