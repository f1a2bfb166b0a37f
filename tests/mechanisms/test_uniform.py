"""The mean of the visible values: by hand, against softmax of nothing, and on long rows."""

from __future__ import annotations

import pytest
import torch

from sparing import Heads, Mask, Workload, mechanism
from sparing.mechanisms.uniform import running_sums
from sparing.testing.paths import on_path


def streams(tokens, batch=2, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(3, batch, 2, tokens, 4, generator=generator, dtype=torch.float64)
    return drawn.to(dtype).unbind()


def test_by_hand():
    made = mechanism("uniform", Heads(1, 1))
    v = torch.tensor([3.0, 5.0, 10.0, 2.0]).view(1, 1, 4, 1)
    keep = torch.tensor([[False, True, True, True]])
    assert made(v, v, v).flatten().tolist() == [5, 5, 5, 5]
    assert made(v, v, v, mask=Mask(causal=True)).flatten().tolist() == [3, 4, 6, 5]
    out = made(v, v, v, mask=Mask(keep, causal=True)).flatten()
    torch.testing.assert_close(out, torch.tensor([0, 5, 7.5, 17 / 3]))


@pytest.mark.parametrize("causal", [False, True])
def test_is_softmax_for_queries_of_zero(causal):
    q, k, v = streams(37)
    keep = torch.ones(2, 37, dtype=torch.bool)
    keep[0, 30:] = keep[1, :4] = keep[1, 20:23] = False
    mask = Mask(keep, causal)
    output = mechanism("uniform", Heads(2, 4))(q, k, v, mask=mask)
    expected = mechanism("softmax", Heads(2, 4))(torch.zeros_like(q), k, v, mask=mask)
    torch.testing.assert_close(
        output.where(keep[:, None, :, None], 0), expected.where(keep[:, None, :, None], 0)
    )


def test_cross_attention_gives_every_query_the_same():
    q, k, v = streams(12)
    out = mechanism("uniform", Heads(2, 4))(q[:, :, :5], k, v)
    torch.testing.assert_close(out, v.mean(2, keepdim=True).expand(-1, -1, 5, -1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_long_half_precision_rows_keep_their_digits(dtype, causal):
    """The sum passes float16's largest number; in bfloat16 a running sum would stop growing."""
    v = torch.full((1, 1, 5000, 4), 100.0, dtype=dtype)
    out = mechanism("uniform", Heads(1, 4))(v, v, v, mask=Mask(causal=causal))
    assert torch.equal(out, v)


@pytest.mark.parametrize(("count", "keys"), [(1, 1), (1, 300), (128, 128), (129, 140), (300, 300)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_sums_by_chunks_are_running_sums(count, keys, dtype):
    v = streams(keys, dtype=dtype)[2]
    for given in (v, v.clone().requires_grad_()):
        sums = running_sums(given, count)
        expected = v.double().cumsum(2)[:, :, keys - count :]
        assert sums.dtype == (dtype if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(sums.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_last_queries_on_an_accelerator(dtype):
    q, k, v = streams(150, dtype=dtype)
    keep = torch.ones(2, 150, dtype=torch.bool)
    keep[0, :20] = keep[1, 140:] = False
    for mask in (Mask(causal=True), Mask(keep, causal=True)):
        outputs = []
        for path in ("accelerator", "cpu"):
            with on_path(path):
                outputs.append(mechanism("uniform", Heads(2, 4))(q[:, :, 15:], k, v, mask=mask))
        torch.testing.assert_close(*outputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_long_half_precision_rows_keep_their_digits_on_an_accelerator(dtype, causal):
    v = torch.full((1, 1, 5000, 4), 100.0, dtype=dtype)
    with on_path("accelerator"):
        out = mechanism("uniform", Heads(1, 4))(v, v, v, mask=Mask(causal=causal))
    assert torch.equal(out, v)


def test_the_output_can_be_written_to():
    q, k, v = streams(6)
    out = mechanism("uniform", Heads(2, 4))(q, k, v)
    out[:, :, 0] = 0
    assert out[:, :, 1].abs().sum() > 0


def test_cost_is_linear():
    made = mechanism("uniform", Heads(2, 4))
    for causal in (False, True):
        once, twice = (made.cost(Workload(1, 2, n, n, 4, causal=causal)) for n in (512, 1024))
        assert once.matmul_flops == 0
        assert twice.other_flops == 2 * once.other_flops
        assert twice.peak_bytes == 2 * once.peak_bytes
