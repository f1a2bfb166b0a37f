"""The subject of a check: a mechanism with options, ready to be built, and inputs for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.traits import Traits

HEADS = 2
DIM = 8
TOKENS = 512
SEED = 20170612


class Violation(AssertionError):
    """A mechanism does not keep its contract; the message says where and by how much."""


@dataclass(frozen=True)
class Subject:
    """A mechanism under test: its class or builder, and claims beyond its traits.

    ``build`` is its class or any function with the same arguments; ``row_sums`` claims that values
    of one give one; ``claims`` are the limits in which it must equal something known.
    """

    build: Callable[..., Mechanism]
    options: dict[str, Any] = field(default_factory=dict)
    row_sums: bool = False
    claims: tuple[Any, ...] = ()

    def make(
        self, tokens: int = TOKENS, dtype: torch.dtype = torch.float64, **options: object
    ) -> Mechanism:
        """A new instance in evaluation mode.

        Every parameter is moved off its starting value, so that nothing hides behind a zero.
        """
        made = self.build(Heads(HEADS, DIM, tokens=tokens), **{**self.options, **options})
        generator = torch.Generator().manual_seed(SEED)
        with torch.no_grad():
            for parameter in made.parameters():
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(noise.to(parameter) * 0.1)
        return made.to(dtype).eval()

    @property
    def traits(self) -> Traits:
        """The traits of the subject's configuration."""
        return self.make().traits


Streams = tuple[Tensor, ...]


def streams(
    subject: Mechanism,
    batch: int,
    queries: int,
    keys: int | None = None,
    *,
    seed: int = 0,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float64,
) -> Streams:
    """Normal random inputs in the order that the mechanism names its streams."""
    generator = torch.Generator().manual_seed(SEED + seed)
    made = []
    for name in subject.streams:
        tokens = queries if name == "q" or keys is None else keys
        shape = (batch, HEADS, tokens, DIM) if name != "x" else (batch, tokens, HEADS * DIM)
        made.append(
            (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype)
        )
    return tuple(made)


def crop(tensors: Streams, sample: int, first: int, last: int) -> Streams:
    """One sample's tokens from ``first`` up to but without ``last``."""
    return tuple(tensor[sample : sample + 1, ..., first:last, :] for tensor in tensors)


def spoil(tensors: Streams, keep: Bool[Tensor, "batch keys"], garbage: float) -> Streams:
    """Fill every padded slot with garbage."""
    return tuple(
        tensor.masked_fill(
            ~(keep[:, :, None] if tensor.ndim == 3 else keep[:, None, :, None]), garbage
        )
        for tensor in tensors
    )


def masks(subject: Subject) -> list[bool]:
    """The values of ``causal`` that the subject supports."""
    return [False, True] if subject.traits.causal else [False]


def require_close(
    output: Float[Tensor, "..."],
    expected: Float[Tensor, "..."],
    what: str,
    *,
    relative: float = 1e-9,
    absolute: float = 1e-9,
) -> None:
    """Raise ``Violation`` unless two tensors agree and are finite."""
    if output.shape != expected.shape:
        raise Violation(f"{what}: shape {tuple(output.shape)} instead of {tuple(expected.shape)}")
    if not bool(torch.isfinite(output).all()):
        raise Violation(f"{what}: not finite")
    gap = (output - expected).abs()
    if bool((gap > absolute + relative * expected.abs()).any()):
        raise Violation(f"{what}: off by {gap.max().item():.3g}")


def require(condition: bool, what: str) -> None:
    """Raise ``Violation`` with ``what`` unless the condition holds."""
    if not condition:
        raise Violation(what)


def call(made: Mechanism, tensors: Streams, mask: Mask | None = None) -> Tensor:
    """One forward call."""
    result: Tensor = made(*tensors, mask=mask or Mask())
    return result
