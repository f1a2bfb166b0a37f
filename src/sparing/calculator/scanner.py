"""Reading: the assignment of characters to numbers is learned from the sums alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sparing.calculator.alphabet import BLANK, TEXT

READINGS = 32
PUSH, ROW, SWITCH = GATES = range(3)
# The symbol of each character in a row: a digit itself, anything else a blank. Digits come first in
# every alphabet.
DIGITS = {str(digit): digit for digit in range(BLANK)}


@dataclass(frozen=True, eq=False)
class Tape:
    """Numbers in rows: digits, least significant first, and a switch each.

    ``rows`` is (batch, rows, columns, 11), ``switches`` (batch, rows). Values between 0 and 1 are a
    partly written tape.
    """

    rows: Tensor
    switches: Tensor


@dataclass(frozen=True)
class Softness:
    """The softness of gates: logits within ``most_logit``, then logistic noise."""

    most_logit: float
    noise: float

    def gates(self, logits: Tensor) -> Tensor:
        """Shares between 0 and 1."""
        held = self.most_logit * torch.tanh(logits / self.most_logit)
        drawn = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
        return torch.sigmoid(held + self.noise * (drawn.log() - torch.log1p(-drawn)))


class Scanner(nn.Module):
    """A recurrent network that opens three gates at each character.

    One moves to the next row. One pushes the character into the row, which moves earlier ones a
    column up. One turns the row's switch over. No label says which character opens which gate:
    training uses the totals alone. At first no gate can be fully open or shut, so that a wrong one
    still has a gradient. Then, with logistic noise, they learn to be fully open or shut; afterwards
    they are rounded. Rows that a network pushes into by soft gates are those of Kim et al., 2021,
    arXiv 2101.04921, where a convolution reads the grid. Switches and noise are additions of this
    library.
    """

    def __init__(self, hidden: int, text: str = TEXT) -> None:
        super().__init__()
        self.hidden, self.text = hidden, text
        self.cell = nn.GRUCell(len(text) + 1, hidden)
        self.gates = nn.Linear(hidden + len(text) + 1, len(GATES))
        with torch.no_grad():
            self.gates.bias.copy_(torch.tensor([0.0, -1.0, -1.0]))

    def forward(self, characters: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length 3"]:
        """Logits of the gates at each character."""
        seen = F.one_hot(characters, len(self.text) + 1).to(self.gates.weight)
        cell, start = self.cell, seen.new_zeros(1, len(characters), self.hidden)
        weights = [cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh]
        # the cell at every character: one call takes a quarter of the time of a loop
        states, _ = torch.gru(seen, start, weights, True, 1, 0.0, False, False, True)
        logits: Tensor = self.gates(torch.cat([states, seen], -1))
        return logits

    def write(
        self,
        characters: Int[Tensor, "batch length"],
        rows: int,
        columns: int,
        *,
        softness: Softness | None = None,
    ) -> Tape:
        """The tape after the whole text: through rounded gates, or through soft ones."""
        logits = self(characters)
        gates = (logits > 0).to(logits) if softness is None else softness.gates(logits)
        there = characters != len(self.text)
        return write_tape(characters, gates * there[..., None], rows, columns)


def write_tape(
    characters: Int[Tensor, "batch length"],
    gates: Float[Tensor, "batch length 3"],
    rows: int,
    columns: int,
) -> Tape:
    """The tape for given gates: the differentiable form of ``rows_of``.

    Formula: tape[r, c] = sum over t of w[t, r] P(exactly c of w[t + 1, r], w[t + 2, r], ... push).

    Symbols: w[t, r] is the share of character t that is pushed into row r; each later push moves it
    a column up. A column without a character is blank.
    """
    batch = len(characters)
    row = F.one_hot(torch.zeros(batch, dtype=torch.long), rows).to(gates)
    switches, rows_by_step = torch.zeros_like(row), []
    for gate in gates.unbind(1):
        row = torch.lerp(row, F.pad(row, (1, 0))[:, :rows], gate[:, ROW, None])
        rows_by_step.append(row)
        switches = switches + row * gate[:, SWITCH, None] * (1 - 2 * switches)
    weights = torch.stack(rows_by_step, 1) * gates[..., PUSH, None]
    moved = F.one_hot(torch.zeros(batch, rows, dtype=torch.long), columns).to(gates)
    moved_by_step = []
    for weight in reversed(weights.unbind(1)):
        moved_by_step.append(moved)
        moved = torch.lerp(moved, F.pad(moved, (1, 0))[..., :columns], weight[..., None])
    shares = torch.stack(moved_by_step[::-1], 1) * weights[..., None]
    symbols = F.one_hot(characters.clamp(max=BLANK), BLANK + 1).to(gates)
    tape = torch.einsum("btrc,bts->brcs", shares, symbols)
    blanks = F.one_hot(torch.tensor(BLANK), BLANK + 1) * (1 - shares.sum(1))[..., None]
    return Tape(tape + blanks, switches)


Row = tuple[list[int], int]


def rows_of(text: str, gates: Tensor) -> list[Row]:
    """The tape of rounded gates (length, 3): each row's symbols, lowest first, and switch.

    A row is as long as its number: blanks above it are empty tape.
    """
    rows: list[list[int]] = [[]]
    switches = [0]
    for character, (push, row, switch) in zip(text, (gates > 0).tolist(), strict=True):
        if row:
            rows.append([])
            switches.append(0)
        if push and (rows[-1] or character in DIGITS):
            rows[-1].append(DIGITS.get(character, BLANK))
        switches[-1] ^= switch
    return [(symbols[::-1], switch) for symbols, switch in zip(rows, switches, strict=True)]


def sureness(text: str, logits: Tensor) -> float:
    """The share of readings with sampled gates that agree with the rounded ones.

    Gates are sampled by their probabilities. A gate that changes no number may be uncertain; the
    samples are always the same.
    """
    generator = torch.Generator().manual_seed(len(text))
    drawn = torch.rand(READINGS, *logits.shape, generator=generator).clamp(1e-6, 1 - 1e-6)
    noisy = (logits + drawn.log() - torch.log1p(-drawn) > 0).numpy()
    chosen = _numbers(rows_of(text, logits))
    agrees = {(logits > 0).numpy().tobytes(): True}  # of 32 readings, few differ from each other
    for reading in noisy:
        if reading.tobytes() not in agrees:
            agrees[reading.tobytes()] = _numbers(rows_of(text, torch.from_numpy(reading))) == chosen
    return sum(agrees[reading.tobytes()] for reading in noisy) / READINGS


def _numbers(rows: list[Row]) -> list[Row]:
    """Rows that hold a number."""
    return [row for row in rows if row[0]]


def encode(texts: list[str], alphabet: str = TEXT) -> Int[Tensor, "batch length"]:
    """Texts as numbers of characters, padded to the longest.

    White space of any kind is read as a space; nothing is left out or merged.
    """
    longest = max(map(len, texts))
    codes = torch.full((len(texts), longest), len(alphabet))
    for row, text in zip(codes, texts, strict=True):
        row[: len(text)] = torch.tensor([alphabet.index(" " if c.isspace() else c) for c in text])
    return codes
