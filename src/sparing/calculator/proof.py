"""Proof that a scan is right for every number of columns, or the shortest counterexample.

Floating-point rounding differs from machine to machine and from batch to batch. So every symbol
within ``TOLERANCE`` of the most probable one is followed, and a character counts as right only if
it leads by more than that.

A scan passes one of few symbols from column to column, so it is a finite automaton; its
specification is one too. Their product is searched from the start. If every reachable pair of
states writes the right character, no input of any length can go wrong.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sparing.calculator.alphabet import (
    BLANK,
    CHARACTERS,
    MINUS,
    adder_cell,
    sizer_cell,
    writer_cell,
)

if TYPE_CHECKING:
    from sparing.calculator.network import Calculator
    from sparing.calculator.scan import Scan


TOLERANCE = 1e-3


@dataclass(frozen=True)
class Move:
    """One possible column: its content, the character to be written, and the state after it.

    ``then`` None ends the tape.
    """

    shown: str
    cell: Tensor
    target: int
    then: Hashable | None


Moves = Callable[[Any], Iterator[Move]]


@dataclass(frozen=True)
class Proof:
    """The outcome for one scan: pairs of states and transitions that were searched.

    ``margin`` is the least distance in logits between the right character and the next best.
    ``counterexample`` is the shortest input that is wrong, column by column, empty if there is
    none: a possible tape, not always one that a short sum leads to.
    """

    name: str
    states: int
    transitions: int
    wrong: int
    margin: float
    counterexample: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether no reachable state is wrong."""
        return self.wrong == 0

    def __str__(self) -> str:
        """One line."""
        size = f"{self.states} states, {self.transitions} transitions"
        if self.holds:
            return f"{self.name}: right for every length ({size}, margin {self.margin:.2f})"
        return f"{self.name}: wrong in {self.wrong} of {size}: {' '.join(self.counterexample)}"


@torch.no_grad()
def prove(name: str, scan: Scan, cases: Mapping[str, tuple[Hashable, Moves]]) -> Proof:
    """Search all states that a scan and its reference reach; a case is a start and its moves."""
    states = transitions = wrong = 0
    margin = float("inf")
    example: tuple[str, ...] = ()
    for case, (start, moves) in cases.items():
        came: dict[tuple[int, Hashable], tuple[str, ...]] = {(0, start): (case,)}
        waiting = deque(came)
        while waiting:
            symbol, true = here = waiting.popleft()
            options = list(moves(true))
            given, after = scan.step(
                scan.read(torch.stack([move.cell for move in options]).to(scan.read.weight)),
                scan.one_hot(torch.full((len(options),), symbol)),
            )
            gaps = _gaps(given, [move.target for move in options])
            margin = min(margin, float(gaps.min()))
            transitions += len(options)
            likely = after >= after.amax(-1, keepdim=True) - TOLERANCE
            for move, gap, reached in zip(options, gaps.tolist(), likely, strict=True):
                path = (*came[here], move.shown)
                if not gap > TOLERANCE:  # NaN is wrong
                    wrong += 1
                    example = path if not example or len(path) < len(example) else example
                if move.then is None:
                    continue
                for next_symbol in reached.nonzero()[:, 0].tolist():
                    there = (next_symbol, move.then)
                    if there not in came:
                        came[there] = path
                        waiting.append(there)
        states += len(came)
    return Proof(name, states, transitions, wrong, margin, example)


def _gaps(logits: Tensor, targets: Sequence[int]) -> Tensor:
    """The lead of each target logit over the best other one."""
    chosen = torch.tensor(targets)[:, None]
    best = logits.scatter(1, chosen, -torch.inf).amax(1)
    return logits.gather(1, chosen)[:, 0] - best


def prove_calculator(network: Calculator) -> tuple[Proof, ...]:
    """Prove the adder, the sizer and the writer, for every number of columns and so of operands.

    A row is right for any total it is added to, so any number of rows is.
    """
    adding = {f"switch {switch}:": ((0, "digits"), _adding(switch)) for switch in (0, 1)}
    sizing = {f"last digit {top}:": (True, _sizing(top)) for top in (0, 9)}
    writing = {
        f"{name}:": ("last", _writing(negative))
        for name, negative in (("positive", False), ("negative", True))
    }
    return (
        prove("running totals", network.adder, adding),
        prove("size of the total", network.sizer, sizing),
        prove("text of the answer", network.writer, writing),
    )


def _adding(switch: int) -> Moves:
    """The state between columns: the carry, and whether the operand's digits have ended."""
    factor = 1 - 2 * switch

    def moves(true: tuple[int, str]) -> Iterator[Move]:
        carry, part = true
        operands = range(10) if part == "digits" else ()
        for operand, total in product((*operands, BLANK), range(10)):
            value = total + carry + (0 if operand == BLANK else factor * operand)
            after = (value // 10, "blanks" if operand == BLANK else "digits")
            shown = f"{total}{'+-'[factor < 0]}{'_' if operand == BLANK else operand}"
            yield Move(shown, adder_cell(operand, switch, total), value % 10, after)

    return moves


def _sizing(top: int) -> Moves:
    """The state is whether all lower digits are 0: the complement turns at the first other."""

    def moves(zeros: bool) -> Iterator[Move]:
        for digit in range(10):
            size = digit if not top else (10 - digit) % 10 if zeros else 9 - digit
            yield Move(str(digit), sizer_cell(digit, top), size, zeros and digit == 0)

    return moves


def _writing(negative: bool) -> Moves:
    """From the last column down: the sign's column, then leading zeros, then the number."""

    def moves(part: str) -> Iterator[Move]:
        if part == "last":
            target = MINUS if negative else BLANK_CHARACTER
            cell = writer_cell(0, 9 if negative else 0, first=False, last=True)
            yield Move("sign", cell, target, "leading")
            return
        for size, first in product(range(10), (False, True)):
            if first and negative and part == "leading" and size == 0:
                continue  # there is no negative zero
            shown = part == "inside" or size > 0 or first
            after = "inside" if part == "inside" or size else "leading"
            totals = {9 - size, (10 - size) % 10} if negative else {size}
            for total in sorted(totals):
                cell = writer_cell(size, total, first=first, last=False)
                target = size if shown else BLANK_CHARACTER
                yield Move(f"{size}", cell, target, None if first else after)

    return moves


BLANK_CHARACTER = len(CHARACTERS)
