"""Which tokens go on: the most attended ones, or those that a learned gate opens.

A gate returns log-odds for every token. At inference tokens above 0 go on and the others are not
computed any more. In training nothing is dropped: the degree to which a token is open weights the
attention that others pay to it. At 0 and 1 the result is that of dropping, and gradients reach the
gate.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sparing.core.errors import UsageError, nearest
from sparing.layers.packing import Packed
from sparing.layers.plan import Plan

ROUNDING = 1e-9
OPEN = 4.0


class ThresholdGate(nn.Module):
    """Open where the attention that a token receives is above a learned threshold.

    Source: Kim et al., 2022 (LTP), arXiv 2107.00910, section 3: the sigmoid of the distance to the
    threshold over a temperature while it is learned, a step after. What differs: received attention
    is counted in even shares (1 / tokens), so a threshold means the same at every length. The
    sigmoid weights the attention paid to a token instead of its row. The threshold learns ``RATE``
    times as fast as the weights, where the paper gives it a rate of its own.
    """

    asks_attention = True
    flops_per_token = 0
    TEMPERATURE, RATE = 0.1, 50.0

    def __init__(self, width: int, layer: int) -> None:
        super().__init__()
        # rising with depth, as in the paper; 0 would leave the sigmoid no slope to learn from
        self.part = nn.Parameter(torch.tensor(0.05 * layer / self.RATE))

    @property
    def threshold(self) -> Float[Tensor, ""]:
        """The least received attention of an open token, in even shares."""
        return self.part * self.RATE

    def forward(
        self, rows: Float[Tensor, "rows width"], received: Float[Tensor, " rows"]
    ) -> Float[Tensor, " rows"]:
        """Log-odds that each token is open; ``received`` in even shares."""
        return (received - self.threshold) / self.TEMPERATURE

    def soft(self, odds: Float[Tensor, " rows"]) -> Float[Tensor, " rows"]:
        """The degree to which each token is open while the gate learns."""
        return odds.sigmoid()


class SkimGate(nn.Module):
    """Open according to a small network on the token's own row.

    Source: Guan et al., 2022 (Transkimmer), arXiv 2205.07324, section 4: two linear layers with a
    norm and GELU, and a loss on the share of open tokens. While it is learned, the decision is
    sampled with Gumbel noise and straight-through gradients. What differs: one log-odds instead of
    two logits, which is the same decision. Closed tokens do not come back at the end, since the
    answer is read from the first token, which is always open.
    """

    asks_attention = False

    def __init__(self, width: int, layer: int) -> None:
        super().__init__()
        hidden = max(1, width // 2)
        self.norm = nn.LayerNorm(width)
        self.rise = nn.Linear(width, hidden)
        self.fall = nn.Linear(hidden, 1)
        # open at first, so that training begins at the dense model
        nn.init.zeros_(self.fall.weight)
        nn.init.constant_(self.fall.bias, OPEN)

    @property
    def flops_per_token(self) -> int:
        """FLOPs of the two products for one token; a multiply-add is 2."""
        return 2 * (self.rise.weight.numel() + self.fall.weight.numel())

    def forward(
        self, rows: Float[Tensor, "rows width"], received: Float[Tensor, " rows"] | None
    ) -> Float[Tensor, " rows"]:
        """Log-odds that each token is open."""
        seen = nn.functional.gelu(self.rise(self.norm(rows)))
        odds: Tensor = self.fall(seen)
        return odds.squeeze(-1)

    def soft(self, odds: Float[Tensor, " rows"]) -> Float[Tensor, " rows"]:
        """0 or 1, sampled with those odds in training; gradients are those of the sigmoid."""
        if self.training:
            even = torch.rand_like(odds).clamp(1e-6, 1 - 1e-6)
            odds = odds + even.logit()
        slope = odds.sigmoid()
        return (odds > 0).to(odds.dtype) + slope - slope.detach()


class RandomGate(nn.Module):
    """The control: open for a random share of the tokens."""

    asks_attention = False
    flops_per_token = 0

    def __init__(self, width: int, layer: int) -> None:
        super().__init__()
        self.share: Tensor
        self.register_buffer("share", torch.tensor(1.0))

    def forward(
        self, rows: Float[Tensor, "rows width"], received: Float[Tensor, " rows"] | None
    ) -> Float[Tensor, " rows"]:
        """Above 0 for the share."""
        return self.share - torch.rand(len(rows), device=rows.device, dtype=rows.dtype)

    def soft(self, odds: Float[Tensor, " rows"]) -> Float[Tensor, " rows"]:
        """0 or 1; there is nothing to learn."""
        return (odds > 0).to(odds.dtype)


GATES: dict[str, type[Any]] = {
    "threshold": ThresholdGate,
    "skim": SkimGate,
    "random": RandomGate,
}
"""LTP's learned thresholds, Transkimmer's small networks, and the random control."""


def new_gate(kind: str, width: int, layer: int) -> nn.Module:
    """A gate after layer ``layer``; raises ``UsageError`` for an unknown kind."""
    if kind not in GATES:
        known = ", ".join(GATES)
        raise UsageError(f"gates are of the kinds {known}, not {kind!r}{nearest(kind, GATES)}")
    gate: nn.Module = GATES[kind](width, layer)
    return gate


def open_tokens(odds: Float[Tensor, " rows"], layout: Packed) -> Bool[Tensor, " rows"]:
    """Which rows a gate opens: those of log-odds above 0, and each sequence's first."""
    opened = odds > 0
    opened[layout.starts] = True
    return opened


def kept_tokens(
    received: Float[Tensor, "batch tokens"], layout: Packed, plan: Plan, least: int = 1
) -> Bool[Tensor, " rows"]:
    """Which rows go on: each sequence's most attended tokens, and always its first.

    The earlier token wins a tie. ``least`` tokens of each sequence go on in any case.
    """
    real = layout.keep
    # a sequence of NaN keeps its first tokens
    order = received.nan_to_num(nan=0.0).masked_fill(~real, -1.0)
    order[:, :1] = torch.inf
    # 0.55 times 100 is a little above 55, which must not round up to 56
    counts = (layout.lengths.double() * plan.tokens_kept - ROUNDING).ceil().clamp(min=least)
    places = order.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    chosen = places < counts[:, None]
    if plan.tokens_above > 0:
        enough = received * layout.lengths[:, None] >= plan.tokens_above
        chosen = chosen & (enough | (places < least))
    return chosen[real]
