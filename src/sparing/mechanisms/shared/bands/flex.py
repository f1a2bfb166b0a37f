"""FlexAttention over blocks of tokens that a pattern leaves: their lists without any square."""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sparing.core.execution.path import Call, PathFailed
from sparing.core.mask import Mask
from sparing.mechanisms.shared.bands.windows import Globals

BLOCK = 128
"""Tokens in a block of FlexAttention's lists; its kernels' tiles divide it."""
MOST_COMPILED = 64
"""Kernels that are compiled in a process; a call that needs another one is refused."""
_MOST_MASKS = 32
_FAR = 1 << 30

_lock = threading.Lock()
_masks: OrderedDict[tuple[object, ...], tuple[Any, Any, object]] = OrderedDict()
_compiled: dict[str, Any] = {}
_counted = {"compiled": 0}


def compilations() -> int:
    """How many kernels of FlexAttention were compiled in this process, forward ones."""
    return _counted["compiled"]


def limit(call: Call, dropout: float) -> str:
    """Why FlexAttention does not serve a call of a block pattern; empty if it does."""
    if dropout:
        return "FlexAttention has no dropout"
    if call.traced:
        return "a graph that is recorded keeps no lists of blocks"
    if call.device != "cpu" and call.queries < BLOCK:
        return f"fewer than {BLOCK} queries gain nothing"
    return ""


Sees = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Whether a query sees a key: of indices (batch, head, query, key), tensors of any shape."""


@dataclass(frozen=True)
class Pattern:
    """Which pairs of a query and a key are seen, as a function and as a map of blocks.

    ``some`` and ``all`` say whether a block of queries sees something, and all, of a block of keys.
    """

    sees: Sees
    some: Bool[Tensor, "batch_or_1 heads_or_1 rows columns"]
    all: Bool[Tensor, "batch_or_1 heads_or_1 rows columns"]
    block: int = BLOCK


def attend(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    key: tuple[object, ...],
    keep: Tensor | None,
    pattern: Callable[[], Pattern],
    owner: object = None,
) -> Float[Tensor, "batch heads queries dim"]:
    """Softmax attention over the pairs of a pattern; zeros where a query sees no key.

    The lists of blocks are remembered by ``key``, the identity of ``owner``, lengths, device and
    the pads ``keep``. Raises ``PathFailed`` where a kernel cannot be compiled or started.
    """
    size = (q.shape[2], k.shape[2])
    lists = _listed((*key, id(owner), *size, q.device), keep, size, pattern, owner)
    if q.device.type == "cpu":
        with _eager() as flex:
            mixed: Tensor = flex(q, k, v, block_mask=lists)
        return mixed
    try:
        return _run(q, k, v, lists)
    except torch.OutOfMemoryError:
        raise
    except Exception as cause:
        raise PathFailed(str(cause)) from cause


def _run(q: Tensor, k: Tensor, v: Tensor, lists: Any) -> Tensor:
    """One callable for all mechanisms; PyTorch compiles it anew for new kinds of calls."""
    from torch._dynamo import config
    from torch._dynamo.utils import counters

    with _lock:
        if "flex" not in _compiled:
            from torch.nn.attention.flex_attention import flex_attention

            build: Any = torch.compile  # beyond the limit it raises: its plain form has squares
            _compiled["flex"] = build(flex_attention, fullgraph=True)
    before = counters["stats"]["unique_graphs"]
    with config.patch(recompile_limit=MOST_COMPILED, accumulated_recompile_limit=_FAR):
        mixed: Tensor = _compiled["flex"](q, k, v, block_mask=lists)
    _counted["compiled"] += counters["stats"]["unique_graphs"] - before
    return mixed


@contextmanager
def _eager() -> Iterator[Any]:
    """FlexAttention step by step, for tests on a processor; its advice to compile is left out."""
    from torch.nn.attention import flex_attention as module

    name = "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"
    with _lock, warnings.catch_warnings(), torch.no_grad():
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
        known = getattr(module, name, None)
        if known is not None:
            setattr(module, name, True)
        try:
            yield module.flex_attention
        finally:
            if known is not None:
                setattr(module, name, known)


def _listed(
    key: tuple[object, ...],
    keep: Tensor | None,
    size: tuple[int, int],
    pattern: Callable[[], Pattern],
    owner: object,
) -> Any:
    """The lists of blocks of a pattern, remembered; those of pads while these exist unchanged.

    The owner is remembered as well, so that no other object gets its identity.
    """
    if keep is not None:
        key = (*key, id(keep), None if keep.is_inference() else keep._version)
    with _lock:
        lists, known, _ = _masks.get(key, (None, None, None))
        if lists is not None and (keep is None or known() is keep) and None not in key[-1:]:
            _masks.move_to_end(key)
            return lists
    with torch.inference_mode(False):
        lists = block_lists(pattern(), size)
    with _lock:
        _masks[key] = lists, None if keep is None else ref(keep), owner
        while len(_masks) > _MOST_MASKS:
            _masks.popitem(last=False)
    return lists


def block_lists(pattern: Pattern, size: tuple[int, int]) -> Any:
    """A ``BlockMask`` of a pattern for ``size`` queries and keys, from its map of blocks."""
    from torch.nn.attention.flex_attention import BlockMask

    partial, whole = (_ordered(part) for part in (pattern.some & ~pattern.all, pattern.all))
    return BlockMask.from_kv_blocks(
        *partial,
        *whole,
        BLOCK_SIZE=pattern.block,
        mask_mod=pattern.sees,
        seq_lengths=size,
    )


def _ordered(
    chosen: Bool[Tensor, "batch heads rows columns"],
) -> tuple[Int[Tensor, "batch heads rows"], Int[Tensor, "batch heads rows columns"]]:
    """How many blocks each row has, and their numbers before all others."""
    order = chosen.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return chosen.sum(-1).to(torch.int32), order.to(torch.int32)


@dataclass(frozen=True)
class _Ends:
    """Positions of the first and the last token of each block of queries and of keys."""

    first_query: Tensor
    last_query: Tensor
    first_key: Tensor
    last_key: Tensor
    complete: Tensor

    @classmethod
    def of(cls, size: tuple[int, int], block: int, device: torch.device) -> _Ends:
        """The queries are at the last positions of the keys."""
        queries, keys = size
        rows = torch.arange(-(-queries // block), device=device)[:, None] * block
        columns = torch.arange(-(-keys // block), device=device) * block
        complete = (rows + block <= queries) & (columns + block <= keys)
        offset = keys - queries
        last_row = (rows + (block - 1)).clamp(max=queries - 1)
        last_column = (columns + (block - 1)).clamp(max=keys - 1)
        return cls(rows + offset, last_row + offset, columns, last_column, complete)


def band(
    size: tuple[int, int],
    before: int,
    after: int,
    marked: Bool[Tensor, "batch_or_1 keys"] | None,
    keep: Bool[Tensor, "batch keys"] | None,
    device: torch.device,
) -> Pattern:
    """Kept keys up to ``before`` behind and ``after`` ahead, and marked ones anywhere.

    Causal, where ``after`` is 0, these are seen from behind them. Numbers are read from a tensor:
    one kernel serves all widths and lengths.
    """
    queries, keys = size
    limit_of_marked = _FAR if after else 0
    bounds = torch.tensor([-before, after, keys - queries, limit_of_marked], device=device)
    bounds = bounds.to(torch.int32)
    ends = _Ends.of(size, BLOCK, device)
    some = (ends.first_key <= ends.last_query + after) & (
        ends.last_key >= ends.first_query - before
    )
    full = (ends.last_key <= ends.first_query + after) & (
        ends.first_key >= ends.last_query - before
    )
    some, full = some[None, None], (full & ends.complete)[None, None]
    if marked is not None:
        past = ends.first_key <= ends.last_query + limit_of_marked
        some = some | (_by_block(marked, BLOCK).any(2)[:, None, None] & past)
    if keep is not None:
        real = _by_block(keep, BLOCK)
        some = some & real.any(2)[:, None, None]
        full = full & real.all(2)[:, None, None]
    return Pattern(_sees_band(bounds, marked, keep), some, full)


# A function of its own for each set of tensors, since PyTorch compiles a kernel for each. They are
# lambdas because FlexAttention counts their parameters, which a checked function hides.
def _sees_band(bounds: Tensor, marked: Tensor | None, keep: Tensor | None) -> Sees:
    """``Pattern.sees`` of a band."""
    first, last, offset, limit_of_marked = bounds.unbind()
    if marked is None and keep is None:
        return lambda b, h, i, j: (j - i - offset >= first) & (j - i - offset <= last)
    if marked is None:
        real = keep
        assert real is not None
        return lambda b, h, i, j: (j - i - offset >= first) & (j - i - offset <= last) & real[b, j]
    if keep is None:
        row = marked[0]
        return lambda b, h, i, j: (
            ((j - i - offset >= first) & (j - i - offset <= last))
            | (row[j] & (j - i - offset <= limit_of_marked))
        )
    return lambda b, h, i, j: (
        (
            ((j - i - offset >= first) & (j - i - offset <= last))
            | (marked[b, j] & (j - i - offset <= limit_of_marked))
        )
        & keep[b, j]
    )


def table(
    size: tuple[int, int],
    seen: Bool[Tensor, "batch_or_1 heads rows columns"],
    block: int,
    causal: bool,
    keep: Bool[Tensor, "batch keys"] | None,
) -> Pattern:
    """Kept keys of the blocks that a block of queries sees by a table, causal up to the query.

    Blocks of ``block`` tokens count from the first key. Some of them together, or one of a multiple
    of ``BLOCK``, are a block of FlexAttention's lists; ``fits`` says whether that is possible.
    """
    queries, keys = size
    group = max(1, BLOCK // block)
    whole = group * block
    ends = _Ends.of(size, whole, seen.device)
    bounds = torch.tensor([keys - queries, 0 if causal else _FAR], device=seen.device)
    bounds = bounds.to(torch.int32)
    rows = (ends.first_query // block, ends.last_query // block)
    spread = -(-seen.shape[3] // group) * group - seen.shape[3]
    of_columns = torch.unflatten(F.pad(seen, (0, spread)), 3, (-1, group))
    any_column, all_columns = of_columns.any(4), of_columns.all(4)
    some = _over_rows(any_column, rows, seen.shape[2], least=False)
    full = _over_rows(all_columns, rows, seen.shape[2], least=True) & ends.complete
    if causal:
        some = some & (ends.first_key <= ends.last_query)
        full = full & (ends.last_key <= ends.first_query)
    if keep is not None:
        real = _by_block(keep, whole)
        some = some & real.any(2)[:, None, None]
        full = full & real.all(2)[:, None, None]
        seen = seen.expand(keep.shape[0], -1, -1, -1)
    return Pattern(_sees_table(bounds, seen, block, keep), some, full, whole)


def fits(block: int) -> bool:
    """Whether blocks of a table can be joined to blocks of FlexAttention's lists."""
    return BLOCK % block == 0 or block % BLOCK == 0


def _over_rows(
    flags: Tensor, rows: tuple[Tensor, Tensor], count: int, *, least: bool
) -> Bool[Tensor, "batch_or_1 heads rows columns"]:
    """Whether any (``least``: all) of the rows of a table from one to another have a flag."""
    order = torch.arange(count, device=flags.device)
    member = (order >= rows[0]) & (order <= rows[1])
    hits = member.float() @ flags.float()
    return hits >= member.sum(1, keepdim=True) if least else hits > 0


def _sees_table(bounds: Tensor, seen: Tensor, block: int, keep: Tensor | None) -> Sees:
    """``Pattern.sees`` of a table."""
    offset, last = bounds.unbind()
    if keep is None:
        shared = seen[0]
        return lambda b, h, i, j: (
            shared[h, (i + offset) // block, j // block] & (j - i - offset <= last)
        )
    return lambda b, h, i, j: (
        seen[b, h, (i + offset) // block, j // block] & (j - i - offset <= last) & keep[b, j]
    )


def _by_block(flags: Bool[Tensor, "batch keys"], block: int) -> Bool[Tensor, "batch blocks block"]:
    return torch.unflatten(F.pad(flags, (0, -flags.shape[1] % block)), 1, (-1, block))


def attend_in_band(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    mask: Mask,
    radius: int,
    marked: Globals | None,
    named: tuple[int, ...] = (),
) -> Float[Tensor, "batch heads queries dim"]:
    """``attend`` over a band of ``radius`` and marked tokens, which ``named`` describes."""
    size, keep = (q.shape[2], k.shape[2]), mask.keep
    before, after = min(radius, size[1]), 0 if mask.causal else min(radius, size[1])

    def pattern() -> Pattern:
        flags = None
        if marked is not None:
            order = torch.arange(size[1], device=q.device)
            flags = marked.places.unsqueeze(2) == order
            flags = flags if marked.real is None else flags & marked.real.unsqueeze(2)
            flags = flags.any(1)
        return band(size, before, after, flags, None if keep is None else keep.clone(), q.device)

    key = ("band", before, after, mask.causal, named)
    return attend(q, k, v, key, keep, pattern)
