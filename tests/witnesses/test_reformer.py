"""Reformer against transformers and reformer-pytorch with their rotations, and their faults."""

from __future__ import annotations

import importlib
import math

import pytest
import torch
import torch.nn.functional as F

from sparing import Heads, Mask, mechanism
from tests.witnesses import witness

pytestmark = pytest.mark.slow

HEADS, DIM, CHUNK, TOKENS = 2, 8, 8, 64


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def hugging_face(**options):
    """Its layer with one round; it wraps around to another round's chunk where there are more."""
    modeling = importlib.import_module("transformers.models.reformer.modeling_reformer")
    config = importlib.import_module("transformers").ReformerConfig(
        hidden_size=HEADS * DIM,
        num_attention_heads=HEADS,
        attention_head_size=DIM,
        lsh_attn_chunk_length=CHUNK,
        num_buckets=8,
        **{"num_hashes": 1, "hash_seed": 5, "is_decoder": False, **options},
    )
    layer = modeling.LSHSelfAttention(config).double().eval()
    # It adds 1e-6 to the mean square of a key: keys must not be small.
    layer.query_key.weight.data.normal_()
    return layer


def require_equal(output, expected):
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-6)


def projected(layer, x):
    return (
        part(x).view(len(x), -1, HEADS, DIM).transpose(1, 2)
        for part in (layer.query_key, layer.value)
    )


def joined(mixed):
    return mixed.transpose(1, 2).flatten(2)


def with_rotations(rotations, **options):
    """Our mechanism with the witness's rotations."""
    heads, dim, rounds, columns = rotations.shape
    options = {"chunk": CHUNK, "buckets": max(1, 2 * columns), "rounds": rounds, **options}
    made = mechanism("reformer", Heads(heads, dim), **options).double().eval()
    made.rotations.copy_(rotations)
    return made


def seeded_draw(seed, *shape):
    torch.manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64)


def test_equals_transformers():
    layer = hugging_face()
    x = torch.randn(2, TOKENS, HEADS * DIM, dtype=torch.float64)
    made = with_rotations(seeded_draw(5, HEADS, DIM, 1, 4))
    require_equal(joined(made(*projected(layer, x))), layer(x).hidden_states)


def test_equals_transformers_in_one_chunk():
    layer = hugging_face(num_hashes=4)
    x = torch.randn(2, CHUNK, HEADS * DIM, dtype=torch.float64)
    made = with_rotations(torch.zeros(HEADS, DIM, 4, 4).double())
    require_equal(joined(made(*projected(layer, x))), layer(x).hidden_states)


def test_transformers_lets_pads_change_the_result_and_we_do_not():
    layer = hugging_face()
    x = torch.randn(1, TOKENS, HEADS * DIM, dtype=torch.float64)
    keep, real = torch.arange(TOKENS)[None] < 48, slice(0, 48)
    padded = layer(x, attention_mask=keep.long()).hidden_states[:, real]
    cropped = layer(x[:, real]).hidden_states
    assert (padded - cropped).abs().max() > 1e-3
    made = with_rotations(seeded_draw(5, HEADS, DIM, 1, 4))
    whole = made(*projected(layer, x), mask=Mask(keep))
    alone = made(*projected(layer, x[:, real]))
    torch.testing.assert_close(whole[:, :, real], alone, rtol=1e-10, atol=1e-10)


def test_transformers_lets_the_future_through():
    layer = hugging_face(is_decoder=True, num_hashes=2)
    x = torch.randn(1, TOKENS, HEADS * DIM, dtype=torch.float64)
    changed = x.clone()
    changed[:, 40:] = changed[:, 40:] * 2 + 1
    gap = layer(x).hidden_states - layer(changed).hidden_states
    assert gap[:, :40].abs().max() > 1e-3


def test_transformers_differs_from_call_to_call_without_a_seed_and_needs_whole_chunks():
    layer = hugging_face(hash_seed=None)
    x = torch.randn(1, TOKENS, HEADS * DIM, dtype=torch.float64)
    assert not torch.equal(layer(x).hidden_states, layer(x).hidden_states)
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        layer(x[:, : TOKENS - 3])


@pytest.mark.parametrize("count_once", [False, True])
def test_equals_reformer_pytorch(count_once):
    """Its scores are divided by sqrt(dim); other buckets hidden, its wrap to other rounds is."""
    package = witness("reformer_pytorch.reformer_pytorch")
    layer = package.LSHAttention(
        bucket_size=CHUNK,
        n_hashes=3,
        attend_across_buckets=False,
        allow_duplicate_attention=not count_once,
    ).eval()
    q, v = (torch.randn(4, TOKENS, DIM, dtype=torch.float64) for _ in "qv")
    rotations = seeded_draw(7, 1, DIM, 3, TOKENS // CHUNK // 2)
    torch.manual_seed(7)
    expected = layer(q * math.sqrt(DIM), v)[0]
    made = with_rotations(rotations.expand(4, -1, -1, -1), same_bucket=True, count_once=count_once)
    torch.testing.assert_close(made(q[None], v[None])[0], expected, rtol=1e-6, atol=1e-7)


def test_equals_the_full_attention_of_reformer_pytorch():
    package = witness("reformer_pytorch.reformer_pytorch")
    q, v = (torch.randn(4, 50, DIM, dtype=torch.float64) for _ in "qv")
    expected = package.FullQKAttention()(q * math.sqrt(DIM), v)[0]
    made = with_rotations(torch.zeros(4, DIM, 4, 0).double(), chunk=64)
    torch.testing.assert_close(made(q[None], v[None])[0], expected, rtol=1e-9, atol=1e-9)


def test_reformer_pytorch_needs_pairs_of_whole_chunks_and_has_no_seed():
    package = witness("reformer_pytorch.reformer_pytorch")
    layer = package.LSHAttention(bucket_size=CHUNK, n_hashes=2).eval()
    q, v = torch.randn(1, TOKENS, DIM), torch.randn(1, TOKENS, DIM)
    assert not torch.equal(layer(q, v)[0], layer(q, v)[0])
    with pytest.raises(AssertionError, match="divisible"):
        layer(q[:, : TOKENS - CHUNK], v[:, : TOKENS - CHUNK])


def test_reformer_pytorch_lets_the_future_through():
    package = witness("reformer_pytorch.reformer_pytorch")
    layer = package.LSHAttention(bucket_size=CHUNK, n_hashes=2, causal=True).eval()
    q, v = F.normalize(torch.randn(1, TOKENS, DIM), dim=-1), torch.randn(1, TOKENS, DIM)
    outputs = []
    for scale in (1, -1):
        changed = torch.cat([q[:, :40], scale * q[:, 40:]], 1)
        torch.manual_seed(3)
        outputs.append(layer(changed, v)[0][:, :40])
    assert (outputs[0] - outputs[1]).abs().max() > 1e-3
