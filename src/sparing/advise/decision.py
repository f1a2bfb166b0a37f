"""The recommendation: each remedy that pays in a sentence, and attention last."""

from __future__ import annotations

from typing import Literal

from sparing.advise.curves import WholeModel
from sparing.advise.numbers import DASH, digits, factor, gain_bounds, percent, speed
from sparing.advise.padding import Padding
from sparing.advise.remedies import WORTH, Findings, remedies
from sparing.measure.gains import share_decimals
from sparing.measure.load import busy_words

Decision = Literal["keep dense", "swap", "drop padding", "change engine", "undecided"]
DECISIONS: dict[str, Decision] = {"no padding": "drop padding", "ONNX Runtime": "change engine"}
# The parts, replayed alone, take 90 to 105 % of the whole on a quiet machine. Outside of this the
# shares, and so the largest gain, are not those of the model.
LEAST_EXPLAINED, MOST_EXPLAINED = 0.8, 1.2


def decide(findings: Findings) -> tuple[Decision, str]:
    """What to do, a sentence for each remedy that pays, with the numbers they rest on.

    The decision is the first remedy that pays, keeps the outputs and needs no training; where none
    does, it is about attention.
    """
    refusal = _refusal(findings)
    if refusal:
        blocked = findings.subject.obstacle
        return "undecided", refusal + (
            " In any case sparing cannot swap this model." if blocked else ""
        )
    decision, attention = _on_attention(findings)
    if findings.padding is not None and decision != "keep dense" and too_short(findings.padding):
        decision, attention = _for_short_texts(findings, findings.padding)
    listed = remedies(findings)
    paying = [each for each in listed if each.verdict == "pays" and each.sentence]
    others = [each.sentence for each in listed if each not in paying and each.sentence]
    free = [DECISIONS[each.name] for each in paying if each.name in DECISIONS]
    first = [each.sentence for each in paying]
    sentences = [*first, *others, attention] if first else [attention, *others]
    return (free[0] if free else decision), " ".join(sentences)


def _refusal(findings: Findings) -> str:
    """Why these measurements decide nothing; empty where they may."""
    if findings.disturbance:
        return busy_words(findings.disturbance)
    explained = findings.parts.accounted.value
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


def _for_short_texts(findings: Findings, padding: Padding) -> tuple[Decision, str]:
    effect = ""
    if findings.whole is not None:
        effect = f", while {findings.whole.mechanism} was {speed(findings.whole.measured)}"
    return "keep dense", (
        f"Keep dense attention for these texts: 95 % of them have at most {padding.p95_tokens} "
        f"tokens{effect} at {findings.tokens:,}; ask again with --tokens {padding.p95_tokens}."
    )


def _on_attention(findings: Findings) -> tuple[Decision, str]:
    """The sentence about attention alone."""
    share, gain, tokens = findings.parts.core, findings.parts.gain, f"{findings.tokens:,} tokens"
    decimals = share_decimals(share.value, digits)
    most = f"the core takes {100 * share.value:.{decimals}f} % of the time at {tokens}"
    at_most = f"so no other attention can make the model more than {factor(gain.value)} faster"
    if gain.interval is not None:
        at_most += f" ({digits(gain.interval[0])}{DASH}{digits(gain.interval[1])})"
    if (gain.interval or (gain.value, gain.value))[1] < WORTH:
        return "keep dense", f"Keep dense attention: {most}, {at_most}."
    if findings.whole is None:
        return "keep dense", f"Keep dense attention: {_nobody(findings)}; {most}, {at_most}."
    return _on_whole(findings.whole, findings, f"{most}, {at_most}")


def _nobody(findings: Findings) -> str:
    if findings.subject.obstacle:
        return "sparing cannot swap this model"
    reasons = sorted({each.obstacle for each in findings.chosen if each.obstacle})
    if reasons:
        return f"no mechanism asked for can serve this model ({'; '.join(reasons)})"
    return "no mechanism could be measured at this length"


def _on_whole(whole: WholeModel, findings: Findings, most: str) -> tuple[Decision, str]:
    low, high = gain_bounds(whole.measured)
    largest = (findings.parts.gain.interval or (findings.parts.gain.value,) * 2)[1]
    name, measured = whole.mechanism, f"{speed(whole.measured)} on the whole model, measured"
    if low > max(largest, WORTH):
        return "undecided", (
            f"Undecided at {findings.tokens:,} tokens: {name} was {measured}, but a core that "
            f"costs nothing could give {factor(largest)} at most; the two do not fit, measure "
            "again."
        )
    if low >= WORTH:
        after = (
            "it is exact, so the outputs stay and nothing needs training"
            if whole.exact
            else "it approximates, so train it first (sparing train ... --distil-from DENSE)"
        )
        return "swap", f"Swap in {name} at {findings.tokens:,} tokens: {measured}; {after}."
    if high < 1:
        return "keep dense", f"Keep dense attention: even the best, {name}, is {measured}; {most}."
    if high < WORTH:
        return "keep dense", (
            f"Keep dense attention: the best, {name}, is {measured}, not worth a change; {most}."
        )
    return "undecided", (
        f"Undecided at {findings.tokens:,} tokens, so keep dense: the best, {name}, is "
        f"{measured}; the interval holds both a gain worth having and none."
    )
