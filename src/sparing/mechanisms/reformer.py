"""Reformer: each token attends to those that random rotations sort near it."""

from __future__ import annotations

import dataclasses
import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.tracing import is_traced
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._hashing import by_heads, coarse_normal
from sparing.mechanisms._kernel import rows_at_once
from sparing.mechanisms._sorted_chunks import Chunks, Order, taken
from sparing.mechanisms.shared.arithmetic import wide
from sparing.mechanisms.shared.pairs.sorted_blocks import SortedBlocks, sorted_blocks
from sparing.mechanisms.shared.precise import precise_product

_SELF_SCORE = -1e5
"""A token's score with itself: it counts only where there is no other key."""


class Reformer(Mechanism):
    """Attention among tokens that hash alike, with one projection for queries and keys.

    Formula: out_i = sum_r sum_j exp(s_ij) v_j / sum_r sum_j exp(s_ij) with s_ij = q_i . q_j / |q_j|
    and s_ii = -1e5; r runs over ``rounds``, j over the tokens in i's chunk of round r and in the
    chunk before it. A round sorts the tokens by (bucket, position) and cuts them into chunks;
    bucket = argmax of [q R, -q R].

    Symbols: R (dim, buckets / 2) is random, another for each head and round, sampled with ``seed``.
    ``chunk`` is the number of tokens in a chunk. A row has as many buckets as chunks (one more if
    that is odd), at most ``buckets``; a row of one chunk has one. ``same_bucket`` hides keys of
    other buckets. A pair that meets in several rounds counts as often; with ``count_once`` once.

    Cost: 8 rounds chunk dim flops for each token, and dim rounds buckets for its hashes. A row of
    one chunk is computed once, not in rounds. With buckets=1 and chunk >= tokens it equals dense
    attention with these scores.

    Source: Kitaev, Kaiser and Levskaya, 2020, arXiv 2001.04451, section 2; scores without 1 /
    sqrt(dim), as in their code. What differs: any length (the last chunk may be shorter), and each
    row's own: pads come after the last token and are in no window. Before the first chunk comes the
    last one of the same row and round, where known implementations take another round's. It is not
    causal: later tokens change which earlier ones share a chunk, so masking by position, as the
    paper does, leaks the future. Gradients are those of the given buckets: the choice of buckets is
    never learned. Rotations are rounded to eight bits of precision: a model cast to half precision
    hashes as before. On accelerators half numbers are multiplied; hashes stay in float32.
    """

    rotations: Tensor
    streams = ("q", "v")
    traits = Traits(
        paper="Reformer: The Efficient Transformer, arXiv 2001.04451",
        year=2020,
        family="hashing",
        arm=True,
        random=True,
    )
    accelerated = ("accelerator",)

    def __init__(
        self,
        heads: Heads,
        *,
        rounds: int = 4,
        buckets: int = 128,
        chunk: int = 64,
        same_bucket: bool = False,
        count_once: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(heads)
        for name, number in (("rounds", rounds), ("chunk", chunk)):
            if number < 1:
                raise UsageError(f"reformer: {name} must be at least 1; got {number}")
        if buckets != 1 and (buckets < 2 or buckets % 2):
            raise UsageError(f"reformer: buckets must be 1 or an even number; got {buckets}")
        self.rounds = rounds
        self.buckets = buckets
        self.chunk = chunk
        self.same_bucket = same_bucket
        self.count_once = count_once
        self.seed = seed
        self.traits = dataclasses.replace(type(self).traits, random=buckets > 1)
        shape = (heads.count, heads.dim, rounds, buckets // 2)
        self.register_buffer("rotations", coarse_normal(shape, seed))

    def mix(  # type: ignore[override]  # keys are the queries
        self,
        q: Float[Tensor, "batch heads tokens dim"],
        v: Float[Tensor, "batch heads tokens dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads tokens dim"]:
        """A few heads at a time, so that sorted tokens and scores stay in the cache."""
        return by_heads(self._mix_rows, (q, v), mask.keep, self.rotations)

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """All heads, rounds and chunks in one product; their logarithms join the rounds."""
        q, v = streams
        norms = torch.linalg.vector_norm(wide(q), dim=-1, keepdim=True)
        with torch.no_grad():
            codes = self._hashed(wide(q), mask.keep, self.rotations).permute(1, 2, 0, 3)
            blocks = sorted_blocks(codes.contiguous(), self.chunk, mask.keep)
        rows, scale = blocks.sorted(q), blocks.sorted(norms.masked_fill(norms == 0, 1).reciprocal())
        scores = precise_product(blocks.queries(rows), blocks.windows(rows), blocks.windows(scale))
        scores = self._restricted(scores, codes, blocks)
        weights = scores.softmax(-1)
        rounded = weights.to(v.dtype)
        largest = rounded.detach().argmax(-1, keepdim=True)
        totals = blocks.undone(scores.gather(-1, largest) - weights.gather(-1, largest).log())
        parts = blocks.undone(torch.bmm(rounded, blocks.windows(blocks.sorted(v)).mT))
        return (parts * totals.softmax(2)).sum(2).to(q.dtype)

    def _restricted(
        self, scores: Tensor, codes: Tensor, blocks: SortedBlocks
    ) -> Float[Tensor, "windows size window"]:
        """Scores without hidden keys, and a token's own last."""
        rounds = codes.shape[2]
        if self.count_once and rounds > 1:
            counts = torch.zeros_like(scores)
            for other in range(rounds):
                same = codes[:, :, other] if self.same_bucket else None
                counts += blocks.meetings(other, same)
            scores = scores - counts.clamp_(min=1).log_()
        if self.same_bucket:
            scores = scores.masked_fill(~blocks.of_orders(codes), -math.inf)
        if (shown := blocks.shown()) is not None:
            scores = scores.masked_fill(~shown, -math.inf)
        itself = scores[:, :, blocks.size :].diagonal(dim1=1, dim2=2)
        itself.fill_(_SELF_SCORE)
        return scores

    def cost(self, work: Workload) -> Cost:
        """Rotations, then two products of each chunk with two chunks, in every round."""
        tokens, dim = work.keys, work.dim
        size, columns = min(self.chunk, tokens), self._columns(tokens)
        chunks = -(-tokens // size)
        rounds, window = self.rounds if columns else 1, size if chunks == 1 else 2 * size
        pairs = rounds * chunks * size * window
        hashed = rounds * tokens * columns
        rows = min(work.rows, rows_at_once(tokens, dim))
        held = chunks * size * (2 * dim + 2 * window) + 2 * chunks * window * dim
        held += (rounds + 2) * tokens * dim
        output = work.rows * tokens * dim * work.element_bytes
        return Cost(
            matmul_flops=work.rows * (4 * pairs + 2 * hashed) * dim,
            other_flops=work.rows * (4 * pairs + 3 * hashed + 3 * rounds * tokens * dim),
            peak_bytes=output + rows * held * max(4, work.element_bytes),
        )

    def _mix_rows(
        self, q: Tensor, v: Tensor, keep: Tensor | None, rotations: Tensor
    ) -> Float[Tensor, "batch heads tokens dim"]:
        """Each round separately, then their sums together, at least in float32."""
        q, v = wide(q).contiguous(), wide(v).contiguous()
        norms = torch.linalg.vector_norm(q, dim=-1, keepdim=True)
        k = q / norms.masked_fill(norms == 0, 1)
        with torch.no_grad():
            chunks = Chunks(q.shape[2], self.chunk, keep, q.device)
            orders = [Order(codes, chunks) for codes in self._hashed(q, keep, rotations)]
        rounds = [self._round(q, k, v, order, orders) for order in orders]
        top = torch.stack([largest for largest, _, _ in rounds]).amax(0)
        mixed, total = torch.zeros_like(v), torch.zeros_like(top)
        for largest, sums, parts in rounds:
            share = (largest - top).exp()
            mixed = torch.addcmul(mixed, parts, share)
            total = torch.addcmul(total, sums, share)
        return mixed / total

    def _hashed(
        self, q: Tensor, keep: Tensor | None, rotations: Tensor
    ) -> Int[Tensor, "rounds batch heads tokens"]:
        """The bucket of each token in each round, one round where there is one bucket."""
        tokens, ragged = q.shape[2], keep is not None or is_traced()
        # In export the length is not known: all rotations are computed, for all rows.
        columns = self.buckets // 2 if is_traced() else self._columns(tokens)
        codes = torch.zeros_like(q[..., :1], dtype=torch.long)
        if columns:
            turned = q @ rotations[..., :columns].flatten(2).to(q.dtype)
            turned = turned.view(*turned.shape[:-1], self.rounds, columns)
            sizes = turned.abs()
            half: int | Tensor = columns
            if ragged:
                lengths = torch.full((1,), tokens) if keep is None else keep.sum(1)
                half = self._halves(lengths.to(q.device)).view(-1, 1, 1, 1, 1)
                outside = torch.arange(columns, device=q.device) >= half
                sizes = sizes.masked_fill(outside, -1)
            largest = sizes.argmax(-1, keepdim=True)
            codes = (largest + (turned.gather(-1, largest) < 0) * half).squeeze(-1)
        if keep is not None:
            codes = codes.masked_fill(~keep[:, None, :, None], self.buckets)
        return codes.permute(3, 0, 1, 2)

    def _columns(self, tokens: int) -> int:
        """Half the buckets of a row of ``tokens`` tokens; 0 where it has one bucket."""
        chunks = -(-tokens // self.chunk)
        return min((chunks + 1) // 2, self.buckets // 2) if chunks > 1 else 0

    def _halves(self, lengths: Int[Tensor, "*rows"]) -> Int[Tensor, "*rows"]:
        """``_columns`` of each row."""
        chunks = (lengths + self.chunk - 1) // self.chunk
        return ((chunks + 1) // 2).clamp(max=self.buckets // 2).where(chunks > 1, 0)

    def _round(
        self, q: Tensor, k: Tensor, v: Tensor, order: Order, orders: list[Order]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """For each query its largest score, the sum of the weights, and that of the values."""
        chunks = order.chunks
        scores = taken(q, order.queries) @ taken(k, order.keys).mT
        if self.count_once and len(orders) > 1:
            counts = torch.zeros_like(scores)
            for other in orders:
                counts += order.meets(other, same_code=self.same_bucket)
            scores = scores - counts.clamp_(min=1).log_()
        if self.same_bucket:
            apart = order.at_queries(order.codes) != order.at_keys(order.codes)
            scores = scores.masked_fill_(apart, -math.inf)
        if chunks.filled is not None:
            scores = scores.masked_fill_(~chunks.filled[:, None, :, None], -math.inf)
        if is_traced():  # an ONNX graph cannot write to a view
            size, window = scores.shape[-2:]
            diagonal = torch.ones(size, window, dtype=torch.bool, device=scores.device)
            diagonal = diagonal.triu(window - size).tril(window - size)
            scores = scores.masked_fill(diagonal, _SELF_SCORE)
        else:
            scores[..., -chunks.size :].diagonal(dim1=-2, dim2=-1).fill_(_SELF_SCORE)
        largest = scores.detach().amax(-1, keepdim=True)
        weights = scores.sub_(largest).exp_()
        sums, parts = weights.sum(-1, keepdim=True), weights @ taken(v, order.keys)
        return order.undone(largest), order.undone(sums), order.undone(parts)
