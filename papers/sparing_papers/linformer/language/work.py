"""The options of the Linformer study's language part, and what its cells share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch

from sparing.core.catalogue import mechanism_class
from sparing.core.checks import Count, at_least, check_fields, distinct, one_of
from sparing.core.errors import UsageError
from sparing.core.options import option_defaults
from sparing.core.record import Labels, Record, measured
from sparing.experiment.cells.rates import Tuned, require_rates
from sparing.experiment.run import Cell
from sparing.tasks import Examples, Task
from sparing.tasks.shared.words import FIRST_WORD
from sparing.train import Recipe
from sparing.transfer.swap import swap
from sparing_papers.linformer.language.corpus import AUTO, PAD, TextCorpus, corpus_of, load_corpus
from sparing_papers.long_range.arms import DENSE, UNIFORM, LongArm, arm_of, options_of
from sparing_papers.long_range.train import FORWARD_AND_BACK, TYPICAL_FLOPS

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from sparing.train.objective import Objective

LINFORMER = "linformer"
SLOTTED = re.compile(r"linformer, k = (\d+)")
SIZES = {"long_range": (4, 128, 256), "bert": (2, 64, 128)}  # layers, width, inner width
QUESTIONS = ("masked", "transfer", "causal", "translation")
PLACES = ("encoder", "encoder and cross")
STEP_S = 0.008  # of a step besides its FLOPs


@dataclass(frozen=True)
class Schedule:
    """How long a model learns, and at which rates: ``passes`` over its examples, with warm-up.

    With several ``learning_rates``, every variant is trained at each with the first seed. The rate
    of the least validation loss is then used for all seeds of the variant. With one rate for all,
    variants that need a lower one would lose because of the rate.
    """

    passes: Count = 3
    learning_rates: tuple[float, ...] = (2e-3, 5e-3)
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        check_fields(self)
        require_rates(self.learning_rates, "learning_rates")

    def recipe(self, batch_size: int, seed: int, rate: float) -> Recipe:
        """How a seed is trained at a rate."""
        return Recipe(
            epochs=self.passes,
            batch_size=batch_size,
            learning_rate=rate,
            weight_decay=self.weight_decay,
            seed=seed,
        )


@dataclass(frozen=True)
class Masked:
    """Masked language models: each variant at each length, ``linformer`` with each number of slots.

    Slots are left out where they are not fewer than the tokens. A step sees ``batch_tokens``.
    """

    variants: tuple[str, ...] = (DENSE, LINFORMER, "linear", UNIFORM)
    tokens: Annotated[tuple[Annotated[int, at_least(4)], ...], distinct] = (64, 128, 256)
    slots: Annotated[tuple[Count, ...], distinct] = (16, 32, 64)
    batch_tokens: Count = 1024
    schedule: Schedule = field(default_factory=Schedule)

    def __post_init__(self) -> None:
        check_fields(self, "masked")
        _require_arms(self.variants)

    def arms_at(self, tokens: int) -> tuple[str, ...]:
        """The variants at a length."""
        return expanded(self.variants, self.slots, tokens)


@dataclass(frozen=True)
class Transfer:
    """Fine-tuning what was pretrained at ``tokens``, beside the same variants from scratch.

    ``task`` is ``auto`` (sst2 where the corpus is real texts and there is a data folder, else
    ``agreement``), or one of these two. It is trained on ``examples``, evaluated on
    ``test_examples``.
    """

    task: Annotated[str, one_of(AUTO, "sst2", "agreement")] = AUTO
    variants: tuple[str, ...] = (DENSE, LINFORMER, UNIFORM)
    slots: Annotated[tuple[Count, ...], distinct] = (32,)
    tokens: int = 128
    examples: Count = 2000
    test_examples: Count = 1000
    schedule: Schedule = field(default_factory=lambda: Schedule(3, (5e-4, 2e-3)))
    batch_size: Count = 32

    def __post_init__(self) -> None:
        check_fields(self, "transfer")
        _require_arms(self.variants)

    @property
    def compared(self) -> tuple[str, ...]:
        """The variants, ``linformer`` with its slots."""
        return expanded(self.variants, self.slots, self.tokens)


@dataclass(frozen=True)
class Causal:
    """Causal language models; variants that cannot be causal are refused, and that is recorded."""

    variants: tuple[str, ...] = (
        DENSE,
        LINFORMER,
        "linear",
        "kerformer, by content",
        "performer",
        "efficient",
        "window",
        UNIFORM,
    )
    tokens: Annotated[int, at_least(4)] = 128
    batch_tokens: Count = 1024
    schedule: Schedule = field(default_factory=lambda: Schedule(1))

    def __post_init__(self) -> None:
        check_fields(self, "causal")
        _require_arms(self.variants)


@dataclass(frozen=True)
class Translation:
    """A generated translation; mechanisms in the encoder alone, or in cross-attention too."""

    variants: tuple[str, ...] = (DENSE, LINFORMER, "linear", UNIFORM)
    slots: Annotated[tuple[Count, ...], distinct] = (8, 16)
    places: tuple[Annotated[str, one_of(*PLACES)], ...] = PLACES
    clauses: Count = 2
    pairs: Count = 4000
    test_pairs: Count = 500
    width: Count = 64
    layers: Count = 2
    heads: Count = 4
    schedule: Schedule = field(default_factory=lambda: Schedule(8, (1e-3, 3e-3)))
    batch_size: Count = 64

    def __post_init__(self) -> None:
        check_fields(self, "translation")
        _require_arms(self.variants)
        if self.width % self.heads:
            raise UsageError(
                f"translation: {self.heads} heads do not divide the width {self.width}"
            )


@dataclass(frozen=True)
class LanguageOptions:
    """The language part of the study: its corpus, its backbone, and its four questions.

    ``corpus`` is ``auto`` (film reviews where the data folder has them, else a generated grammar),
    ``reviews``, ``grammar``, ``wikitext:FOLDER`` or ``wikitext:wikitext-103-raw-v1``, or a text
    file. ``model`` gives the sizes of encoder and causal decoder: ``long_range`` is the backbone of
    the long-range tasks. ``bert`` is an eighth of it and sees enough text in a minute to learn more
    than the words' frequencies. ``questions`` are the ones that are run.
    """

    corpus: str = AUTO
    vocabulary: Annotated[int, at_least(FIRST_WORD)] = 4096
    train_tokens: Count = 400_000
    held_out_tokens: Count = 40_000
    model: Annotated[str, one_of(*SIZES)] = "bert"
    questions: tuple[Annotated[str, one_of(*QUESTIONS)], ...] = QUESTIONS
    masked: Masked = field(default_factory=Masked)
    transfer: Transfer = field(default_factory=Transfer)
    causal: Causal = field(default_factory=Causal)
    translation: Translation = field(default_factory=Translation)

    def __post_init__(self) -> None:
        check_fields(self, "language")

    def require_pretrained(self) -> None:
        """Raise ``UsageError`` for a variant that is fine-tuned and was not pretrained.

        Not when the options are made: they may be set one after the other.
        """
        transfer = self.transfer
        known = (
            self.masked.arms_at(transfer.tokens) if transfer.tokens in self.masked.tokens else ()
        )
        for arm in transfer.compared if "transfer" in self.questions else ():
            if arm not in known:
                lengths = ", ".join(map(str, self.masked.tokens))
                raise UsageError(
                    f"transfer: {arm} at {transfer.tokens} tokens is not pretrained; masked has "
                    f"the lengths {lengths}, and there {', '.join(known) or 'others'}"
                )


@dataclass(frozen=True, eq=False)
class LanguageWork:
    """What the cells share; the corpus is read when the first of them needs it."""

    options: LanguageOptions
    folder: Path
    data: Path | None
    thread_count: int
    watts_per_core: float

    @cached_property
    def corpus(self) -> TextCorpus:
        """The texts."""
        return load_corpus(
            self.options.corpus,
            self.data,
            vocabulary=self.options.vocabulary,
            train_tokens=self.options.train_tokens,
            held_out_tokens=self.options.held_out_tokens,
        )

    @property
    def corpus_name(self) -> str:
        """The corpus without reading it."""
        return corpus_of(self.options.corpus, self.data)

    def tuned(
        self,
        build: Callable[[int], PreTrainedModel],
        task: Task,
        objective: Callable[[int], Objective | None],
        schedule: Schedule,
        batch_size: int,
        names: tuple[object, ...],
    ) -> Tuned:
        """The trainings of one variant, in a folder of that name."""
        folder = self.folder.joinpath("models", "-".join(str(name) for name in names))
        return Tuned(
            build,
            task,
            partial(schedule.recipe, batch_size),
            schedule.learning_rates,
            lambda seed, rate: folder / f"{seed}-{rate:g}",
            self.watts_per_core,
            objective,
        )

    def blocks_task(self, tokens: int) -> Task:
        """The corpus in whole blocks; labels mean nothing."""
        corpus = self.corpus
        splits = {}
        for split in ("train", "validation", "test"):
            rows = corpus.blocks(split, tokens)
            splits[split] = Examples("input_ids", rows, torch.zeros(len(rows), dtype=torch.long))
        return token_task(f"{corpus.name} in blocks of {tokens}", splits, corpus.vocabulary, tokens)


def token_task(
    name: str,
    splits: dict[str, Examples],
    vocabulary: int,
    tokens: int,
    labels: tuple[str, ...] = ("text",),
) -> Task:
    """A task of token numbers that were made here."""
    return Task(
        name,
        "tokens",
        splits["train"],
        splits["validation"],
        splits["test"],
        labels=labels,
        tokens=tokens,
        licence="",
        source="",
        vocabulary=vocabulary,
        pad_id=PAD,
    )


def arm_named(name: str) -> LongArm:
    """A variant of the long-range studies, or Linformer with its slots: ``linformer, k = 16``."""
    match = SLOTTED.fullmatch(name)
    return LongArm(LINFORMER, {"slots": int(match[1])}) if match else arm_of(name)


def expanded(arms: tuple[str, ...], slots: tuple[int, ...], tokens: int) -> tuple[str, ...]:
    """Plain ``linformer`` becomes one variant for each number of slots below the tokens."""
    names: list[str] = []
    for arm in arms:
        slotted = [f"{LINFORMER}, k = {count}" for count in slots if count < tokens]
        names += slotted if arm == LINFORMER else [arm]
    return tuple(dict.fromkeys(names))


def arm_options(name: str, tokens: int, seed: int) -> dict[str, Any]:
    """A variant's options at a length; what it samples follows the training's seed."""
    arm = arm_named(name)
    options = dict(arm.options) if SLOTTED.fullmatch(name) else options_of(name, tokens)
    if "seed" in option_defaults(mechanism_class(arm.mechanism)):
        options.setdefault("seed", seed)
    return options


def put_in(model: PreTrainedModel, name: str, tokens: int, seed: int) -> None:
    """Swap a variant into every layer; the dense variant is transformers' own fused attention."""
    if name != DENSE:
        swap(model, arm_named(name).mechanism, tokens=tokens, **arm_options(name, tokens, seed))


def training_seconds(
    work: LanguageWork, arm: str, tokens: int, seen: int, steps: int, scored_share: float
) -> float:
    """A first guess of a training: linear layers, the square of a dense variant, scores of all
    words.

    ``seen`` tokens go through the model, ``scored_share`` of them through the layer of all words.
    """
    layers, width, inner = SIZES[work.options.model]
    per_token = layers * (8 * width**2 + 4 * width * inner)
    per_token += 4 * layers * width * tokens if arm == DENSE else 0
    cost = per_token + 2 * scored_share * width * work.options.vocabulary
    return 2.0 + STEP_S * steps + FORWARD_AND_BACK * seen * cost / TYPICAL_FLOPS


def refused_cell(key: str, labels: Callable[[], Labels]) -> Cell:
    """That a variant is refused; its labels are made when the cell is done, and say why."""
    return Cell(key, lambda: measured(labels(), "", refused=1), weight=0.1)


def slots_records(name: str, labels: Labels) -> list[Record]:
    """How many slots a variant's name gives it, as a record of all its seeds."""
    slots = slots_of(name)
    of_arm: Labels = {**labels, "seed": None}
    return [] if slots is None else [Record("slots", slots, "tokens", "modelled", of_arm)]


def slots_of(name: str) -> int | None:
    """How many slots a variant's name gives it."""
    match = SLOTTED.fullmatch(name)
    return int(match[1]) if match else None


def _require_arms(names: tuple[str, ...]) -> None:
    for name in names:
        arm_named(name)
    if len(set(names)) != len(names):
        raise UsageError(f"variants are named twice: {', '.join(names)}")
