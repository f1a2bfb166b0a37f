"""What language models and a translation would show were slots enough, as claims."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sparing.core.record import Labels
from sparing.experiment.claims import (
    Claim,
    Condition,
    Estimate,
    GoalResult,
    Measure,
    recorded,
)
from sparing.experiment.forecasts.needs import joined
from sparing.experiment.records import RecordTable
from sparing_papers.linformer.guards import ANOTHER_TASK, above_chance, ahead
from sparing_papers.linformer.language.blocks import FREQUENCIES
from sparing_papers.linformer.language.transfer import PRETRAINED
from sparing_papers.linformer.language.translation import Pairs
from sparing_papers.linformer.language.work import LINFORMER, LanguageOptions, expanded
from sparing_papers.long_range.arms import DENSE
from sparing_papers.long_range.work import MARGIN

WORSE = 1.05  # times softmax's perplexity that still count as on par


def language_claims(options: LanguageOptions, records: RecordTable) -> Iterator[Claim]:
    """Of every number of slots: perplexity, what pre-training gave, and whole translations.

    Dense attention must be clearly better than the mean of all values: else nothing is gained by
    attending. Of masked words it must be clearly better than the words' frequencies too, of the
    others 5 points better than guessing.
    """
    if "masked" in options.questions:
        for tokens in options.masked.tokens:
            for arm in _slotted(options.masked.arms_at(tokens)):
                text = f"masked words, {tokens} tokens, {arm}: perplexity over softmax's"
                yield _of_perplexity(text, arm, {"question": "masked", "tokens": tokens})
    if "transfer" in options.questions:
        chance = records.value("chance", question="transfer")
        for arm in _slotted(options.transfer.compared):
            text = f"pretrained and fine-tuned, {arm}: score less softmax's"
            yield _of_score(text, arm, {"question": "transfer", "start": PRETRAINED}, chance)
    if "translation" in options.questions:
        translation = options.translation
        for position in translation.places:
            for arm in _slotted(
                expanded(translation.variants, translation.slots, Pairs(translation).source_tokens)
            ):
                text = f"translation, {arm} in {position}: whole sentences right less softmax's"
                yield _of_score(text, arm, {"question": "translation", "place": position})


def _slotted(arms: tuple[str, ...]) -> list[str]:
    return [arm for arm in arms if arm.startswith(LINFORMER)]


def _of_perplexity(text: str, arm: str, here: Labels) -> Claim:
    def guard(records: RecordTable, result: GoalResult) -> bool:
        dense = records.find("mean_loss", arm=DENSE, **here)
        guess = records.value("loss", arm=FREQUENCIES, **here)
        if dense is None or dense.interval is None or guess is None:
            return False
        return dense.interval[1] < guess and ahead(records, "loss", here, sign=-1)

    difference = recorded("loss_difference", arm=arm, less=DENSE, **here)
    measure = _ratio(difference)
    learned = Condition(guard, "longer training: softmax is not better than frequencies and means")
    return Claim(text, measure, WORSE, "ratio", True, guards=(learned,), family="masked words")


def _ratio(difference: Measure) -> Measure:
    """The ratio of two perplexities is what their losses differ by, in nats."""

    def measure(records: RecordTable, confidence: float) -> Estimate | None:
        nats = difference(records, confidence)
        if nats is None:
            return None
        more = joined([nats.forecast], lambda ends: _exp(ends[0]))
        ends = nats.interval and _exp(nats.interval)
        return Estimate(math.exp(nats.value), ends, nats.count, forecast=more)

    return measure


def _exp(ends: tuple[float, float]) -> tuple[float, float]:
    return math.exp(ends[0]), math.exp(ends[1])


def _of_score(text: str, arm: str, here: Labels, chance: float | None = 0.0) -> Claim:
    """``chance`` is what guessing comes to: no translation is right by it."""

    def guard(records: RecordTable, result: GoalResult) -> bool:
        learned = above_chance(records, "score", chance, {**here, "arm": DENSE})
        return learned and ahead(records, "score", here)

    measure = recorded("score_difference", arm=arm, less=DENSE, **here)
    family = str(here["question"])
    passed = Condition(guard, ANOTHER_TASK)
    return Claim(text, measure, -MARGIN, "share", guards=(passed,), family=family)
