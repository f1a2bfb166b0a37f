"""AdaAttention: a small network chooses how many coordinates each head compares, per input."""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.errors import UsageError, require_choice
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.ranks import mean_of
from sparing.core.recording import is_logged, report
from sparing.core.tracing import is_traced
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms.shared.arithmetic import wide
from sparing.mechanisms.shared.scorer import Scorer, logit, mean_of_real
from sparing.mechanisms.shared.widths import Cut, Reach, attend_by_width

SCORES = ("token", "pooled", "global", "random", "fixed")
REDUCE = ("qk", "qkv")
SCALE = ("full", "reduced")


class Adaptive(Mechanism):
    """Heads with a low score compare queries and keys by their first coordinates alone.

    Formula: out_i = sum_j v_j softmax_j(q_i[:w] . k_j[:w] / sqrt(dim)) with w = dim if s >
    threshold, else dim s rounded up to one of ``levels``, or down, to 1 at least, where there are
    none; s = mean over i of sigmoid(MLP(x_i))_h.

    Symbols: x is the layer's input, h the head, MLP two hidden layers of ``scorer_share`` times the
    width. ``scores`` names the source of s: "token" as above, "pooled" sigmoid(MLP(mean of x)),
    "global" one learned number for each head, "random" a random one, "fixed" ``score`` for all.
    Learned ones start about ``score``. ``levels`` widths dim, dim/2, dim/4, ... (0: every width);
    ``reduce`` "qkv" cuts the values too; ``scale`` "reduced" divides by sqrt(w). ``per_query`` cuts
    each query by its own s, which the future does not enter. Training fades the coordinates by
    clamp(dim s - c, 0, 1); ``temperature`` is that of the straight-through threshold. An open
    ``sparing.record`` logs ``score``, ``token_score`` and ``auxiliary_loss``: mean s, or (mean s /
    budget - 1)^2.

    Cost: 2 (w + dim) flops for each pair, or 4 w with ``reduce="qkv"``. For each token ("pooled":
    for each row) 2 width (width/4 + ...) for the scorer. In BERT-base that is more than the cut
    saves below about 690 tokens. Where w depends on the input, ``cost`` is an upper bound: all
    coordinates. Per query, and on an accelerator, nothing is saved. With scores of 1 it equals
    ``softmax``.

    Source: Balajee, "Adaptive Attention Mechanisms for Efficient Transformer Models", sections II.B
    and II.C. What differs: widths count a head's coordinates, not the model's. Nothing is
    interpolated back, since cutting q and k leaves the result whole. With "qkv" zeros replace the
    cut coordinates; an output projection in a rotated basis makes that exact. The printed method
    passes no gradient from the task to the scores, and its loss mean(1 - s) / heads rewards high
    ones. Both are corrected here; ``literal_loss`` uses the printed loss. The mean is over real
    tokens and would leak the future, so learned scores are causal per query only.
    """

    drawn: Tensor
    streams = ("q", "k", "v", "x")
    traits = Traits(
        paper="Adaptive Attention Mechanisms for Efficient Transformer Models",
        year=2025,
        family="dense",
        random=True,
        differentiable=False,
    )
    accelerated = ("accelerator",)

    def __init__(
        self,
        heads: Heads,
        *,
        scores: str = "token",
        score: float = 0.88,
        threshold: float | None = 0.5,
        levels: int = 4,
        reduce: str = "qk",
        scale: str = "full",
        per_query: bool = False,
        scorer_share: float = 0.25,
        temperature: float = 0.1,
        budget: float | None = None,
        literal_loss: bool = False,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(heads)
        self.scores = scores
        self.score = score
        self.threshold = threshold
        self.levels = levels
        self.reduce = reduce
        self.scale = scale
        self.per_query = per_query
        self.scorer_share = scorer_share
        self.temperature = temperature
        self.budget = budget
        self.literal_loss = literal_loss
        self.dropout = dropout
        self.seed = seed
        self._check_options()
        self._from_input = scores in ("token", "pooled")
        self._cut = Cut(heads.dim, threshold, levels, temperature)
        self._create_scores()

    def mix(  # type: ignore[override]  # takes the layer's input as well
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        x: Float[Tensor, "batch tokens width"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Sliced without gradients; otherwise masked, so that gradients reach the scores."""
        self._check_queries(q, x)
        score = self._score(x, mask)
        if not is_traced() and not bool(score.isfinite().all()):
            return q * score.sum()  # the caller then looks for the non-finite value in x
        if self.per_query or self._is_recorded(q, k, v, score):
            return self._masked(q, k, v, score, mask)
        widths = self._cut.widths(score[:, :, 0])
        rescale, values = self.scale == "reduced", self.reduce == "qkv"
        reach = _reach(q, k, mask)
        return attend_by_width(q, k, v, widths, reach, values=values, rescale=rescale)

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """Zeros for what is cut: reading the widths would stall the device."""
        q, k, v, x = streams
        self._check_queries(q, x)
        return self._masked(q, k, v, self._score(x, mask), mask)

    def cost(self, work: Workload) -> Cost:
        """The products at the heads' widths; if the input decides on them, at full width."""
        values = self.reduce == "qkv"
        pairs, dim = work.batch * work.visible_pairs, work.dim
        if self.per_query or self._from_input:
            widths = [dim] * work.heads
        else:
            widths = self._cut.widths(self._own_scores()).tolist()
        rows = {"token": work.batch * work.keys, "pooled": work.batch}.get(self.scores, 0)
        # no fused kernel takes narrower queries than values and skips what causality hides
        square = work.batch * work.queries * work.keys
        products = 0
        for width in widths:
            seen = square if width < dim and not values else pairs
            products += 2 * seen * (width + (width if values else dim))
        scorer = self.scorer.flops(rows) if self._from_input else 0
        copies = 0 if len(set(widths)) == 1 else 3
        numbers = work.rows * work.queries * dim * (1 + copies)
        unfused = any(width < dim for width in widths) and not values
        numbers += min(work.rows * work.queries * work.keys, 1 << 20) if unfused else 0
        return Cost(
            matmul_flops=products + scorer,
            other_flops=4 * work.heads * pairs + 4 * rows * work.heads,
            peak_bytes=numbers * work.element_bytes,
            params=sum(parameter.numel() for parameter in self.parameters()),
            upper_bound=self._from_input and not self.per_query,
        )

    def _create_scores(self) -> None:
        """The scorer, the learned or the random scores, and the traits that follow."""
        self.traits = dataclasses.replace(
            type(self).traits,
            causal=self.per_query or not self._from_input,
            random=self._from_input or self.scores == "random",
            differentiable=self.scores in ("random", "fixed"),
        )
        heads, generator = self.heads, torch.Generator().manual_seed(self.seed)
        width = heads.width or 0
        if self._from_input:
            hidden = max(1, round(width * self.scorer_share))
            self.scorer = Scorer(width, hidden, heads.count, self.score, generator)
        elif self.scores == "global":
            self.logits = nn.Parameter(torch.full((heads.count,), logit(self.score), device="cpu"))
        elif self.scores == "random":
            drawn = torch.rand(heads.count, generator=generator, device="cpu")
            # of eight bits, so that casts to half precision keep the widths
            self.register_buffer("drawn", drawn.bfloat16().float())

    def _own_scores(self) -> Float[Tensor, " heads"]:
        """The heads' scores that do not depend on the input."""
        if self.scores == "fixed":
            return torch.full((self.heads.count,), self.score, dtype=torch.float64)
        return wide(self.drawn if self.scores == "random" else self.logits.sigmoid())

    def _score(
        self, x: Float[Tensor, "batch tokens width"], mask: Mask
    ) -> Float[Tensor, "batch heads queries_or_1"]:
        """The score of each head for each row, or for each query."""
        by_token: Tensor | None = None
        score: Tensor
        if self.scores == "pooled":
            score = self.scorer(mean_of_real(wide(x), mask.keep)).mT
        elif self.scores == "token":
            by_token = self.scorer(x)
            score = mean_of_real(by_token, mask.keep).mT
        else:
            scores = self._own_scores().to(wide(x))
            score = scores[None, :, None].expand(x.shape[0], -1, 1)
        if is_logged(self):
            self._report(score[:, :, 0], by_token)
        return by_token.mT if self.per_query and by_token is not None else score

    def _report(self, score: Float[Tensor, "batch heads"], by_token: Tensor | None) -> None:
        """Report scores to an open log, and the loss where scores are learned."""
        report(self, "score", score)
        if by_token is not None:
            report(self, "token_score", by_token)
        if not (self._from_input or self.scores == "global"):
            return
        if self.literal_loss:
            loss = mean_of(1 - score) / self.heads.count
        elif self.budget is None:
            loss = mean_of(score)
        else:
            loss = (mean_of(score) / self.budget - 1).square()
        report(self, "auxiliary_loss", loss)

    def _is_recorded(self, *tensors: Tensor) -> bool:
        """Whether one path that ignores the widths is needed: for gradients, or to trace."""
        recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        return self.training or recorded or is_traced()

    def _masked(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        score: Float[Tensor, "batch heads queries_or_1"],
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """The same with zeros for cut coordinates: soft in training, else with soft gradients."""
        shares = self._cut.soft(score) if self.training else self._cut.hard(score)
        if score.requires_grad and not self.training:
            soft = self._cut.soft(score)
            shares = shares + (soft - soft.detach())
        if self.scale == "reduced":
            q = q * (self.heads.dim / shares.sum(-1, keepdim=True)).sqrt().to(q.dtype)
        q = q * shares.to(q.dtype)
        v = v * shares.to(v.dtype) if self.reduce == "qkv" else v
        reach = _reach(q, k, mask)
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=reach.allowed,
            is_causal=reach.causal,
            dropout_p=self.dropout if self.training else 0.0,
        )

    def _check_queries(self, q: Tensor, x: Tensor) -> None:
        if self.per_query and x.shape[1] != q.shape[2]:
            raise UsageError(
                f"adaptive: x must have a token for each query, {q.shape[2]}; got {x.shape[1]}"
            )

    def _check_options(self) -> None:
        for name, known in (("scores", SCORES), ("reduce", REDUCE), ("scale", SCALE)):
            require_choice("adaptive", name, getattr(self, name), known)
        learned = self.scores != "fixed"
        if not 0 < self.score <= 1 or (learned and self.score == 1):
            allowed = "in (0, 1); only fixed scores may be 1" if learned else "in (0, 1]"
            raise UsageError(f"adaptive: score must be {allowed}; got {self.score}")
        if self.threshold is not None and not 0 < self.threshold < 1:
            raise UsageError(f"adaptive: threshold must be in (0, 1) or None; got {self.threshold}")
        if self.levels < 0:
            raise UsageError(f"adaptive: levels must not be negative; got {self.levels}")
        for name in ("scorer_share", "temperature"):
            if not getattr(self, name) > 0:
                raise UsageError(f"adaptive: {name} must be above 0; got {getattr(self, name)}")
        if self.budget is not None and not 0 < self.budget <= 1:
            raise UsageError(f"adaptive: budget must be in (0, 1] or None; got {self.budget}")
        if self.budget is not None and self.literal_loss:
            raise UsageError("adaptive: budget and literal_loss exclude each other: choose one")
        if self.per_query and (self.scores == "pooled" or self.reduce == "qkv"):
            raise UsageError(
                "adaptive: per_query needs a score for each query (not scores='pooled') and leaves "
                "values whole (not reduce='qkv'): all queries share them"
            )


def _reach(q: Tensor, k: Tensor, mask: Mask) -> Reach:
    """The keys that the queries may see, as the fused kernels take it."""
    causal = mask.causal and mask.keep is None and q.shape[2] == k.shape[2]
    return Reach(None if causal else mask.opened(q.shape[2], k.shape[2], q.device), causal)
