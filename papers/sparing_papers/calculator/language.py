"""The study's language model: tuned on the sums' text, watched with and without its own words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sparing.calculator.language_model import (
    EpochScores,
    LanguageRecipe,
    open_language_model,
    reply,
    tune,
)
from sparing.calculator.tiny_language_model import tiny_language_model
from sparing.core.record import Labels, Record, measured
from sparing.experiment.run import Cell, slug
from sparing.measure.machine import threads
from sparing.tasks.shared.expressions import Expression
from sparing.tasks.shared.published import published
from sparing_papers.calculator.evaluation import test_sets
from sparing_papers.calculator.options import Options

TINY = "tiny"
ALL_WEIGHTS, ADAPTERS = "all weights", "adapters"
SETS = ("in", "published out", "published long")


def language_cells(options: Options, folder: Path) -> list[Cell]:
    """One cell a way to tune: all weights of a model without pretraining, adapters of any."""
    if not options.language_model:
        return []
    ways = [ADAPTERS] if options.language_model_rank else []
    if options.language_model == TINY or not ways:
        ways = [ALL_WEIGHTS, *ways]
    return [_cell(options, folder, way) for way in ways]


def _cell(options: Options, folder: Path, way: str) -> Cell:
    def do() -> list[Record]:
        recipe = _recipe(options, way)
        labels: Labels = {"language_model": options.language_model, "way": way}
        sums = published()
        with threads(options.thread_count):
            model, tokenizer = _open(options)
            size = sum(parameter.numel() for parameter in model.parameters())
            model_dir = folder / "models" / f"language-{slug(way)}"
            tuned, scores = tune(
                model, tokenizer, sums["train"], sums["validation"], recipe, model_dir
            )
            records = [row for one in scores for row in _epoch(one, labels, recipe.watched)]
            for name in SETS:
                expressions = _spread(test_sets()[name], options.language_model_tests)
                records += _replies(tuned, tokenizer, expressions, {**labels, "set": name})
        trained = sum(
            parameter.numel() for parameter in tuned.parameters() if parameter.requires_grad
        )
        for of, count in (("model", size), ("trained", trained)):
            records += measured({**labels, "of": of}, "numbers", language_parameters=count)
        return records

    return Cell(f"language/{slug(way)}", do, weight=8.0 * options.language_model_epochs)


def _recipe(options: Options, way: str) -> LanguageRecipe:
    """As published for adapters on a pretrained model; larger steps where nothing was learned."""
    settings: dict[str, Any] = {"epochs": options.language_model_epochs}
    if options.language_model == TINY:
        settings |= {"learning_rate": 3e-3, "batch_size": 32, "accumulation": 1, "dropout": 0.0}
    rank = options.language_model_rank if way == ADAPTERS else 0
    return LanguageRecipe(rank=rank, **settings)


def _open(options: Options) -> tuple[Any, Any]:
    if options.language_model == TINY:
        return tiny_language_model(**options.language_model_sizes)
    return open_language_model(options.language_model)


def _spread(sums: Sequence[Expression], count: int) -> list[Expression]:
    """So many sums, evenly from the whole list, since the long ones are sorted by length."""
    if len(sums) <= count:
        return list(sums)
    return [sums[index * len(sums) // count] for index in range(count)]


def _epoch(scores: EpochScores, labels: Labels, count: int) -> list[Record]:
    shares = {
        f"language_{name}": value
        for name, value in asdict(scores).items()
        if name not in ("epoch", "empty", "malformed")
    }
    return measured({**labels, "epoch": scores.epoch}, "share", count, **shares)


def _replies(
    model: Any, tokenizer: Any, expressions: list[Expression], labels: Labels
) -> list[Record]:
    """Right replies, and those that are no number, counted separately."""
    replies = reply(model, tokenizer, expressions)
    right = sum(r.value == s.value for r, s in zip(replies, expressions, strict=True))
    kinds = [answer.kind for answer in replies]
    other = {f"language_{kind}": kinds.count(kind) for kind in ("empty", "malformed")}
    return [
        *measured(labels, "", len(expressions), language_right=right),
        *measured(labels, "", **other),
    ]
