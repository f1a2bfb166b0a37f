"""Training data of the scans: single steps of short sums, laid out in columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from sparing.calculator.alphabet import (
    BLANK,
    adder_cells,
    characters_of,
    digits_of,
    sizer_cells,
    writer_cells,
)

Keys = NDArray[np.int64]
OPERANDS, DIGITS = 4, 3
# Some rows of the tape stay empty while the scanner learns: they change nothing.
EMPTY_SHARE = 0.03


@dataclass(frozen=True)
class Lesson:
    """Examples of one scan: each is a row of whole numbers, laid out at any width.

    ``draw`` returns random examples; ``lay_out`` returns their cells (batch, width, inputs) and the
    target characters (batch, width). ``last_first`` is the scan's direction over them.
    """

    draw: Callable[[np.random.Generator, int], Keys]
    lay_out: Callable[[Keys, int], tuple[Tensor, Tensor]]
    widths: tuple[int, int]
    last_first: bool = False


def numbers(chance: np.random.Generator, count: int) -> Keys:
    """Numbers of one to three digits, each count of digits equally often, with either sign."""
    return np.asarray(sizes(chance, count) * chance.choice([-1, 1], count), dtype=np.int64)


def sizes(chance: np.random.Generator, count: int) -> Keys:
    """Numbers of one to three digits without a sign; 0 is one of them."""
    digits = chance.integers(1, DIGITS + 1, count)
    least = np.where(digits == 1, 0, 10 ** (digits - 1))
    return np.asarray(chance.integers(least, 10**digits), dtype=np.int64)


def totals(chance: np.random.Generator, count: int, fewest: int, most: int) -> Keys:
    """Totals of up to ``operands`` signed numbers, each count of them equally often."""
    operands = chance.integers(fewest, most + 1, count)
    sums = np.zeros(count, dtype=np.int64)
    for number in range(most):
        sums += np.where(number < operands, numbers(chance, count), 0)
    return sums


def _steps(chance: np.random.Generator, count: int) -> Keys:
    """Total so far, next number's size, whether it is subtracted, whether it is present."""
    before, there = totals(chance, count, 0, OPERANDS - 1), chance.random(count) >= EMPTY_SHARE
    return np.stack([before, sizes(chance, count), chance.integers(0, 2, count), there], 1)


def _steps_in_columns(keys: Keys, width: int) -> tuple[Tensor, Tensor]:
    before, size, switch, there = torch.from_numpy(np.ascontiguousarray(keys.T))
    digits = digits_of(size, width)
    above = torch.arange(width) >= torch.tensor([len(str(int(number))) for number in size])[:, None]
    symbols = torch.where(above | (there == 0)[:, None], BLANK, digits)
    after = before + there * size * (1 - 2 * switch)
    shown = one_hot(digits_of(before, width), 10).float()
    return adder_cells(one_hot(symbols, 11).float(), switch.float(), shown), digits_of(after, width)


def _ends(chance: np.random.Generator, count: int) -> Keys:
    return totals(chance, count, 1, OPERANDS)[:, None]


def _sizes_in_columns(keys: Keys, width: int) -> tuple[Tensor, Tensor]:
    value = torch.from_numpy(keys[:, 0])
    return sizer_cells(digits_of(value, width)), digits_of(value.abs(), width)


def _texts_in_columns(keys: Keys, width: int) -> tuple[Tensor, Tensor]:
    value = torch.from_numpy(keys[:, 0])
    written = torch.tensor([characters_of(int(number), width) for number in value])
    return writer_cells(digits_of(value.abs(), width), digits_of(value, width)), written


ADDER = Lesson(_steps, _steps_in_columns, (5, 9))
SIZER = Lesson(_ends, _sizes_in_columns, (6, 10))
WRITER = Lesson(_ends, _texts_in_columns, (6, 10), last_first=True)
