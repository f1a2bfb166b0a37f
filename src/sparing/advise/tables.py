"""The numbers behind a recommendation, as tables, and the notes below them."""

from __future__ import annotations

from collections.abc import Sequence

from sparing.advise import prose
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
from sparing.advise.remedies import Findings, Remedy, remedies
from sparing.report.blocks import Block
from sparing.report.table import Column, table
from sparing.report.wording import count_of

NOT_FUSED = "not predicted: not fused"


def tables(findings: Findings) -> tuple[Block, ...]:
    """The remedies, where the time goes, padding, the mechanisms, and the whole model."""
    busy, padding, whole = findings.disturbance, findings.padding, findings.whole
    shown = [_remedies_table(findings), _parts_table(findings)]
    shown += [_padding_table(padding, busy)] if padding is not None else []
    # if no layer can be swapped, a note gives the reason once
    shown += [] if findings.subject.obstacle else [_mechanisms_table(findings)]
    shown += [_whole_table(whole, busy)] if whole is not None else []
    return tuple(shown)


def _remedies_table(findings: Findings) -> Block:
    columns = [
        Column[Remedy]("remedy", lambda remedy: remedy.name),
        Column("whole model", lambda remedy: remedy.effect),
        Column("answers", lambda remedy: remedy.answers),
        Column("how", lambda remedy: remedy.how),
    ]
    return table("remedies", prose("remedies"), "", remedies(findings), columns)


def _parts_table(findings: Findings) -> Block:
    parts, gain = findings.parts, findings.parts.gain
    low, high = gain.interval or (gain.value, gain.value)
    limit = f"{factor(low)}{DASH}{factor(high)}"
    rows = [
        *(
            (part.name, milliseconds(part.time_ms), percent(part.share.value), percents(part.share))
            for part in parts.parts
        ),
        ("whole model", milliseconds(parts.model.p50_ms), "100 %", ""),
        ("largest gain of any attention", "", factor(gain.value), limit),
    ]
    title = prose("parts", tokens=findings.tokens, batch=findings.batch)
    return Block("parts", title, "", ("part", "time", "share", "95 % interval"), tuple(rows))


def _padding_table(padding: Padding, busy: str) -> Block:
    def time(name: str) -> str:
        return "1 (baseline)" if name == FILE else ratio_words(padding.ratios.get(name), busy)

    columns = [
        Column[str]("batches", lambda name: _arrangement(name, padding)),
        Column("pads", lambda name: percent(padding.pad_shares[name])),
        Column("whole model, against file order", time),
    ]
    return table("padding", prose("padding", padding=padding), "", padding.pad_shares, columns)


def _arrangement(name: str, padding: Padding) -> str:
    if name == SINGLE:
        return "one text each, no padding"
    if name == MAXIMUM:
        return f"{padding.batch} in file order, padded to {padding.tokens:,}"
    return f"{padding.batch} {'in ' if name == FILE else ''}{name}, padded to the longest"


def _mechanisms_table(findings: Findings) -> Block:
    subject, tokens, busy = findings.subject, findings.tokens, findings.disturbance

    def at_tokens(candidate: Candidate) -> str:
        ratio = candidate.curve.get(tokens)
        skipped = candidate.skipped.get(tokens, "not measured")
        return ratio_words(ratio, busy) if ratio else skipped

    columns = [
        Column[Candidate]("mechanism", lambda candidate: candidate.name),
        Column(f"at {tokens:,} tokens", at_tokens),
        Column("faster from", crossover),
        Column("outputs", lambda c: "kept (exact)" if c.exact else "needs training"),
        Column("can be used", lambda candidate: candidate.obstacle or "yes"),
    ]
    causal = ", causal" if subject.causal else ""
    title = prose("mechanisms", subject=subject, batch=findings.batch, causal=causal)
    return table("mechanisms", title, "", findings.chosen, columns)


def crossover(candidate: Candidate) -> str:
    """From which length on a core is faster, in words."""
    if not candidate.curve:
        return "not measured"
    if candidate.disturbance:
        return "not decided"
    if candidate.crossover is None:
        perhaps = "" if candidate.earliest is None else f", perhaps from {candidate.earliest:,}"
        return f"not up to {candidate.longest:,} tokens{perhaps}"
    since = f"{candidate.crossover:,} tokens"
    if candidate.earliest is not None and candidate.earliest < candidate.crossover:
        since += f" (perhaps {candidate.earliest:,})"
    return since


def _whole_table(whole: WholeModel, busy: str) -> Block:
    fused = whole.predicted is not None
    columns = [
        Column[WholeModel]("best mechanism", lambda whole: whole.mechanism),
        Column("predicted", lambda w: ratio_words(w.predicted, busy) if fused else NOT_FUSED),
        Column("measured", lambda whole: ratio_words(whole.measured, busy)),
        Column("layers", lambda w: f"{w.swapped_layers} swapped, {w.left_layers} left"),
    ]
    return table("whole", "The whole model with it, against dense", "", [whole], columns)


def notes(findings: Findings, extra: Sequence[str]) -> tuple[str, ...]:
    """Notes on how to use the numbers, and their limits."""
    parts, padding, obstacle = findings.parts, findings.padding, findings.subject.obstacle
    lines = [*extra, *([prose("note-obstacle", obstacle=obstacle)] if obstacle else [])]
    lines += [] if parts.fused else [prose("note-not-fused")]
    if padding is not None and too_short(padding):
        lines.append(prose("note-short", tokens=findings.tokens, most=padding.p95_tokens))
    if padding is not None and MAXIMUM in padding.ratios and not findings.disturbance:
        slower = speed(padding.ratios[MAXIMUM])
        lines.append(prose("note-maximum", tokens=padding.tokens, speed=slower))
    explained, rounds = percent(parts.accounted.value), parts.model.ratio.count
    threads = count_of(parts.model.threads, "thread")
    rest = prose("note-explained", share=explained, threads=threads, rounds=rounds)
    return (*lines, prose("note-exact"), rest)
