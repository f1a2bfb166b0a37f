"""The calculator: text in, text out, every character chosen by the network."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import one_hot

from sparing.calculator.alphabet import (
    ADDER_INPUTS,
    BLANK,
    CHARACTERS,
    SIZER_INPUTS,
    WRITER_INPUTS,
    adder_cells,
    sizer_cells,
    writer_cells,
)
from sparing.calculator.checking import readable
from sparing.calculator.scan import Scan
from sparing.calculator.scanner import Row, Scanner, encode, rows_of, sureness
from sparing.core.errors import CheckpointError
from sparing.core.reading import parse_json
from sparing.core.writing import replacing

FORMAT = "sparing calculator 1"
# The trained calculator of the package: ``sparing calculate train FILE`` makes it again.
SHIPPED = Path(__file__).with_name("calculator.safetensors")
BATCH = 256


@dataclass(frozen=True)
class Answer:
    """The network's text, its confidence, and its tape on the way.

    ``confidence`` is the share of readings, with gates sampled by their probabilities, that give
    the same numbers. The lead of the least confident character over the next best limits it.
    ``rows`` are the numbers on the tape, with their switches; ``totals`` the running totals in
    ten's complement, least significant digit first.
    """

    text: str
    confidence: float
    rows: tuple[Row, ...] = ()
    totals: tuple[tuple[int, ...], ...] = ()

    def is_value(self, exact: str) -> bool:
        """Whether the text is the exact value, character by character."""
        return self.text == exact

    def explained(self) -> Iterator[str]:
        """Each number on the tape, and the total that the network wrote after it."""
        yield "number read, its switch, running total in ten's complement:"
        width = max((len(row) for row, _ in self.rows), default=0)
        for (row, switch), total in zip(self.rows, self.totals, strict=True):
            number = "".join("_" if symbol > 9 else str(symbol) for symbol in reversed(row))
            written = "".join(map(str, reversed(total)))
            yield f"  {number.rjust(width)}  {switch}  ...{written}"


@dataclass(frozen=True)
class Sizes:
    """The sizes of the parts: symbols between columns and hidden units."""

    scanner: int = 24
    adder_symbols: int = 8
    adder: int = 128
    sizer_symbols: int = 3
    sizer: int = 48
    writer_symbols: int = 3
    writer: int = 48


class Calculator(nn.Module):
    """Four small networks: one reads, one adds digit by digit, two write the answer.

    The scanner puts the text's numbers into rows. For each row the adder goes over the columns from
    the least significant one on and writes the running total in ten's complement. The sizer writes
    the size of the last total, the writer, from the last column down, the characters of the answer.
    Only a symbol of few passes between columns and only characters between parts, and each is the
    most probable one. There is no rule for carries, signs or leading zeros outside the networks.
    Built in: a row is a number and a digit a digit, and a switch turned twice is not turned. The
    first total is 0, columns and rows share weights, and the tape is longer than its numbers.
    """

    def __init__(self, sizes: Sizes | None = None) -> None:
        super().__init__()
        self.sizes = sizes or Sizes()
        widths = self.sizes
        self.scanner = Scanner(widths.scanner)
        self.adder = Scan(ADDER_INPUTS, 10, symbols=widths.adder_symbols, hidden=widths.adder)
        self.sizer = Scan(SIZER_INPUTS, 10, symbols=widths.sizer_symbols, hidden=widths.sizer)
        self.writer = Scan(
            WRITER_INPUTS, len(CHARACTERS) + 1, symbols=widths.writer_symbols, hidden=widths.writer
        )

    @property
    def weights(self) -> int:
        """The number of weights."""
        return sum(parameter.numel() for parameter in self.parameters())

    @torch.inference_mode()
    def answer(self, texts: Sequence[str]) -> list[Answer]:
        """Answer sums of integers, exactly as they are written.

        White space of any kind is a space, one for one. Raises ``UsageError`` for texts that
        ``checking.readable`` refuses. For any other text the network writes something: the caller
        must refuse texts that are not sums.
        """
        texts = readable(texts, self.scanner.text)
        by_index: dict[int, Answer] = {}
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        for first in range(0, len(order), BATCH):
            indices = order[first : first + BATCH]
            answers = self._answer([texts[index] for index in indices])
            by_index.update(zip(indices, answers, strict=True))
        return [by_index[index] for index in range(len(texts))]

    def _answer(self, texts: list[str]) -> list[Answer]:
        gates = self.scanner(encode(texts, self.scanner.text))
        read = [
            rows_of(text, text_gates[: len(text)])
            for text, text_gates in zip(texts, gates, strict=True)
        ]
        sure = [
            sureness(text, text_gates[: len(text)])
            for text, text_gates in zip(texts, gates, strict=True)
        ]
        by_width = defaultdict(list)
        for index, rows in enumerate(read):
            by_width[width_of(rows)].append(index)
        by_index: dict[int, Answer] = {}
        for width, indices in by_width.items():
            written = self.value([read[index] for index in indices], width)
            for index, (text, margin, totals) in zip(indices, written, strict=True):
                confidence = min(sure[index], margin)
                by_index[index] = Answer(text, confidence, tuple(read[index]), totals)
        return [by_index[index] for index in range(len(texts))]

    @torch.inference_mode()
    def value(
        self, numbers: Sequence[Sequence[Row]], width: int
    ) -> list[tuple[str, float, tuple[tuple[int, ...], ...]]]:
        """Texts of the values of rows, the margin of the least certain character, all totals."""
        batch, most = len(numbers), max(map(len, numbers))
        symbols = torch.full((batch, most, width), BLANK)
        switches = torch.zeros(batch, most)
        for text_index, rows in enumerate(numbers):
            for index, (row, switch) in enumerate(rows):
                symbols[text_index, index, : len(row)] = torch.tensor(row, dtype=torch.long)
                switches[text_index, index] = switch
        counts = torch.tensor([len(rows) for rows in numbers])
        total, margins = torch.zeros(batch, width, dtype=torch.long), torch.ones(batch)
        totals = []
        for index in range(most):
            cells = adder_cells(
                one_hot(symbols[:, index], 11).float(),
                switches[:, index],
                one_hot(total, 10).float(),
            )
            after, sure = _chosen(self.adder(cells))
            there = index < counts
            total = torch.where(there[:, None], after, total)
            margins = torch.where(there, margins.minimum(sure), margins)
            totals.append(total)
        sizes, sure = _chosen(self.sizer(sizer_cells(total)))
        written, last = _chosen(self.writer(writer_cells(sizes, total), last_first=True))
        margins = margins.minimum(sure).minimum(last)
        return [
            (
                _shown(written[text_index].tolist()),
                float(margins[text_index]),
                tuple(
                    tuple(column[text_index].tolist())
                    for column in totals[: int(counts[text_index])]
                ),
            )
            for text_index in range(batch)
        ]

    def save(self, path: Path, **facts: str | int | float) -> None:
        """Write the weights, with facts on their training, to a safetensors file.

        Raises ``CheckpointError`` where it cannot be written; the file is replaced in one step.
        """
        metadata = {"format": FORMAT, "facts": json.dumps(facts, sort_keys=True)}
        metadata["sizes"] = json.dumps(vars(self.sizes), sort_keys=True)
        try:
            with replacing(path) as beside:
                save_file(self.state_dict(), beside, metadata)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{path} cannot be written: {error}") from error

    @classmethod
    def load(cls, path: Path) -> Calculator:
        """Open a saved calculator; raises ``CheckpointError`` for anything else."""
        try:
            with safe_open(path, "pt") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != FORMAT:
                    raise CheckpointError(f"{path} is not a calculator's file")
                network = cls(Sizes(**parse_json(metadata["sizes"])))
            network.load_state_dict(load_file(path))
            if not all(bool(weight.isfinite().all()) for weight in network.parameters()):
                raise CheckpointError(f"{path} holds weights that are not finite")
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"{path} cannot be read as a calculator: {error}") from error
        return network.eval()


def width_of(rows: Sequence[Row]) -> int:
    """Columns of the tape: the longest row's, the digits of the number of rows, and two more."""
    return max(len(row) for row, _ in rows) + len(str(len(rows))) + 2


def _chosen(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The most probable character of each column, and the least lead over the next best."""
    best, places = logits.softmax(-1).topk(2)
    return places[..., 0], (best[..., 0] - best[..., 1]).amin(-1)


def _shown(written: list[int]) -> str:
    """Characters by column, the last column first; blanks are not shown."""
    return "".join(CHARACTERS[code] for code in reversed(written) if code < len(CHARACTERS))
