"""BigBird against transformers (with its pattern) and flex_attention; the faults of the former."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

from sparing import Heads, Mask, mechanism
from sparing.mechanisms._seen_blocks import NONE
from sparing.testing.entries.bigbird import seen_blocks

pytestmark = pytest.mark.slow

HEADS, DIM, BLOCK, TOKENS = 3, 8, 4, 64


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


class HuggingFace:
    """Its block-sparse core in float64, and the random blocks that it drew last."""

    def __init__(self, training, random_blocks=3, block=BLOCK, longest=4096):
        modeling = importlib.import_module("transformers.models.big_bird.modeling_big_bird")
        config = importlib.import_module("transformers").BigBirdConfig(
            hidden_size=HEADS * DIM,
            num_attention_heads=HEADS,
            block_size=block,
            num_random_blocks=random_blocks,
            max_position_embeddings=longest,
        )
        self.layer = modeling.BigBirdBlockSparseAttention(config, seed=7).double()
        self.layer.train(training)
        self.masks = modeling.BigBirdModel.create_masks_for_block_sparse_attn
        self.block, self.random_blocks = block, random_blocks
        self.drawn = None
        inner = self.layer.torch_gather_b2

        def gather(blocks, drawn):
            self.drawn = drawn[0]
            return inner(blocks, drawn)

        self.layer.torch_gather_b2 = gather

    def __call__(self, q, k, v, keep):
        blocked, band, rows, columns = self.masks(keep.double(), self.block)
        tokens = q.shape[2]
        before = np.random.get_state()  # noqa: NPY002
        try:
            mixed, self.weights = self.layer.bigbird_block_sparse_attention(
                *(q.clone(), k, v),
                *(band, rows, columns, blocked, blocked),
                *(HEADS, self.random_blocks, DIM, self.block, self.block),
                *(len(q), tokens, tokens),
                seed=7,
                plan_from_length=None,
                plan_num_rand_blocks=None,
            )
        finally:
            self.draws_from_numpy = bool((before[1] != np.random.get_state()[1]).any())  # noqa: NPY002
            np.random.set_state(before)  # noqa: NPY002
        return mixed.transpose(1, 2)


def streams(tokens=TOKENS, batch=2):
    return [torch.randn(batch, HEADS, tokens, DIM, dtype=torch.float64) for _ in "qkv"]


def with_pattern(drawn, blocks):
    """Our mechanism, its random blocks replaced by those of the witness, duplicates once."""
    made = mechanism("bigbird", Heads(HEADS, DIM), block=BLOCK).eval()
    table = torch.full((1, HEADS, blocks, 8), NONE)
    for head in range(HEADS):
        for row in range(blocks):
            seen = {0, blocks - 1} | {j for j in (row - 1, row, row + 1) if 0 <= j < blocks}
            if 0 < row < blocks - 1:
                seen |= set(drawn[head, row - 1].tolist())
            table[0, head, row, : len(seen)] = torch.tensor(sorted(seen))
    made._chosen = lambda rows, count, causal: table
    return made


@pytest.mark.parametrize("kind", ["none", "right"])
def test_equals_transformers_in_training_mode(kind):
    reference, (q, k, v) = HuggingFace(training=True), streams()
    keep = torch.ones(2, TOKENS, dtype=torch.bool)
    if kind == "right":  # within the last block: shorter rows have other blocks with us
        keep[1, -BLOCK + 1 :] = False
    expected = reference(q, k, v, keep)
    made = with_pattern(reference.drawn, TOKENS // BLOCK)
    output = made(q, k, v, mask=Mask(None if kind == "none" else keep))
    real = keep[:, None, :, None]
    torch.testing.assert_close(output.where(real, 0), expected.where(real, 0), rtol=1e-9, atol=1e-9)


def test_their_evaluation_counts_the_first_block_again_and_again():
    """Why we differ: their random blocks are all block 0 in evaluation, each counted anew."""
    reference, (q, k, v) = HuggingFace(training=False), streams()
    keep = torch.ones(2, TOKENS, dtype=torch.bool)
    expected = reference(q, k, v, keep)
    assert not reference.drawn.any()
    once = mechanism("bigbird", Heads(HEADS, DIM), block=BLOCK, random_blocks=0)(q, k, v)
    assert (once - expected).abs().max() > 0.01
    inner = slice(BLOCK, -BLOCK)
    logits = q[:, :, inner] @ k.mT / DIM**0.5
    blocks = torch.arange(TOKENS) // BLOCK
    near = (blocks[inner, None] - blocks).abs() <= 1
    near |= (blocks == 0) | (blocks == blocks[-1])
    counted_four_times = logits + (blocks == 0).double() * np.log(4)
    explained = counted_four_times.where(near, -torch.inf).softmax(-1) @ v
    torch.testing.assert_close(expected[:, :, inner], explained, rtol=1e-9, atol=1e-9)
    made = mechanism("bigbird", Heads(HEADS, DIM), block=BLOCK).eval()
    assert all(len(row) > 4 for row in seen_blocks(made, 0, 16, causal=False)), "random in eval too"


def test_their_training_draws_from_the_global_generator():
    """Why we differ: our generator is private (see the contract), their forward seeds NumPy's."""
    reference = HuggingFace(training=True)
    reference(*streams(), torch.ones(2, TOKENS, dtype=torch.bool))
    assert reference.draws_from_numpy


def test_their_plan_for_1024_tokens_counts_the_last_block_twice():
    """Why we differ: at 1,024 tokens a random block may be the last, which is global already."""
    reference = HuggingFace(training=True, block=64)
    reference(*streams(1024, 1), torch.ones(1, 1024, dtype=torch.bool))
    assert (reference.drawn[:, 1:11] == 15).any()


def test_their_shapes_are_bound_to_whole_blocks():
    """Why we differ: any length is served."""
    reference = HuggingFace(training=True)
    with pytest.raises(ValueError, match="multiple"):
        reference(*streams(TOKENS - 1), torch.ones(2, TOKENS - 1, dtype=torch.bool))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("causal", [False, True])
def test_equals_flex_attention_under_the_same_block_mask(causal):
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    tokens = 130
    made = mechanism("bigbird", Heads(HEADS, DIM), block=8).eval()
    blocks = -(-tokens // 8)
    table = torch.zeros(HEADS, blocks, blocks, dtype=torch.bool)
    for head in range(HEADS):
        for row, seen in enumerate(seen_blocks(made, head, blocks, causal)):
            table[head, row, sorted(seen)] = True

    def seen(batch, head, query, key):
        return table[head, query // 8, key // 8] & ((key <= query) | (not causal))

    mask = flex.create_block_mask(seen, 1, HEADS, tokens, tokens, device="cpu", BLOCK_SIZE=8)
    q, k, v = streams(tokens, 1)
    expected = flex.flex_attention(q, k, v, block_mask=mask)
    torch.testing.assert_close(
        made(q, k, v, mask=Mask(causal=causal)), expected, rtol=1e-9, atol=1e-9
    )
