"""A small translator from scratch: mechanisms in its encoder, and between decoder and encoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from sparing.core.catalogue import mechanism
from sparing.core.errors import Unsupported
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.record import Labels, Record, measured
from sparing.experiment.arms import shuffled
from sparing.experiment.cells.rates import Tuned, training_cell, trainings
from sparing.experiment.cells.training import Trained
from sparing.experiment.run import Cell, slug
from sparing.models.shared.quiet import quiet
from sparing.models.shared.shape import seeded
from sparing.tasks import Examples, Task
from sparing.train.evaluation import batches_by_length, evaluating
from sparing.transfer.layers import find_layers, projection_weights
from sparing.transfer.plan import Assignment
from sparing.transfer.registry import NAME
from sparing.transfer.swap import Placement, activate, attach, with_own_seed
from sparing.transfer.swap import build as build_for
from sparing_papers.linformer.language.losses import NOTHING, Inputs, Shown, WordLoss
from sparing_papers.linformer.language.pairs import (
    BEGIN,
    END,
    FIRST_WORD,
    PAD,
    Pair,
    longest,
    numbers,
    pairs,
)
from sparing_papers.linformer.language.work import (
    LanguageWork,
    Translation,
    arm_named,
    arm_options,
    expanded,
    refused_cell,
    slots_records,
    token_task,
)
from sparing_papers.long_range.arms import DENSE

if TYPE_CHECKING:
    from transformers import BartForConditionalGeneration

TASK = "generated translation"
CROSS = "encoder and cross"
PASS_S, PAIR_S = 0.03, 2e-4  # a step, and one clause in it


class AcrossSequences(nn.Module):
    """A mechanism with queries of another sequence than its keys, however long both are.

    The registry of swapped layers sees that only where their lengths differ.
    """

    def __init__(self, mechanism: Mechanism) -> None:
        super().__init__()
        self.mechanism = mechanism
        self.streams, self.traits = mechanism.streams, mechanism.traits

    def forward(self, *streams: Tensor, mask: Mask) -> Tensor:
        """See ``Mechanism.forward``."""
        mixed: Tensor = self.mechanism(*streams, mask=Mask(mask.keep, cross=True))
        return mixed


@dataclass(frozen=True, eq=False)
class Pairs:
    """Splits of generated pairs; no sentence is in two of them."""

    options: Translation

    @cached_property
    def splits(self) -> dict[str, list[Pair]]:
        """The same pairs for every seed and variant."""
        held_out, trained = self.options.test_pairs, self.options.pairs
        made = pairs(trained + 2 * held_out, self.options.clauses, TASK)
        ends = (held_out, 2 * held_out)
        return {
            "test": made[: ends[0]],
            "validation": made[ends[0] : ends[1]],
            "train": made[ends[1] :],
        }

    @cached_property
    def targets(self) -> Int[Tensor, "pairs tokens"]:
        """All translations, ended, filled up with what no loss counts; by a task's labels."""
        rows = [_ids(pair.target) for split in self.splits.values() for pair in split]
        return pad_sequence(rows, batch_first=True, padding_value=NOTHING)

    @cached_property
    def task(self) -> Task:
        """The sources; a label says which pair it is."""
        splits, first = {}, 0
        for split, made in self.splits.items():
            labels = torch.arange(first, first + len(made))
            splits[split] = Examples("input_ids", [_ids(pair.source) for pair in made], labels)
            first += len(made)
        return token_task(TASK, splits, FIRST_WORD + len(numbers()), self.source_tokens)

    @property
    def source_tokens(self) -> int:
        """The longest source."""
        return longest(self.options.clauses)[0]


class Translating(WordLoss):
    """Cross-entropy of each word of a translation given the source and the words before it."""

    def __init__(self, made: Pairs) -> None:
        self.made = made

    def describe(self) -> dict[str, Any]:
        """Which pairs."""
        return {"translating": {"clauses": self.made.options.clauses}}

    def shown(self, batch: Mapping[str, Tensor], step: int) -> Shown:
        """Sources, and their translations of which each word is seen by those after it."""
        ids = batch["input_ids"]
        targets = self.made.targets[batch["labels"].cpu()].to(ids.device)
        inputs = {"input_ids": ids, "attention_mask": batch["attention_mask"], "labels": targets}
        return inputs, targets.flatten()

    def parts(self, task: Task, split: str, size: int = 0) -> Iterator[Shown]:
        """The pairs of a split."""
        for batch in _batches(task, split, size):
            yield self.shown(batch, 0)

    def scores(self, model: Any, inputs: Inputs) -> Float[Tensor, "words vocabulary"]:
        """Of every word, those that fill up included."""
        scores: Tensor = model(**inputs, use_cache=False).logits
        return scores.flatten(0, 1)


def build_translator(
    options: Translation, arm: str, position: str, seed: int
) -> BartForConditionalGeneration:
    """transformers' BART, small, with a mechanism in its encoder and perhaps in cross-attention.

    The decoder's attention to itself stays as it is. Raises ``Unsupported`` for a mechanism that
    cannot attend from one sequence to another, or that would let a decoder see what it has still
    to write.
    """
    from transformers import BartConfig, BartForConditionalGeneration

    source, target = longest(options.clauses)
    config = BartConfig(
        vocab_size=FIRST_WORD + len(numbers()),
        d_model=options.width,
        encoder_layers=options.layers,
        decoder_layers=options.layers,
        encoder_attention_heads=options.heads,
        decoder_attention_heads=options.heads,
        encoder_ffn_dim=2 * options.width,
        decoder_ffn_dim=2 * options.width,
        max_position_embeddings=max(source, target) + 1,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        init_std=options.width**-0.5,
        pad_token_id=PAD,
        bos_token_id=BEGIN,
        eos_token_id=END,
        decoder_start_token_id=BEGIN,
        forced_eos_token_id=None,
    )
    with quiet(), seeded(seed):
        model = BartForConditionalGeneration(config)
    if arm != DENSE:
        _put_in(model, arm, position, source, seed)
    return model


def _put_in(
    model: BartForConditionalGeneration, arm: str, position: str, tokens: int, seed: int
) -> None:
    """Swap the encoder's layers, or the decoder's cross-attention, as ``position`` says.

    ``swap`` leaves cross-attention to transformers; the registry below it serves both.
    """
    if position == CROSS:
        reason = refusal(arm, tokens)
        if reason:
            raise Unsupported(f"{arm}: {reason}")
    name, options = arm_named(arm).mechanism, arm_options(arm, tokens, seed)
    placements: list[Placement] = []
    for layer in find_layers(model):
        across = layer.index is None
        if layer.obstacle and not (across and position == CROSS):
            continue
        assignment = with_own_seed(Assignment(name, options, named=True), len(placements))
        built = build_for(model, layer, assignment, tokens)
        built.init_from(projection_weights(layer))
        placements.append(Placement(layer, assignment, built))
    attach(model, placements)
    for placement in placements:
        if placement.layer.index is None:
            placement.layer.module.add_module(NAME, AcrossSequences(placement.mechanism))
    activate(model)


def refusal(arm: str, tokens: int) -> str:
    """Why a variant cannot serve between a decoder and its encoder; empty where it can."""
    built = mechanism(
        arm_named(arm).mechanism, Heads(2, 8, 16, tokens), **arm_options(arm, tokens, 0)
    ).eval()
    if not built.traits.cross:
        return "it cannot do cross-attention: its queries and keys must be one sequence"
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, tokens, 8, generator=generator) for _ in range(3))
    later = q.clone()
    later[:, :, 1:] = torch.randn(1, 2, tokens - 1, 8, generator=generator)
    with torch.no_grad():
        first, again = (
            built(queries, k, v, mask=Mask(cross=True))[:, :, 0] for queries in (q, later)
        )
    if not torch.allclose(first, again, atol=1e-5):
        return (
            "what it gives one query depends on the others, so that a decoder in training would "
            "see words that it has still to write"
        )
    return ""


def translation_cells(work: LanguageWork, seeds: int) -> list[Cell]:
    """What is refused and why, then by seed every variant at every place; the dense one once."""
    options, made = work.options.translation, Pairs(work.options.translation)
    names = expanded(options.variants, options.slots, made.source_tokens)
    reasons = {arm: refusal(arm, made.source_tokens) for arm in names if arm != DENSE}
    refused = {arm: why for arm, why in reasons.items() if why and CROSS in options.places}
    cells = [_refused_cell(arm, why) for arm, why in refused.items()]
    placed = [
        (arm, position)
        for arm in names
        for position in (options.places if arm != DENSE else options.places[-1:])
        if not (arm in refused and position == CROSS)
    ]
    for seed in range(seeds):
        arms = shuffled(placed, f"translation:{seed}")
        cells += [_cell(work, made, arm, position, seed) for arm, position in arms]
    return cells


def _refused_cell(arm: str, why: str) -> Cell:
    labels: Labels = {**_labels(arm, CROSS, None), "why": f"{arm}: {why}"}
    return refused_cell(f"translation/refused/{slug(arm)}", lambda: labels)


def _cell(work: LanguageWork, made: Pairs, arm: str, position: str, seed: int) -> Cell:
    options = work.options.translation

    def tuned() -> Tuned:
        return work.tuned(
            partial(build_translator, options, arm, position),
            made.task,
            lambda seed: Translating(made),
            options.schedule,
            options.batch_size,
            ("translation", slug(position), slug(arm)),
        )

    def record(trained: Trained) -> list[Record]:
        labels: Labels = {**_labels(arm, position, seed), "tokens": made.source_tokens}
        pairs = translated(trained.model, made, "test")
        # dense attention is the baseline of whatever is swapped, at every position
        places = options.places if arm == DENSE else (position,)
        scores = [r for at in places for r in _scores(pairs, {**labels, "place": at}, arm)]
        return [*scores, *trained.records(labels)]

    steps = options.schedule.passes * trainings(options.schedule.learning_rates, seed)
    steps *= -(-options.pairs // options.batch_size)
    return training_cell(
        f"translation/{slug(position)}/{seed}/{slug(arm)}",
        tuned,
        seed,
        record,
        thread_count=work.thread_count,
        weight=2.0 + steps * (PAIR_S * options.batch_size * options.clauses + PASS_S),
    )


def _scores(
    translations: list[tuple[list[int], list[int]]], labels: Labels, arm: str
) -> list[Record]:
    """Exact matches, and the words at their right positions."""
    exact = sum(said == target for said, target in translations) / len(translations)
    places = [
        said[index : index + 1] == [word]
        for said, target in translations
        for index, word in enumerate(target)
    ]
    return [
        *measured(labels, "share", len(translations), score=exact),
        *measured(labels, "share", len(places), token_accuracy=sum(places) / len(places)),
        *slots_records(arm, labels),
    ]


@torch.inference_mode()
def translated(model: Any, made: Pairs, split: str) -> list[tuple[list[int], list[int]]]:
    """What the model says for each source, greedily, and what it should: up to the end mark."""
    translations = []
    _, most = longest(made.options.clauses)
    with evaluating(model), quiet():
        for batch in _batches(made.task, split, 128):
            said = model.generate(
                input_ids=batch["input_ids"].to(model.device),
                attention_mask=batch["attention_mask"].to(model.device),
                max_new_tokens=most,
                num_beams=1,
                do_sample=False,
            )
            targets = made.targets[batch["labels"]]
            translations += [
                (_to_end(ours), _to_end(theirs))
                for ours, theirs in zip(said[:, 1:].tolist(), targets.tolist(), strict=True)
            ]
    return translations


def _to_end(ids: list[int]) -> list[int]:
    return ids[: ids.index(END) + 1] if END in ids else ids


def _batches(task: Task, split: str, size: int) -> Iterator[dict[str, Tensor]]:
    examples = task.split(split)
    for indices in batches_by_length(examples, size):
        yield task.collate([examples[index] for index in indices])


def _ids(words: Sequence[str]) -> Int[Tensor, " tokens"]:
    known = numbers()
    return torch.tensor([*(known[word] for word in words), END])


def _labels(arm: str, position: str, seed: int | None) -> Labels:
    return {"question": "translation", "task": TASK, "place": position, "arm": arm, "seed": seed}
