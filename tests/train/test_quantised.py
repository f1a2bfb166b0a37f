"""Imitated INT8: products by hand, gradients that pass, and nothing that is left of it."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sparing.core.errors import UsageError
from sparing.layers.packing import Packed, Padded
from sparing.layers.plan import narrowed
from sparing.train import Distillation, Recipe, train
from sparing.train.boxes import BoxLoss
from sparing.train.elastic import Draw, ElasticLoss
from sparing.train.objective import LabelLoss, TeacherLoss, judge_of
from sparing.train.quantised import Int8Loss, Int8Rules, imitating_int8, int8_product
from sparing.transfer.adaptive import adapt
from sparing.transfer.freezing import freeze
from tests.train.small import equal, token_model, token_task, weights
from tests.transfer.classifiers import dense, texts

FOLLOW = Distillation(labels=0.3, outputs=1.0, hidden_states=1.0)
WHOLE = Draw(widths=(1.0,), width_chances=(1.0,))
LENGTHS = [9, 4, 7, 12, 5, 8, 11, 6]


def _frozen(**changes):
    """Half of every width, five inputs' worth of exits, and the dense model that it follows."""
    teacher = dense(dtype=torch.float32, num_labels=3)
    adaptive = adapt(teacher)
    half = narrowed(adaptive.encoder.sizes, 0.5)
    plan = replace(half, exits=(2,), threshold=0.9, **changes)
    return freeze(adaptive, plan).eval(), teacher


@torch.no_grad()
def _every_exit(model, given):
    rows, layout = model.embed(**given)
    answers = model.encoder.trace(rows, layout, model.plan).answers
    return torch.stack(list(answers.values()), 1)


def test_a_product_by_hand():
    x = torch.tensor([[1.0, -0.5], [0.2, 0.1]], requires_grad=True)
    weight = torch.tensor([[1.0, 0.3], [-0.02, 0.01]], requires_grad=True)
    bias = torch.tensor([0.5, 0.0], requires_grad=True)
    product = int8_product(x, weight, bias, rules=Int8Rules(reduce_range=False))
    steps = torch.tensor([1.5 / 255, 0.2 / 255])
    numbers = (x / steps[:, None]).round()
    weight_steps = torch.tensor([1.0 / 127, 0.02 / 127])
    rounded = (weight / weight_steps[:, None]).round()
    expected = (numbers @ rounded.T) * steps[:, None] * weight_steps + bias
    torch.testing.assert_close(product, expected)
    assert not torch.equal(product, F.linear(x, weight, bias))
    given = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    product.backward(given)
    torch.testing.assert_close(bias.grad, given.sum(0))
    torch.testing.assert_close(x.grad, given @ (rounded * weight_steps[:, None]).detach())
    torch.testing.assert_close(weight.grad, given.T @ (numbers * steps[:, None]).detach())


def test_scales_of_a_weight_and_seven_bits():
    torch.manual_seed(0)
    # whole activations, so that only the weights are rounded
    x, weight = torch.eye(6), torch.randn(5, 6) * torch.tensor([[9.0], [1], [1], [1], [1]])
    exact = F.linear(x, weight)
    errors = {
        str(rules): (int8_product(x, weight, None, None, rules) - exact)[:, 1:].square().mean()
        for rules in (
            Int8Rules(reduce_range=False),
            Int8Rules("tensor", False),
            Int8Rules(reduce_range=True),
        )
    }
    channel, tensor, narrow = errors.values()
    assert channel < narrow < tensor
    assert torch.equal(int8_product(torch.zeros(2, 6), weight, None), torch.zeros(2, 5))
    with pytest.raises(UsageError, match="did you mean 'channel'"):
        Int8Rules("chanel")


def test_each_input_has_a_range_of_its_own_in_every_layout():
    torch.manual_seed(0)
    lengths, weight = torch.tensor([3, 1, 4]), torch.randn(5, 6)
    rows = torch.randn(8, 6) * torch.tensor([1.0, 1, 1, 5, 0.1, 0.1, 0.1, 0.1])[:, None]
    parts = [int8_product(part[None], weight, None) for part in rows.split(lengths.tolist())]
    expected = torch.cat([part[0] for part in parts])
    packed = int8_product(rows, weight, None, Packed(lengths))
    torch.testing.assert_close(packed, expected)
    standing = torch.full((3, 4, 6), 100.0)
    keep = torch.arange(4) < lengths[:, None]
    standing[keep] = rows
    padded = int8_product(standing, weight, None, Padded(keep))
    torch.testing.assert_close(padded[keep], expected)
    together = int8_product(rows, weight, None, Packed(lengths), Int8Rules(together=True))
    torch.testing.assert_close(together, int8_product(rows[None], weight, None)[0])
    assert not torch.allclose(together, expected)


def test_whole_numbers_are_exact_in_bfloat16():
    torch.manual_seed(0)
    x, weight = torch.randn(3, 4), torch.randn(2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        low = int8_product(x, weight, None)
    assert low.dtype == torch.float32
    # only the finished sum is rounded to bfloat16
    torch.testing.assert_close(low, int8_product(x, weight, None), rtol=2**-8, atol=0)


def test_nothing_is_left_of_it_even_after_an_error():
    model, _ = _frozen()
    given, before = texts(LENGTHS), copy.deepcopy(model.state_dict())
    names = {name: set(vars(module)) for name, module in model.named_modules()}
    plain = _every_exit(model, given)
    with imitating_int8(model):
        assert not torch.equal(_every_exit(model, given), plain)
    with pytest.raises(UsageError, match="missing"), imitating_int8(model):
        model()
    assert torch.equal(_every_exit(model, given), plain)
    assert {name: set(vars(module)) for name, module in model.named_modules()} == names
    assert not model._forward_pre_hooks
    assert equal(list(before.values()), weights(model))


def test_gradients_reach_every_weight_but_frozen_embeddings():
    model, teacher = _frozen()
    model.embeddings.requires_grad_(False)
    batch = {**texts([9, 4, 7]), "labels": torch.tensor([0, 2, 1])}
    objective = ElasticLoss(teacher, FOLLOW, WHOLE)
    plain = objective(model, batch, 0)
    loss = Int8Loss(objective)(model, batch, 0)
    loss.backward()
    assert loss.item() != plain.item()
    moved = {name for name, tensor in model.named_parameters() if tensor.grad is not None}
    assert moved == {n for n, _ in model.named_parameters() if not n.startswith("embeddings.")}
    assert all(bool(tensor.grad.any()) for tensor in model.parameters() if tensor.grad is not None)
    assert all(tensor.grad is None for tensor in teacher.parameters())


def test_the_teacher_is_not_rounded():
    model, teacher = _frozen()
    batch = {**texts([9, 4, 7]), "labels": torch.tensor([0, 2, 1])}
    outputs = []

    class Watched(nn.Module):
        def forward(self, **given):
            outputs.append(teacher(**{n: v for n, v in given.items() if n != "labels"}))
            return outputs[-1]

    Int8Loss(ElasticLoss(Watched(), FOLLOW, WHOLE))(model, batch, 0)
    with torch.no_grad():
        plain = teacher(**texts([9, 4, 7])).logits
    assert torch.equal(outputs[0].logits, plain)


def test_a_run_says_that_it_is_for_int8_and_ends_nearer_to_it(tmp_path):
    task = token_task()
    teacher = token_model(task, seed=1, dropout=0.0).eval()
    model = token_model(task, seed=1, dropout=0.0)
    inner = TeacherLoss(teacher, FOLLOW)
    objective = Int8Loss(inner, Int8Rules("tensor"))
    assert objective.describe() != inner.describe()
    assert objective.describe()["int8"]["scales"] == "tensor"
    assert Int8Loss(LabelLoss()).teacher is None
    batch = task.collate([task.train[index] for index in range(32)])
    before = objective(model, batch, 0).item()
    train(model, task, Recipe(epochs=3, batch_size=8), output_dir=tmp_path, objective=objective)
    assert objective(model, batch, 0).item() < before


def test_a_loss_that_judges_goes_on_judging():
    judging = BoxLoss()
    assert judge_of(Int8Loss(judging)) is judging
    assert judge_of(Int8Loss(LabelLoss())) is None


def test_gates_are_paid_for_in_rounded_layers_too():
    adaptive, teacher = adapt(dense(num_labels=3)), dense(num_labels=3)
    adaptive.encoder.add_gates("skim", (1, 2, 3))
    batch = {**texts([9, 4, 7]), "labels": torch.tensor([0, 2, 1])}
    loss = Int8Loss(ElasticLoss(teacher, FOLLOW, Draw(gated=True)))(adaptive, batch, 0)
    loss.backward()
    assert loss.isfinite()
