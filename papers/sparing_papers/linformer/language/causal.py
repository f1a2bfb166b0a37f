"""Causal language models from scratch: perplexity of the mechanisms that can be causal."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sparing.core.catalogue import mechanism
from sparing.core.errors import Unsupported
from sparing.core.heads import Heads
from sparing.core.record import Label, Record
from sparing.experiment.run import Cell
from sparing.measure.machine import threads
from sparing.models import build_model
from sparing.models.shared.quiet import quiet
from sparing.models.shared.shape import seeded
from sparing.tasks import Task
from sparing.train.evaluation import Evaluation, evaluating
from sparing_papers.linformer.language.corpus import CLASS, PAD
from sparing_papers.linformer.language.masked import (
    FREQUENCIES,
    JUDGED_TOKENS,
    METRIC,
    by_frequency,
    judged,
    text_records,
)
from sparing_papers.linformer.language.work import (
    LanguageWork,
    arm_named,
    arm_options,
    put_in,
    training_seconds,
)
from sparing_papers.long_range.work import slug

if TYPE_CHECKING:
    from transformers import GPT2LMHeadModel


class NextWords:
    """Cross-entropy of every word of a block given those before it, the first excepted.

    Formula: the mean of -log p(word t | words before t). Its score, "likelihood", is exp(-loss),
    one over the perplexity.
    """

    teacher: nn.Module | None = None
    metric = METRIC

    def describe(self) -> dict[str, Any]:
        """It has no settings."""
        return {"next_words": {}}

    def __call__(self, model: nn.Module, batch: dict[str, Tensor], step: int) -> Float[Tensor, ""]:
        """The loss of a batch of whole blocks."""
        del step
        ids = batch["input_ids"]
        return F.cross_entropy(next_scores(model, ids).float().flatten(0, 1), ids[:, 1:].flatten())

    def validate(self, model: nn.Module, task: Task, batch_size: int) -> Evaluation:
        """The model on the validation split."""
        del batch_size
        return self.judge(model, task, "validation")

    def judge(self, model: nn.Module, task: Task, split: str) -> Evaluation:
        """The loss and the share of right words over a split."""
        losses, right = [], []
        device = next(model.parameters()).device
        with evaluating(model), torch.inference_mode():
            for ids in _parts(task, split):
                scores = next_scores(model, ids.to(device)).float().cpu().flatten(0, 1)
                wanted = ids[:, 1:].flatten()
                losses.append(F.cross_entropy(scores, wanted, reduction="none"))
                right += (scores.argmax(-1) == wanted).tolist()
        return judged(torch.cat(losses), right)


def next_scores(
    model: Any, ids: Int[Tensor, "batch tokens"]
) -> Float[Tensor, "batch predicted vocabulary"]:
    """The scores of all words at every place but the first."""
    mask = torch.ones_like(ids)  # without one transformers looks for packed texts
    scores: Tensor = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    return scores[:, :-1]


def _parts(task: Task, split: str) -> Iterator[Int[Tensor, "batch tokens"]]:
    ids = task.split(split).inputs
    assert isinstance(ids, Tensor)
    yield from torch.split(ids, max(1, JUDGED_TOKENS // 2 // ids.shape[1]))


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
    """Word frequencies, what is refused and why, then seed by seed every arm that is causal."""
    arms = work.options.causal.arms
    found = [_frequencies_cell(work)]
    refused = [arm for arm in arms if not is_causal(arm, work.options.causal.tokens)]
    found += [_refused_cell(work, arm) for arm in refused]
    for seed in range(seeds):
        own = [arm for arm in arms if arm not in refused]
        random.Random(f"causal:{seed}").shuffle(own)
        found += [_cell(work, arm, seed) for arm in own]
    return found


def is_causal(arm: str, tokens: int) -> bool:
    """Whether an arm, as it is configured here, can hide the future."""
    built = mechanism(
        arm_named(arm).mechanism, Heads(1, 8, 8, tokens), **arm_options(arm, tokens, 0)
    )
    return built.traits.causal


def _refused_cell(work: LanguageWork, arm: str) -> Cell:
    """That an arm is refused in a decoder, in the words of the swap."""

    def do() -> list[Record]:
        task = work.blocks_task(work.options.causal.tokens)
        labels = _labels(work, arm, None)
        try:
            build_decoder(work, task, arm, 0)
        except Unsupported as error:
            return [Record("refused", 1, "", "measured", {**labels, "why": str(error)})]
        raise AssertionError(f"{arm} is not causal and was not refused")

    return Cell(f"causal/refused/{slug(arm)}", do, weight=0.1)


def _cell(work: LanguageWork, arm: str, seed: int) -> Cell:
    options, schedule = work.options.causal, work.options.causal.schedule

    def do() -> list[Record]:
        labels = _labels(work, arm, seed)
        task = work.blocks_task(options.tokens)
        with threads(work.thread_count):
            trained = work.tuned(
                lambda own: build_decoder(work, task, arm, own),
                task,
                lambda own: NextWords(),
                schedule,
                max(1, options.batch_tokens // options.tokens),
                "causal",
                options.tokens,
                slug(arm),
            ).run(seed)
            found = NextWords().judge(trained.model, task, "test")
        return [*text_records(found, labels), *trained.records(labels)]

    read = work.options.train_tokens * schedule.passes * schedule.trainings(seed)
    steps = read // options.batch_tokens
    seconds = training_seconds(work, arm, options.tokens, read, steps, 1.0)
    return Cell(f"causal/{options.tokens}/{seed}/{slug(arm)}", do, weight=seconds)


def _frequencies_cell(work: LanguageWork) -> Cell:
    """What guessing by the words' frequencies alone comes to, on the same words."""
    tokens = work.options.causal.tokens

    def do() -> list[Record]:
        wanted = work.corpus.blocks("test", tokens)[:, 1:].flatten()
        found = by_frequency(work.corpus.frequencies(), wanted)
        return text_records(found, _labels(work, FREQUENCIES, None))

    return Cell(f"causal/{tokens}/frequencies", do, weight=0.2)


def _labels(work: LanguageWork, arm: str, seed: int | None) -> dict[str, Label]:
    tokens, name = work.options.causal.tokens, work.corpus.name
    return {"question": "causal", "corpus": name, "tokens": tokens, "arm": arm, "seed": seed}
