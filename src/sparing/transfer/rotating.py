"""Rotate the heads of a dense encoder so that their first coordinates carry most of the output.

Cutting a head to its first coordinates (``adaptive``) keeps arbitrary ones. In a basis chosen by
the data it keeps the most that a given number of coordinates can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sparing.core.errors import Unsupported, UsageError
from sparing.layers.rotation import bases, rotation
from sparing.transfer.blocks import Block
from sparing.transfer.families.known import find_blocks
from sparing.transfer.importance import still
from sparing.transfer.swap import is_swapped


@torch.no_grad()
def rotate(model: nn.Module, batches: Iterable[Mapping[str, Any]]) -> None:
    """Fold other bases of queries, keys and values into a BERT- or ViT-family model, in place.

    Formula: W_q <- W_q A, W_k <- W_k B with A B^T = 1; W_v <- W_v R, W_o <- R^T W_o; biases too.

    Symbols: A and B are ``bases`` of the moments of q and of k about its mean (a part common to all
    keys cancels in the softmax); R is ``rotation`` of the moments of v and of W_o^T W_o.
    ``batches`` are the model's inputs, without labels; pads (``attention_mask`` 0) do not count.
    The model's output does not change, up to rounding. Call it before ``swap`` and before the
    optimizer is built. Raises ``UsageError`` without inputs and ``Unsupported`` for swapped models
    and other families; the model then does not change.

    Source: own; see ``layers/rotation.py``.
    """
    blocks = [block for block in find_blocks(model) if block.remaining]
    if is_swapped(model):
        raise Unsupported("rotate turns a dense model: unswap first, rotate, swap again")
    if any("rotary" in name for name, _ in model.named_modules()):
        raise Unsupported("the model rotates queries and keys by position, so no basis is fixed")
    if any(name.endswith("rel_embeddings") for name, _ in model.named_modules()):
        raise Unsupported("the model's distances have queries and keys too, so no basis is fixed")
    moments = _Moments(blocks)
    with still(model), moments:
        for batch in batches:
            moments.mask = batch.get("attention_mask")
            model(**batch)
    for block in blocks:
        _fold(block, moments)


class _Moments:
    """Second moments of q, k and v over real tokens, by block and head, in float64."""

    def __init__(self, blocks: list[Block]) -> None:
        self.blocks = blocks
        self.mask: Tensor | None = None
        self.squares: dict[tuple[int, str], Tensor] = {}
        self.sums: dict[tuple[int, str], Tensor] = {}
        self.counts: dict[tuple[int, str], int] = {}
        self._handles: list[Any] = []

    def __enter__(self) -> None:
        for block in self.blocks:
            for stream, linear in block.projections.items():
                hook = self._listener((block.index, stream), block)
                self._handles.append(linear.register_forward_hook(hook))

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def of(self, index: int, stream: str, *, centred: bool = False) -> Tensor:
        """The mean of x^T x for each head, about the mean where ``centred``."""
        key = (index, stream)
        if not self.counts.get(key):
            raise UsageError("rotate needs at least one batch of inputs")
        mean = self.sums[key] / self.counts[key]
        second = self.squares[key] / self.counts[key]
        return second - mean[:, :, None] * mean[:, None, :] if centred else second

    def _listener(self, key: tuple[int, str], block: Block) -> Any:
        def listen(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            rows = output.view(*output.shape[:-1], len(block.remaining), block.dim)
            rows = rows.flatten(0, 1) if self.mask is None else rows[self.mask.bool()]
            by_head = rows.double().transpose(0, 1)
            self.squares[key] = self.squares.get(key, 0) + by_head.mT @ by_head
            self.sums[key] = self.sums.get(key, 0) + by_head.sum(1)
            self.counts[key] = self.counts.get(key, 0) + len(rows)

        return listen


def _fold(block: Block, moments: _Moments) -> None:
    heads, dim = len(block.remaining), block.dim
    queries, values = moments.of(block.index, "q"), moments.of(block.index, "v")
    for_q, for_k = bases(queries, moments.of(block.index, "k", centred=True))
    output = block.output.weight.double().view(-1, heads, dim).transpose(0, 1)
    for_v = rotation(values, output.mT @ output)
    for stream, basis in (("q", for_q), ("k", for_k), ("v", for_v)):
        linear = block.projections[stream]
        weight = linear.weight.double().view(heads, dim, -1)
        linear.weight.copy_((basis.mT @ weight).reshape(linear.weight.shape))
        if linear.bias is not None:
            bias = linear.bias.double().view(heads, dim, 1)
            linear.bias.copy_((basis.mT @ bias).flatten())
    block.output.weight.copy_((output @ for_v).transpose(0, 1).flatten(1))
