"""An analytic bound on the error of cut queries and keys, beside the true error: it is vacuous.

The cut removes x W x^T from a head's scores, where W is the part of W_q W_k^T outside its largest
singular values. Norms bound it: |x_i W x_j| <= s |x_i| |x_j| with s the largest discarded value.
Two softmaxes with scores that differ by at most e have a total variation of at most tanh(e / 2).
A bound e on every score therefore bounds the output by 2 tanh(e / 2) R, with R the radius of the
values around their mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.record import Label, Record, measured
from sparing.experiment.run import Cell
from sparing.transfer.layers import AttentionLayer, find_layers, projection_weights
from sparing_papers.adaattention.arms import Work
from sparing_papers.adaattention.names import FULL

EXAMPLES = 40
KEPT_SHARES = (0.75, 0.5, 0.25)
TIGHT = 0.1
SATURATED = 0.99


def certificate_cell(work: Work, seed: int) -> Cell:
    """Bound and error of the full model's heads on the task's inputs, in float64."""

    def do() -> list[Record]:
        model = work.open(FULL, seed)
        rows: dict[float, list[Tensor]] = {share: [] for share in KEPT_SHARES}
        for index in range(min(EXAMPLES, len(work.task.test))):
            batch = work.task.collate([work.task.test[index]])
            batch.pop("labels")
            for layer, x in _inputs(model, batch):
                for share in KEPT_SHARES:
                    rows[share].append(head_errors(layer, x, share))
        labels: dict[str, Label] = {"task": work.name, "arm": FULL}
        records: list[Record] = []
        for share, parts in rows.items():
            records += _summary(torch.cat(parts, 1), {**labels, "kept_share": share})
        return records

    return Cell(f"{work.name}/certificate", do)


@torch.no_grad()
def _inputs(
    model: nn.Module, batch: Mapping[str, Tensor]
) -> list[tuple[AttentionLayer, Float[Tensor, "tokens width"]]]:
    """The input of each attention layer for one example."""
    layers, seen = find_layers(model), []

    def listen(layer: AttentionLayer) -> Any:
        def hook(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            x = given[0] if given else named["hidden_states"]
            seen.append((layer, x[0].double()))

        return layer.module.register_forward_pre_hook(hook, with_kwargs=True)

    handles = [listen(layer) for layer in layers]
    try:
        model(**batch)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def head_errors(
    layer: AttentionLayer, x: Float[Tensor, "tokens width"], share: float
) -> Float[Tensor, "quantities rows"]:
    """For each head and query: score error, its bound, output error, its bound, trivial bound, |o|.

    Biases count as the weights of one more feature that is always 1.
    """
    weights = {name: value.double() for name, value in projection_weights(layer).items()}
    ones = torch.cat([x, x.new_ones(len(x), 1)], 1)
    q_weight, k_weight, v_weight = (_by_head(weights, stream, layer) for stream in "qkv")
    rank = max(1, round(share * layer.dim))
    scale = layer.dim**-0.5
    # The factors q_weight^T = A r_a, k_weight^T = B r_b make the SVD one of dim x dim.
    (a, r_a), (b, r_b) = (torch.linalg.qr(weight.mT) for weight in (q_weight, k_weight))
    left, sizes, right = torch.linalg.svd(r_a @ r_b.mT)
    left, right = left[..., rank:], right.mT[..., rank:]
    cut = sizes[..., rank:]
    from_q = ones @ a @ left
    from_k = ones @ b @ right
    lost = scale * (from_q * cut[:, None]) @ from_k.mT
    scores = scale * (ones @ q_weight.mT) @ (ones @ k_weight.mT).mT
    values = ones @ v_weight.mT
    out, cut_out = scores.softmax(-1) @ values, (scores - lost).softmax(-1) @ values
    norms = ones.norm(dim=-1)
    largest = cut[:, :1] if cut.shape[1] else cut.new_zeros(len(cut), 1)
    score_bound = scale * largest * norms * norms.max()
    radius = (values - values.mean(1, keepdim=True)).norm(dim=-1).amax(1, keepdim=True)
    bound = 2 * (score_bound / 2).tanh() * radius
    quantities = (
        lost.abs().amax(-1),
        score_bound,
        (out - cut_out).norm(dim=-1),
        bound,
        (2 * radius).expand_as(bound),
        out.norm(dim=-1),
    )
    return torch.stack([quantity.flatten() for quantity in quantities])


def _by_head(
    weights: Mapping[str, Tensor], stream: str, layer: AttentionLayer
) -> Float[Tensor, "heads dim width_and_one"]:
    weight = weights[stream].view(layer.heads, layer.dim, -1)
    bias = weights.get(f"{stream}_bias", weight.new_zeros(layer.heads * layer.dim))
    return torch.cat([weight, bias.view(layer.heads, layer.dim, 1)], -1)


def _summary(rows: Float[Tensor, "quantities rows"], labels: dict[str, Label]) -> list[Record]:
    """Means, the bound over the error, and how often the bound is not trivial."""
    score, score_bound, error, bound, trivial, size = rows
    quantities = {
        "score_error": score.mean(),
        "score_error_bound": score_bound.mean(),
        "output_error": (error / size).mean(),
        "output_error_bound": (bound / size).mean(),
        "bound_over_error": bound.mean() / error.mean(),
        "bound_saturated": (bound >= SATURATED * trivial).double().mean(),
        "certified": (bound <= TIGHT * size).double().mean(),
        "truly_small": (error <= TIGHT * size).double().mean(),
    }
    return measured(
        labels, "ratio", rows.shape[1], **{name: float(value) for name, value in quantities.items()}
    )
