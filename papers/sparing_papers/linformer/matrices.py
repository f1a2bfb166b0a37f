"""Attention matrices of a model: queries, keys and values as they come, spectra, and the bounds."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sparing.core.mechanism import Mechanism
from sparing.transfer.swap import swap

if TYPE_CHECKING:
    from transformers import PreTrainedModel

HALF_MOST = 4 / 27  # the largest that e^2 - e^3 becomes, at e = 2/3


@dataclass(frozen=True)
class Captured:
    """What one layer's attention was given: each (batch, heads, tokens, dim), in float64."""

    q: Float[Tensor, "batch heads tokens dim"]
    k: Float[Tensor, "batch heads tokens dim"]
    v: Float[Tensor, "batch heads tokens dim"]

    @property
    def weights(self) -> Float[Tensor, "batch heads tokens tokens"]:
        """The attention matrices: softmax of q k^T / sqrt(dim)."""
        return (self.q @ self.k.mT / math.sqrt(self.q.shape[-1])).softmax(-1)

    @property
    def output(self) -> Float[Tensor, "batch heads tokens dim"]:
        """What exact attention gives."""
        return self.weights @ self.v

    def part(self, chosen: slice) -> Captured:
        """Some of the inputs."""
        return Captured(self.q[chosen], self.k[chosen], self.v[chosen])


def captured(model: PreTrainedModel, rows: Int[Tensor, "batch tokens"]) -> list[Captured]:
    """Queries, keys and values of each layer of a dense model on whole rows, layer by layer.

    The model is left as it is: a copy in float64 runs.
    """
    clone = copy.deepcopy(model).double().eval()
    swap(clone, "softmax")
    layers: list[Captured] = []

    def keep(module: Any, streams: tuple[Tensor, ...]) -> None:
        layers.append(Captured(*(stream.detach().clone() for stream in streams)))

    hooks = [
        module.register_forward_pre_hook(keep)
        for module in clone.modules()
        if isinstance(module, Mechanism)
    ]
    with torch.no_grad():
        clone(input_ids=rows, attention_mask=torch.ones_like(rows))
    for hook in hooks:
        hook.remove()
    return layers


def spectrum(
    weights: Float[Tensor, "*batch tokens tokens"],
) -> Float[Tensor, "*batch tokens"]:
    """Singular values, as shares of their sum, the largest first; in float64."""
    values: Tensor = torch.linalg.svdvals(weights.double())
    return values / values.sum(-1, keepdim=True)


def effective_rank(shares: Float[Tensor, "*batch tokens"]) -> Float[Tensor, "*batch"]:
    """The exponential of the entropy of the shares.

    Source: Roy and Vetterli, 2007, "The effective rank: a measure of effective dimensionality".
    """
    rank: Tensor = torch.special.entr(shares).sum(-1).exp()
    return rank


def rank_holding(
    shares: Float[Tensor, "*batch tokens"], share: float = 0.9
) -> Float[Tensor, "*batch"]:
    """The least number of singular values that together are so much of the sum."""
    below = (shares.cumsum(-1) < share - 1e-12).sum(-1) + 1
    return below.double()


def theorem_1_error(tokens: int, slots: int) -> float | None:
    """The e in (0, 2/3] of theorem 1 at k = ``slots``; None where it has no solution.

    Solves k = 5 ln(n) / (e^2 - e^3). The right side is least at e = 2/3, so that with fewer than
    33.75 ln(n) slots the theorem says nothing.

    Source: Wang et al., 2020, arXiv 2006.04768, theorem 1 and its proof.
    """
    goal = 5 * math.log(tokens) / slots
    if goal > HALF_MOST:
        return None
    low, high = 0.0, 2 / 3
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if middle**2 - middle**3 < goal else (low, middle)
    return high


def theorem_2_error(tokens: int, slots: int, dim: int) -> float:
    """The e of theorem 2 at k = ``slots``: min of 9 d ln(d) and 5 ln(n), over e^2, is k.

    The theorem has both terms up to a constant, which is 1 here.

    Source: Wang et al., 2020, arXiv 2006.04768, theorem 2.
    """
    terms = [5 * math.log(tokens)]
    if dim > 1:
        terms.append(9 * dim * math.log(dim))
    return math.sqrt(min(terms) / slots)


def on_output(layer: Captured) -> Float[Tensor, "batch heads"]:
    """What turns theorem 2's e into a relative error of a head's output.

    The theorem bounds a row's error by e |p| |V|, p being its weights. Over all rows that is
    e |P| |V| / |PV| of the output, in Frobenius norms.
    """
    weights = layer.weights
    top: Tensor = _norm(weights) * _norm(layer.v)
    return top / _norm(weights @ layer.v)


def relative_error(
    output: Float[Tensor, "batch heads tokens dim"], exact: Float[Tensor, "batch heads tokens dim"]
) -> Float[Tensor, "batch heads"]:
    """The Frobenius norm of the difference over that of what is wanted; answering 0 has error 1."""
    return _norm(output - exact) / _norm(exact)


def best_of_rank(layer: Captured, ranks: Sequence[int]) -> list[Float[Tensor, "batch heads"]]:
    """The output's error with the matrix of each rank that is nearest to the attention matrix."""
    weights, exact = layer.weights, layer.output
    left, values, right = torch.linalg.svd(weights, full_matrices=False)
    inner = right @ layer.v
    errors = []
    for rank in ranks:
        truncated = left[..., :rank] * values[..., None, :rank]
        errors.append(relative_error(truncated @ inner[..., :rank, :], exact))
    return errors


def _norm(stack: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.matrix_norm(stack)
    return norm
