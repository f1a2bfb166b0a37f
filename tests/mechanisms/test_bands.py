"""Bands, blocks and strides on the path of accelerators: what the generic tests leave out."""

from __future__ import annotations

import pytest
import torch

from sparing import Heads, Mask, mechanism
from sparing.mechanisms.shared.bands import grids, summaries
from sparing.testing.paths import on_path

CASES = (
    ("window", {}),
    ("window", {"radius": 9}),
    ("local", {}),
    ("local", {"block": 40, "look_back": 1, "look_ahead": 2}),
    ("local", {"block": 32, "shifts": (0, 2)}),
    ("longformer", {"global_tokens": (0, 5, -1, 69)}),
    ("longformer", {"radius": 9, "own_projections": False, "global_tokens": (-3, 1)}),
    ("bigbird", {}),
    ("bigbird", {"block": 24, "global_blocks": (2, -2), "random_blocks": 1}),
    ("strided", {}),
    ("strided", {"stride": 20, "combine": "heads"}),
    ("strided", {"stride": 20, "pattern": "fixed", "summary": 3}),
    ("strided", {"stride": 20, "pattern": "fixed", "summary": 3, "combine": "heads"}),
)
cases = pytest.mark.parametrize(("name", "options"), CASES, ids=str)


def built(name, options, heads=2, dim=8):
    torch.manual_seed(1)
    made = mechanism(name, Heads(heads, dim, width=heads * dim), **options).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.3)
    return made


def streams(made, batch, tokens, queries=None):
    heads = made.heads
    shapes = {"x": (batch, tokens, heads.width)}
    inside = (batch, heads.count, tokens, heads.dim)
    given = [torch.randn(shapes.get(name, inside), dtype=torch.float64) for name in made.streams]
    return [given[0][:, :, -(queries or tokens) :], *given[1:]]


def padded(batch, tokens):
    keep = torch.rand(batch, tokens) > 0.2
    keep[0, : tokens // 3] = keep[-1, tokens * 3 // 4 :] = False
    keep[1] = True
    return keep


def agree(made, given, mask, others=("accelerator",)):
    with on_path("cpu"):
        expected = made(*given, mask=mask)
    queries = given[0].shape[2]
    real = torch.ones(()).bool() if mask.keep is None else mask.keep[:, None, -queries:, None]
    for path in others:
        with on_path(path):
            output = made(*given, mask=mask)
        assert output.isfinite().all()
        torch.testing.assert_close(
            output.where(real, 0), expected.where(real, 0), rtol=1e-9, atol=1e-9
        )


@cases
def test_long_rows_and_few_queries(name, options):
    made = built(name, options)
    for causal in (False, True)[: 1 + made.traits.causal]:
        for keep in (None, padded(3, 700)):
            agree(made, streams(made, 3, 700), Mask(keep, causal))
            for queries in (1, 130, 699) if causal else ():
                agree(made, streams(made, 3, 700, queries), Mask(keep, causal))


@cases
@pytest.mark.parametrize("dim", [3, 40, 256])
def test_any_head_and_any_layout(name, options, dim):
    made = built(name, options, dim=dim)
    given = streams(made, 2, 150)
    swapped = [part.transpose(1, 2).contiguous().transpose(1, 2) for part in given]
    shared = [part[:1].expand_as(part) for part in given]
    for tensors in (swapped, shared):
        for mask in (Mask(), Mask(padded(2, 150))):
            agree(made, tensors, mask)


@pytest.mark.parametrize(("name", "options"), [CASES[-4], *CASES[-2:]], ids=str)
def test_in_parts_where_memory_is_short(name, options, monkeypatch):
    requests = []
    for module in (grids, summaries):
        monkeypatch.setattr(module, "parts_of", lambda *given: requests.append(given) or 3)
    made = built(name, options)
    given, keep = streams(made, 2, 330), padded(2, 330)
    for causal in (False, True)[: 1 + made.traits.causal]:
        agree(made, given, Mask(causal=causal))
        agree(made, given, Mask(keep, causal))
    assert requests


@pytest.mark.parametrize("name", ["window", "longformer", "local", "bigbird", "strided"])
def test_a_pattern_that_covers_all_is_dense_attention(name):
    options = {
        "window": {"radius": 10**9},
        "longformer": {"radius": 10**9, "own_projections": False},
        "local": {"block": 10**9},
        "bigbird": {"block": 10**9},
        "strided": {"stride": 10**6},
    }[name]
    made = built(name, options)
    given, dense = streams(made, 2, 70), built("softmax", {})
    for mask in (Mask(), Mask(causal=True), Mask(padded(2, 70))):
        with on_path("accelerator"):
            output = made(*given, mask=mask)
        expected = dense(*given[:3], mask=mask)
        real = torch.ones(()).bool() if mask.keep is None else mask.keep[:, None, :, None]
        torch.testing.assert_close(output.where(real, 0), expected.where(real, 0))


@cases
def test_dropout_drops_in_training_only(name, options):
    made = built(name, {**options, "dropout": 0.5})
    given = streams(made, 1, 150)
    with on_path("accelerator"):
        assert torch.equal(made(*given), made(*given))
        made.train()
        assert not torch.equal(made(*given), made(*given))


def test_the_table_of_bigbird_follows_its_draws():
    made = built("bigbird", {"block": 8})
    given = streams(made, 1, 300)
    agree(made, given, Mask(), ("accelerator", "flex"))
    made.load_state_dict(built("bigbird", {"block": 8, "seed": 7}).state_dict())
    agree(made, given, Mask(), ("accelerator", "flex"))


def test_tables_made_in_inference_serve_training():
    made = built("bigbird", {"block": 8})
    given = streams(made, 1, 300)
    with on_path("accelerator"):
        with torch.inference_mode():
            made(*given)
        given = [part.requires_grad_() for part in given]
        made(*given).sum().backward()
    assert all(part.grad.isfinite().all() for part in given)
