"""Masked language models from scratch: perplexity by mechanism, length and number of slots."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sparing.core.record import Label, Record
from sparing.experiment.run import Cell
from sparing.measure.machine import threads
from sparing.models import build_model
from sparing.models.shared.quiet import quiet
from sparing.models.shared.shape import seeded
from sparing.tasks import Task
from sparing.tasks.shared.words import FIRST_BYTE
from sparing.train.evaluation import Evaluation, evaluating
from sparing_papers.linformer.language.corpus import CLASS, PAD
from sparing_papers.linformer.language.tuning import Tuned
from sparing_papers.linformer.language.work import (
    LanguageWork,
    put_in,
    slots_of,
    training_seconds,
)
from sparing_papers.long_range.work import slug

if TYPE_CHECKING:
    from transformers import BertForMaskedLM

HIDDEN_SHARE, MASK_SHARE, OTHER_SHARE = 0.15, 0.8, 0.1
METRIC = "likelihood"
FREQUENCIES = "frequencies"
JUDGED_TOKENS = 8192  # of held-out text at once: the scores of all words take memory
Ids = Int[Tensor, "batch tokens"]
Hidden = Bool[Tensor, "batch tokens"]


class MaskedWords:
    """Cross-entropy of hidden words: 15 % of them, of which 80 % show the mask, 10 % another word.

    Formula: the mean of -log p(word) over hidden places, the loss of transformers'
    ``BertForMaskedLM``; only hidden places go through the layer that scores all words. Its score,
    "likelihood", is exp(-loss), one over the perplexity. What is hidden follows from the seed and
    the step (or the name of the split) alone, so that every mechanism sees the same; validation
    and test have one draw for all seeds.

    Source: Devlin et al., 2018, arXiv 1810.04805, section 3.1. What differs: the share is of each
    row's words that are no class token, rounded, so that every row has some hidden.
    """

    teacher: nn.Module | None = None
    metric = METRIC

    def __init__(self, mask_id: int, seed: int) -> None:
        self.mask_id, self.seed = mask_id, seed

    def describe(self) -> dict[str, Any]:
        """What makes two runs the same."""
        return {"masked_words": {"mask_id": self.mask_id, "seed": self.seed}}

    def __call__(self, model: nn.Module, batch: dict[str, Tensor], step: int) -> Float[Tensor, ""]:
        """The loss of a batch of whole blocks."""
        ids = batch["input_ids"]
        shown, hidden = masked(ids, self.mask_id, f"{self.seed}:{step}")
        return F.cross_entropy(hidden_scores(model, shown, hidden).float(), ids[hidden])

    def validate(self, model: nn.Module, task: Task, batch_size: int) -> Evaluation:
        """The model on the validation split."""
        del batch_size
        return self.judge(model, task, "validation")

    def judge(self, model: nn.Module, task: Task, split: str) -> Evaluation:
        """The loss and the share of right words over all hidden places of a split."""
        losses, right = [], []
        device = next(model.parameters()).device
        with evaluating(model), torch.inference_mode():
            for ids, shown, hidden in _held_out(task, split, self.mask_id):
                scores = hidden_scores(model, shown.to(device), hidden.to(device)).float().cpu()
                losses.append(F.cross_entropy(scores, ids[hidden], reduction="none"))
                right += (scores.argmax(-1) == ids[hidden]).tolist()
        return judged(torch.cat(losses), right)


def masked(ids: Ids, mask_id: int, name: str) -> tuple[Ids, Hidden]:
    """What the model is shown, and which places are hidden: a function of the ids and the name."""
    generator = torch.Generator().manual_seed(random.Random(name).getrandbits(48))
    draws = torch.rand(2, *ids.shape, generator=generator).to(ids.device)
    others = torch.randint(FIRST_BYTE, mask_id, ids.shape, generator=generator).to(ids.device)
    real = (ids != CLASS) & (ids != PAD)
    order = draws[0].masked_fill(~real, 2.0).argsort(1).argsort(1)
    hidden = order < (HIDDEN_SHARE * real.sum(1)).round().clamp(min=1)[:, None]
    hidden &= real
    shown = ids.where(~(hidden & (draws[1] < MASK_SHARE)), mask_id)
    changed = hidden & (draws[1] >= MASK_SHARE) & (draws[1] < MASK_SHARE + OTHER_SHARE)
    return others.where(changed, shown), hidden


def hidden_scores(model: Any, shown: Ids, hidden: Hidden) -> Float[Tensor, "places vocabulary"]:
    """The scores of all words at hidden places of whole blocks."""
    states = model.bert(input_ids=shown).last_hidden_state
    scores: Tensor = model.cls(states[hidden])
    return scores


def judged(losses: Float[Tensor, " places"], right: list[bool]) -> Evaluation:
    """The mean over all places of a split, as an evaluation."""
    loss = float(losses.double().mean())
    scores = {METRIC: math.exp(-loss)}
    return Evaluation(METRIC, scores, loss, losses.tolist(), right)


def _held_out(task: Task, split: str, mask_id: int) -> Iterator[tuple[Ids, Ids, Hidden]]:
    """Blocks of a split with what is hidden in them, the same at every call."""
    ids = task.split(split).inputs
    assert isinstance(ids, Tensor)
    shown, hidden = masked(ids, mask_id, split)
    rows = max(1, JUDGED_TOKENS // ids.shape[1])
    yield from zip(*(torch.split(each, rows) for each in (ids, shown, hidden)), strict=True)


def build_masked(work: LanguageWork, task: Task, arm: str, seed: int) -> BertForMaskedLM:
    """The named backbone with a head that scores words; its weights follow from the seed."""
    from transformers import BertForMaskedLM

    config = build_model(work.options.model, task, seed=seed).config
    with quiet(), seeded(seed):
        model = BertForMaskedLM(config)
    put_in(model, arm, task.tokens, seed)
    return model


def pretraining(work: LanguageWork, task: Task, arm: str) -> Tuned:
    """The trainings of an arm on blocks of the task; run them in ``threads``."""
    options = work.options.masked
    return work.tuned(
        lambda seed: build_masked(work, task, arm, seed),
        task,
        lambda seed: MaskedWords(work.corpus.mask_id, seed),
        options.schedule,
        max(1, options.batch_tokens // task.tokens),
        "masked",
        task.tokens,
        slug(arm),
    )


def masked_cells(work: LanguageWork, seeds: int) -> list[Cell]:
    """Word frequencies at each length, then seed by seed every arm in an order drawn anew."""
    options = work.options.masked
    found = [_frequencies_cell(work, tokens) for tokens in options.tokens]
    for seed in range(seeds):
        own = [(tokens, arm) for tokens in options.tokens for arm in options.arms_at(tokens)]
        random.Random(f"masked:{seed}").shuffle(own)
        found += [_cell(work, tokens, arm, seed) for tokens, arm in own]
    return found


def _cell(work: LanguageWork, tokens: int, arm: str, seed: int) -> Cell:
    def do() -> list[Record]:
        labels = _labels(work, tokens, arm, seed)
        task = work.blocks_task(tokens)
        with threads(work.thread_count):
            trained = pretraining(work, task, arm).run(seed)
            found = MaskedWords(work.corpus.mask_id, seed).judge(trained.model, task, "test")
        slots = slots_of(arm)
        own: dict[str, Label] = {**labels, "seed": None}
        counted = [Record("slots", slots, "tokens", "modelled", own)] if slots else []
        return [*text_records(found, labels), *counted, *trained.records(labels)]

    options, schedule = work.options.masked, work.options.masked.schedule
    read = work.options.train_tokens * schedule.passes * schedule.trainings(seed)
    steps = read // options.batch_tokens
    seconds = training_seconds(work, arm, tokens, read, steps, HIDDEN_SHARE)
    return Cell(f"masked/{tokens}/{seed}/{slug(arm)}", do, weight=seconds)


def text_records(found: Evaluation, labels: dict[str, Label]) -> list[Record]:
    """Perplexity and its logarithm, and the share of words guessed right."""
    assert found.right is not None
    perplexity = math.exp(found.loss)
    right = sum(found.right) / len(found.right)
    return [
        Record("perplexity", perplexity, "", "measured", dict(labels), count=found.count),
        Record("loss", found.loss, "nats", "measured", dict(labels), count=found.count),
        Record("token_accuracy", right, "share", "measured", dict(labels), count=found.count),
    ]


def _labels(work: LanguageWork, tokens: int, arm: str, seed: int | None) -> dict[str, Label]:
    name = work.corpus.name
    return {"question": "masked", "corpus": name, "tokens": tokens, "arm": arm, "seed": seed}


def _frequencies_cell(work: LanguageWork, tokens: int) -> Cell:
    """What guessing by the words' frequencies alone comes to, on the same hidden places."""

    def do() -> list[Record]:
        chances = work.corpus.frequencies()
        wanted = [
            ids[hidden]
            for ids, _, hidden in _held_out(work.blocks_task(tokens), "test", work.corpus.mask_id)
        ]
        labels = _labels(work, tokens, FREQUENCIES, None)
        found = text_records(by_frequency(chances, torch.cat(wanted)), labels)
        return [*found, *_corpus_records(work)]

    return Cell(f"masked/{tokens}/frequencies", do, weight=0.5)


def by_frequency(
    chances: Float[Tensor, " vocabulary"], wanted: Int[Tensor, " places"]
) -> Evaluation:
    """Guessing every word by its share of the training text."""
    return judged(-chances[wanted].log(), (wanted == int(chances.argmax())).tolist())


def _corpus_records(work: LanguageWork) -> list[Record]:
    """How much text there is, in the corpus' own words about it."""
    corpus = work.corpus
    found = []
    for split, stream in corpus.streams.items():
        own: dict[str, Label] = {"corpus": corpus.name, "split": split, "note": corpus.notes[0]}
        found.append(Record("corpus_tokens", len(stream), "tokens", "measured", own))
    own = {"corpus": corpus.name, "note": corpus.notes[0]}
    return [*found, Record("vocabulary", corpus.vocabulary, "tokens", "measured", own)]
