"""ListOps: nested operations on lists of digits, generated from the Long Range Arena's grammar.

Source: Nangia and Bowman, 2018, arXiv 1804.06028; grammar and sizes of Tay et al., 2020, arXiv
2011.04006, section 2.2. What differs: the parentheses, which carry nothing, are left out, as the
arena's own tokenizer does, and the root is always an operation.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from sparing.core.errors import UsageError, quoted
from sparing.tasks._facts import Facts
from sparing.tasks.shared.task import Examples, Task


def _median(values: list[int]) -> int:
    """The middle value, or the mean of the two middle ones, rounded down."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) // 2


FACTS = Facts(
    metrics=("accuracy",),
    licence="generated here, no rights reserved",
    source="generated; grammar of the Long Range Arena (Tay et al. 2020), arXiv 2011.04006",
    splits="2,000 expressions of a stream of their own",
)
CLOSE = "]"
DIGITS = tuple(str(digit) for digit in range(10))
# The arena uses the first four; the first ListOps data set had first and last instead of
# median and sum.
OPERATIONS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": _median,
    "[SM": lambda values: sum(values) % 10,
    "[FIRST": lambda values: values[0],
    "[LAST": lambda values: values[-1],
}
DRAWN = ("[MIN", "[MAX", "[MED", "[SM")
PAD, CLASS = 0, 1
NUMBERS = {token: number for number, token in enumerate((*DIGITS, *DRAWN, CLOSE), start=2)}
OPERATION_SHARE = 0.25
# Failed tries in a row before giving up: the least, and a multiple of the tries that one took on
# average. Where one in 5,000 fits, chance alone ends a search once in 20,000 times.
TRIES, PATIENCE = 50_000, 50


def load(
    *,
    data: Path | None = None,
    min_tokens: int = 32,
    max_tokens: int = 128,
    max_depth: int = 10,
    max_arguments: int = 10,
    examples: int = 8000,
    validation_examples: int = 1000,
    test_examples: int = 2000,
    seed: int = 0,
) -> Task:
    """Expressions such as ``[MAX 4 [MED 1 5 9 ] 0 ]`` and their value, one of ten classes.

    ``min_tokens`` and ``max_tokens`` bound an expression's length without parentheses (the arena
    has 500 to 2,000, with 96,000, 2,000 and 2,000 examples). ``max_depth`` counts the levels,
    including that of the digits; ``examples`` sizes the training split. Each split has its own
    random stream, so test and validation do not depend on the size of the training split. No
    expression occurs twice. One class token comes first. ``data`` is not needed.
    """
    _check_sizes(min_tokens, max_tokens, max_depth, max_arguments)
    bounds, seen = (min_tokens, max_tokens, max_depth, max_arguments), set[tuple[str, ...]]()
    sizes = _checked(test=test_examples, validation=validation_examples, train=examples)
    splits = {
        split: _examples(random.Random(f"listops {split} {seed}"), size, bounds, seen)
        for split, size in sizes.items()
    }
    return Task(
        "listops",
        "tokens",
        splits["train"],
        splits["validation"],
        splits["test"],
        labels=DIGITS,
        tokens=max_tokens + 1,
        licence=FACTS.licence,
        source=FACTS.source,
        vocabulary=len(NUMBERS) + 2,
        pad_id=PAD,
    )


def evaluate(expression: str) -> int:
    """The value of an expression; parentheses are ignored, operators include FIRST and LAST.

    Raises ``UsageError`` unless the text is one whole expression.
    """
    open_lists: list[tuple[str, list[int]]] = [("", [])]
    for token in expression.split():
        if token in ("(", ")"):
            continue
        if token in OPERATIONS:
            open_lists.append((token, []))
        elif token == CLOSE and len(open_lists) > 1 and open_lists[-1][1]:
            operation, values = open_lists.pop()
            open_lists[-1][1].append(OPERATIONS[operation](values))
        elif token in DIGITS:
            open_lists[-1][1].append(int(token))
        else:
            raise UsageError(f"listops: {quoted(token)} is misplaced in {quoted(expression)}")
    if len(open_lists) != 1 or len(open_lists[0][1]) != 1:
        raise UsageError(f"listops: not one whole expression: {quoted(expression)}")
    return open_lists[0][1][0]


def _checked(**sizes: int) -> dict[str, int]:
    if min(sizes.values()) < 1:
        raise UsageError(f"listops: a split needs at least one expression; got {sizes}")
    return sizes


def _check_sizes(min_tokens: int, max_tokens: int, max_depth: int, max_arguments: int) -> None:
    if max_depth < 2 or max_arguments < 2:
        raise UsageError("listops: max_depth and max_arguments must be at least 2")
    if not 4 <= min_tokens <= max_tokens:
        raise UsageError(
            "listops: needs 4 <= min_tokens <= max_tokens (an operation, two digits and a "
            f"bracket); got {min_tokens} and {max_tokens}"
        )


def _expression(
    draw: random.Random, max_tokens: int, max_depth: int, max_arguments: int
) -> list[str] | None:
    """One random expression of the grammar, or None as soon as it must become too long.

    All random numbers are ``random()``, the one stream that Python promises to keep between
    versions.
    """
    tokens: list[str] = []
    missing: list[int] = []
    while not tokens or missing:
        if missing and missing[-1] == 0:
            missing.pop()
            tokens.append(CLOSE)
            continue
        if missing:
            missing[-1] -= 1
        deeper = len(missing) + 1 < max_depth
        if not tokens or (deeper and draw.random() < OPERATION_SHARE):
            tokens.append(DRAWN[int(draw.random() * len(DRAWN))])
            missing.append(2 + int(draw.random() * (max_arguments - 1)))
        else:
            tokens.append(DIGITS[int(draw.random() * len(DIGITS))])
        if len(tokens) + sum(missing) + len(missing) > max_tokens:
            return None
    return tokens


def _fitting(
    draw: random.Random, bounds: tuple[int, int, int, int], seen: set[tuple[str, ...]]
) -> Iterable[list[str]]:
    """New expressions within the bounds, without end unless too few of them exist."""
    min_tokens, max_tokens, max_depth, max_arguments = bounds
    tries, count, last = 0, 0, 0
    while tries - last < max(TRIES, PATIENCE * last // max(count, 1)):
        tokens = _expression(draw, max_tokens, max_depth, max_arguments)
        tries += 1
        if tokens is None or len(tokens) < min_tokens or tuple(tokens) in seen:
            continue
        seen.add(tuple(tokens))
        count, last = count + 1, tries
        yield tokens
    took = f", after {last / count:,.0f} tries each," if count else ""
    raise UsageError(
        f"listops: found {count:,} new expressions of {min_tokens} to {max_tokens} tokens{took} "
        f"and no more in {tries - last:,} tries: lower the number of examples, widen the "
        "lengths, or raise max_depth and max_arguments for longer ones"
    )


def _examples(
    draw: random.Random,
    count: int,
    bounds: tuple[int, int, int, int],
    seen: set[tuple[str, ...]],
) -> Examples:
    inputs, values = [], []
    stream = iter(_fitting(draw, bounds, seen))
    for _ in range(count):
        tokens = next(stream)
        inputs.append(torch.tensor([CLASS, *(NUMBERS[token] for token in tokens)]))
        values.append(evaluate(" ".join(tokens)))
    return Examples("input_ids", inputs, torch.tensor(values, dtype=torch.long))
