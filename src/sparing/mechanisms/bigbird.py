"""BigBird: blocks attend to a window, to global blocks and to random blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.core.execution.path import Call, Path
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.tracing import is_traced
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._pieces import Row, row_by_row
from sparing.mechanisms._seen_blocks import NONE, Seen, runs
from sparing.mechanisms._sparse import CACHED_ELEMENTS, Gathering, gathered_attention
from sparing.mechanisms.shared.arithmetic import fused_softmax
from sparing.mechanisms.shared.bands import flex
from sparing.mechanisms.shared.bands.gathered import Chosen, blocked, gathered, unblocked
from sparing.mechanisms.shared.bands.windows import Aligned, few_rows, numbers, picked, placed

_MOST_TABLES = 16
"""Chosen blocks that a mechanism remembers, for as many lengths of rows."""
_tables: WeakKeyDictionary[Bigbird, dict[tuple[object, ...], tuple[Tensor, Tensor]]] = (
    WeakKeyDictionary()
)


class Bigbird(Mechanism):
    """Blocks of tokens attend to their neighbours, to global blocks and to a few random blocks.

    Formula: out_i = sum_j w_ij v_j with w_ij = softmax of q_i . k_j / sqrt(dim) over the keys j
    in the blocks window(I) + global + random(I), taken as one set, I being the block of i;
    every j where I itself is global. Causal: only j <= i of these.

    Symbols: blocks of ``block`` tokens count from a row's first token, and the last may be short;
    window(I) is the ``window_blocks`` blocks around I (causal: those of them up to I);
    ``global_blocks`` are numbers of blocks, negative ones from the row's end; random(I) is
    ``random_blocks`` further blocks, fewer where there are not so many, sampled per head with
    ``seed``; ``dropout`` is the share of weights dropped while training.

    Cost: 4 dim block (window_blocks + globals + random_blocks) flops for each query, and all keys
    for the few global blocks; linear in the tokens. Up to window_blocks + random_blocks + 2 blocks
    nearly all blocks are seen and nothing is saved. With a window over all it equals ``softmax``.

    Source: Zaheer et al., 2020, arXiv 2007.14062, section 2 and appendix D (internal transformer
    construction). What differs: any length, with blocks and random choices that follow each row's
    own tokens. Global blocks can be chosen. Random blocks differ from each other and from all other
    seen blocks, in evaluation too. (There the transformers library sees block 0 several times
    instead.) The causal form is not in the paper. In it, blocks counted from the end are not
    global: a token must not depend on how many follow. On CUDA devices FlexAttention reads
    blocks of 128 tokens where they are; on others seen blocks are gathered.
    """

    traits = Traits(
        paper="Big Bird: Transformers for Longer Sequences, arXiv 2007.14062",
        year=2020,
        family="sparse",
        arm=True,
        causal=True,
        random=True,
    )
    accelerated = ("flex", "accelerator")
    draws: Tensor

    def __init__(
        self,
        heads: Heads,
        *,
        block: int = 64,
        window_blocks: int = 3,
        global_blocks: Sequence[int] = (0, -1),
        random_blocks: int = 3,
        seed: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(heads)
        if block < 1:
            raise UsageError(f"bigbird: block must be at least 1; got {block}")
        if window_blocks < 1 or window_blocks % 2 == 0:
            raise UsageError(f"bigbird: window_blocks must be odd; got {window_blocks}")
        if random_blocks < 0:
            raise UsageError(f"bigbird: random_blocks must not be negative; got {random_blocks}")
        self.block = block
        self.window_blocks = window_blocks
        self.global_blocks = tuple(global_blocks)
        self.random_blocks = random_blocks
        self.seed = seed
        self.dropout = dropout
        if random_blocks == 0:
            self.traits = replace(type(self).traits, random=False)
        generator = torch.Generator().manual_seed(seed)
        shape = (heads.count, random_blocks)
        draws = torch.randint(2**32, shape, generator=generator, device="cpu")
        self.register_buffer("draws", draws)

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Exact attention over the kept keys of the seen blocks."""
        if is_traced():
            return self._without_loops(q, k, v, mask)

        def mix_row(row: Row, out: Tensor | None) -> Tensor:
            gathering = self._gathering(row.q.shape[2], row.k.shape[2], mask.causal)
            return gathered_attention(row, gathering, self._dropped, out)

        return row_by_row(mix_row, Row(q, k, v, mask.keep), alike=mask.keep is None)

    def limits(self, path: Path, call: Call) -> str:
        """FlexAttention has no dropout, is for long rows, and joins blocks to its own."""
        if path != "flex":
            return ""
        fits = flex.fits(min(self.block, call.keys)) or call.device == "cpu"
        return flex.limit(call, self._dropped) if fits else "its blocks do not fit into 128 tokens"

    def mix_accelerator(  # type: ignore[override]  # the streams, by name
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """All blocks in one call, with the gathered blocks of each; then the global blocks."""
        rows = Aligned.of(q, k, v, mask.keep)
        keys, queries = k.shape[2], rows.q.shape[2]
        chosen = self._known(rows, mask.causal)
        mixed = gathered(rows.q, rows.k, rows.v, rows.real, chosen, self._dropped)
        places, real = self._global_places(rows, mask.causal)
        if places is not None:
            places = places - (keys - queries) // chosen.size
            whole = self._whole(rows, places, chosen.size, mask.causal)
            spread = placed(mixed.flatten(3), whole, places, real)
            mixed = spread.view_as(mixed)
        return rows.back(unblocked(mixed, keys, queries))

    def mix_flex(
        self, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask
    ) -> Float[Tensor, "batch heads queries dim"]:
        """The same by FlexAttention, which skips blocks that are not seen."""
        rows = Aligned.of(q, k, v, mask.keep)
        chosen = self._known(rows, mask.causal)
        size = (rows.q.shape[2], k.shape[2])

        def pattern() -> flex.Pattern:
            seen = self._seen_table(rows, chosen, mask.causal)
            return flex.table(size, seen, chosen.size, mask.causal, rows.real)

        state = None if self.draws.is_inference() else self.draws._version
        key = ("bigbird", self._seen, mask.causal, state)
        streams = rows.q, rows.k, rows.v
        return rows.back(flex.attend(*streams, key, mask.keep, pattern, self.draws))

    def _seen_table(
        self, rows: Aligned, chosen: Chosen, causal: bool
    ) -> Bool[Tensor, "batch_or_1 heads rows columns"]:
        """Whether a block sees another one; global blocks see all."""
        numbers_of = chosen.blocks
        count = numbers_of.shape[2]
        seen = torch.zeros(*numbers_of.shape[:3], count + 1, dtype=torch.bool, device=rows.k.device)
        inside = (numbers_of >= 0) & (numbers_of < count)
        seen = seen.scatter(3, numbers_of.where(inside, count), True)[..., :count]
        places, real = self._global_places(rows, causal)
        if places is None:
            return seen
        here = places.unsqueeze(1) == torch.arange(count, device=places.device).unsqueeze(1)
        here = here if real is None else here & real.unsqueeze(1)
        return seen | here.any(2)[:, None, :, None]

    def _known(self, rows: Aligned, causal: bool) -> Chosen:
        """The chosen blocks, for all rows at once where a row's end does not matter."""
        keys = rows.k.shape[2]
        size = min(self.block, keys)
        count = -(-keys // size)
        if causal or rows.real is None:
            return Chosen(size, self._table(count, causal), causal)
        blocks = (Mask(rows.real).span() + size - 1) // size
        numbered = torch.arange(count, device=blocks.device)
        return Chosen(size, self._seen.chosen(self.draws, numbered, blocks, False)[..., :count])

    def _table(self, count: int, causal: bool) -> Int[Tensor, "1 heads rows slots"]:
        """The chosen blocks in rows of so many blocks, computed once; a block's own first."""
        device, known = self.draws.device, _tables.setdefault(self, {})
        slots = min(count, self._seen.slots(causal))
        if device.type == "meta":
            return torch.empty(1, self.heads.count, count, slots, dtype=torch.int64, device=device)
        state = None if self.draws.is_inference() else self.draws._version
        key = (count, causal, device, id(self.draws), state)
        if is_traced() or key not in known:
            while len(known) >= _MOST_TABLES:
                known.pop(next(iter(known)))
            with torch.inference_mode(False):
                rows = torch.arange(count, device=device)
                table = self._seen.chosen(self.draws, rows, rows.new_full((1,), count), causal)[
                    ..., :slots
                ]
            table = table.where(table < NONE, -1).sort(-1, descending=True).values
            if is_traced():
                return table
            known[key] = table, self.draws  # so that no other tensor gets its identity
        return known[key][0]

    def _global_places(
        self, rows: Aligned, causal: bool
    ) -> tuple[Int[Tensor, "#batch globals"] | None, Bool[Tensor, "batch globals"] | None]:
        """The numbers of the global blocks, and which of them a row has (None: all)."""
        keys = rows.k.shape[2]
        size = min(self.block, keys)
        if causal or rows.real is None:
            marked = sorted(self._seen.global_rows(-(-keys // size), causal))
            return (numbers(marked, rows.k.device)[None] if marked else None), None
        if not self.global_blocks:
            return None, None
        blocks = (Mask(rows.real).span() + size - 1).unsqueeze(1) // size
        given = numbers(self.global_blocks, rows.k.device)
        places = given.where(given >= 0, given + blocks)
        return places, (places >= 0) & (places < blocks)

    def _whole(
        self, rows: Aligned, places: Int[Tensor, "#batch globals"], size: int, causal: bool
    ) -> Float[Tensor, "batch heads globals block_dim"]:
        """The global blocks of queries against all keys, causal those up to them."""
        keys, (batch, heads, _, dim) = rows.k.shape[2], rows.q.shape
        cut = blocked(rows.q, keys, size).flatten(3)
        taken = picked(cut, places.clamp(0, cut.shape[2] - 1)).view(batch, heads, -1, dim)
        k, v, real = rows.k, rows.v, rows.real
        if causal:
            reach = min(keys, (max(self._seen.global_rows(-(-keys // size), True)) + 1) * size)
            k, v = k[:, :, :reach], v[:, :, :reach]
            real = None if real is None else real[:, :reach]
        elif real is None:
            whole = F.scaled_dot_product_attention(taken, k, v, dropout_p=self._dropped)
            return whole.view(batch, heads, -1, size * dim)
        allowed = None if real is None else real[:, None, None]
        if causal:
            first = (keys - rows.q.shape[2]) // size
            within = torch.arange(size, device=places.device)
            ends = ((places + first).unsqueeze(2) * size + within).flatten(1)[:, None, :, None]
            past = torch.arange(k.shape[2], device=places.device) <= ends
            allowed = past if allowed is None else past & allowed
        whole = few_rows(taken, k, v, allowed, dropout=self._dropped)
        return whole.view(batch, heads, -1, size * dim)

    @property
    def _dropped(self) -> float:
        return self.dropout if self.training else 0.0

    @property
    def _seen(self) -> Seen:
        return Seen(self.block, self.window_blocks // 2, self.global_blocks, self.random_blocks)

    def cost(self, work: Workload) -> Cost:
        """Two products over the pairs in the blocks; gathered blocks are stored besides."""
        row_runs = runs(self._seen, work.queries, work.keys, work.causal)
        pairs = work.rows * sum(run.pairs for run in row_runs)
        output = work.rows * work.queries * work.dim
        gathered = [run.blocks * run.slots * self.block * work.dim * work.heads for run in row_runs]
        return Cost(
            matmul_flops=4 * pairs * work.dim,
            other_flops=5 * pairs,
            peak_bytes=work.element_bytes * (output + 2 * min(CACHED_ELEMENTS, max(gathered))),
        )

    def _gathering(self, queries: int, keys: int, causal: bool) -> Gathering:
        """The blocks that each block of a row sees, and which of them run together."""
        blocks = -(-keys // self.block)
        rows = torch.arange(blocks, device=self.draws.device)
        chosen = self._seen.chosen(self.draws, rows, rows.new_full((1,), blocks), causal)
        row_runs = runs(self._seen, queries, keys, causal)
        return Gathering(self.block, causal, row_runs, chosen[0])

    def _without_loops(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """The same for any length in one formula, for export: blocks gathered and masked.

        There are always two blocks or more: export treats a size of one as a constant.
        """
        batch, _, keys, _ = k.shape
        first, span = q.new_zeros(batch).long(), torch.full((batch,), keys, device=q.device)
        if mask.keep is not None:
            first, span = mask.first(), mask.span()
        blocks, within = (
            (span + self.block - 1) // self.block,
            torch.arange(self.block).to(q.device),
        )
        rows = torch.arange(keys // self.block + 2, device=q.device)
        positions = first[:, None, None] + rows[:, None] * self.block + within
        chosen = self._seen.chosen(self.draws, rows, blocks, mask.causal)
        places = chosen[..., None] * self.block + within
        places = (first[:, None, None, None, None] + places).flatten(3)
        allowed = (places < (first + span)[:, None, None, None])[:, :, :, None]
        mixed = self._at_places(q, k, v, mask, positions, (places.clamp(max=keys - 1), allowed))
        everywhere = torch.arange(keys, device=q.device).expand(batch, 1, 1, -1)
        for number in self.global_blocks:
            if number >= 0 or not mask.causal:
                row = number + (blocks if number < 0 else 0 * blocks)
                tokens = (first + row * self.block)[:, None, None] + within
                whole = self._at_places(q, k, v, mask, tokens, (everywhere, None))
                mixed = whole.where((rows == row[:, None])[:, None, :, None, None], mixed)
        index = torch.arange(keys - q.shape[2], keys, device=q.device) - first[:, None]
        return _at(mixed.flatten(2, 3), index.clamp(min=0)[:, None])

    def _at_places(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask,
        positions: Int[Tensor, "batch rows block"],
        seen: tuple[Tensor, Tensor | None],
    ) -> Tensor:
        """Queries at ``positions`` against keys at places (batch, heads or 1, rows, keys).

        A query sees the allowed keys that are kept and, causal, not later than itself.
        """
        places, allowed = seen
        allowed = (
            torch.ones_like(places[:, :, :, None], dtype=torch.bool) if allowed is None else allowed
        )
        if mask.keep is not None:
            allowed = allowed & _at(mask.keep[:, None, :, None], places)[:, :, :, None, :, 0]
        if mask.causal:
            allowed = allowed & (places[:, :, :, None] <= positions[:, None, ..., None])
        offset = k.shape[2] - q.shape[2]
        queries = _at(q, (positions - offset).clamp(0, q.shape[2] - 1)[:, None])
        k, v = _at(k, places), _at(v, places)
        return fused_softmax(queries, k, v, allowed, dropout=self._dropped)


def _at(stream: Tensor, places: Tensor) -> Tensor:
    """The tokens at ``places`` (batch, 1 or heads, ...) of (batch, 1 or heads, tokens, dim)."""
    samples = torch.arange(places.shape[0], device=places.device)
    heads = torch.arange(stream.shape[1], device=places.device)
    extra = (1,) * (places.ndim - 2)
    return stream[samples.view(-1, 1, *extra), heads.view(1, -1, *extra), places]
