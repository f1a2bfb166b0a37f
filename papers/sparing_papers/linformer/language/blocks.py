"""Language models from scratch on blocks of a corpus: what masked and causal ones share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch

from sparing.core.record import Labels, Record
from sparing.experiment.arms import shuffled
from sparing.experiment.cells.rates import Tuned, training_cell, trainings
from sparing.experiment.cells.training import Trained
from sparing.experiment.run import Cell, slug
from sparing.tasks import Task
from sparing_papers.linformer.language.losses import WordLoss, by_frequency, text_records
from sparing_papers.linformer.language.work import (
    LanguageWork,
    Schedule,
    slots_records,
    training_seconds,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FREQUENCIES = "frequencies"


@dataclass(frozen=True, eq=False)
class BlocksQuestion:
    """Perplexity by mechanism, and of guessing by the words' frequencies on the same words.

    ``loss`` is that of a seed. A step sees ``batch_tokens``, of which a ``scored_share`` goes
    through the layer of all words.
    """

    name: str
    work: LanguageWork
    schedule: Schedule
    batch_tokens: int
    build: Callable[[LanguageWork, Task, str, int], PreTrainedModel]
    loss: Callable[[int], WordLoss]
    scored_share: float

    def labels(self, tokens: int, arm: str, seed: int | None) -> Labels:
        """What all records of a training say; reads the corpus."""
        labels: Labels = {"question": self.name, "corpus": self.work.corpus.name}
        return {**labels, "tokens": tokens, "arm": arm, "seed": seed}

    def tuned(self, tokens: int, arm: str) -> Tuned:
        """The trainings of a variant; run them in ``threads``."""
        task = self.work.blocks_task(tokens)
        return self.work.tuned(
            lambda seed: self.build(self.work, task, arm, seed),
            task,
            self.loss,
            self.schedule,
            max(1, self.batch_tokens // tokens),
            (self.name, tokens, slug(arm)),
        )

    def cells(self, seeds: int, arms: Sequence[tuple[int, str]]) -> list[Cell]:
        """Seed by seed the variants, by tokens and name, in a new random order."""
        return [
            self._cell(tokens, arm, seed)
            for seed in range(seeds)
            for tokens, arm in shuffled(arms, f"{self.name}:{seed}")
        ]

    def _cell(self, tokens: int, arm: str, seed: int) -> Cell:
        def record(trained: Trained) -> list[Record]:
            labels = self.labels(tokens, arm, seed)
            evaluation = self.loss(seed).evaluate(trained.model, trained.task, "test")
            text = text_records(evaluation, labels)
            return [*text, *slots_records(arm, labels), *trained.records(labels)]

        read = self.work.options.train_tokens * self.schedule.passes
        read *= trainings(self.schedule.learning_rates, seed)
        steps = read // self.batch_tokens
        return training_cell(
            f"{self.name}/{tokens}/{seed}/{slug(arm)}",
            partial(self.tuned, tokens, arm),
            seed,
            record,
            thread_count=self.work.thread_count,
            weight=training_seconds(self.work, arm, tokens, read, steps, self.scored_share),
        )

    def frequencies(self, tokens: int) -> list[Record]:
        """What guessing by the words' frequencies alone comes to, on the same words."""
        parts = self.loss(0).parts(self.work.blocks_task(tokens), "test")
        targets = torch.cat([words for _, words in parts])
        guessed = by_frequency(self.work.corpus.frequencies(), targets)
        return text_records(guessed, self.labels(tokens, FREQUENCIES, None))
