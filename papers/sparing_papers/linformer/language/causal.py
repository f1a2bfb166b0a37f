"""Causal language models from scratch: perplexity of the mechanisms that can be causal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sparing.core.catalogue import mechanism
from sparing.core.errors import Unsupported
from sparing.core.heads import Heads
from sparing.core.record import Labels
from sparing.experiment.run import Cell, slug
from sparing.models import build_model
from sparing.models.shared.quiet import quiet
from sparing.models.shared.shape import seeded
from sparing.tasks import Task
from sparing_papers.linformer.language.blocks import FREQUENCIES, BlocksQuestion
from sparing_papers.linformer.language.corpus import CLASS, PAD
from sparing_papers.linformer.language.losses import EVALUATED_TOKENS, Inputs, Shown, WordLoss
from sparing_papers.linformer.language.work import (
    LanguageWork,
    arm_named,
    arm_options,
    put_in,
    refused_cell,
)

if TYPE_CHECKING:
    from transformers import GPT2LMHeadModel


class NextWords(WordLoss):
    """Cross-entropy of every word of a block given those before it, the first excepted."""

    def describe(self) -> dict[str, Any]:
        """It has no settings."""
        return {"next_words": {}}

    def shown(self, batch: Mapping[str, Tensor], step: int) -> Shown:
        """Whole blocks."""
        ids = batch["input_ids"]
        return {"ids": ids}, ids[:, 1:].flatten()

    def parts(self, task: Task, split: str, size: int = 0) -> Iterator[Shown]:
        """The blocks of a split."""
        ids = task.split(split).inputs
        assert isinstance(ids, Tensor)
        for part in torch.split(ids, max(1, EVALUATED_TOKENS // 2 // ids.shape[1])):
            yield self.shown({"input_ids": part}, 0)

    def scores(self, model: nn.Module, inputs: Inputs) -> Float[Tensor, "words vocabulary"]:
        """Of all words but the first of each block."""
        return next_scores(model, **inputs).flatten(0, 1)


def next_scores(
    model: Any, ids: Int[Tensor, "batch tokens"]
) -> Float[Tensor, "batch predicted vocabulary"]:
    """The scores of all words at every place but the first."""
    mask = torch.ones_like(ids)  # without one transformers looks for packed texts
    scores: Tensor = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    return scores[:, :-1]


def build_decoder(work: LanguageWork, task: Task, arm: str, seed: int) -> GPT2LMHeadModel:
    """transformers' GPT-2 in the backbone's sizes, with that mechanism in every layer.

    Raises ``Unsupported`` for a mechanism that cannot be causal.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = build_model(work.options.model, task, seed=seed).config
    config = GPT2Config(
        vocab_size=task.vocabulary,
        n_positions=task.tokens,
        n_embd=sizes.hidden_size,
        n_layer=sizes.num_hidden_layers,
        n_head=sizes.num_attention_heads,
        n_inner=sizes.intermediate_size,
        resid_pdrop=sizes.hidden_dropout_prob,
        embd_pdrop=sizes.hidden_dropout_prob,
        attn_pdrop=0.0,
        initializer_range=sizes.initializer_range,
        bos_token_id=CLASS,
        eos_token_id=CLASS,
        pad_token_id=PAD,
    )
    with quiet(), seeded(seed):
        model = GPT2LMHeadModel(config)
    put_in(model, arm, task.tokens, seed)
    return model


def causal_cells(work: LanguageWork, seeds: int) -> list[Cell]:
    """Word frequencies, what is refused and why, then seed by seed every variant that is causal."""
    options = work.options.causal
    question = BlocksQuestion(
        "causal",
        work,
        options.schedule,
        options.batch_tokens,
        build_decoder,
        lambda seed: NextWords(),
        1.0,
    )
    key = f"causal/{options.tokens}/{FREQUENCIES}"
    cells = [Cell(key, partial(question.frequencies, options.tokens), weight=0.2)]
    causal = []
    for arm in options.variants:
        if is_causal(arm, options.tokens):
            causal.append((options.tokens, arm))
        else:
            cells.append(refused_cell(f"causal/refused/{slug(arm)}", partial(_why, question, arm)))
    return [*cells, *question.cells(seeds, causal)]


def is_causal(arm: str, tokens: int) -> bool:
    """Whether a variant, as it is configured here, can hide the future."""
    built = mechanism(
        arm_named(arm).mechanism, Heads(1, 8, 8, tokens), **arm_options(arm, tokens, 0)
    )
    return built.traits.causal


def _why(question: BlocksQuestion, arm: str) -> Labels:
    """That a variant is refused in a decoder, in the words of the swap."""
    work, tokens = question.work, question.work.options.causal.tokens
    try:
        build_decoder(work, work.blocks_task(tokens), arm, 0)
    except Unsupported as error:
        return {**question.labels(tokens, arm, None), "why": str(error)}
    raise AssertionError(f"{arm} is not causal and was not refused")
