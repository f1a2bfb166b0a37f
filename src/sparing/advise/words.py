"""The recommendation in words, and the numbers it rests on as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sparing.advise.curves import Candidate, WholeModel
from sparing.advise.model import Subject
from sparing.advise.padding import FILE, MAXIMUM, SINGLE, Padding
from sparing.advise.parts import Parts
from sparing.measure.gains import share_decimals
from sparing.measure.load import busy_words
from sparing.measure.statistics import Ratio

Decision = Literal["keep dense", "swap", "drop padding", "undecided"]
# A gain below this is not worth a change, let alone a training.
WORTH = 1.05
# The parts, replayed alone, take 90 to 105 % of the whole on a quiet machine. Outside of this the
# shares, and so the largest gain, are not those of the model.
LEAST_EXPLAINED, MOST_EXPLAINED = 0.8, 1.2
TIMES = "\N{MULTIPLICATION SIGN}"
DASH = "\N{EN DASH}"


@dataclass(frozen=True)
class Table:
    """A titled table of plain text."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Found:
    """Everything that was measured, as the recommendation needs it.

    ``disturbance`` says what kept the machine busy meanwhile; empty where it was quiet.
    """

    subject: Subject
    tokens: int
    batch: int
    parts: Parts
    chosen: tuple[Candidate, ...]
    whole: WholeModel | None
    padding: Padding | None
    disturbance: str = ""


def decide(found: Found) -> tuple[Decision, str]:
    """What to do, in one or two sentences with the numbers they rest on."""
    refusal = _refusal(found)
    if refusal:
        obstacle = " In any case sparing cannot swap this model." if found.subject.obstacle else ""
        return "undecided", refusal + obstacle
    decision, attention = _on_attention(found)
    padding = found.padding
    if padding is None:
        return decision, attention
    low, high = _gain_bounds(padding.ratios[padding.best])
    if decision != "keep dense" and too_short(padding):
        decision, attention = _for_short_texts(found, padding)
    if high < WORTH:
        share = percent(padding.pad_shares[FILE])
        return decision, f"{attention} Your texts leave no padding worth dropping ({share} pads)."
    if low < WORTH:
        doubt = "it is undecided whether dropping padding pays"
        return decision, f"{attention} On your texts {doubt}: {_padding_words(padding)}."
    gain = padding.ratios[padding.best].value
    if decision == "swap" and found.whole is not None and found.whole.measured.value < gain:
        return decision, f"{attention} Then drop your padding: {_padding_words(padding)}."
    return "drop padding", f"Drop your padding first: {_padding_words(padding)}. {attention}"


def _refusal(found: Found) -> str:
    """Why these measurements decide nothing; empty where they may."""
    if found.disturbance:
        return busy_words(found.disturbance)
    explained = found.parts.accounted.value
    if LEAST_EXPLAINED <= explained <= MOST_EXPLAINED:
        return ""
    return (
        f"No verdict: the parts, replayed alone, explain {percent(explained)} of the whole model's "
        "time, so that their shares are not the model's. Measure again on a quiet machine; of a "
        "very small model, with more --tokens or a larger --batch."
    )


def too_short(padding: Padding) -> bool:
    """Whether nearly all texts are shorter than half of the length that was asked about."""
    return 2 * padding.p95_tokens < padding.tokens


def _for_short_texts(found: Found, padding: Padding) -> tuple[Decision, str]:
    effect = ""
    if found.whole is not None:
        effect = f", while {found.whole.mechanism} was {speed(found.whole.measured)}"
    return "keep dense", (
        f"Keep dense attention for these texts: 95 % of them have at most {padding.p95_tokens} "
        f"tokens{effect} at {found.tokens:,}; ask again with --tokens {padding.p95_tokens}."
    )


def _padding_words(padding: Padding) -> str:
    way = "taking your texts one by one" if padding.best == SINGLE else "grouping them by length"
    share = percent(padding.pad_shares[FILE])
    return (
        f"in batches of {padding.batch} in file order {share} of the tokens are pads, and {way} "
        f"is {speed(padding.ratios[padding.best])} with the same outputs, measured on "
        f"{padding.sample:,} of {padding.texts:,} texts"
    )


def _on_attention(found: Found) -> tuple[Decision, str]:
    """The sentence about attention alone."""
    share, gain, tokens = found.parts.core, found.parts.gain, f"{found.tokens:,} tokens"
    decimals = share_decimals(share.value, _digits)
    most = f"the core takes {100 * share.value:.{decimals}f} % of the time at {tokens}"
    at_most = f"so no other attention can make the model more than {factor(gain.value)} faster"
    if gain.interval is not None:
        at_most += f" ({_digits(gain.interval[0])}{DASH}{_digits(gain.interval[1])})"
    if (gain.interval or (gain.value, gain.value))[1] < WORTH:
        return "keep dense", f"Keep dense attention: {most}, {at_most}."
    if found.whole is None:
        return "keep dense", f"Keep dense attention: {_nobody(found)}; {most}, {at_most}."
    return _on_whole(found.whole, found, f"{most}, {at_most}")


def _nobody(found: Found) -> str:
    if found.subject.obstacle:
        return "sparing cannot swap this model"
    reasons = sorted({each.obstacle for each in found.chosen if each.obstacle})
    if reasons:
        return f"no mechanism asked for can serve this model ({'; '.join(reasons)})"
    return "no mechanism could be measured at this length"


def _on_whole(whole: WholeModel, found: Found, most: str) -> tuple[Decision, str]:
    low, high = _gain_bounds(whole.measured)
    largest = (found.parts.gain.interval or (found.parts.gain.value,) * 2)[1]
    name, measured = whole.mechanism, f"{speed(whole.measured)} on the whole model, measured"
    if low > max(largest, WORTH):
        return "undecided", (
            f"Undecided at {found.tokens:,} tokens: {name} was {measured}, but a core that costs "
            f"nothing could give {factor(largest)} at most; the two do not fit, measure again."
        )
    if low >= WORTH:
        after = (
            "it is exact, so the outputs stay and nothing needs training"
            if whole.exact
            else "it approximates, so train it first (sparing train ... --distil-from DENSE)"
        )
        return "swap", f"Swap in {name} at {found.tokens:,} tokens: {measured}; {after}."
    if high < 1:
        return "keep dense", f"Keep dense attention: even the best, {name}, is {measured}; {most}."
    if high < WORTH:
        return "keep dense", (
            f"Keep dense attention: the best, {name}, is {measured}, not worth a change; {most}."
        )
    return "undecided", (
        f"Undecided at {found.tokens:,} tokens, so keep dense for now: the best, {name}, is "
        f"{measured}; the interval holds both a gain worth having and none."
    )


def tables(found: Found) -> tuple[Table, ...]:
    """Where the time goes, padding, the mechanisms, and the whole model."""
    shown = [_parts_table(found)]
    if found.padding is not None:
        shown.append(_padding_table(found.padding, found.disturbance))
    if not found.subject.obstacle:  # else the notes say once why none can serve
        shown.append(_mechanisms_table(found))
    if found.whole is not None:
        shown.append(_whole_table(found.whole, found.disturbance))
    return tuple(shown)


def _parts_table(found: Found) -> Table:
    parts = found.parts
    rows = [
        (part.name, milliseconds(part.time_ms), percent(part.share.value), _percents(part.share))
        for part in parts.parts
    ]
    rows.append(("whole model", milliseconds(parts.model.p50_ms), "100 %", ""))
    low, high = parts.gain.interval or (parts.gain.value, parts.gain.value)
    limit = f"{factor(low)}{DASH}{factor(high)}"
    rows.append(("largest gain of any attention", "", factor(parts.gain.value), limit))
    title = f"Where the time goes, {found.tokens:,} tokens, batch {found.batch}"
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


def _mechanisms_table(found: Found) -> Table:
    busy = found.disturbance
    rows = tuple(_mechanism_row(each, found.tokens, busy) for each in found.chosen)
    heads = f"{found.subject.heads} heads of {found.subject.dim}"
    causal = ", causal" if found.subject.causal else ""
    title = f"Attention cores against fused dense attention ({heads}, batch {found.batch}{causal})"
    columns = ("mechanism", f"at {found.tokens:,} tokens", "faster from", "outputs", "can serve")
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


def _gain_bounds(ratio: Ratio) -> tuple[float, float]:
    low, high = ratio.interval or (ratio.value, ratio.value)
    return 1 / high, 1 / low


def speed(ratio: Ratio | None) -> str:
    """A ratio of times as a factor with its direction and interval: ``1.3x faster (1.2-1.4)``.

    An interval that reaches over 1 claims no direction; it is given in that of the value, below 1
    at one end.
    """
    if ratio is None:
        return "not measured"
    faster = ratio.value < 1
    value = 1 / ratio.value if faster else ratio.value
    text = f"{factor(value)} {'faster' if faster else 'slower'}"
    if ratio.interval is None:
        return text
    low, high = _gain_bounds(ratio) if faster else ratio.interval
    if low <= 1 <= high:
        text = "about as fast"
    return f"{text} ({_digits(low)}{DASH}{_digits(high)})"


def ratio_words(ratio: Ratio | None, busy: str) -> str:
    """A ratio of times as ``speed`` says it; of a busy machine as a bare number that claims none.

    ``busy`` is what kept the machine busy, empty where it was quiet.
    """
    if ratio is None or not busy:
        return speed(ratio)
    interval = ratio.interval
    spread = f" ({_digits(interval[0])}{DASH}{_digits(interval[1])})" if interval else ""
    return f"{factor(ratio.value)} the time{spread}, not decided"


def factor(value: float) -> str:
    """A factor with a times sign."""
    return f"{_digits(value)}{TIMES}"


def _digits(value: float) -> str:
    if 0.995 <= value < 1.005:
        return f"{value:.3f}"
    return f"{value:.2f}" if value < 9.95 else f"{value:,.0f}"


def percent(share: float) -> str:
    """A share of 1 in per cent."""
    return f"{100 * share:.0f} %" if share == 0 or share >= 0.0995 else f"{100 * share:.1f} %"


def _percents(share: Ratio) -> str:
    if share.interval is None:
        return ""
    low, high = share.interval
    return f"{100 * low:.1f}{DASH}{100 * high:.1f} %"


def milliseconds(value: float) -> str:
    """Milliseconds with three digits."""
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{decimals}f} ms"


def notes(found: Found, extra: Sequence[str]) -> tuple[str, ...]:
    """What a reader must know to believe and use the numbers."""
    parts, padding = found.parts, found.padding
    said = list(extra)
    if found.subject.obstacle:
        said.append(f"Swap cannot serve this model: {found.subject.obstacle}.")
    if not parts.fused:
        said.append(
            "The model's own dense attention is not PyTorch's fused kernel; the cores below are "
            "held against that kernel all the same."
        )
    if padding is not None and too_short(padding):
        said.append(
            f"95 % of your texts have {padding.p95_tokens} tokens or fewer: what is said of "
            f"attention at {found.tokens:,} tokens is not about them."
        )
    if padding is not None and MAXIMUM in padding.ratios and not found.disturbance:
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
