"""The symbols in the columns of the calculator's tapes."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

# Characters to read; any white space is a space, one for one. An operand's row holds digits,
# least significant first, and blanks above them.
TEXT = "0123456789+- "
BLANK = 10
# Characters to write, besides the blank that is not shown.
CHARACTERS = "0123456789-"
MINUS = CHARACTERS.index("-")

ADDER_INPUTS, SIZER_INPUTS, WRITER_INPUTS = 11 + 1 + 10, 10 + 10, 10 + 10 + 2


def adder_cells(
    rows: Float[Tensor, "batch columns 11"],
    switches: Float[Tensor, " batch"],
    totals: Float[Tensor, "batch columns 10"],
) -> Float[Tensor, "batch columns inputs"]:
    """An operand's row, its switch in every column, and the total so far."""
    return torch.cat([rows, switches[:, None, None].expand(-1, rows.shape[1], 1), totals], -1)


def sizer_cells(totals: Int[Tensor, "batch columns"]) -> Float[Tensor, "batch columns inputs"]:
    """Each digit of the total, and its last one, which gives the sign, in every column."""
    digits = one_hot(totals, 10).float()
    return torch.cat([digits, digits[:, -1:].expand_as(digits)], -1)


def writer_cells(
    sizes: Int[Tensor, "batch columns"], totals: Int[Tensor, "batch columns"]
) -> Float[Tensor, "batch columns inputs"]:
    """Each digit of the size and of the total, and marks at both ends of the tape."""
    ends = torch.zeros(*sizes.shape, 2)
    ends[:, 0, 0] = ends[:, -1, 1] = 1
    return torch.cat([one_hot(sizes, 10).float(), one_hot(totals, 10).float(), ends], -1)


def adder_cell(operand: int, switch: int, total: int) -> Float[Tensor, " inputs"]:
    """One column of the adder; an operand of ``BLANK`` means none."""
    row = one_hot(torch.tensor([[operand]]), 11).float()
    totals = one_hot(torch.tensor([[total]]), 10).float()
    return adder_cells(row, torch.tensor([float(switch)]), totals)[0, 0]


def sizer_cell(digit: int, top: int) -> Float[Tensor, " inputs"]:
    """One column of the sizer."""
    return sizer_cells(torch.tensor([[digit, top]]))[0, 0]


def writer_cell(size: int, total: int, *, first: bool, last: bool) -> Float[Tensor, " inputs"]:
    """One column of the writer, which may be an end of the tape."""
    ends = torch.tensor([float(first), float(last)])
    digits = one_hot(torch.tensor([size, total]), 10).float().flatten()
    return torch.cat([digits, ends])


def digits_of(values: Int[Tensor, " batch"], width: int) -> Int[Tensor, "batch width"]:
    """Ten's complement, least significant digit first; -1 is 9 in every column."""
    powers = 10 ** torch.arange(width)
    return torch.div(values[:, None], powers, rounding_mode="floor") % 10


def characters_of(value: int, width: int) -> list[int]:
    """The text to be written, by column: a minus sign is in the last one."""
    blank = len(CHARACTERS)
    shown = [int(digit) for digit in reversed(str(abs(value)))]
    row = [*shown, *[blank] * (width - len(shown))]
    if value < 0:
        row[-1] = MINUS
    return row
