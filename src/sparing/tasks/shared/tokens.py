"""Models that answer for each token, and their answer to a text as one row of numbers.

Rows of one length can be stored, compared and counted like the classes of other models. Two rows
are the same exactly where the answers are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sparing.tasks.shared.windows import best_span, span_in_windows

Answer = Literal["entities", "span"]
OUTSIDE = "O"
BEGIN, INSIDE = ("B", "S", "U"), ("I", "E", "L", "M")
# Numbers of words: marks of the tokenizer, tokens of no word in each text, a pair's second text.
MARK, LOOSE, SECOND = -1, (-2, -3), 1 << 20
NOTHING = -1.0


def parsed(label: str) -> tuple[bool, str]:
    """Whether a label such as B-PER begins an entity, and its type."""
    if len(label) > 2 and label[1] in "-_" and label[0] in BEGIN + INSIDE:
        return label[0] in BEGIN, label[2:]
    return False, label


def types_of(labels: Sequence[str]) -> list[str]:
    """The types of entities that labels name, in their order."""
    return list(dict.fromkeys(kind for _, kind in map(parsed, labels) if kind != OUTSIDE))


def words_of(encoding: Any) -> Int[Tensor, " tokens"]:
    """The number of each token's word, from a row's encoding by a fast tokenizer.

    Those of a pair's second text begin at ``SECOND``. Tokens that the tokenizer adds have ``MARK``,
    those of no word the number in ``LOOSE`` of their text.
    """
    numbers = []
    for part, word in zip(encoding.sequence_ids, encoding.word_ids, strict=True):
        if part is None:
            numbers.append(MARK)
        else:
            numbers.append(LOOSE[part] if word is None else SECOND * part + word)
    return torch.tensor(numbers)


def entity_codes(
    chosen: Int[Tensor, " tokens"], words: Int[Tensor, " tokens"], labels: Sequence[str]
) -> Float[Tensor, " tokens"]:
    """The entities of one text as a number for each token, from the number of each token's label.

    The first token of a word has 0 outside of entities. It has 2 t + 1 where an entity of type t
    begins, and 2 t + 2 where it goes on. Other tokens have ``NOTHING``. A word has the label of its
    first token. Entities begin and end as in ``sparing.answers.entities``.
    """
    kinds = types_of(labels)
    known = [parsed(label) for label in labels]
    type_of = torch.tensor([kinds.index(kind) if kind != OUTSIDE else -1 for _, kind in known])
    begins_of = torch.tensor([begins for begins, _ in known])
    first = _first_tokens(words)
    marks = (words == MARK).cumsum(0)[first]
    kind, begins = type_of[chosen[first]], begins_of[chosen[first]]
    fresh = torch.ones_like(begins)
    part = words[first] // SECOND
    same_side = (marks[1:] == marks[:-1]) & (part[1:] == part[:-1])
    fresh[1:] = (kind[1:] != kind[:-1]) | ~same_side
    codes = torch.where(kind < 0, 0, 2 * kind + torch.where(begins | fresh, 1, 2))
    row = torch.full((len(words),), NOTHING)
    row[first] = codes.to(row.dtype)
    return row


def _first_tokens(words: Int[Tensor, " tokens"]) -> Int[Tensor, " words"]:
    """The positions of the first token of each word."""
    seen: set[int] = set()
    positions = []
    for position, word in enumerate(words.tolist()):
        if word >= 0 and word not in seen:
            seen.add(word)
            positions.append(position)
    return torch.tensor(positions, dtype=torch.long)


def span_codes(
    logits: Float[Tensor, "tokens 2"], words: Int[Tensor, " tokens"]
) -> Float[Tensor, "2"]:
    """The first and last token of the best answer in a passage, a pair's second text."""
    inside = in_passage(words).nonzero().flatten()
    first, last, _ = best_span(logits[inside])
    return inside[[first, last]].to(torch.float32)


def in_passage(words: Int[Tensor, " tokens"]) -> Bool[Tensor, " tokens"]:
    """Which tokens are of a pair's second text."""
    return (words >= SECOND) | (words == LOOSE[1])


def row_of(
    answer: Answer,
    logits: Float[Tensor, "padded_tokens outputs"],
    words: Int[Tensor, " tokens"],
    labels: Sequence[str],
    width: int,
) -> Float[Tensor, " width"]:
    """The answer to one text as a row of ``width`` numbers; pads have no part in it.

    A row of NaN for logits that are not all finite: they hold no answer.
    """
    logits = logits[: len(words)]
    if not bool(logits.isfinite().all()):
        return torch.full((width,), float("nan"))
    if answer == "span":
        return _padded(span_codes(logits, words), width)
    return _padded(entity_codes(logits.argmax(-1), words, labels), width)


def row_of_windows(
    logits: Sequence[Float[Tensor, "padded_tokens 2"]],
    windows: Int[Tensor, "windows 2"],
    width: int,
) -> Float[Tensor, " width"]:
    """The answer in a passage that is read in windows, as ``row_of`` gives it of a whole one."""
    lead = int(windows[0, 0])
    used = [one[lead : lead + size] for one, size in zip(logits, windows.diff()[:, 0], strict=True)]
    if not all(bool(one.isfinite().all()) for one in used):
        return torch.full((width,), float("nan"))
    first, last, _ = span_in_windows(logits, windows)
    return _padded(torch.tensor([first, last], dtype=torch.float32), width)


def row_of_labels(
    chosen: Int[Tensor, " padded_tokens"],
    words: Int[Tensor, " tokens"],
    labels: Sequence[str],
    width: int,
) -> Float[Tensor, " width"]:
    """The entities that the labels of one text's tokens make, as ``row_of`` gives a model's."""
    return _padded(entity_codes(chosen[: len(words)], words, labels), width)


def _padded(codes: Float[Tensor, " codes"], width: int) -> Float[Tensor, " width"]:
    row = torch.full((width,), NOTHING)
    row[: len(codes)] = codes
    return row


def segments_in(
    row: Float[Tensor, " tokens"], words: Int[Tensor, " tokens"], labels: Sequence[str]
) -> list[tuple[int, int, str]]:
    """The entities of a row of ``entity_codes``: first token, the one after the last, and type."""
    kinds, numbers = types_of(labels), words.tolist()
    listed: list[tuple[int, int, str]] = []
    for position in (row >= 0).nonzero().flatten().tolist():
        code = int(row[position])
        if code == 0:
            continue
        end = position + 1
        while end < len(numbers) and numbers[end] == numbers[position]:
            end += 1
        begin = position if code % 2 else listed.pop()[0]
        listed.append((begin, end, kinds[(code - 1) // 2]))
    return listed
