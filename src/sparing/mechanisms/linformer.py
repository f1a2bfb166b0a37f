"""Linformer: keys and values are projected along the tokens to a few slots."""

from __future__ import annotations

import dataclasses
import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sparing.core.errors import Unsupported, UsageError, require_choice
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.products import Product, Products
from sparing.core.tracing import is_traced
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._alignment import first_token, pooled, rolled
from sparing.mechanisms.shared.arithmetic import fused_softmax, wide
from sparing.mechanisms.shared.lowrank.along_tokens import along_tokens
from sparing.mechanisms.shared.precise import attention_to_precise, precise_product

SHARING = ("none", "headwise", "kv", "layerwise")
PROJECTION = ("learned", "random", "mean_pool", "convolution")


class Linformer(Mechanism):
    """Attention over slots: each slot is a mix of all keys, the same mix at every call.

    Formula: out = softmax over slots of (q (E k)^T / sqrt(dim)) (F v).

    Symbols: E and F are (slots, tokens), learned or fixed random (``projection``). ``sharing`` is
    as in the paper. "none" has E and F for every head, "headwise" one E and one F for the layer.
    "kv" has one matrix for both, "layerwise" one for both and for all layers
    (``share_projections``). "mean_pool" averages each ``stride`` tokens into a slot; "convolution"
    learns the weights inside a slot for each feature; both serve any length with ceil(tokens /
    stride) slots.

    Cost: 8 slots dim flops for each token. Below about twice the slots it is slower than exact
    attention; the two pooled forms keep the square, divided by ``stride``. With slots = tokens and
    identities for E and F, or with mean_pool and stride 1, it equals ``softmax``.

    Source: Wang et al., 2020, arXiv 2006.04768, section 4. What differs: keys and values are
    projected after their own linear maps, so pretrained biases keep their meaning. Column 0 of E
    belongs to a row's own first token: left pads shift nothing, inner pads do not count, and every
    length up to ``Heads.tokens`` works. A row shorter than ``slots`` uses the first slots, as many
    as it has tokens (the paper's rows are longer). All matrices start as in the paper's theorem 1,
    normal with variance 1 / slots; the convolution starts as the mean. On accelerators half numbers
    are multiplied, and a slot is the sum of two.
    """

    key_projection: Tensor | None
    value_projection: Tensor | None
    traits = Traits(
        paper="Linformer: Self-Attention with Linear Complexity, arXiv 2006.04768",
        year=2020,
        family="low-rank",
        arm=True,
        cross=True,
        any_length=False,
        random=True,
    )
    accelerated = ("accelerator",)

    def __init__(
        self,
        heads: Heads,
        *,
        slots: int = 128,
        sharing: str = "headwise",
        projection: str = "learned",
        stride: int = 4,
        seed: int = 0,
    ) -> None:
        super().__init__(heads)
        _check_options(slots, sharing, projection, stride)
        self.slots = slots
        self.sharing = sharing
        self.projection = projection
        self.stride = stride
        self.seed = seed
        self._pooled = projection in ("mean_pool", "convolution")
        self._first: tuple[Linformer, ...] = ()
        self.traits = dataclasses.replace(
            type(self).traits, any_length=self._pooled, random=not self._pooled
        )
        names = ("key_projection", "value_projection")
        for name, start in zip(names, self._starting_values(), strict=True):
            if projection == "random":
                self.register_buffer(name, start)
            else:
                self.register_parameter(name, None if start is None else nn.Parameter(start))

    def share_projections(self, first: Linformer) -> None:
        """Use the projection of ``first``, another layer's, instead of a projection of its own.

        For "layerwise": call it on every layer but one. The matrix then belongs to ``first`` alone
        (it is registered, saved and trained once; safetensors refuses shared tensors), so both must
        be part of one model. Raises ``UsageError`` when the two do not fit.
        """
        if self.sharing != "layerwise" or first.options() != self.options():
            raise UsageError(
                "linformer: share_projections needs two instances with sharing='layerwise' and "
                "the same options"
            )
        if first.heads != self.heads:
            raise UsageError("linformer: layers that share a projection must have equal heads")
        if first is self:
            raise UsageError("linformer: a layer cannot share its projection with itself")
        self._first = first._first or (first,)
        self.key_projection = None

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Align rows at their first token, fill the slots, attend to them."""
        keep = mask.keep
        first = None if keep is None else first_token(keep)
        if keep is not None and first is not None:
            k, v, keep = rolled(k, first), rolled(v, first), rolled(keep, first)
        key, value = self._projections()
        dtype, q = q.dtype, wide(q)
        if self._pooled:
            k, filled = pooled(k, keep, self.stride, key)
            v, filled = pooled(v, keep, self.stride, value)
            needless = keep is None and not is_traced()
            return fused_softmax(q, k, v, None if needless else filled).to(dtype)
        k, v, keep = self._within_limit(k, v, keep)
        span = None if keep is None else mask.span()
        allowed = self._as_many_as_tokens(k.shape[2], span, k.device)
        mixed = fused_softmax(q, self._project(k, key), self._project(v, value), allowed)
        return mixed.to(dtype)

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """The same in the type of the inputs; the slots alone are wider."""
        q, k, v = streams
        keep = mask.keep
        if keep is not None:
            first = keep.int().argmax(1)
            k, v, keep = rolled(k, first), rolled(v, first), rolled(keep, first)
        key, value = self._projections()
        if self._pooled:
            k, filled = pooled(k, keep, self.stride, key)
            v, _ = pooled(v, keep, self.stride, value)
            allowed = None if keep is None else filled
        else:
            k, v, keep = self._within_limit(k, v, keep)
            assert key is not None
            assert value is not None
            k, v = self._all_at_once(k, key), self._all_at_once(v, value)
            allowed = None
            if keep is not None:
                slots = torch.arange(k.shape[2], device=k.device)
                allowed = (slots < mask.span().unsqueeze(1))[:, None, None]
        return attention_to_precise(q, k, v, allowed)

    def cost(self, work: Workload) -> Cost:
        """Two projections of the keys, two products with the slots."""
        slots = -(-work.keys // self.stride) if self._pooled else min(self.slots, work.keys)
        values = work.rows * work.keys * work.dim
        tokens = work.queries if work.element_bytes >= 4 else max(3 * work.queries, work.keys)
        projections = 0 if self._pooled else 4 * values * slots
        return Cost(
            matmul_flops=projections + 4 * work.rows * work.queries * slots * work.dim,
            other_flops=4 * work.rows * work.queries * slots + (4 * values if self._pooled else 0),
            peak_bytes=work.rows * (tokens + 2 * slots) * work.dim * max(4, work.element_bytes),
            params=sum(parameter.numel() for parameter in self.parameters()),
        )

    def products(self, tokens: int) -> Products:
        """The projections, unless slots are means or convolutions, and two products with slots."""
        projections = (
            Product("E", "K", "E K", "k", "n", "d", "a slot is a mix of all keys"),
            Product(self._second, "V", f"{self._second} V", "k", "n", "d", "the same of values"),
        )
        attended = (
            Product("Q", "(E K)^T", "scores", "n", "d", "k", "softmax over their columns: P"),
            Product("P", f"{self._second} V", "out", "n", "k", "d"),
        )
        slots = -(-tokens // self.stride) if self._pooled else min(self.slots, tokens)
        sizes = {"n": tokens, "k": slots, "d": self.heads.dim}
        meanings = {"n": "tokens", "k": "slots", "d": "features of a head"}
        return Products(attended if self._pooled else projections + attended, sizes, meanings)

    @property
    def _second(self) -> str:
        """The matrix of the values: that of the keys where they share it."""
        return "E" if self.sharing in ("kv", "layerwise") else "F"

    def _starting_values(self) -> tuple[Tensor | None, Tensor | None]:
        heads, per_head = self.heads, self.sharing == "none"
        apart = self.sharing in ("none", "headwise")
        if self.projection == "mean_pool":
            return None, None
        if self.projection == "convolution":
            mean = torch.full(
                (heads.count if per_head else 1, self.stride, heads.dim), 1 / self.stride
            )
            return mean, mean.clone() if apart else None
        if heads.tokens is None:
            raise UsageError(
                f"linformer: projection={self.projection!r} needs Heads(tokens=...), the longest "
                "sequence; 'mean_pool' and 'convolution' do not"
            )
        shape = (heads.count,) * per_head + (self.slots, heads.tokens)
        generator = torch.Generator().manual_seed(self.seed)
        key, value = (
            torch.randn(shape, generator=generator, device="cpu") / math.sqrt(self.slots)
            for _ in range(2)
        )
        return key, value if apart else None

    def _projections(self) -> tuple[Tensor | None, Tensor | None]:
        key = self._first[0].key_projection if self._first else self.key_projection
        return key, key if self.value_projection is None else self.value_projection

    def _within_limit(
        self, k: Tensor, v: Tensor, keep: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Rows may be padded beyond the limit; their own tokens must be within."""
        limit, keys = self.heads.tokens, k.shape[2]
        if is_traced() or limit is None or keys <= limit:
            return k, v, keep
        if keep is None or (not keep.is_meta and bool(keep[:, limit:].any())):
            raise Unsupported(
                f"linformer: a sequence of up to {keys} tokens, but the projections were built for "
                f"Heads(tokens={limit})"
            )
        return k[:, :, :limit], v[:, :, :limit], keep[:, :limit]

    def _as_many_as_tokens(
        self, tokens: int, span: Int[Tensor, " batch"] | None, device: torch.device
    ) -> Bool[Tensor, "#batch 1 1 slots"] | None:
        """No more slots than a row has tokens; None where ``_project`` ensures that alone."""
        compiling = is_traced()
        if span is None and not compiling:
            return None
        slots = torch.arange(self.slots if compiling else min(self.slots, tokens), device=device)
        if span is None:
            allowed = (slots < tokens).unsqueeze(0)
        else:
            allowed = slots < span.unsqueeze(1)
            if not compiling and bool(allowed.all()):
                return None
        return allowed[:, None, None]

    def _all_at_once(
        self, stream: Float[Tensor, "batch heads tokens dim"], matrix: Tensor
    ) -> Float[Tensor, "batch heads slots dim"]:
        """The slots of one stream, at least in float32, multiplied in its type."""
        batch, heads, tokens, dim = stream.shape
        matrix = matrix[..., : min(self.slots, tokens), :tokens].to(stream.dtype)
        if matrix.ndim == 2:
            return along_tokens(matrix[None], stream)
        rows = stream.permute(1, 2, 0, 3).reshape(heads, tokens, batch * dim)
        return precise_product(matrix, rows).view(heads, -1, batch, dim).permute(2, 0, 1, 3)

    def _project(
        self, stream: Float[Tensor, "batch heads tokens dim"], matrix: Tensor | None
    ) -> Float[Tensor, "batch heads slots dim"]:
        """The slots of one stream, in the way that copies neither the stream nor the matrix.

        At least in float32: half precision would round sums over thousands of tokens.
        """
        assert matrix is not None
        batch, heads, tokens, dim = stream.shape
        stream = wide(stream)
        matrix = matrix.to(stream.dtype)
        if is_traced():
            # Selected by index: export cannot prove that a slice fits.
            return matrix[..., torch.arange(tokens, device=stream.device)] @ stream
        matrix = matrix[..., : min(self.slots, tokens), :tokens]
        if not torch.is_grad_enabled():
            matrix = matrix.detach()  # matmul copies the stream if the matrix could get gradients
        if matrix.ndim == 3:
            return torch.einsum("hst,bhtd->bhsd", matrix, stream)
        if stream.stride(1) > stream.stride(2):
            return matrix @ stream
        slots = matrix @ stream.transpose(1, 2).reshape(batch, tokens, heads * dim)
        return slots.view(batch, -1, heads, dim).transpose(1, 2)


def _check_options(slots: int, sharing: str, projection: str, stride: int) -> None:
    for name, number in (("slots", slots), ("stride", stride)):
        if number < 1:
            raise UsageError(f"linformer: {name} must be at least 1; got {number}")
    for name, value, known in (
        ("sharing", sharing, SHARING),
        ("projection", projection, PROJECTION),
    ):
        require_choice("linformer", name, value, known)
