"""Masked language models from scratch: perplexity by mechanism, length and number of slots."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sparing.core.ranks import whole_batch
from sparing.core.record import Labels, Record, measured
from sparing.experiment.run import Cell
from sparing.models import build_model
from sparing.models.shared.quiet import quiet
from sparing.models.shared.shape import seeded
from sparing.tasks import Task
from sparing.tasks.shared.words import FIRST_BYTE
from sparing_papers.linformer.language.blocks import FREQUENCIES, BlocksQuestion
from sparing_papers.linformer.language.corpus import CLASS, PAD
from sparing_papers.linformer.language.losses import EVALUATED_TOKENS, Inputs, Shown, WordLoss
from sparing_papers.linformer.language.work import LanguageWork, put_in

if TYPE_CHECKING:
    from transformers import BertForMaskedLM

HIDDEN_SHARE, MASK_SHARE, OTHER_SHARE = 0.15, 0.8, 0.1
Ids = Int[Tensor, "batch tokens"]
Hidden = Bool[Tensor, "batch tokens"]


class MaskedWords(WordLoss):
    """Cross-entropy of hidden words: 15 % of them, of which 80 % show the mask, 10 % another word.

    The loss is that of transformers' ``BertForMaskedLM``; only hidden words go through the layer
    that scores all words. What is hidden follows from the seed and the step, so that every
    mechanism sees the same; validation and test have one sample for all seeds.

    Source: Devlin et al., 2018, arXiv 1810.04805, section 3.1. What differs: the share is of each
    row's words that are no class token, rounded, so that every row has some hidden.
    """

    def __init__(self, mask_id: int, seed: int) -> None:
        self.mask_id, self.seed = mask_id, seed

    def describe(self) -> dict[str, Any]:
        """What makes two runs the same."""
        return {"masked_words": {"mask_id": self.mask_id, "seed": self.seed}}

    def shown(self, batch: Mapping[str, Tensor], step: int) -> Shown:
        """Whole blocks with some words hidden."""
        ids = batch["input_ids"]
        shown, hidden = masked(ids, self.mask_id, f"{self.seed}:{step}")
        return {"shown": shown, "hidden": hidden}, ids[hidden]

    def parts(self, task: Task, split: str, size: int = 0) -> Iterator[Shown]:
        """Blocks of a split with what is hidden in them, the same at every call."""
        ids = task.split(split).inputs
        assert isinstance(ids, Tensor)
        rows = max(1, EVALUATED_TOKENS // ids.shape[1])
        whole = (ids, *masked(ids, self.mask_id, split))
        for part, shown, hidden in zip(*(torch.split(x, rows) for x in whole), strict=True):
            yield {"shown": shown, "hidden": hidden}, part[hidden]

    def scores(self, model: nn.Module, inputs: Inputs) -> Float[Tensor, "words vocabulary"]:
        """Of hidden words alone."""
        return hidden_scores(model, **inputs)


def masked(ids: Ids, mask_id: int, name: str) -> tuple[Ids, Hidden]:
    """What the model is shown, and which places are hidden: a function of the ids and the name."""
    generator = torch.Generator().manual_seed(random.Random(name).getrandbits(48))
    whole, here = whole_batch(len(ids))
    shape = (whole, *ids.shape[1:])
    draws = torch.rand(2, *shape, generator=generator)[:, here].to(ids.device)
    others = torch.randint(FIRST_BYTE, mask_id, shape, generator=generator)[here].to(ids.device)
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


def build_masked(work: LanguageWork, task: Task, arm: str, seed: int) -> BertForMaskedLM:
    """The named backbone with a head that scores words; its weights follow from the seed."""
    from transformers import BertForMaskedLM

    config = build_model(work.options.model, task, seed=seed).config
    with quiet(), seeded(seed):
        model = BertForMaskedLM(config)
    put_in(model, arm, task.tokens, seed)
    return model


def masked_question(work: LanguageWork) -> BlocksQuestion:
    """The trainings of masked language models."""
    options = work.options.masked
    return BlocksQuestion(
        "masked",
        work,
        options.schedule,
        options.batch_tokens,
        build_masked,
        lambda seed: MaskedWords(work.corpus.mask_id, seed),
        HIDDEN_SHARE,
    )


def masked_cells(work: LanguageWork, seeds: int) -> list[Cell]:
    """Word frequencies at each length, then seed by seed every variant."""
    options, question = work.options.masked, masked_question(work)

    def guess(tokens: int) -> list[Record]:
        return [*question.frequencies(tokens), *_corpus_records(work)]

    guesses = [
        Cell(f"masked/{tokens}/{FREQUENCIES}", partial(guess, tokens), weight=0.5)
        for tokens in options.tokens
    ]
    arms = [(tokens, arm) for tokens in options.tokens for arm in options.arms_at(tokens)]
    return [*guesses, *question.cells(seeds, arms)]


def _corpus_records(work: LanguageWork) -> list[Record]:
    """How much text there is, in the corpus' own words about it."""
    corpus = work.corpus
    labels: Labels = {"corpus": corpus.name, "note": corpus.notes[0]}
    records = measured(labels, "tokens", vocabulary=corpus.vocabulary)
    for split, stream in corpus.streams.items():
        records += measured({**labels, "split": split}, "tokens", corpus_tokens=len(stream))
    return records
