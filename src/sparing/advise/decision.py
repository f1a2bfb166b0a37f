"""The recommendation: one sentence for each remedy that is worth it, attention last."""

from __future__ import annotations

from typing import Literal

from sparing.advise import prose
from sparing.advise.curves import WholeModel
from sparing.advise.engines import FOLDED
from sparing.advise.numbers import DASH, digits, factor, gain_bounds, percent, speed
from sparing.advise.padding import Padding
from sparing.advise.remedies import WORTH, Findings, Remedy, remedies
from sparing.measure.gains import share_decimals
from sparing.measure.load import busy_words

Decision = Literal["keep dense", "swap", "drop padding", "change engine", "fold", "undecided"]
# The parts, replayed alone, take 90 to 105 % of the whole on a quiet machine. Far outside of this
# range the shares, and so the largest gain, are not those of the model.
LEAST_EXPLAINED, MOST_EXPLAINED = 0.8, 1.2


def decide(findings: Findings) -> tuple[Decision, str]:
    """The decision, and a sentence with numbers for each remedy that is worth it.

    The decision is the first such remedy that keeps the outputs and needs no training. If there is
    none, it is about attention.
    """
    refusal = _refusal(findings)
    if refusal:
        blocked = findings.subject.obstacle
        return "undecided", f"{refusal} {prose('no-swap')}" if blocked else refusal
    decision, attention = _on_attention(findings)
    if findings.padding is not None and decision != "keep dense" and too_short(findings.padding):
        decision, attention = _for_short_texts(findings, findings.padding)
    listed = remedies(findings)
    paying = [remedy for remedy in listed if remedy.verdict == "pays" and remedy.sentence]
    others = [remedy.sentence for remedy in listed if remedy not in paying and remedy.sentence]
    free = [_decision_of(remedy) for remedy in paying if remedy.free]
    first = [remedy.sentence for remedy in paying]
    sentences = [*first, *others, attention] if first else [attention, *others]
    return (free[0] if free else decision), " ".join(sentences)


def _decision_of(remedy: Remedy) -> Decision:
    named: dict[str, Decision] = {"no padding": "drop padding", FOLDED: "fold"}
    return named.get(remedy.name, "change engine")


def _refusal(findings: Findings) -> str:
    """Why these measurements cannot be used for a decision; empty if they can."""
    if findings.disturbance:
        return busy_words(findings.disturbance)
    explained = findings.parts.accounted.value
    if LEAST_EXPLAINED <= explained <= MOST_EXPLAINED:
        return ""
    return prose("unexplained", share=percent(explained))


def too_short(padding: Padding) -> bool:
    """Whether nearly all texts are shorter than half of the length to advise on."""
    return 2 * padding.p95_tokens < padding.tokens


def _for_short_texts(findings: Findings, padding: Padding) -> tuple[Decision, str]:
    effect, whole = "", findings.whole
    if whole is not None:
        effect = f", while {whole.mechanism} was {speed(whole.measured)}"
    most, tokens = padding.p95_tokens, findings.tokens
    return "keep dense", prose("short-texts", most=most, tokens=tokens, effect=effect)


def _on_attention(findings: Findings) -> tuple[Decision, str]:
    """The sentence about attention alone."""
    share, gain, interval = findings.parts.core, findings.parts.gain, ""
    if gain.interval is not None:
        interval = f" ({digits(gain.interval[0])}{DASH}{digits(gain.interval[1])})"
    core = prose(
        "core",
        share=f"{100 * share.value:.{share_decimals(share.value, digits)}f} %",
        tokens=findings.tokens,
        gain=factor(gain.value),
        interval=interval,
    )
    if (gain.interval or (gain.value, gain.value))[1] < WORTH:
        return "keep dense", prose("keep", core=core)
    if findings.whole is None:
        return "keep dense", prose("keep-unserved", reason=_why_unserved(findings), core=core)
    return _on_whole(findings.whole, findings, core)


def _why_unserved(findings: Findings) -> str:
    if findings.subject.obstacle:
        return "advise cannot measure a swap of this model"
    reasons = sorted({candidate.obstacle for candidate in findings.chosen if candidate.obstacle})
    if reasons:
        return f"no named mechanism can be used in this model ({'; '.join(reasons)})"
    return "no mechanism could be measured at this length"


def _on_whole(whole: WholeModel, findings: Findings, core: str) -> tuple[Decision, str]:
    low, high = gain_bounds(whole.measured)
    largest = (findings.parts.gain.interval or (findings.parts.gain.value,) * 2)[1]
    measured = prose("measured", speed=speed(whole.measured))

    def sentence(key: str, **values: object) -> str:
        name, tokens = whole.mechanism, findings.tokens
        return prose(key, name=name, tokens=tokens, measured=measured, core=core, **values)

    if low > max(largest, WORTH):
        return "undecided", sentence("do-not-fit", largest=factor(largest))
    if low >= WORTH:
        after = prose("swap-exact" if whole.exact else "swap-trained")
        return "swap", sentence("swap", after=after)
    if high < 1:
        return "keep dense", sentence("keep-slower")
    if high < WORTH:
        return "keep dense", sentence("keep-not-worth")
    return "undecided", sentence("undecided")
