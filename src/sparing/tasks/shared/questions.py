"""Questions on passages as examples: one for each window, or one for each question."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

import torch
from torch import Tensor

from sparing.tasks.shared.spans import Passages, Window, span_in, words_in
from sparing.tasks.shared.task import Examples
from sparing.tasks.shared.windows import cut, joined


def each_window(examples: Examples) -> Examples:
    """The examples with every window as one of its own, and the words of its tokens.

    Examples that are windows already only get their words.
    """
    if examples.windows is None:
        assert examples.passages is not None
        pairs = zip(examples.passages.windows, examples.lengths, strict=True)
        return replace(examples, words=[words_in(window, count) for window, count in pairs])
    counts = torch.tensor([len(windows) for windows in examples.windows], dtype=torch.long)
    cut_rows = partial(_cut_all, examples.windows)
    return Examples(
        "input_ids",
        cut_rows(examples.inputs),
        examples.labels.repeat_interleave(counts, 0),
        None if examples.token_types is None else cut_rows(examples.token_types),
        words=None if examples.words is None else cut_rows(examples.words),
    )


def _cut_all(windows: Sequence[Tensor], rows: Iterable[Tensor]) -> list[Tensor]:
    pairs = zip(rows, windows, strict=True)
    return [part for row, ranges in pairs for part in cut(row, ranges)]


def each_question(examples: Examples) -> Examples:
    """Windows of questions as one example for each question, which holds the whole passage."""
    passages = examples.passages
    assert passages is not None
    numbers = range(len(passages.windows))
    grouped = groupby(numbers, key=lambda row: passages.windows[row].question)
    rows = [[*group] for _, group in grouped]
    windows = [_ranges([passages.windows[row] for row in some]) for some in rows]
    whole = [_whole([passages.windows[row] for row in some]) for some in rows]
    pairs = [*zip(rows, windows, strict=True)]
    inputs = [joined([examples.inputs[row] for row in some], ranges) for some, ranges in pairs]
    types = None
    if examples.token_types is not None:
        types = [joined([examples.token_types[n] for n in some], ranges) for some, ranges in pairs]
    labels = torch.tensor([span_in(one, passages.questions[one.question]) for one in whole])
    return Examples(
        "input_ids",
        inputs,
        labels.reshape(-1, 2),
        types,
        Passages(passages.questions, whole),
        words=[words_in(one, len(ids)) for one, ids in zip(whole, inputs, strict=True)],
        windows=windows,
    )


def _ranges(windows: list[Window]) -> Tensor:
    """Windows of one question as positions in the whole row."""
    begins = torch.tensor([one.first + one.skipped for one in windows])
    return torch.stack((begins, begins + torch.tensor([len(one.places) for one in windows])), 1)


def _whole(windows: list[Window]) -> Window:
    """The whole passage of one question as a window."""
    ranges, first = _ranges(windows), windows[0].first
    places = joined([one.places for one in windows], ranges - first)
    return replace(windows[0], places=places)


def windows_note(name: str, examples: Examples, noun: str) -> list[str]:
    """A note on how many passages of a split have several windows; none where no one has."""
    several = sum(len(windows) > 1 for windows in examples.windows or ())
    if not several:
        return []
    return [
        f"{name}: {several:,} of {len(examples):,} {noun} have a passage of several windows: the "
        "best answer of all counts, once"
    ]
