"""Does pre-training help: the pretrained encoders, fine-tuned beside the same ones from scratch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sparing.core.record import Labels, Record, measured
from sparing.experiment.arms import shuffled
from sparing.experiment.cells.rates import Tuned, labels_alone, trainings
from sparing.experiment.run import Cell, slug
from sparing.measure.machine import threads
from sparing.models import build_model
from sparing.tasks import Examples, Task, load_task
from sparing.tasks.shared.files import given_folder
from sparing.tasks.shared.words import FIRST_BYTE
from sparing.train import Evaluation, evaluate
from sparing_papers.linformer.language.corpus import AUTO, GRAMMAR, REVIEWS, TextCorpus
from sparing_papers.linformer.language.grammar import sentences
from sparing_papers.linformer.language.masked import masked_question
from sparing_papers.linformer.language.work import (
    LanguageWork,
    put_in,
    token_task,
    training_seconds,
)

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel

AGREEMENT, SST2 = "agreement", "sst2"
SCRATCH, PRETRAINED = "scratch", "pretrained"
LONGEST_BYTES = 1024
TYPICAL_TOKENS = 24


@dataclass(frozen=True, eq=False)
class TransferWork:
    """The labelled task in the corpus' own words, and what trains on it."""

    work: LanguageWork

    @property
    def name(self) -> str:
        """Which labelled task it is, without reading it."""
        return transfer_task(self.work.options.transfer.task, self.work.corpus_name, self.work.data)

    @cached_property
    def task(self) -> Task:
        """The labelled task; its longest sequence is that of the pretraining."""
        options, corpus = self.work.options.transfer, self.work.corpus
        sizes = {
            "train": options.examples,
            "validation": options.test_examples,
            "test": options.test_examples,
        }
        if self.name == SST2:
            return _sst2(corpus, sizes, options.tokens, self.work.data)
        return _agreement(corpus, sizes, options.tokens)

    def train(
        self, arm: str, start: str, seed: int, teachers: Tuned
    ) -> tuple[Evaluation, list[Record]]:
        """What it comes to on the test split, and the records of that and of the training."""
        options = self.work.options.transfer

        def build(build_seed: int) -> PreTrainedModel:
            model = build_model(self.work.options.model, self.task, seed=build_seed)
            put_in(model, arm, options.tokens, build_seed)
            if start == PRETRAINED:
                take_over(model, teachers.run(build_seed).model)
            return model

        names, size = ("transfer", start, slug(arm)), options.batch_size
        tuned = self.work.tuned(build, self.task, labels_alone, options.schedule, size, names)
        trained = tuned.run(seed)
        evaluation = evaluate(trained.model, self.task)
        labels: Labels = {**self.labels(arm, seed), "start": start}
        score = measured(labels, "share", evaluation.count, score=evaluation.score)
        return evaluation, [*score, *trained.records(labels)]

    def labels(self, arm: str, seed: int) -> Labels:
        """What all records of a variant and a seed say."""
        labels: Labels = {"question": "transfer", "task": self.name}
        labels |= {"corpus": self.work.corpus.name, "tokens": self.work.options.transfer.tokens}
        return {**labels, "arm": arm, "seed": seed}


def transfer_task(name: str, corpus: str, data: Path | None) -> str:
    """What ``auto`` means: sst2 for words of film reviews, the grammar's agreement for its."""
    if name != AUTO:
        return name
    real = corpus != GRAMMAR and given_folder(data) is not None
    return SST2 if real or corpus == REVIEWS else AGREEMENT


def transfer_cells(work: LanguageWork, seeds: int) -> list[Cell]:
    """Seed by seed, every variant in a new random order."""
    shared = TransferWork(work)
    return [
        _cell(shared, arm, seed)
        for seed in range(seeds)
        for arm in shuffled(work.options.transfer.compared, f"transfer:{seed}")
    ]


def _cell(shared: TransferWork, arm: str, seed: int) -> Cell:
    work = shared.work

    def do() -> list[Record]:
        with threads(work.thread_count):
            teachers = masked_question(work).tuned(work.options.transfer.tokens, arm)
            before, records = shared.train(arm, SCRATCH, seed, teachers)
            after, more = shared.train(arm, PRETRAINED, seed, teachers)
        gain, labels = after.score - before.score, shared.labels(arm, seed)
        of_task: Labels = {"question": "transfer", "task": shared.name}
        return [
            *records,
            *more,
            *measured(labels, "share", after.count, pretraining_gain=gain),
            *measured(of_task, "share", chance=shared.task.chance),
        ]

    options = work.options.transfer
    steps = 2 * options.schedule.passes * trainings(options.schedule.learning_rates, seed)
    steps *= -(-options.examples // options.batch_size)
    # texts are far shorter than what a model was pretrained on
    seen = steps * options.batch_size * min(TYPICAL_TOKENS, options.tokens)
    seconds = training_seconds(work, arm, options.tokens, seen, steps, 0.0)
    return Cell(f"transfer/{shared.name}/{seed}/{slug(arm)}", do, weight=seconds)


def take_over(model: PreTrainedModel, pretrained: PreTrainedModel) -> None:
    """Give a classifier the pretrained encoder: everything but its pooler and its head."""
    state = model.state_dict()
    taken = {name: value for name, value in pretrained.state_dict().items() if name in state}
    left = [name for name in state if name not in taken]
    strangers = [n for n in left if not n.startswith(("bert.pooler.", "classifier."))]
    if strangers:
        raise AssertionError(f"not pretrained: {', '.join(strangers)}")
    model.load_state_dict(taken, strict=False)


def _sst2(corpus: TextCorpus, sizes: dict[str, int], tokens: int, data: Path | None) -> Task:
    """SST-2's own splits, read in bytes and spelled again in the words of the corpus."""
    whole = load_task(
        SST2, data=data, tokenizer="bytes", max_tokens=LONGEST_BYTES, examples=sizes["train"]
    )
    splits = {}
    for name, most in sizes.items():
        examples = whole.split(name)
        examples = examples.subset(range(min(most, len(examples))))
        texts = [bytes((row[1:] - FIRST_BYTE).tolist()).decode() for row in examples.inputs]
        splits[name] = _examples(corpus, texts, examples.labels, tokens)
    task = token_task(SST2, splits, corpus.vocabulary, tokens, whole.labels)
    return replace(task, licence=whole.licence, source=whole.source, notes=whole.notes)


def _agreement(corpus: TextCorpus, sizes: dict[str, int], tokens: int) -> Task:
    """Does the verb agree with its subject? Half the sentences have the verb's other number."""
    splits = {}
    for split, count in sizes.items():
        made = list(islice(sentences(f"agreement, {split}"), count))
        labels = torch.arange(count) % 2
        texts = [
            sentence.text if right else sentence.wrong
            for sentence, right in zip(made, labels, strict=True)
        ]
        splits[split] = _examples(corpus, texts, labels, tokens)
    return token_task(AGREEMENT, splits, corpus.vocabulary, tokens, ("wrong", "right"))


def _examples(corpus: TextCorpus, texts: list[str], labels: Tensor, tokens: int) -> Examples:
    return Examples("input_ids", [corpus.encode(text, tokens) for text in texts], labels)
