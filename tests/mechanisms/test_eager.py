"""The entropy that may be penalised: from one key for all to all keys alike."""

from __future__ import annotations

import math

import pytest
import torch

import sparing
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.mechanisms.eager import Eager


def reported(mask=None, spread=1.0, training=True, count=6):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, count, 4, generator=generator).double() * spread for _ in range(3))
    mechanism = Eager(Heads(3, 4), penalise_entropy=True).train(training)
    q.requires_grad_(True)
    with sparing.record(mechanism) as log:
        mechanism(q, k, v, mask=mask or Mask())
    losses = [value for name, (value, *_) in log.items() if name.endswith("auxiliary_loss")]
    weights = next(value for name, (value, *_) in log.items() if name.endswith("weights"))
    return losses[0] if losses else None, weights, q


def by_hand(weights, visible):
    """Row by row; ``visible`` are the keys that each query of each sample may see."""
    total = torch.zeros(weights.shape[:2], dtype=torch.float64)
    for batch, head in torch.cartesian_prod(*map(torch.arange, weights.shape[:2])).tolist():
        rows = []
        for query, keys in enumerate(visible[batch]):
            if keys is None:
                continue
            parts = [float(w) for w in weights[batch, head, query] if w > 0]
            entropy = -sum(w * math.log(w) for w in parts)
            rows.append(entropy / math.log(keys) if keys > 1 else 0.0)
        total[batch, head] = sum(rows) / len(rows)
    return total


def test_the_entropy_is_that_of_its_definition():
    entropy, weights, _ = reported()
    torch.testing.assert_close(entropy.detach(), by_hand(weights.detach(), [[6] * 6] * 2))


def test_causal_rows_are_shares_of_what_they_see():
    entropy, weights, _ = reported(Mask(causal=True))
    torch.testing.assert_close(
        entropy.detach(), by_hand(weights.detach(), [[1, 2, 3, 4, 5, 6]] * 2)
    )


def test_pads_do_not_count():
    keep = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    entropy, weights, _ = reported(Mask(keep=keep))
    visible = [[6] * 6, [4] * 4 + [None] * 2]
    torch.testing.assert_close(entropy.detach(), by_hand(weights.detach(), visible))


def test_it_goes_from_nothing_to_one():
    even, _, _ = reported(spread=0.0)
    torch.testing.assert_close(even.detach(), torch.ones(2, 3, dtype=torch.float64))
    sharp, _, q = reported(spread=60.0)
    assert float(sharp.detach().max()) < 0.05
    sharp.sum().backward()
    assert bool(q.grad.isfinite().all())


def test_minimising_it_makes_attention_sparse():
    q = reported()[2]
    k = torch.randn(2, 3, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mechanism = Eager(Heads(3, 4), penalise_entropy=True)
    q = q.detach().requires_grad_(True)
    optimiser = torch.optim.SGD([q], lr=5.0)
    losses = []
    for _ in range(30):
        with sparing.record(mechanism) as log:
            mechanism(q, k, k, mask=Mask())
        loss = next(v for n, (v, *_) in log.items() if n.endswith("auxiliary_loss")).mean()
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert losses[-1] < 0.7 * losses[0]


def test_nothing_is_reported_unless_asked_or_in_evaluation():
    assert reported(training=False)[0] is None
    mechanism = Eager(Heads(1, 4)).train()
    x = torch.randn(1, 1, 3, 4)
    with sparing.record(mechanism) as log:
        mechanism(x, x, x, mask=Mask())
    assert not any(name.endswith("auxiliary_loss") for name in log)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_finite(dtype):
    mechanism = Eager(Heads(1, 4), penalise_entropy=True).train()
    x = (torch.randn(1, 1, 5, 4) * 30).to(dtype)
    with sparing.record(mechanism) as log:
        mechanism(x, x, x, mask=Mask())
    loss = next(v for n, (v, *_) in log.items() if n.endswith("auxiliary_loss"))
    assert bool(loss.isfinite().all())
