"""Arithmetic: a sum as text, character by character, or as numbers and codes; and its value.

Source: Mukin, A Predictive Calculator (2025): its sets are reproduced exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from sparing.core.errors import UsageError, quoted, require_choice
from sparing.tasks._facts import Facts
from sparing.tasks.shared.expressions import Expression, draw_many
from sparing.tasks.shared.published import corrected, published
from sparing.tasks.shared.task import Examples, Task

FACTS = Facts(
    metrics=("exact", "pearson"),
    licence="generated here, no rights reserved",
    source="generated; sets of A Predictive Calculator (Mukin 2025), "
    "github.com/AntonStantan/matura",
    splits="what the samples of the training pool left out",
    chance=113 / 1457,
)
SETS = ("published", "corrected", "drawn")
INPUTS = ("text", "values")
PAD, CLASS = 0, 1
NUMBERS = {sign: number for number, sign in enumerate("0123456789+-*() ", start=2)}
# Inputs of the published code: the codes of operators and of missing parts.
CODES, ABSENT, SLOTS = {"+": 1.0, "-": 0.0}, 0.5, 15
HELD_OUT = 1000


def load(
    *,
    data: Path | None = None,
    sets: str = "published",
    inputs: str = "text",
    operands: int = 3,
    digits: int = 2,
    operators: str = "+-",
    examples: int = 10000,
    seed: int = 0,
) -> Task:
    """Sums of integers as characters; the answer is a number, scored by exact match once rounded.

    ``sets`` "published" are those of the paper: the test split is its set in range, ``out`` and
    ``long`` are further tests. "corrected" has an out-of-range set without seen operands, a long
    one of four operands and more, and ``out+long``. ``"drawn"`` generates ``examples`` of 2 to
    ``operands`` numbers of up to ``digits`` digits with these ``operators``, no text in two splits.
    ``inputs`` "text" are characters behind one class token; "values" come from ``as_values``, for
    the networks of ``sparing.predictors``. ``data`` is not needed.
    """
    require_choice("arithmetic", "sets", sets, SETS)
    require_choice("arithmetic", "inputs", inputs, INPUTS)
    if sets == "drawn":
        return _task(_drawn(operands, digits, operators, examples, seed), inputs)
    return _task(published() if sets == "published" else corrected(), inputs)


def _task(known: Mapping[str, Sequence[Expression]], inputs: str) -> Task:
    text = inputs == "text"
    splits = {name: _texts(of) if text else _values(of) for name, of in known.items()}
    longest = max(max(split.lengths) for split in splits.values()) if text else SLOTS
    return Task(
        "arithmetic",
        "tokens" if text else "values",
        splits.pop("train"),
        splits.pop("validation"),
        splits.pop("in"),
        labels=("value",),
        tokens=longest,
        licence=FACTS.licence,
        source=FACTS.source,
        metric="exact",
        metrics=FACTS.metrics,
        vocabulary=len(NUMBERS) + 2 if text else 0,
        pad_id=PAD,
        answer="number",
        more_tests=splits,
    )


def _drawn(
    operands: int, digits: int, operators: str, examples: int, seed: int
) -> dict[str, tuple[Expression, ...]]:
    unknown = sorted({*operators} - {*"+-*"})
    if unknown or not operators:
        raise UsageError(f"arithmetic: operators are some of + - *; got {quoted(operators)}")
    if operands < 2 or examples < 1:
        raise UsageError("arithmetic: operands must be at least 2, examples at least 1")
    sets: dict[str, tuple[Expression, ...]] = {}
    seen: set[str] = set()
    for name, count in {"in": HELD_OUT, "validation": HELD_OUT, "train": examples}.items():
        drawn = draw_many(
            count,
            (2, operands),
            digits,
            seed=f"{name} {seed}",
            operators=operators,
            excluded=seen,
        )
        sets[name] = tuple(drawn)
        seen |= {one.text for one in sets[name]}
    return sets


def _texts(expressions: Sequence[Expression]) -> Examples:
    rows = [torch.tensor([CLASS, *(NUMBERS[sign] for sign in one.text)]) for one in expressions]
    return Examples("input_ids", rows, _answers(expressions))


def _values(expressions: Sequence[Expression]) -> Examples:
    return Examples("values", as_values(expressions), _answers(expressions))


def _answers(expressions: Sequence[Expression]) -> Tensor:
    """The values; raises ``UsageError`` if float32, the type of labels, cannot hold one exactly."""
    values = torch.tensor([_as_float(one.value) for one in expressions], dtype=torch.float64)
    if not bool((values.float().double() == values).all()):
        raise UsageError("arithmetic: values of so many digits are not exact in float32: take 7")
    return values.float()


def as_values(
    expressions: Sequence[Expression], slots: int = SLOTS
) -> Float[Tensor, "count slots"]:
    """The published input: operands as they are, + as 1, - as 0, a missing part as 0.5.

    Raises ``UsageError`` for an expression that has more parts than slots, multiplies, or has a
    number beyond float32.
    """
    rows = []
    for one in expressions:
        parts = [_as_float(one.operands[0])]
        for operator, operand in zip(one.operators, one.operands[1:], strict=True):
            if operator not in CODES:
                raise UsageError(
                    f"arithmetic: there is no code for {operator!r}: {quoted(one.text)}"
                )
            parts += [CODES[operator], _as_float(operand)]
        if len(parts) > slots:
            raise UsageError(f"arithmetic: {quoted(one.text)} has {len(parts)} parts, not {slots}")
        rows.append(parts + [ABSENT] * (slots - len(parts)))
    values = torch.tensor(rows).reshape(len(rows), slots)
    if not bool(values.isfinite().all()):
        raise UsageError("arithmetic: a number is too large to be read as a value")
    return values


def _as_float(number: int) -> float:
    """The number; infinite where it is beyond any float."""
    try:
        return float(number)
    except OverflowError:
        return math.inf
