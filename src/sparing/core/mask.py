"""Which keys a query may see, as an object that no linear mechanism needs to square."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.core.tracing import is_traced


@dataclass(frozen=True)
class Mask:
    """Padding and causality, with one polarity: true means a real token that may be seen.

    ``keep`` is (batch, keys); pads may be left, right or between real tokens. ``causal`` hides the
    future; with fewer queries than keys the queries are the last ones. ``cross`` says that the
    queries are another sequence than the keys; it is implied when the lengths differ and the mask
    is not causal. Otherwise query i has the position of key i.
    """

    keep: Bool[Tensor, "batch keys"] | None = None
    causal: bool = False
    cross: bool = False
    # All layers of a model share one mask: its square is built once for them, and only the
    # last one is kept. A change of ``keep`` in place makes a new one.
    _opened: dict[tuple[object, ...], Tensor] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.keep is not None and (self.keep.dtype != torch.bool or self.keep.ndim != 2):
            raise UsageError(
                "Mask(keep=...) must be a boolean tensor (batch, keys), true for real tokens; got "
                f"{self.keep.dtype} of shape {tuple(self.keep.shape)}"
            )
        if self.causal and self.cross:
            raise UsageError("Mask: causal and cross exclude each other")

    def is_cross(self, queries: int, keys: int) -> bool:
        """Whether the queries are another sequence than the keys."""
        return self.cross or (queries != keys and not self.causal)

    def dense(
        self, queries: int, keys: int, device: torch.device | None = None
    ) -> Bool[Tensor, "batch_or_1 1 queries keys"] | None:
        """The square, for mechanisms that need it: true where a query may see a key.

        None if all may.
        """
        allowed = None
        if self.causal:
            device = self.keep.device if self.keep is not None else device
            allowed = torch.ones(queries, keys, dtype=torch.bool, device=device)
            allowed = allowed.tril(keys - queries)[None, None]
        if self.keep is not None:
            keep = self.keep[:, None, None, :]
            allowed = keep.expand(-1, 1, queries, -1) if allowed is None else allowed & keep
        return allowed

    def opened(
        self, queries: int, keys: int, device: torch.device | None = None
    ) -> Bool[Tensor, "batch_or_1 1 queries_or_1 keys"] | None:
        """``dense``, but a query without a visible key sees all: kernels give NaN there.

        Without causality one row serves all queries. Built once for layers of one size and device.
        """
        state = None if is_traced() else self._state()
        key = (queries, keys, device, state)
        known = None if state is None else self._opened.get(key)  # once: threads share masks
        if known is not None:
            return known
        rows = queries if self.causal else 1
        allowed = self.dense(rows, keys, device)
        if allowed is None:
            return None
        if self.keep is not None:
            allowed = allowed | ~allowed.any(-1, keepdim=True)
        if state is not None:
            self._opened.clear()
            self._opened[key] = allowed
        return allowed

    def _state(self) -> int | bytes | None:
        """A state that changes when ``keep`` is changed in place; None where that is unknown.

        Tensors of inference mode do not count their changes. There the values themselves are
        compared, on a CPU; elsewhere reading them would wait for the device.
        """
        if self.keep is None:
            return 0
        if not self.keep.is_inference():
            return self.keep._version
        return self.keep.numpy().tobytes() if self.keep.device.type == "cpu" else None

    def sees_any(self, queries: int) -> Bool[Tensor, "batch queries_or_1"] | None:
        """Whether each query may see at least one key; None when all do (nothing is padded)."""
        if self.keep is None:
            return None
        if self.causal:
            # as integers: ONNX has no running sum of booleans
            return (self.keep.int().cumsum(1) > 0)[:, self.keep.shape[1] - queries :]
        return self.keep.any(1, keepdim=True)

    def keep_queries(self, queries: int) -> Bool[Tensor, "batch queries"] | None:
        """Which queries are real tokens: known only if queries and keys are one sequence."""
        if self.keep is None or self.is_cross(queries, self.keep.shape[1]):
            return None
        return self.keep[:, self.keep.shape[1] - queries :]

    def first(self) -> Int[Tensor, " batch"]:
        """The position of each sample's first real token (0 where there is none)."""
        assert self.keep is not None
        return self.keep.int().argmax(1)

    def span(self) -> Int[Tensor, " batch"]:
        """Tokens from each sample's first to its last real one: its length once cropped."""
        assert self.keep is not None
        after_last = self.keep.shape[1] - self.keep.flip(1).int().argmax(1)
        return (after_last - self.first()).where(self.keep.any(1), 0)
