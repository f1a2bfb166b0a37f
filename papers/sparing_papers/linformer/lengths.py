"""Inputs of one length: test sets of 1, 2, 4 and 8 times what was trained on, and plain rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from sparing.core.errors import Unsupported, UsageError
from sparing.core.reading import parse_json
from sparing.experiment.inputs.task import load_for
from sparing.tasks import Examples, Task, options_of
from sparing_papers.long_range.work import LongWork, evenly

GENERATED = ("listops",)
SHORTEST = 0.75  # of a length: generated inputs of that length have at least so many tokens
WHOLE = 1 << 30
WIDER = 1.25  # the longest generated input that is cut to a length


def trained_tokens(work: LongWork) -> int:
    """The length that was trained on, without the class token where a task adds one to it."""
    given = work.options.task_options.get(work.name, {}).get("max_tokens")
    return int(given or work.task.tokens)


def by_factor(
    work: LongWork, factors: tuple[int, ...], examples: int, data: Path | None
) -> dict[int, Task]:
    """The task by factor, with a test split of so many times the trained length.

    Generated tasks sample new inputs, from three quarters of the length up to it. Of texts the same
    test texts are read at every length, those that are long enough for the longest, cut to it.
    Raises ``UsageError`` where there are none.
    """
    lengths = {factor: factor * trained_tokens(work) for factor in factors}
    if work.name in GENERATED:
        return {
            factor: _generated(work, int(SHORTEST * tokens), tokens, examples)
            for factor, tokens in lengths.items()
        }
    longest = _texts(work, max(lengths.values()), data)
    # files are sorted by class, so that the first ones would be of one
    chosen = evenly(longest, examples) if len(longest) > examples else longest
    tasks = {}
    for factor, tokens in lengths.items():
        rows = [row[:tokens] for row in chosen.inputs]
        test = Examples("input_ids", rows, chosen.labels)
        tasks[factor] = replace(work.task, test=test, tokens=tokens)
    return tasks


def rows_of(
    work: LongWork, tokens: int, count: int, data: Path | None, seed: int = 0
) -> Int[Tensor, "count tokens"]:
    """Inputs of the task that are cut to exactly so many tokens; fewer where there are not enough.

    ``seed`` chooses other ones of generated tasks.
    """
    if work.name in GENERATED:
        task = _generated(work, tokens, int(WIDER * tokens) + 2, count, seed)
        return torch.stack([row[:tokens] for row in list(task.test.inputs)[:count]])
    texts = list(_texts(work, tokens, data).inputs)
    return torch.stack(spread_out(texts, count, seed, f"texts of {work.name} of {tokens} tokens"))


def spread_out(rows: Sequence[Tensor], count: int, other: int, what: str) -> list[Tensor]:
    """So many rows from all over a list, others for another number: files are sorted by class.

    Raises ``UsageError`` where there are too few.
    """
    needed = (other + 1) * count
    if len(rows) < needed:
        raise UsageError(f"there are {len(rows)} {what}; {needed} are needed")
    return list(rows[other :: len(rows) // count])[:count]


def _generated(work: LongWork, least: int, most: int, count: int, seed: int = 0) -> Task:
    options = dict(work.options.task_options.get(work.name, {}))
    options |= {"min_tokens": max(4, least), "max_tokens": most, "test_examples": count}
    options |= {"examples": 1, "validation_examples": 1, "seed": 1000 + seed}
    return load_for(work.name, options, "", None)[0]


def _texts(work: LongWork, tokens: int, data: Path | None) -> Examples:
    """The test texts that have at least so many tokens, cut to them."""
    if "max_tokens" not in options_of(work.name):
        raise Unsupported(f"{work.name} has one length: it takes no max_tokens")
    given = json.dumps(dict(work.options.task_options.get(work.name, {})), sort_keys=True)
    test = whole_texts(work.name, given, data)
    enough = [index for index, length in enumerate(test.lengths) if length >= tokens]
    if not enough:
        raise UsageError(f"no test text of {work.name} has {tokens} tokens")
    chosen = test.subset(enough)
    return Examples("input_ids", [row[:tokens] for row in chosen.inputs], chosen.labels)


@lru_cache(maxsize=2)
def whole_texts(name: str, options: str, data: Path | None) -> Examples:
    """A task's test texts without cutting them, read once; ``options`` are the task's, as JSON."""
    task, _ = load_for(name, {**parse_json(options), "max_tokens": WHOLE}, "", data)
    return task.test
