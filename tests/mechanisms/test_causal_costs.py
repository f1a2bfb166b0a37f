"""What a causal call costs, the last block included, which is computed whole."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from sparing import Mask
from sparing.core.catalogue import mechanism_class
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
