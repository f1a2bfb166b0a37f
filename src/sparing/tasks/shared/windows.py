"""Windows of passages that are longer than a model reads, and the best answer in all of them.

The windows of a question are one input: it has one answer, and counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

STRIDE = 128
LONGEST = 30


def window_ranges(count: int, room: int, stride: int = STRIDE) -> list[tuple[int, int]]:
    """The windows of a passage of ``count`` tokens: the first token and the one past the last.

    A window has at most ``room`` tokens. Neighbours share ``stride``, or half a window if that is
    less. Source: Devlin et al., 2019, arXiv 1810.04805, and its code for SQuAD.
    """
    step = room - min(stride, room // 2)
    starts = range(0, max(1, count - room + step), step)
    return [(start, min(start + room, count)) for start in starts]


def windows_in(
    inside: Sequence[bool], limit: int, stride: int = STRIDE
) -> Int[Tensor, "windows 2"] | None:
    """The windows of a row as positions in it, where a model reads ``limit`` tokens at once.

    ``inside`` says of each token whether it is the passage's; the others are in every window. None
    where they leave the passage no token.
    """
    positions = [position for position, passage in enumerate(inside) if passage]
    first, count = (positions[0] if positions else len(inside)), len(positions)
    room = limit - (len(inside) - count)
    if room < 1:
        return None
    return first + torch.tensor(window_ranges(count, room, stride))


def cut(
    row: Shaped[Tensor, " tokens"], windows: Int[Tensor, "windows 2"]
) -> list[Shaped[Tensor, " window_tokens"]]:
    """What a model reads of a row at once: each window with all that is not the passage."""
    head, tail = row[: windows[0, 0]], row[windows[-1, 1] :]
    return [torch.cat((head, row[start:end], tail)) for start, end in windows.tolist()]


def cut_item(item: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """The windows of an example, each as an example without a label."""
    names = [name for name in item if name not in ("labels", "windows")]
    rows = zip(*(cut(item[name], item["windows"]) for name in names), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


def joined(
    rows: Sequence[Shaped[Tensor, "_ ..."]], windows: Int[Tensor, "windows 2"]
) -> Shaped[Tensor, "tokens ..."]:
    """The row that was cut into these windows."""
    first, covered = int(windows[0, 0]), int(windows[0, 0])
    parts = [rows[0][:first]]
    for row, (start, end) in zip(rows, windows.tolist(), strict=True):
        parts.append(row[first + covered - start : first + end - start])
        covered = end
    parts.append(rows[0][int(windows[0, 1]) :])
    return torch.cat(parts)


def best_span(logits: Float[Tensor, "tokens 2"]) -> tuple[int, int, float]:
    """The first and last token of the best answer in a passage, and its score.

    It is the pair with the largest sum of logits, in order and at most ``LONGEST`` tokens long.
    Source: Devlin et al., 2019, arXiv 1810.04805, section 4.2.
    """
    wide, positions = logits.double(), torch.arange(len(logits))
    lengths = positions[None, :] - positions[:, None]
    sums = (wide[:, :1] + wide[:, 1]).masked_fill(
        (lengths < 0) | (lengths >= LONGEST), float("-inf")
    )
    first, last = divmod(int(sums.argmax()), len(logits))
    return first, last, float(sums[first, last])


def best_in_windows(
    passages: Iterable[tuple[int, Float[Tensor, "tokens 2"]]],
) -> tuple[int, int, float]:
    """The best answer of all windows, as ``best_span``; of equal ones it is the first window's.

    A window is the position of its first token of the passage, and the logits of those tokens.
    """
    answers = ((start, *best_span(logits)) for start, logits in passages if len(logits))
    start, first, last, score = max(answers, key=lambda one: one[-1])
    return start + first, start + last, score


def span_in_windows(
    logits: Sequence[Float[Tensor, "padded_tokens 2"]], windows: Int[Tensor, "windows 2"]
) -> tuple[int, int, float]:
    """The best answer of a row from the logits of its windows, as positions in the row."""
    lead = int(windows[0, 0])
    return best_in_windows(
        (start, of_window[lead : lead + end - start])
        for of_window, (start, end) in zip(logits, windows.tolist(), strict=True)
    )
