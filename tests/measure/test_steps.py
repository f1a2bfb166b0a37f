"""The products of a call, in order, each kind once."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from sparing import Heads, mechanism
from sparing.measure.flops import count_flops
from sparing.measure.steps import Step, count_steps


def test_equal_products_are_merged_where_they_first_come():
    def call():
        a, b = torch.ones(2, 3), torch.ones(3, 4)
        (a @ b) @ torch.ones(4, 5)
        a @ b

    first, second = count_steps(call)
    assert first == Step("mm", ((2, 3), (3, 4)), 2, 2 * 2 * 2 * 3 * 4)
    assert second == Step("mm", ((2, 4), (4, 5)), 1, 2 * 2 * 4 * 5)
    assert first.describe() == "mm (2, 3) (3, 4), 2 calls"


def test_fused_attention_is_one_step():
    q, k = torch.ones(1, 2, 8, 4), torch.ones(1, 2, 6, 4)
    (step,) = count_steps(lambda: F.scaled_dot_product_attention(q, k, k))
    assert (step.operation, step.shapes[0]) == ("attention", (1, 2, 8, 4))
    assert step.flops == 4 * 2 * 8 * 6 * 4


def test_they_sum_to_the_whole():
    made = mechanism("longformer", Heads(2, 8, tokens=600)).eval()
    streams = [torch.ones(1, 600, 16) if s == "x" else torch.ones(1, 2, 600, 8) for s in "qkvx"]
    streams = streams[: len(made.streams)]

    def call():
        with torch.no_grad():
            made(*streams)

    assert sum(step.flops for step in count_steps(call)) == count_flops(call) > 0
