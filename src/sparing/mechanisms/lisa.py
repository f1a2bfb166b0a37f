"""LISA: every token becomes a few codewords, and attention runs over how often each was seen."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.errors import UsageError
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms.shared.arithmetic import wide
from sparing.mechanisms.shared.products import in_parts, recorded, wide_product, wide_type

_LEAST_SCORE = -80.0
"""Weights of a table are at least exp(-80) = 2e-35 times the largest of their row."""
_LEAST_TOTAL = 1e-37


class Lisa(Mechanism):
    """Attention over the codewords of a few codebooks, each weighted by its count so far.

    Formula: out_t = sum_b sum_w n_t[b,w] exp(s_w) value_bw / sum_w n_t[b,w] exp(s_w) with
    s_w = query_bu . key_bw / sqrt(dim), where u = argmax_w x_t . c_bw is the code of token t.

    Symbols: x is the layer's input, c_bw codeword w of book b, as wide as x; query, key and value
    are its projections and start as the layer's own. n_t[b,w] counts the tokens with code w that t
    may see: all, or causally those up to t. There are ``books`` of ``codewords`` each, sampled with
    ``seed``. ``temperature`` divides x . c / sqrt(width) where gradients treat the code as soft.

    Cost: 2 books codewords (width + heads dim) flops for each token, causal or not. With one book
    that has the tokens as codewords it equals ``softmax``; always, dense attention over the
    codewords that the tokens are replaced by, book by book.

    Source: Wu et al., 2021, arXiv 2105.14068, section 4. What differs: there the quantised input is
    a table of items, here it is the layer's input. So this is self-attention only, and the layer's
    queries, keys and values are not used. Similarity is the dot product (the authors' Euclidean one
    adds up coordinates instead of their squares). Pads count for nothing. Codes are hard, with
    straight-through gradients: finite, not true ones. They are taken from codewords rounded to
    eight bits of precision, which casts to half precision keep. On accelerators and without
    gradients, causal weights of a code end at exp(-80) times its largest.
    """

    streams = ("q", "x")
    traits = Traits(
        paper="Linear-Time Self Attention with Codeword Histogram, arXiv 2105.14068",
        year=2021,
        family="hashing",
        causal=True,
        random=True,
        differentiable=False,
    )
    accelerated = ("accelerator",)

    def __init__(
        self,
        heads: Heads,
        *,
        books: int = 8,
        codewords: int = 64,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__(heads)
        for name, number in (("books", books), ("codewords", codewords)):
            if number < 1:
                raise UsageError(f"lisa: {name} must be at least 1; got {number}")
        if not temperature > 0:
            raise UsageError(f"lisa: temperature must be above 0; got {temperature}")
        self.books = books
        self.codewords = codewords
        self.temperature = temperature
        self.seed = seed
        assert heads.width is not None
        self._width = heads.width
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(books, codewords, heads.width, generator=generator, device="cpu")
        # The codewords of a token, one from each book, add up to the size of a normalised token.
        self.codebooks = _parameter(drawn / math.sqrt(books))
        inner = heads.count * heads.dim
        drawn = torch.rand(3, inner, heads.width, generator=generator, device="cpu") * 2 - 1
        self.projections = _parameter(drawn / math.sqrt(heads.width))
        self.biases = nn.Parameter(torch.zeros(3, inner))

    def init_from(self, weights: dict[str, Tensor]) -> None:
        """Start the codewords' projections as the layer's; values share its bias among books."""
        with torch.no_grad():
            for number, name in enumerate("qkv"):
                if name not in weights:
                    continue  # the layer keeps its projections in an unknown form
                self.projections[number] = weights[name]
                share = self.books if name == "v" else 1
                if f"{name}_bias" in weights:
                    self.biases[number] = weights[f"{name}_bias"] / share

    def mix(  # type: ignore[override]  # keys and values are those of the codewords
        self,
        q: Float[Tensor, "batch heads queries dim"],
        x: Float[Tensor, "batch tokens width"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Codes, their counts, then a softmax over the codewords of each book."""
        codes = self._codes(wide(x))
        seen = codes if mask.keep is None else codes.where(mask.keep[:, :, None, None], 0)
        counts = seen.cumsum(1) if mask.causal else seen.sum(1, keepdim=True)
        queries, keys, values = self._projected(codes.dtype)
        tables = queries @ keys.mT / math.sqrt(self.heads.dim)
        mixed = codes.new_zeros(q.shape[0], q.shape[1], codes.shape[1], q.shape[3])
        for book in range(self.books):
            scores = _rows(codes[:, :, book], tables[book])
            weights = _weighted(scores, counts[:, None, :, book])
            totals = weights.sum(-1, keepdim=True)
            mixed = mixed + weights @ values[book] / totals.masked_fill(totals == 0, 1)
        return mixed[:, :, -q.shape[2] :].to(q.dtype)

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """All books at once; without gradients and causality by one answer for each codeword."""
        q, x = streams
        dtype = torch.float32 if x.dtype == torch.float16 else x.dtype  # counts need its range
        codes = self._codes_at_once(x).to(dtype)
        seen = codes if mask.keep is None else codes * mask.keep[:, :, None, None]
        wide, queries = wide_type(dtype), q.shape[2]
        if mask.causal:
            counts = seen.cumsum(1, dtype=wide)[:, -queries:]
        else:
            counts = seen.sum(1, keepdim=True, dtype=wide)
        rows, keys, values = self._projected(wide).transpose(1, 2)
        tables, codes = rows @ keys.mT / math.sqrt(self.heads.dim), codes[:, -queries:]
        if recorded(codes, tables, values):
            mixed = _with_gradients(codes, counts, tables, values)
        elif mask.causal:
            mixed = _counted(codes, counts, tables, values)
        else:
            mixed = _answered(codes, counts, tables, values)
        return mixed.to(q.dtype)

    def cost(self, work: Workload) -> Cost:
        """Codes of the tokens, projections and products of the codewords, and their mixture."""
        words, tokens = self.books * self.codewords, work.batch * work.keys
        inner = work.heads * work.dim
        tables = 6 * words * self._width * inner + 2 * words * self.codewords * inner
        pairs = tokens * words
        held = 3 * tokens * words + 3 * words * inner + 2 * tokens * inner
        held += work.heads * (words + 4 * tokens) * self.codewords
        return Cost(
            matmul_flops=2 * pairs * (self._width + inner) + tables,
            other_flops=3 * pairs + 5 * pairs * work.heads + 2 * self.books * tokens * inner,
            peak_bytes=held * max(4, work.element_bytes),
            params=words * self._width + 3 * inner * (self._width + 1),
        )

    def _codes(
        self, x: Float[Tensor, "batch tokens width"]
    ) -> Float[Tensor, "batch tokens books codewords"]:
        """One at each token's code, zero elsewhere; in backward passes a softmax over the book."""
        books = self.codebooks.to(x.dtype)
        books = books + (self.codebooks.detach().bfloat16().to(x.dtype) - books.detach())
        scores = x @ books.flatten(0, 1).mT / math.sqrt(self._width)
        scores = scores.view(*x.shape[:2], self.books, self.codewords)
        words = torch.arange(self.codewords, device=x.device)
        codes = (scores.argmax(-1, keepdim=True) == words).to(x.dtype)
        if not scores.requires_grad:
            return codes
        soft = (scores / self.temperature).softmax(-1)
        return codes + (soft - soft.detach())

    def _codes_at_once(
        self, x: Float[Tensor, "batch tokens width"]
    ) -> Float[Tensor, "batch tokens books codewords"]:
        """``_codes`` in the type of x, from products with x as it is."""
        rounded = self.codebooks.detach().bfloat16().to(self.codebooks.dtype)
        books = (self.codebooks + (rounded - self.codebooks.detach())).to(x.dtype)
        scores = wide_product(x, books.flatten(0, 1).mT)
        scores = scores.view(*x.shape[:2], self.books, self.codewords)
        words = torch.arange(self.codewords, device=x.device)
        codes = (scores.argmax(-1, keepdim=True) == words).to(x.dtype)
        if not recorded(scores):
            return codes
        soft = (scores / (math.sqrt(self._width) * self.temperature)).softmax(-1).to(x.dtype)
        return codes + (soft - soft.detach())

    def _projected(self, dtype: torch.dtype) -> Float[Tensor, "3 books heads codewords dim"]:
        """Queries, keys and values of all codewords."""
        words = self.codebooks.to(dtype).flatten(0, 1)
        rows = words @ self.projections.to(dtype).mT + self.biases.to(dtype).unsqueeze(1)
        shape = (3, self.books, self.codewords, self.heads.count, self.heads.dim)
        return rows.view(shape).transpose(2, 3)


def _parameter(drawn: Tensor) -> nn.Parameter:
    return nn.Parameter(torch.empty(drawn.shape).copy_(drawn))


def _rows(
    codes: Float[Tensor, "batch tokens codewords"],
    table: Float[Tensor, "heads codewords codewords"],
) -> Float[Tensor, "batch heads tokens codewords"]:
    """The scores of each token's code: looked up, or as a product where gradients pass."""
    if codes.requires_grad:
        return codes.unsqueeze(1) @ table
    return table[:, codes.argmax(-1)].transpose(0, 1)


def _weighted(
    scores: Float[Tensor, "batch heads *books tokens codewords"],
    counts: Float[Tensor, "batch 1 *books rows codewords"],
) -> Float[Tensor, "batch heads *books tokens codewords"]:
    """counts exp(scores), scaled so that the largest score that was seen gives its count."""
    largest = scores.detach().masked_fill(counts == 0, -math.inf).amax(-1, keepdim=True)
    return counts * (scores - largest).clamp(max=0).exp()


def _answered(
    codes: Float[Tensor, "batch tokens books codewords"],
    counts: Float[Tensor, "batch 1 books codewords"],
    tables: Float[Tensor, "heads books codewords codewords"],
    values: Float[Tensor, "heads books codewords dim"],
) -> Float[Tensor, "batch heads tokens dim"]:
    """The answer of each codeword, in each book, for all tokens that have it."""
    weights = (tables + counts.log()[:, :, :, None]).softmax(-1).nan_to_num(0)
    answers = (weights @ values).to(codes.dtype).permute(0, 2, 3, 1, 4)
    mixed = codes.flatten(2) @ answers.flatten(3).flatten(1, 2)
    return mixed.view(*codes.shape[:2], len(tables), -1).transpose(1, 2)


def _counted(
    codes: Float[Tensor, "batch tokens books codewords"],
    counts: Float[Tensor, "batch tokens books codewords"],
    tables: Float[Tensor, "heads books codewords codewords"],
    values: Float[Tensor, "heads books codewords dim"],
) -> Float[Tensor, "batch heads tokens dim"]:
    """Each token's counts times the weights of its code: a row of a table, at least exp(-80)."""
    weights = (tables - tables.amax(-1, keepdim=True)).clamp_(min=_LEAST_SCORE).exp_()
    books, words = codes.shape[2:]
    rows = codes.argmax(-1) + torch.arange(books, device=codes.device) * words
    shares = weights.flatten(1, 2).to(codes.dtype)[:, rows].mul_(counts)
    shares.div_(shares.sum(-1, keepdim=True, dtype=counts.dtype).clamp_min_(_LEAST_TOTAL))
    return _exactly(shares.flatten(3), values.flatten(1, 2)[:, None]).transpose(0, 1)


def _with_gradients(
    codes: Float[Tensor, "batch tokens books codewords"],
    counts: Float[Tensor, "batch rows books codewords"],
    tables: Float[Tensor, "heads books codewords codewords"],
    values: Float[Tensor, "heads books codewords dim"],
) -> Float[Tensor, "batch heads tokens dim"]:
    """Scores as products with codes, which gradients pass; a codeword without a count is out."""
    dtype = codes.dtype
    scores = codes.transpose(1, 2)[:, None].to(tables.dtype) @ tables
    weights = _weighted(scores, counts.transpose(1, 2)[:, None])
    totals = weights.sum(-1, keepdim=True)
    shares = (weights / totals.masked_fill(totals == 0, 1)).to(dtype)
    return _exactly(shares, values).sum(2)


def _exactly(
    shares: Float[Tensor, "*#rows tokens codewords"], values: Float[Tensor, "*#rows codewords dim"]
) -> Float[Tensor, "... tokens dim"]:
    """``shares @ values`` without rounding the values to half precision."""
    parts = in_parts(values, shares.dtype, 2)
    mixed = wide_product(shares, torch.cat(parts, -1))
    return mixed.view(*mixed.shape[:-1], len(parts), -1).sum(-2)
