"""Claims: limits in which a mechanism must equal something known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sparing.core.catalogue import mechanism
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.testing.subject import DIM, HEADS, Subject, call, masks, require_close, streams

CLAIM_TOKENS = 23
_USUAL = 1e-9


@dataclass(frozen=True)
class Equals:
    """With the options ``full``, the mechanism equals the mechanism ``to``.

    ``full`` may be a function of the number of tokens; ``prepare`` sets parameters (an identity
    projection, for instance) before the comparison; ``relative`` is the tolerance in float64.
    """

    to: str
    full: dict[str, Any] | Callable[[int], dict[str, Any]] = field(default_factory=dict)
    prepare: Callable[[Mechanism], None] | None = None
    relative: float = _USUAL

    def describe(self) -> str:
        """The claim in words, such as "equals softmax with radius=tokens"."""
        text = f"equals {self.to}"
        if options := _options_in_words(self.full):
            text += f" with {options}"
        if self.prepare is not None:
            text += f": {_in_words(self.prepare)}"
        return text + _tolerated(self.relative)

    def check(self, subject: Subject) -> None:
        """Compare the two, padded and causal where both can be."""
        options = self.full(CLAIM_TOKENS) if callable(self.full) else self.full
        limit = Subject(subject.build, options)
        made, reference = limit.make(CLAIM_TOKENS), mechanism(self.to, Heads(HEADS, DIM)).double()
        if self.prepare is not None:
            with torch.no_grad():
                self.prepare(made)
        shared = made.traits.causal and reference.traits.causal
        for causal in [False, True] if shared else [False]:
            for mask in _both_masks(made, causal):
                tensors = streams(made, 2, CLAIM_TOKENS)
                what = f"with {options}, against {self.to}, {_say(mask)}"
                named = dict(zip(made.streams, tensors, strict=True))
                same = tuple(named[name] for name in reference.streams)
                a, b = call(made, tensors, mask), call(reference.eval(), same, mask)
                _compare(a, b, mask, what, self.relative)


@dataclass(frozen=True)
class Matches:
    """With the subject's own options, the mechanism matches a slow reference written out.

    ``reference`` takes the mechanism (for its parameters), its streams and the mask.
    """

    reference: Callable[..., Tensor]
    relative: float = _USUAL

    def describe(self) -> str:
        """The claim in words: the reference and its own description."""
        text = f"matches {self.reference.__name__}: {_in_words(self.reference)}"
        return text + _tolerated(self.relative)

    def check(self, subject: Subject) -> None:
        """Compare with the reference, padded and causal where the mechanism can be."""
        made = subject.make()
        for causal in masks(subject):
            for mask in _both_masks(made, causal):
                tensors = streams(made, 2, CLAIM_TOKENS)
                output = call(made, tensors, mask)
                with torch.no_grad():
                    expected = self.reference(made, *tensors, mask=mask)
                what = f"against {self.reference.__name__}, {_say(mask)}"
                _compare(output, expected, mask, what, self.relative)


Claim = Equals | Matches


def _options_in_words(full: dict[str, Any] | Callable[[int], dict[str, Any]]) -> str:
    """Options of a limit; an option that changes with the tokens is named by its rule."""
    few, many = 1000, 2000
    once, twice = (full(few), full(many)) if callable(full) else (full, full)
    parts = []
    for name, value in once.items():
        if value == twice[name]:
            parts.append(f"{name}={value!r}")
        elif value == few:
            parts.append(f"{name}=tokens")
        elif twice[name] == 2 * value:
            parts.append(f"{name}={value / few:g} tokens")
        else:
            parts.append(f"{name}={value!r} at {few} tokens")
    return ", ".join(parts)


def _in_words(function: Callable[..., object]) -> str:
    """The first line of a function's docstring, or its name in words."""
    line = (function.__doc__ or function.__name__.strip("_").replace("_", " ")).splitlines()[0]
    return line.strip().rstrip(".")


def _tolerated(relative: float) -> str:
    """The tolerance, if it is not the usual one."""
    return "" if relative <= _USUAL else f", to {relative:g}"


def _both_masks(made: Mechanism, causal: bool) -> list[Mask]:
    if not made.traits.padding:
        return [Mask(causal=causal)]
    keep = torch.ones(2, CLAIM_TOKENS, dtype=torch.bool)
    keep[1, 15:] = False
    keep[1, :3] = False
    return [Mask(causal=causal), Mask(keep, causal)]


def _compare(output: Tensor, expected: Tensor, mask: Mask, what: str, relative: float) -> None:
    if mask.keep is not None:
        real = mask.keep[:, None, :, None]
        output, expected = output.where(real, 0), expected.where(real, 0)
    require_close(output, expected, what, relative=relative, absolute=relative)


def _say(mask: Mask) -> str:
    padded = "without pads" if mask.keep is None else "padded"
    return f"{padded}, causal" if mask.causal else padded
