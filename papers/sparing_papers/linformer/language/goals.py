"""What language models and a translation would show were slots enough, as goals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from sparing.core.record import Label
from sparing.experiment.claims import Goal, GoalResult
from sparing_papers.linformer.found import FEWEST_SEEDS, Found, judged
from sparing_papers.linformer.language.masked import FREQUENCIES
from sparing_papers.linformer.language.transfer import PRETRAINED
from sparing_papers.linformer.language.translation import Pairs
from sparing_papers.linformer.language.work import LINFORMER, LanguageOptions, expanded
from sparing_papers.long_range.arms import DENSE
from sparing_papers.long_range.work import ABOVE_CHANCE, MARGIN

WORSE = 1.05  # times softmax's perplexity that still count as on par


def language_goals(options: LanguageOptions, found: Found) -> Iterator[GoalResult]:
    """Of every number of slots: perplexity, what pre-training gave, and whole translations.

    Undecided with fewer than three seeds, and where softmax itself is not clearly better than the
    mean of all values: there nothing is gained by attending. Of masked words it must be clearly
    better than the words' frequencies too, of the others 5 points better than guessing.
    """
    if "masked" in options.questions:
        for tokens in options.masked.tokens:
            for arm in _slotted(options.masked.arms_at(tokens)):
                text = f"masked words, {tokens} tokens, {arm}: perplexity over softmax's"
                here: dict[str, Label] = {"question": "masked", "tokens": tokens}
                yield _of_perplexity(text, found, arm, here)
    if "transfer" in options.questions:
        for arm in _slotted(options.transfer.compared):
            here = {"question": "transfer", "start": PRETRAINED}
            text = f"pretrained and fine-tuned, {arm}: score less softmax's"
            guess = found.one("chance", question="transfer")
            yield _of_score(text, found, arm, here, None if guess is None else guess.value)
    if "translation" in options.questions:
        asked = options.translation
        for place in asked.places:
            for arm in _slotted(expanded(asked.arms, asked.slots, Pairs(asked).source_tokens)):
                here = {"question": "translation", "place": place}
                text = f"translation, {arm} in {place}: whole sentences right less softmax's"
                yield _of_score(text, found, arm, here)


def _slotted(arms: tuple[str, ...]) -> list[str]:
    return [arm for arm in arms if arm.startswith(LINFORMER)]


def _of_perplexity(text: str, found: Found, arm: str, here: dict[str, Label]) -> GoalResult:
    """The ratio of two perplexities is what their losses differ by, in nats."""
    goal = Goal(text, WORSE, "ratio", at_most=True)
    gap = found.one("loss_difference", arm=arm, less=DENSE, **here)
    if gap is not None and gap.value is not None:
        ends = gap.interval and (math.exp(gap.interval[0]), math.exp(gap.interval[1]))
        gap = replace(gap, value=math.exp(gap.value), interval=ends)
    told = found.apart("loss", here, -1) and _better_than_frequencies(found, here)
    few = gap is None or gap.count < FEWEST_SEEDS
    result = judged(goal, gap)
    return result if told and not few else replace(result, met="undecided")


def _better_than_frequencies(found: Found, here: dict[str, Label]) -> bool:
    dense = found.one("mean_loss", arm=DENSE, **here)
    guess = found.one("loss", arm=FREQUENCIES, **here)
    if dense is None or dense.interval is None or guess is None or guess.value is None:
        return False
    return dense.interval[1] < guess.value


def _of_score(
    text: str, found: Found, arm: str, here: dict[str, Label], chance: float | None = 0.0
) -> GoalResult:
    """``chance`` is what guessing comes to: no translation is right by it."""
    gap = found.one("score_difference", arm=arm, less=DENSE, **here)
    dense = found.one("mean_score", arm=DENSE, **here)
    low = None if dense is None or dense.interval is None else dense.interval[0]
    learned = chance is not None and low is not None and low >= chance + ABOVE_CHANCE
    told = learned and found.apart("score", here)
    few = gap is None or gap.count < FEWEST_SEEDS
    result = judged(Goal(text, -MARGIN, "share"), gap)
    return result if told and not few else replace(result, met="undecided")
