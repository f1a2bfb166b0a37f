"""What a causal call costs, the last block included, which is computed whole."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from sparing import Mask
from sparing.core.catalogue import mechanism, mechanism_class
from sparing.core.heads import Heads
from sparing.core.workload import Workload
from sparing.measure.flops import count_flops
from sparing.testing.subject import DIM, HEADS, streams
from sparing.testing.subjects import subjects


@pytest.mark.parametrize("name", ["linear", "kerformer", "efficient", "cosformer", "ecoformer"])
@pytest.mark.parametrize("tokens", [64, 65, 130])
def test_causal_products_are_those_that_are_executed(name, tokens):
    for subject in subjects(name, mechanism_class(name)):
        made = subject.make().float()
        if not made.traits.causal:
            continue
        tensors = streams(made, 2, tokens, dtype=torch.float32)
        with torch.no_grad():
            counted = count_flops(partial(made, *tensors, mask=Mask(causal=True)))
        work = Workload(2, HEADS, tokens, tokens, DIM, causal=True)
        assert made.cost(work).matmul_flops == counted


@pytest.mark.parametrize("options", [{"scores": "fixed", "score": 0.5}, {"scores": "random"}])
def test_narrower_queries_than_values_multiply_the_whole_square(options):
    made = mechanism("adaptive", Heads(HEADS, DIM, width=HEADS * DIM), threshold=None, **options)
    made.eval()
    tensors = streams(made, 2, 64, dtype=torch.float32)
    with torch.no_grad():
        counted = count_flops(partial(made, *tensors, mask=Mask(causal=True)))
    work = Workload(2, HEADS, 64, 64, DIM, causal=True)
    assert made.cost(work).matmul_flops == pytest.approx(counted, rel=0.01)


def test_shapes_can_be_told_without_numbers():
    made = mechanism("softmax", Heads(HEADS, DIM)).to("meta")
    q = torch.empty(2, HEADS, 9, DIM, device="meta")
    assert made(q, q, q).shape == q.shape
