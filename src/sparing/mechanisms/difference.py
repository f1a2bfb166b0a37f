"""Difference attention: queries and keys change only where a token differs enough from the last."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.recording import is_logged, report
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms.shared.arithmetic import fused_softmax, wide

Sent = Callable[[Tensor, Tensor | None, float], Tensor]


class Difference(Mechanism):
    """Softmax attention over queries and keys that are sent as differences, small ones left out.

    Formula: out_i = sum_j w_ij v_j with w_ij = softmax over j of q'_i . k'_j / sqrt(dim), and for
    queries and keys alike, each feature by itself: x'_t = x'_(t-1) + d_t with
    d_t = x_t - x'_(t-1) where that is at least ``threshold`` in size, and 0 elsewhere; x'_0 = x_0.

    Symbols: t runs over the real tokens of a row, from its own first one. While a log is open
    (``sparing.record``) the share of the differences that are 0 is reported under
    ``difference_sparsity``, (batch, heads). Hardware that skips zeros would save those products;
    this saving is modelled, not real, here. Causal, only the keys are sent as differences: in
    decoding the earlier queries are not available.

    Cost: as softmax, and a pass over the tokens one by one; it is never cheaper on hardware that
    multiplies zeros too. On an accelerator some 40 log2(tokens) operations replace that pass. With
    threshold=0 it equals softmax. No x' is further than ``threshold`` from its x.

    Source: a reading of DiViT (Li et al., 2022, doi 10.1016/j.sysarc.2022.102520), without access
    to its text: neighbouring patches as differences, lossless. What differs: differences are taken
    from what was sent, not from the neighbour itself, so omitted differences never add up (as in
    delta networks: Neil et al., 2016, arXiv 1612.05571). The threshold comes from delta networks
    too. Values are not touched. Gradients go to the token that was sent; where the choice of tokens
    would change, there is none.
    """

    traits = Traits(
        paper="DiViT: Algorithm and architecture co-design of differential attention in vision "
        "transformer, doi 10.1016/j.sysarc.2022.102520",
        year=2022,
        family="dense",
        causal=True,
        differentiable=False,
        exportable=False,
        onnx=False,
    )
    accelerated = ("accelerator",)

    def __init__(self, heads: Heads, *, threshold: float = 0.1) -> None:
        super().__init__(heads)
        if not 0 <= threshold < math.inf:
            raise UsageError(
                f"difference: threshold must be finite and not negative; got {threshold}"
            )
        self.threshold = threshold
        lossless = threshold == 0
        self.traits = dataclasses.replace(
            type(self).traits,
            exact=lossless,
            permutable=lossless,
            differentiable=lossless,
            exportable=lossless,
            onnx=lossless,
        )

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Queries and keys as received, then exact attention."""
        return self._mixed_as_sent(_sent, q, k, v, mask=mask)

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """What is sent is found without a pass over the tokens one by one."""
        return self._mixed_as_sent(_sent_at_once, *streams, mask=mask)

    def _mixed_as_sent(
        self, sent_of: Sent, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask
    ) -> Float[Tensor, "batch heads queries dim"]:
        queries, keys = q.shape[2], k.shape[2]
        if self.threshold > 0 or is_logged(self):
            streams = [k] if mask.causal else [k, q]
            sent = [sent_of(stream, mask.keep, self.threshold) for stream in streams]
            self._report_sparsity(sent, mask.keep)
            k = _received(k, sent[0])
            q = q if mask.causal else _received(q, sent[1])
        if mask.causal and mask.keep is None and queries == keys:
            return fused_softmax(q, k, v, causal=True)
        return fused_softmax(q, k, v, mask.opened(queries, keys, q.device))

    def cost(self, work: Workload) -> Cost:
        """As softmax, plus difference, size, comparison and choice for each number sent."""
        pairs = work.rows * work.visible_pairs
        sent = work.rows * (work.keys if work.causal else work.keys + work.queries) * work.dim
        outputs = work.rows * work.queries * work.dim * work.element_bytes
        if self.threshold == 0:
            return Cost(4 * pairs * work.dim, 4 * pairs, outputs)
        return Cost(
            matmul_flops=4 * pairs * work.dim,
            other_flops=4 * (pairs + sent),
            peak_bytes=outputs + sent * (1 + 8 + work.element_bytes),
        )

    def _report_sparsity(self, sent: list[Tensor], keep: Tensor | None) -> None:
        if not is_logged(self):
            return
        numbers = torch.cat(sent, 2).float()
        if keep is None:
            report(self, "difference_sparsity", 1 - numbers.mean((2, 3)))
            return
        real = len(sent) * numbers.shape[3] * keep.sum(1).clamp(min=1)
        report(self, "difference_sparsity", 1 - numbers.sum((2, 3)) / real[:, None])


@torch.no_grad()
def _sent(
    stream: Float[Tensor, "batch heads tokens dim"],
    keep: Bool[Tensor, "batch tokens"] | None,
    threshold: float,
) -> Bool[Tensor, "batch heads tokens dim"]:
    """Which numbers are sent: those of a row's first token, then those that changed enough.

    A difference of zero is never sent, nor is anything of a pad.
    """
    tokens = wide(stream).unbind(2)
    last = tokens[0]
    sent = []
    started = torch.zeros_like(last, dtype=torch.bool)
    for position, token in enumerate(tokens):
        moved = token - last
        sends = (moved.abs() >= threshold) & (moved != 0) | ~started
        if keep is not None:
            sends = sends & keep[:, position, None, None]
        last = token.where(sends, last)
        started = started | sends
        sent.append(sends)
    return torch.stack(sent, 2)


@torch.no_grad()
def _sent_at_once(
    stream: Float[Tensor, "batch heads tokens dim"],
    keep: Bool[Tensor, "batch tokens"] | None,
    threshold: float,
) -> Bool[Tensor, "batch heads tokens dim"]:
    """``_sent`` in a number of operations that grows with the logarithm of the tokens.

    After a number that is sent, the next one is the first that differs enough from it. That one is
    looked up for every number, as if it were sent; then those that the first token leads to are
    marked, by steps of doubled length.
    """
    batch, _, tokens, _ = stream.shape
    after = _next_sent(stream, keep, threshold)
    real = stream.new_ones(batch, tokens, dtype=torch.bool) if keep is None else keep
    first = real & (real.cumsum(1) == 1)
    sent = F.pad(first, (0, 1))[:, None, :, None].expand_as(after)
    for _ in range(tokens.bit_length()):
        sent = sent.scatter(2, after.where(sent, tokens), True)
        after = after.gather(2, after)
    return sent[:, :, :tokens] & real[:, None, :, None]


def _next_sent(
    stream: Float[Tensor, "batch heads tokens dim"],
    keep: Bool[Tensor, "batch tokens"] | None,
    threshold: float,
) -> Int[Tensor, "batch heads tokens_and_one dim"]:
    """Where each number, once sent, is followed by the next that is sent; tokens where by none.

    Windows of tokens in which nothing differs enough are skipped, from long ones to short ones; the
    largest and the smallest number of a window decide that.
    """
    tokens, numbers = stream.shape[2], wide(stream)
    windows = _windows(stream, keep)
    index = torch.arange(1, tokens + 1, device=stream.device)[:, None].expand_as(stream)
    for step in reversed(range(len(windows))):
        high, low = (table.gather(2, index.clamp(max=tokens)) for table in windows[step])
        most = torch.maximum(wide(high) - numbers, numbers - wide(low))
        differs = most >= threshold if threshold else most > 0
        index = index + (~differs).to(index.dtype) * 2**step
    return F.pad(index.clamp(max=tokens), (0, 0, 0, 1), value=tokens)


def _windows(
    stream: Float[Tensor, "batch heads tokens dim"], keep: Bool[Tensor, "batch tokens"] | None
) -> list[tuple[Tensor, Tensor]]:
    """The largest and the smallest real numbers of the 1, 2, 4, ... tokens from each one on."""
    tokens = stream.shape[2]
    tables = []
    for missing, larger in ((-torch.inf, torch.maximum), (torch.inf, torch.minimum)):
        real = stream if keep is None else stream.where(keep[:, None, :, None], missing)
        table = [F.pad(real, (0, 0, 0, 1), value=missing)]
        for step in range(1, tokens.bit_length()):
            later = F.pad(
                table[-1][:, :, 2 ** (step - 1) :], (0, 0, 0, 2 ** (step - 1)), value=missing
            )
            table.append(larger(table[-1], later))
        tables.append(table)
    return list(zip(*tables, strict=True))


def _received(
    stream: Float[Tensor, "batch heads tokens dim"], sent: Bool[Tensor, "batch heads tokens dim"]
) -> Float[Tensor, "batch heads tokens dim"]:
    """Each number as last sent; unchanged before the first token."""
    places = torch.arange(stream.shape[2], device=stream.device)[:, None]
    return stream.gather(2, places.where(sent, 0).cummax(2).values)
