"""The best answer in a long passage, the slow way: transformers' windows, and a loop over pairs."""

from __future__ import annotations

from typing import Any

import torch


def windows_by_transformers(
    tokenizer: Any, question: str, passage: str, limit: int, stride: int = 128
) -> Any:
    """The overflowing rows that the tokenizer makes of a question and its passage."""
    marks = tokenizer.num_special_tokens_to_add(pair=True)
    room = limit - marks - len(tokenizer(question, add_special_tokens=False)["input_ids"])
    return tokenizer(
        question,
        passage,
        truncation="only_second",
        max_length=limit,
        stride=min(stride, room // 2),
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )


def slow_best(
    model: Any, tokenizer: Any, question: str, passage: str, limit: int, stride: int = 128
) -> tuple[int, int, float, int]:
    """First character, the one past the last, score, and in how many windows it was looked for."""
    rows = windows_by_transformers(tokenizer, question, passage, limit, stride)
    names = [name for name in ("input_ids", "token_type_ids") if name in rows]
    best = (float("-inf"), 0, 0)
    for number, offsets in enumerate(rows["offset_mapping"]):
        with torch.inference_mode():
            made = model(**{name: torch.tensor([rows[name][number]]) for name in names})
        starts, ends = made.start_logits[0].tolist(), made.end_logits[0].tolist()
        inside = [token for token, side in enumerate(rows.sequence_ids(number)) if side == 1]
        for first in inside:
            for last in inside:
                score = starts[first] + ends[last]
                if first <= last < first + 30 and score > best[0]:
                    best = score, offsets[first][0], offsets[last][1]
    return best[1], best[2], best[0], len(rows["offset_mapping"])
