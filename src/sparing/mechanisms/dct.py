"""DCT-Former: attention between the low frequencies of queries, keys and values."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.tracing import is_traced
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms.shared.arithmetic import fused_softmax, wide
from sparing.mechanisms.shared.lowrank.cosines import cosines, cosines_of_rows


class Dct(Mechanism):
    """Softmax attention between frequencies instead of tokens, brought back to the tokens.

    Formula: out = C^T softmax over frequencies of ((C q) (C k)^T / sqrt(dim)) (C v), with
    C_ut = a_u cos(pi (2 t + 1) u / (2 tokens)), a_0 = sqrt(1 / tokens), else sqrt(2 / tokens).

    Symbols: C is the first ``frequencies`` rows of the orthonormal cosine transform (DCT-II) over
    the t = 0, 1, ... tokens of a row; nothing is learned. In cross-attention q and the result have
    a C of the queries' number, k and v one of the keys'.

    Cost: 8 frequencies dim flops for each token and 4 frequencies^2 dim for each head. There is
    no setting in which it equals softmax, not even with as many frequencies as tokens, since the
    softmax runs over frequencies. With one frequency every token gets the mean of the values.

    Source: Scribano et al., 2022, arXiv 2203.01178, section 3. What differs: C is that of each
    row's own length, where the authors' code takes the padded one and pads lengthen waves. A row
    with fewer tokens than ``frequencies`` has as many frequencies as tokens. Sums run in float32
    under half precision; on accelerators half numbers are multiplied, twice where one product would
    round. The paper transforms the layer's input and projects the frequencies; here
    projected tokens are transformed. Without biases the two are the same. With a bias b they
    differ. C (x W + 1 b^T) has the bias in the lowest frequency alone, (C x) W + 1 b^T in every
    frequency. Only the first keeps the meaning of pretrained weights.
    """

    spreads_nan = True
    traits = Traits(
        paper="DCT-Former: Efficient Self-Attention with Discrete Cosine Transform, "
        "arXiv 2203.01178",
        year=2022,
        family="low-rank",
        arm=True,
        cross=True,
    )
    accelerated = ("accelerator",)

    def __init__(self, heads: Heads, *, frequencies: int = 64) -> None:
        super().__init__(heads)
        if frequencies < 1:
            raise UsageError(f"dct: frequencies must be at least 1; got {frequencies}")
        self.frequencies = frequencies

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Rows of one length share a matrix; padded rows are cropped, or have a matrix per row."""
        keep = mask.keep
        on_cpu, compiling = q.device.type == "cpu", is_traced()
        unpadded = keep is None or (
            not compiling and on_cpu and bool(keep[:, 0].all() & keep[:, -1].all())
        )
        if unpadded and not compiling:
            return self._mix_equal(q, k, v)
        recorded = torch.is_grad_enabled() and any(part.requires_grad for part in (q, k, v))
        if compiling or recorded or not on_cpu:
            return self._mix_ragged(q, k, v, mask)
        mixed = torch.zeros_like(q)
        own_queries = mask.keep_queries(q.shape[2]) is not None
        for sample, (first, span) in enumerate(
            zip(mask.first().tolist(), mask.span().tolist(), strict=True)
        ):
            if span:
                row, real = slice(sample, sample + 1), slice(first, first + span)
                index = (row, slice(None), real if own_queries else slice(None))
                mixed[index] = self._mix_equal(q[index], k[row, :, real], v[row, :, real])
        return mixed

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """Two or four products with all tokens in their type; frequencies meet in float32."""
        q, k, v = streams
        if mask.keep is None:
            of_keys = cosines(k, self.frequencies)
        else:
            of_keys = cosines_of_rows(k, self.frequencies, mask.first(), mask.span())
        cross = mask.is_cross(q.shape[2], k.shape[2])
        of_queries = cosines(q, self.frequencies) if cross else of_keys
        allowed = None if of_keys.filled is None else of_keys.filled[:, None, None]
        mixed = _attention(of_queries.of(q), of_keys.of(k), of_keys.of(v), allowed)
        return of_queries.back(mixed, q)

    def cost(self, work: Workload) -> Cost:
        """Three transforms to frequencies, attention among them, one transform back."""
        query_waves, key_waves = (
            min(self.frequencies, tokens) for tokens in (work.queries, work.keys)
        )
        transforms = 4 * work.dim * (query_waves * work.queries + key_waves * work.keys)
        tokens = work.queries if work.dtype.itemsize >= 4 else 2 * work.queries + 2 * work.keys
        numbers = (tokens + 2 * query_waves + 2 * key_waves) * work.dim
        tables = query_waves * work.queries + key_waves * work.keys
        return Cost(
            matmul_flops=work.rows * (transforms + 4 * query_waves * key_waves * work.dim),
            other_flops=work.rows * 4 * query_waves * key_waves,
            peak_bytes=(work.rows * numbers + tables) * max(4, work.element_bytes),
        )

    def _mix_equal(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Rows without pads."""
        dtype, (q, k, v) = q.dtype, (wide(q), wide(k), wide(v))
        query_waves, key_waves = (_waves(part, self.frequencies) for part in (q, k))
        slots = _attention(_product(query_waves, q), _product(key_waves, k), _product(key_waves, v))
        if _token_major(q):
            slots = slots.transpose(1, 2)
            mixed = (query_waves.mT @ slots.flatten(2)).view(*q.transpose(1, 2).shape)
            return mixed.transpose(1, 2).to(dtype)
        return (query_waves.mT @ slots).to(dtype)

    def _mix_ragged(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """One matrix for each row in one formula: for gradients, export and other devices."""
        dtype, (q, k, v) = q.dtype, (wide(q), wide(k), wide(v))
        first, span = _own_span(k, mask, whole=mask.keep is None)
        key_waves = _waves_of_rows(k, self.frequencies, first, span)
        query_waves = key_waves
        if mask.is_cross(q.shape[2], k.shape[2]):
            query_waves = _waves_of_rows(q, self.frequencies, *_own_span(q, mask, whole=True))
        filled = torch.arange(self.frequencies, device=k.device) < span.unsqueeze(1)
        streams = ((query_waves, q), (key_waves, k), (key_waves, v))
        q, k, v = (torch.einsum("but,bhtd->bhud", waves, part) for waves, part in streams)
        mixed = _attention(q, k, v, filled[:, None, None])
        return torch.einsum("but,bhud->bhtd", query_waves, mixed).to(dtype)


def _attention(
    q: Float[Tensor, "batch heads query_waves dim"],
    k: Float[Tensor, "batch heads key_waves dim"],
    v: Float[Tensor, "batch heads key_waves dim"],
    allowed: Bool[Tensor, "batch 1 1 key_waves"] | None = None,
) -> Float[Tensor, "batch heads query_waves dim"]:
    """Attention among frequencies, NaN where q or k hold any: some kernels would give zeros."""
    return fused_softmax(q, k, v, allowed) + q * 0 + (k * 0).sum(2, keepdim=True)


def _own_span(
    stream: Float[Tensor, "batch heads tokens dim"], mask: Mask, *, whole: bool
) -> tuple[Int[Tensor, " batch"], Int[Tensor, " batch"]]:
    """The start and the length of each row."""
    if not whole:
        return mask.first(), mask.span()
    zeros = torch.zeros(stream.shape[0], dtype=torch.long, device=stream.device)
    return zeros, zeros + stream.shape[2]


def _waves(
    stream: Float[Tensor, "batch heads tokens dim"], frequencies: int
) -> Float[Tensor, "frequencies tokens"]:
    """C for rows without pads, kept for the next call at this length."""
    sizes = stream.shape[2], min(frequencies, stream.shape[2]), stream.dtype, stream.device
    # Tensors of another kind belong to a trace and must not outlive it.
    return _kept_waves(*sizes) if type(stream) is Tensor else _cosines(*sizes)


@lru_cache(maxsize=16)
def _kept_waves(
    tokens: int, frequencies: int, dtype: torch.dtype, device: torch.device
) -> Float[Tensor, "frequencies tokens"]:
    # A tensor made in inference mode cannot be used in training later.
    with torch.inference_mode(False):
        return _cosines(tokens, frequencies, dtype, device)


def _cosines(
    tokens: int, frequencies: int, dtype: torch.dtype, device: torch.device
) -> Float[Tensor, "frequencies tokens"]:
    odd = 2 * torch.arange(tokens, dtype=torch.float64, device=device) + 1
    angles = torch.arange(frequencies, dtype=torch.float64, device=device).unsqueeze(1) * odd
    waves = angles.mul_(math.pi / (2 * tokens)).cos_().mul_(math.sqrt(2 / tokens))
    waves[0] = math.sqrt(1 / tokens)
    return waves.to(dtype)


def _waves_of_rows(
    stream: Float[Tensor, "batch heads tokens dim"],
    frequencies: int,
    first: Int[Tensor, " batch"],
    span: Int[Tensor, " batch"],
) -> Float[Tensor, "batch frequencies tokens"]:
    """C for each row's own length and start; zero at its pads and above its highest frequency."""
    length = span.clamp(min=1).double()[:, None, None]
    position = torch.arange(stream.shape[2], device=stream.device) - first.unsqueeze(1)
    frequency = torch.arange(frequencies, device=stream.device).unsqueeze(1)
    inside = ((position >= 0) & (position < span.unsqueeze(1))).unsqueeze(1)
    inside = inside & (frequency < span[:, None, None])
    angles = (frequency * (2 * position + 1).unsqueeze(1)).double() * (math.pi / 2) / length
    size = torch.where(frequency == 0, 1, 2) / length
    return (angles.cos() * size.sqrt()).where(inside, 0).to(stream.dtype)


def _token_major(stream: Tensor) -> bool:
    """Whether a token's heads are adjacent in memory: one product then serves all heads."""
    return stream.stride(1) < stream.stride(2) and stream.stride(2) == stream[0, :, 0].numel()


def _product(
    waves: Float[Tensor, "frequencies tokens"], stream: Float[Tensor, "batch heads tokens dim"]
) -> Float[Tensor, "batch heads frequencies dim"]:
    """The stream's frequencies, without a copy of it in either layout."""
    if _token_major(stream):
        batch, heads, _, dim = stream.shape
        slots = waves @ stream.transpose(1, 2).flatten(2)
        return slots.view(batch, -1, heads, dim).transpose(1, 2)
    return waves @ stream
