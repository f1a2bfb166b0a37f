"""Claims of the text's recurrent networks on longer sums, of dropout, activations and optimisers.

Each was declared before the run that decides it. Source: Mukin, A Predictive Calculator (2025),
sections 0.3, 1.2, 6.1, 6.3, 6.4 and 6.5.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sparing.experiment.claims import Claim
from sparing_papers.calculator.longer import TO_EIGHT, TO_TEN
from sparing_papers.calculator.measures import alone, claim, difference
from sparing_papers.calculator.names import (
    ACTIVATIONS,
    DROPOUTS,
    FNN2,
    OPTIMIZERS,
    RECURRENCE,
    RNN2,
    TEXT_LSTM,
    TEXT_RNN,
    TEXTS,
    VARIATIONS,
    dropped,
)

Made = Callable[..., Claim]
PROPOSAL = "proposal"
NEARLY_ALWAYS = 0.9
EMPHASIS = 0.3
# The widest span that a simple recurrent network can read: RNN2 has a slope for each slot.
SIMPLE = {TEXT_RNN: TO_TEN, RNN2: TO_EIGHT}


def _of(family: str, question: str = RECURRENCE) -> Made:
    return partial(claim, family=family, question=question)


def _leaning() -> list[Claim]:
    """Section 1.2, where the network errs and can lean."""
    made = _of("leaning")
    influence = [
        made(
            f"later tokens weigh more in longer sums, {arm}",
            f"{arm}, sums of {span}: influence of the last number less that of the first",
            alone("influence_gap", arm, set=span),
        )
        for arm, span in SIMPLE.items()
    ]
    closeness = [
        made(
            f"longer sums end up closer to the last number, {arm}",
            f"{arm}, sums of {span}: share of answers nearer to the last, 0.9 asked for",
            alone("nearer_to_last", arm, set=span),
            NEARLY_ALWAYS,
        )
        for arm, span in SIMPLE.items()
    ]
    return influence + closeness


def _long_sums() -> list[Claim]:
    """Section 6.1, first paragraph."""
    made = _of("longer sums")
    excel = [
        made(
            f"recurrent networks excel at long expressions, {arm}",
            f"error on sums of {TO_EIGHT}: {FNN2} less {arm}",
            difference("mean_error", FNN2, arm, set=TO_EIGHT),
        )
        for arm in SIMPLE
    ]
    more = [
        made(
            f"BiLSTMs with attention are even more effective, {arm}",
            f"error on sums of {span}: {arm} less {TEXT_LSTM}",
            difference("mean_error", arm, TEXT_LSTM, set=span),
        )
        for arm, span in SIMPLE.items()
    ]
    return excel + more


def _outclassed() -> list[Claim]:
    """Section 6.4, and the attention of section 6.1, of the text's own network."""
    made = _of("the text's LSTM")
    scores = [
        made(
            f"RNNs are outclassed by the BiLSTM of the text, {arm}",
            f"bounded score: {TEXT_LSTM} less {arm}",
            difference("bounded_score", TEXT_LSTM, arm),
        )
        for arm in SIMPLE
    ]
    attention = made(
        "attention of the text's LSTM emphasizes outstandingly large numbers",
        f"{TEXT_LSTM}: rank correlation of the weight on a number with its size, 0.3 asked for",
        alone("attention_size", TEXT_LSTM),
        EMPHASIS,
    )
    return [*scores, attention]


def _dropouts() -> list[Claim]:
    """Section 6.3, with the usual shares."""
    beyond = _of("dropout, out of range", VARIATIONS)
    within = _of("dropout, validation", VARIATIONS)
    pairs = [(dropped(arm, share), arm) for arm in (FNN2, *TEXTS) for share in DROPOUTS]
    return [
        *(
            beyond(
                "with dropout of the usual size models generalize worse beyond the training range",
                f"error out of range: {ours} less {plain}",
                difference("mean_error", ours, plain, set="out"),
            )
            for ours, plain in pairs
        ),
        *(
            within(
                "the squared errors of models with dropout are higher",
                f"on validation sums: {ours} less {plain}",
                difference("validation_loss", ours, plain),
            )
            for ours, plain in pairs
        ),
    ]


def _ways() -> list[Claim]:
    """Section 0.3 on PReLU; section 6.5 on other activations and optimisers."""
    prelu = _of("prelu", VARIATIONS)
    activations, optimizers = (_of(name, VARIATIONS) for name in ("activations", "optimisers"))
    networks = (FNN2, TEXT_RNN)

    def gap(made: Made, text: str, ours: str, theirs: str, kind: str) -> Claim:
        measure = difference("bounded_score", ours, theirs)
        return made(text, f"bounded score: {ours} less {theirs}", measure, kind=kind)

    helps = [
        gap(prelu, f"PReLU helps to generalize, {arm}", arm, f"{arm}, relu", "claim")
        for arm in networks
    ]
    others = [
        gap(activations, "another activation may improve a model", f"{arm}, {way}", arm, PROPOSAL)
        for arm in networks
        for way in ACTIVATIONS
    ]
    steps = [
        gap(optimizers, "another optimiser may improve a model", f"{arm}, {way}", arm, PROPOSAL)
        for arm in networks
        for way in OPTIMIZERS
    ]
    return [*helps, *others, *steps]


FURTHER: tuple[Claim, ...] = (
    *_leaning(),
    *_long_sums(),
    *_outclassed(),
    *_dropouts(),
    *_ways(),
)
