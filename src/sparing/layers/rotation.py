"""Other bases for the coordinates of a head, in which its first ones carry most of the scores.

Both keep q k^T, so they can be folded into the weights that make q and k and cost nothing at run
time. They cannot be used under rotary positions or per-channel norms of q and k.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from sparing.core.errors import UsageError

# Directions with less than this share of the largest variance are raised to it.
_FLOOR = 1e-6


def rotation(
    q_covariance: Float[Tensor, "*heads dim dim"],
    k_covariance: Float[Tensor, "*k_heads k_dim k_dim"],
) -> Float[Tensor, "*heads dim dim"]:
    """The orthogonal R for each head with which the first coordinates of q R and k R carry most.

    Formula: C_q^(1/2) C_k^(1/2) = U S V^T; R = U, its columns ordered by
    (U^T C_q U)_cc (U^T C_k U)_cc, the mean square that coordinate c adds to a score.

    Symbols: C_q = mean of q^T q over tokens, and C_k the same for keys minus their mean: a part
    common to all keys adds one number to all scores of a query, which cancels in a softmax. Fold by
    W_q <- W_q R and W_k <- W_k R, biases too: (q R)(k R)^T = q k^T. Raises ``UsageError`` for
    matrices that are not square, equal in shape, symmetric and finite.

    Source: own; the singular vectors as in the weighted low-rank approximation of Srebro and
    Jaakkola, 2003. What differs: one orthogonal basis for q and k. It is the best one where the two
    covariances have common axes; ``bases`` is the best pair always.
    """
    q_root, k_root = _roots(q_covariance, k_covariance)
    left, _, _ = torch.linalg.svd(q_root @ k_root)
    order = energies(q_covariance, k_covariance, left, left).argsort(-1, descending=True)
    ordered: Tensor = left.gather(-1, order.unsqueeze(-2).expand_as(left))
    return ordered.to(q_covariance.dtype)


def bases(
    q_covariance: Float[Tensor, "*heads dim dim"],
    k_covariance: Float[Tensor, "*k_heads k_dim k_dim"],
) -> tuple[Float[Tensor, "*heads dim dim"], Float[Tensor, "*heads dim dim"]]:
    """The pair A, B for each head with which the first coordinates of q A and k B carry most.

    Formula: C_q^(1/2) C_k^(1/2) = U S V^T; A = C_q^(-1/2) U S^(1/2), B = C_k^(-1/2) V S^(1/2).

    Symbols: as for ``rotation``. A B^T = 1, so (q A)(k B)^T = q k^T; neither is orthogonal. Among
    all scores of rank r the first r coordinates give those with the least mean square error, the
    sum of S_c^2 over the rest. Raises ``UsageError`` as ``rotation`` does.
    """
    q_root, k_root = _roots(q_covariance, k_covariance)
    left, sizes, right = torch.linalg.svd(q_root @ k_root)
    scale = sizes.sqrt().unsqueeze(-2)
    for_q = torch.linalg.solve(q_root, left) * scale
    for_k = torch.linalg.solve(k_root, right.mT) * scale
    return for_q.to(q_covariance.dtype), for_k.to(k_covariance.dtype)


def energies(
    q_covariance: Float[Tensor, "*heads dim dim"],
    k_covariance: Float[Tensor, "*heads dim dim"],
    q_basis: Float[Tensor, "*heads dim dim"],
    k_basis: Float[Tensor, "*heads dim dim"],
) -> Float[Tensor, "*heads dim"]:
    """The mean square of each coordinate's part in a score, for independent q and k."""
    for_q, for_k = (
        ((covariance.double() @ basis.double()) * basis.double()).sum(-2)
        for covariance, basis in ((q_covariance, q_basis), (k_covariance, k_basis))
    )
    return for_q * for_k


def _roots(q_covariance: Tensor, k_covariance: Tensor) -> tuple[Tensor, Tensor]:
    """The symmetric square roots, in float64."""
    if q_covariance.shape != k_covariance.shape:
        shapes = f"{tuple(q_covariance.shape)} and {tuple(k_covariance.shape)}"
        raise UsageError(f"rotation: the covariances of q and k differ in shape: {shapes}")
    return _root("q", q_covariance.double()), _root("k", k_covariance.double())


def _root(name: str, covariance: Tensor) -> Tensor:
    if not bool(covariance.isfinite().all()):
        raise UsageError(f"rotation: the covariance of {name} is not finite")
    if not torch.allclose(covariance, covariance.mT, rtol=1e-4, atol=1e-6):
        raise UsageError(f"rotation: the covariance of {name} is not symmetric")
    values, vectors = torch.linalg.eigh((covariance + covariance.mT) / 2)
    least = (values[..., -1:] * _FLOOR).clamp(min=torch.finfo(values.dtype).tiny)
    roots = values.clamp(min=least).sqrt()
    root: Tensor = (vectors * roots.unsqueeze(-2)) @ vectors.mT
    return root
