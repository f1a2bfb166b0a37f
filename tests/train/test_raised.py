"""Attention in float32 within a step in bfloat16."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from sparing.train import Recipe, train
from sparing.train.raised import raised_attention
from tests.train.small import token_model, token_task

CPU = torch.device("cpu")


def _streams(dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(3, 2, 2, 5, 4, generator=generator).to(dtype)
    return [stream.requires_grad_() for stream in drawn.unbind()]


def _is_raised(mixed: torch.Tensor) -> bool:
    return "ToCopy" in type(mixed.grad_fn).__name__


@pytest.mark.parametrize("mask", ["none", "boolean", "added"])
def test_it_is_float32_attention_of_the_same_numbers_and_bfloat16_again(mask):
    streams, visible = _streams(), torch.tensor([[True, True, True, False, True]])
    given = {
        "none": None,
        "boolean": visible,
        "added": torch.zeros(1, 5).masked_fill(~visible, -1e4),
    }[mask]
    under = given.bfloat16() if mask == "added" else given
    with raised_attention(bfloat16=True, device=CPU), torch.autocast("cpu", torch.bfloat16):
        output = F.scaled_dot_product_attention(*streams, under, scale=0.3)
    wide = [stream.detach().float().requires_grad_() for stream in streams]
    expected = F.scaled_dot_product_attention(*wide, given, scale=0.3)
    assert output.dtype is torch.bfloat16
    assert torch.equal(output, expected.bfloat16())
    output.sum().backward()
    expected.sum().backward()
    for narrow, broad in zip(streams, wide, strict=True):
        assert torch.equal(narrow.grad, broad.grad.bfloat16())


def test_names_may_be_given_and_nothing_else_is_touched():
    query, key, value = _streams()
    with raised_attention(bfloat16=True, device=CPU):
        named = F.scaled_dot_product_attention(
            query=query, key=key, value=value, dropout_p=0.0, is_causal=True
        )
        assert _is_raised(named)
        assert (query @ key.transpose(-1, -2)).dtype is torch.bfloat16
        with torch.no_grad():
            expected = F.scaled_dot_product_attention(query, key, value)
        wide = F.scaled_dot_product_attention(*_streams(torch.float32))
        assert not _is_raised(wide)
    assert torch.equal(expected, F.scaled_dot_product_attention(query, key, value))


@pytest.mark.parametrize(
    ("bfloat16", "device"), [(False, CPU), (True, torch.device("cuda"))], ids=["float32", "cuda"]
)
def test_other_steps_are_left_alone(bfloat16, device):
    with raised_attention(bfloat16=bfloat16, device=device):
        assert not _is_raised(F.scaled_dot_product_attention(*_streams()))


class Attending:
    """A loss that attends, and keeps what it was given."""

    teacher = None

    def __init__(self):
        self.raised = []

    def describe(self):
        return {}

    def __call__(self, model, batch, step):
        row = next(model.parameters()).flatten()[:8].view(1, 1, 2, 4).bfloat16()
        mixed = F.scaled_dot_product_attention(row, row, row)
        self.raised.append(_is_raised(mixed))
        return mixed.float().sum()


@pytest.mark.filterwarnings("ignore:this processor has no instructions for bfloat16")
@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_training_in_bfloat16_asks_for_it(tmp_path, precision):
    task, loss = token_task(), Attending()
    recipe = Recipe(epochs=1, precision=precision, device="cpu")
    train(token_model(task), task, recipe, output_dir=tmp_path, objective=loss)
    assert set(loss.raised) == {precision == "bfloat16"}
