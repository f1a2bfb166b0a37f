"""One model for every budget: what is drawn, what the loss is, and that a run can be resumed."""

from __future__ import annotations

import copy
import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F
from transformers.modeling_outputs import QuestionAnsweringModelOutput, TokenClassifierOutput

import sparing
from sparing.core.errors import CheckpointError, UsageError
from sparing.layers.plan import full_plan, narrowed
from sparing.train import Distillation, Recipe, train
from sparing.train.distillation import distillation_loss, output_divergence
from sparing.train.elastic import (
    Draw,
    ElasticLoss,
    EntityLoss,
    LabelsLoss,
    NumberLoss,
    SpanLoss,
    packed_distance,
)
from sparing.train.objective import LabelLoss, Objective, TeacherLoss
from sparing.transfer.adapting.adapt import adapt
from tests.train.small import equal, token_model, token_task, weights
from tests.transfer.classifiers import FAMILIES, HEADS, dense, inputs, near, texts

WHOLE = Draw(widths=(1.0,), width_chances=(1.0,))
HALF = Draw(widths=(0.5,), width_chances=(1.0,))
MANY = Draw(tokens=(1.0, 0.7, 0.5))


@pytest.mark.parametrize("loss", [LabelsLoss, NumberLoss])
def test_other_answers_follow_the_teachers_alone(loss):
    generator = torch.Generator().manual_seed(0)
    outputs = 1 if loss is NumberLoss else 3
    logits, goal = (torch.randn(4, outputs, generator=generator).double() for _ in range(2))
    made = loss(torch.nn.Linear(1, 1), Distillation(labels=0.5, outputs=0.7, temperature=2.0))
    made.scale = 3.0
    got = made.of_answer(logits, goal, {"labels": torch.full((4,), -100)})
    if loss is NumberLoss:
        expected = (((logits - goal) / 3) ** 2).mean()
        assert made.describe()["scale"] == 3.0
    else:
        two = [torch.stack((x / 2, torch.zeros_like(x)), -1) for x in (logits, goal)]
        by_label = F.kl_div(two[0].log_softmax(-1), two[1].softmax(-1), reduction="none")
        expected = 4 * by_label.sum((-1, -2)).mean()
    torch.testing.assert_close(got, 0.7 * expected)
    assert float(made.of_answer(goal, goal, {})) == pytest.approx(0, abs=1e-12)


def test_tokens_follow_the_teachers_alone():
    """Both losses of tokens against loops over texts and tokens."""
    generator, keep = torch.Generator().manual_seed(0), torch.ones(3, 5, dtype=torch.long)
    keep[1, 3:], keep[2, 4:] = 0, 0
    real, batch = keep.bool(), {"attention_mask": keep}
    weights = Distillation(labels=0.5, outputs=0.7, temperature=2.0)

    def far(ours, theirs):
        return F.kl_div((ours / 2).log_softmax(-1), (theirs / 2).softmax(-1), reduction="sum")

    logits, goal = (torch.randn(3, 5, 4, generator=generator).double() for _ in range(2))
    made = EntityLoss(torch.nn.Linear(1, 1), weights)
    teacher = made.goal(TokenClassifierOutput(logits=goal), batch)
    by_token = [far(logits[i, j], goal[i, j]) for i, j in real.nonzero().tolist()]
    got = made.of_answer(logits[real], teacher, batch)
    torch.testing.assert_close(got, 0.7 * 4 * torch.stack(by_token).mean())

    logits, goal = logits[..., :2], goal[..., :2]
    made = SpanLoss(torch.nn.Linear(1, 1), weights)
    ends = QuestionAnsweringModelOutput(start_logits=goal[..., 0], end_logits=goal[..., 1])
    by_end = [
        far(logits[i, :n, end], goal[i, :n, end])
        for i, n in enumerate(keep.sum(1).tolist())
        for end in (0, 1)
    ]
    got = made.of_answer(logits[real], made.goal(ends, batch), batch)
    torch.testing.assert_close(got, 0.7 * 4 * torch.stack(by_end).mean())


def _pair(family="bert", exits=None):
    """An adaptive model, trained away from its teacher, in evaluation mode."""
    teacher = dense(family, num_labels=3)
    adaptive = adapt(teacher, exits=exits)
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in adaptive.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return adaptive, teacher


def _batch(family="bert"):
    return {**inputs(family), "labels": torch.tensor([0, 2, 1])}


def test_what_a_step_draws_is_a_function_of_seed_and_step():
    adaptive, teacher = _pair()
    loss, batch = ElasticLoss(teacher, Distillation(), MANY, seed=1), _batch()
    torch.manual_seed(0)
    first = loss(adaptive, batch, 5).item()
    state = torch.random.get_rng_state()
    assert loss(adaptive, batch, 5).item() == first
    assert torch.equal(torch.random.get_rng_state(), state), "nothing global is drawn from"
    values = {loss(adaptive, batch, step).item() for step in range(12)}
    assert len(values) > 4
    other = ElasticLoss(teacher, Distillation(), MANY, seed=2)
    plans = [
        [objective.draw.plan(adaptive, objective.seed, n) for n in range(20)]
        for objective in (loss, other)
    ]
    assert plans[0] != plans[1]


def test_inputs_that_go_on_narrower_are_trained_so():
    adaptive, teacher = _pair()
    draw = replace(WHOLE, narrow=(1.0, 0.5), narrow_after=3, narrow_above=0.0)
    plans = [draw.plan(adaptive, 0, step) for step in range(40)]
    assert {plan.narrow_heads for plan in plans} == {(), (2,)}
    step = next(number for number, plan in enumerate(plans) if plan.narrows)
    ElasticLoss(teacher, Distillation(), draw)(adaptive, _batch(), step).backward()
    last, before = adaptive.encoder.layers[3], adaptive.encoder.layers[2]
    assert bool((last.fall.weight.grad[:, 16:] == 0).all())
    assert bool((last.fall.weight.grad[:, :16] != 0).any())
    assert bool((before.fall.weight.grad[:, 16:] != 0).any())
    objective = ElasticLoss(teacher, Distillation(), draw)
    assert objective.describe()["elastic"]["narrow"] == (1.0, 0.5)
    older = ElasticLoss(teacher, Distillation(), WHOLE).describe()["elastic"]
    assert not any(name.startswith("narrow") for name in older), "runs of before can be resumed"


def test_gates_learn_and_then_drop():
    adaptive, teacher = _pair()
    adaptive.encoder.add_gates("skim", (2, 3))
    adaptive.train()
    batch, weights = _batch(), Distillation(labels=0.0, outputs=0.0, hidden_states=0.0)
    draw = replace(WHOLE, gated=True, gate_weight=0.5, soft_steps=3)
    loss = ElasticLoss(teacher, weights, draw)
    near(loss(adaptive, batch, 2).double(), torch.tensor(0.5).double(), within=0.1)
    loss(adaptive, batch, 2).backward()
    gates = list(adaptive.encoder.gates.parameters())
    assert any(bool((tensor.grad != 0).any()) for tensor in gates)
    assert loss(adaptive, batch, 3) == 0, "what drops tokens has no share to learn"
    follow = ElasticLoss(teacher, replace(weights, hidden_states=1.0), draw)
    with torch.no_grad():
        before = follow(adaptive.eval(), batch, 3).item()
        adaptive.encoder.layers[2].output.bias[0] += 1
        assert follow(adaptive, batch, 3).item() == before, "compared up to the first gate"
    assert loss.describe()["elastic"]["soft_steps"] == 3
    assert "gated" not in ElasticLoss(teacher, weights, WHOLE).describe()["elastic"]


def test_draws_follow_their_chances():
    adaptive = adapt(dense())
    draw = Draw(widths=(1.0, 0.5), width_chances=(3.0, 1.0), tokens=(1.0, 0.5), tokens_after=3)
    plans = [draw.plan(adaptive, 0, step) for step in range(2000)]
    heads = Counter(plan.heads for plan in plans)
    assert heads.keys() == {(4,) * 4, (2,) * 4}
    assert abs(heads[(4,) * 4] / 2000 - 0.75) < 0.04
    tokens = Counter(plan.tokens_kept for plan in plans)
    assert abs(tokens[0.5] / 2000 - 0.5) < 0.05
    assert {plan.tokens_after for plan in plans} == {3}


@pytest.mark.parametrize(
    "options",
    [
        {"widths": ()},
        {"width_chances": (1.0,)},
        {"width_chances": (0.0, 0.0, 0.0)},
        {"width_chances": (0.5, 0.7, -0.2)},
        {"widths": (1.0, 0.5, 0.0)},
        {"widths": (1.0, 0.5, 1.5)},
        {"tokens": ()},
        {"tokens": (0.0,)},
        {"tokens": (math.nan,)},
        {"narrow": ()},
        {"narrow": (1.5,)},
        {"gated": True, "tokens": (0.5,)},
        {"gated": True, "narrow": (0.5,)},
    ],
)
def test_impossible_draws_are_refused(options):
    with pytest.raises(UsageError, match=r"draw\."):
        Draw(**options)


@pytest.mark.parametrize("family", ["bert", "vit"])
def test_the_whole_plan_with_one_exit_is_ordinary_distillation(family):
    adaptive, teacher = _pair(family, exits=[])
    weights = Distillation(labels=0.3, outputs=0.8, hidden_states=0.0, temperature=3.0)
    batch = _batch(family)
    loss = ElasticLoss(teacher, weights, WHOLE)(adaptive, batch, 7)

    class Plain(torch.nn.Module):
        def forward(self, **given):
            return adaptive(**given)

    near(loss.double(), distillation_loss(Plain(), teacher, batch, weights).double(), within=1e-6)


def test_all_exits_count_alike():
    adaptive, teacher = _pair(exits=[1, 3])
    batch = _batch()
    given = {name: value for name, value in batch.items() if name != "labels"}
    weights = Distillation(labels=0.3, outputs=0.8, hidden_states=0.0, temperature=3.0)
    plan = narrowed(adaptive.encoder.sizes, 0.5)
    goal, losses = teacher(**given).logits, []
    answers = adaptive.encoder.trace(*adaptive.embed(**given), plan).answers
    assert tuple(answers) == (1, 3, 4)
    for logits in answers.values():
        right = F.cross_entropy(logits, batch["labels"])
        losses.append(0.3 * right + 0.8 * output_divergence(logits, goal, 3.0))
    loss = ElasticLoss(teacher, weights, HALF)(adaptive, batch, 0)
    near(loss, sum(losses) / 3, within=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_are_those_of_the_same_layers(family):
    """An untrained adaptive form is at no distance from the teacher that it was made from."""
    teacher = dense(family)
    adaptive, weights = adapt(teacher), Distillation(0.0, 0.0, 1.0)
    batch = _batch(family)
    assert ElasticLoss(teacher, weights, WHOLE)(adaptive, batch, 0) < 1e-12
    assert ElasticLoss(teacher, weights, HALF)(adaptive, batch, 0) > 1e-3
    with torch.no_grad():
        adaptive.encoder.layers[-1].output.bias[0] += 1
    assert ElasticLoss(teacher, weights, WHOLE)(adaptive, batch, 0) > 1e-6


def test_the_distance_against_a_loop():
    adaptive, teacher = _pair()
    given = texts([7, 2, 5])
    given["attention_mask"][0, 3] = 0
    states = adaptive.encoder.trace(*adaptive.embed(**given), adaptive.plan).states
    goals = teacher(**given, output_hidden_states=True).hidden_states
    layers = []
    for number in range(1, 5):
        real, row = [], 0
        for text, token in given["attention_mask"].nonzero().tolist():
            real.append((states[number][row] - goals[number][text, token]).square().mean())
            row += 1
        assert row == len(states[number]) == 13
        layers.append(torch.stack(real).mean())
    distance = packed_distance(states, goals, given["attention_mask"])
    near(distance.double(), torch.stack(layers).mean(), within=1e-6)


def test_dropped_tokens_end_the_comparison_after_the_layer_that_drops_them():
    teacher, batch = dense(), _batch()
    adaptive, weights = adapt(teacher), Distillation(0.0, 0.0, 1.0)
    for after in (1, 2, 3, 4):
        draw = replace(WHOLE, tokens=(0.5,), tokens_after=after)
        assert ElasticLoss(teacher, weights, draw)(adaptive, batch, 0) < 1e-12
    with torch.no_grad():
        adaptive.encoder.layers[2].output.bias[0] += 1
    distances = {
        after: ElasticLoss(teacher, weights, replace(WHOLE, tokens=(0.5,), tokens_after=after))(
            adaptive, batch, 0
        ).item()
        for after in (2, 3)
    }
    assert distances[2] < 1e-12
    assert distances[3] > 1e-3


def test_gradients_reach_what_was_drawn_and_nothing_else():
    adaptive, teacher = _pair()
    ElasticLoss(teacher, Distillation(), HALF)(adaptive, _batch(), 0).backward()
    rows = HEADS // 2 * 12
    for layer in adaptive.encoder.layers:
        wide = layer.projection.weight.grad.abs().sum(1)
        assert bool((wide[:rows] > 0).all())
        assert bool((wide[rows:] == 0).all())
        assert bool((layer.output.weight.grad[:, 8:] == 0).all())
        tall = layer.rise.weight.grad.abs().sum(1)
        assert bool((tall[:8] > 0).all())
        assert bool((tall[16:] == 0).all())
        assert bool((layer.fall.weight.grad[:, 16:] == 0).all())
    for head in adaptive.encoder.heads.values():
        assert bool((head.classifier.weight.grad.abs().sum(1) > 0).all())
    assert adaptive.embeddings.word_embeddings.weight.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in teacher.parameters())


def test_the_models_own_plan_is_neither_used_nor_changed():
    adaptive, teacher = _pair()
    batch, loss = _batch(), ElasticLoss(teacher, Distillation(), MANY)
    before = loss(adaptive, batch, 3).item()
    adaptive.plan = replace(narrowed(adaptive.encoder.sizes, 0.5), exits=(2,), threshold=0.4)
    plan = adaptive.plan
    assert loss(adaptive, batch, 3).item() == before
    assert adaptive.plan == plan


def test_teachers_that_do_not_match_are_refused():
    adaptive, batch = adapt(dense()), _batch()
    with pytest.raises(UsageError, match="the teacher has 5 classes, the model with 3"):
        ElasticLoss(dense(num_labels=5), Distillation())(adaptive, batch, 0)
    for changes in ({"num_hidden_layers": 3}, {"hidden_size": 8, "embedding_size": 8}):
        teacher = dense(**changes)
        with pytest.raises(UsageError, match=r"set distillation.hidden_states to 0"):
            ElasticLoss(teacher, Distillation(), WHOLE)(adaptive, batch, 0)
        ElasticLoss(teacher, Distillation(hidden_states=0.0), WHOLE)(adaptive, batch, 0)


def test_objectives_have_one_shape():
    teacher = dense()
    elastic = ElasticLoss(teacher, Distillation(), MANY, seed=4)
    for objective in (LabelLoss(), TeacherLoss(teacher, Distillation()), elastic):
        assert isinstance(objective, Objective)
    described = elastic.describe()
    assert described["elastic_seed"] == 4
    assert described["elastic"]["tokens"] == (1.0, 0.7, 0.5)


RECIPE = Recipe(epochs=2, batch_size=8, learning_rate=0.01, seed=3, save_every_steps=3)


def _elastic(task, seed=0):
    """A float32 adaptive model of two layers with dropout, and its loss."""
    teacher = token_model(task, layers=2)
    draw = Draw(tokens=(1.0, 0.6), tokens_after=1)
    return adapt(teacher, exits=[1]), ElasticLoss(teacher, Distillation(), draw, seed)


@pytest.fixture(scope="module")
def task():
    return token_task()


def test_a_resumed_elastic_run_ends_with_the_same_bits(task, tmp_path):
    whole, objective = _elastic(task)
    start = weights(whole)
    expected = train(whole, task, RECIPE, output_dir=tmp_path / "whole", objective=objective)
    assert not equal(start, weights(whole))

    def killed(fraction, text):
        if fraction > 0.6:
            raise RuntimeError("power cut")

    parts, (model, objective) = tmp_path / "parts", _elastic(task)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparing.train._loop.PROGRESS_SECONDS", 0)
        with pytest.raises(RuntimeError, match="power cut"):
            train(model, task, RECIPE, output_dir=parts, objective=objective, on_progress=killed)
    torch.manual_seed(99)
    resumed, objective = _elastic(task)
    modes = set()
    objective.teacher.train()
    objective.teacher.register_forward_hook(lambda teacher, *_: modes.add(teacher.training))
    result = train(resumed, task, RECIPE, output_dir=parts, objective=objective)
    assert objective.teacher.training, "as it came"
    assert "resumed" in result.notes[-1]
    assert equal(weights(whole), weights(resumed))
    assert result.curve == expected.curve
    assert modes == {False}, "the teacher answers without dropout"
    again, other = _elastic(task, seed=1)
    with pytest.raises(CheckpointError, match=r"its elastic_seed is 0, now it is 1"):
        train(again, task, RECIPE, output_dir=parts, objective=other)


def test_what_training_leaves_is_the_adaptive_model(task, tmp_path):
    model, objective = _elastic(task)
    train(model, task, replace(RECIPE, epochs=1), output_dir=tmp_path, objective=objective)
    loaded = sparing.load(tmp_path)
    assert loaded.plan == full_plan(model.encoder.sizes)
    assert equal(weights(model), weights(loaded))
    twin = copy.deepcopy(model).eval()
    batch = task.collate([task.test[index] for index in range(4)])
    near(loaded(**batch).logits, twin(**batch).logits)


def test_a_teacher_and_an_objective_are_one_too_many(task, tmp_path):
    model, objective = _elastic(task)
    with pytest.raises(UsageError, match="not both"):
        train(model, task, RECIPE, output_dir=tmp_path, teacher=model, objective=objective)
