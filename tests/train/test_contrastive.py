"""What is alike comes near, the nearest that is not goes far; nothing meets itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.models import build_model
from sparing.tasks import load_task
from sparing.train import Recipe, train
from sparing.train.contrastive import HardNegatives, embedded, triplet_loss


def by_hand(points, kinds, margin):
    """One anchor after the other."""
    losses = []
    for a in range(len(points)):
        alike = [p for p in range(len(points)) if p != a and kinds[p] == kinds[a]]
        unlike = [n for n in range(len(points)) if kinds[n] != kinds[a]]
        if not alike or not unlike:
            continue
        nearest = min(float((points[a] - points[n]).norm()) for n in unlike)
        pair_losses = [
            max(0.0, margin + float((points[a] - points[p]).norm()) - nearest) for p in alike
        ]
        losses.append(sum(pair_losses) / len(pair_losses))
    return sum(losses) / len(losses) if losses else 0.0


@pytest.mark.parametrize("kinds", [[0, 0, 1, 1, 2, 2, 2], [0, 0, 0, 1, 2, 3, 3]])
def test_the_loss_is_that_of_its_definition(kinds):
    points = torch.nn.functional.normalize(torch.randn(7, 5, dtype=torch.float64), dim=-1)
    loss = triplet_loss(points, torch.tensor(kinds), 0.3)
    assert float(loss) == pytest.approx(by_hand(points, kinds, 0.3), abs=1e-9)


@pytest.mark.parametrize("kinds", [[0, 0, 0], [0, 1, 2], [0], []])
def test_without_a_positive_or_a_negative_nothing_is_lost(kinds):
    points = torch.randn(len(kinds), 4, requires_grad=True)
    loss = triplet_loss(
        torch.nn.functional.normalize(points, dim=-1), torch.tensor(kinds, dtype=torch.long), 0.3
    )
    loss.backward()
    assert float(loss.detach()) == 0
    assert points.grad is not None
    assert bool(points.grad.isfinite().all())


def test_equal_points_have_finite_gradients():
    points = torch.ones(4, 3, requires_grad=True)
    unit = torch.nn.functional.normalize(points, dim=-1)
    triplet_loss(unit, torch.tensor([0, 0, 1, 1]), 0.3).backward()
    assert bool(points.grad.isfinite().all())


@pytest.fixture(scope="module")
def task():
    whole = load_task("digits", patch_size=2)
    return replace(whole, train=whole.train.subset(list(range(400))))


def small(task, seed=0):
    return build_model("vit", task, layers=2, width=16, heads=2, seed=seed)


def test_views_look_at_no_label(task):
    model, objective = small(task).eval(), HardNegatives("views")
    batch = task.collate([task.train[n] for n in range(8)])
    other = {**batch, "labels": torch.zeros_like(batch["labels"])}
    assert torch.equal(objective(model, batch, 3), objective(model, other, 3))
    by_class = HardNegatives("classes")
    assert by_class(model, other, 3).item() == 0 < by_class(model, batch, 3).item()


def test_steps_see_other_views_and_a_resumed_step_the_same(task):
    model, objective = small(task).eval(), HardNegatives("views")
    batch = task.collate([task.train[n] for n in range(8)])
    assert torch.equal(objective(model, batch, 3), objective(model, batch, 3))
    assert not torch.equal(objective(model, batch, 3), objective(model, batch, 4))


@pytest.mark.parametrize(("positives", "gain"), [("classes", 0.05), ("views", -0.05)])
def test_neighbours_become_alike(task, tmp_path, positives, gain):
    model, objective = small(task), HardNegatives(positives, margin=0.5)
    before = objective.validate(model, task, 64)
    recipe = Recipe(epochs=4, batch_size=64, learning_rate=3e-3)
    result = train(model, task, recipe, output_dir=tmp_path / "run", objective=objective)
    assert result.metric == "neighbour_accuracy"
    assert result.validation_score > before.score + gain
    assert objective.validate(model, task, 64).score == result.validation_score


def test_the_neighbour_is_the_nearest_training_image(task):
    model, objective = small(task), HardNegatives()
    evaluation = objective.validate(model, task, 50)
    with torch.no_grad():
        model.eval()
        sides = [
            embedded(model, task.collate([part[n] for n in range(len(part))])["pixel_values"])
            for part in (task.train, task.validation)
        ]
    near = torch.cdist(sides[1].double(), sides[0].double()).argmin(1)
    agree = (task.train.labels[near] == torch.tensor(evaluation.predictions)).double().mean()
    assert float(agree) > 0.99  # the same but for ties of float32


@pytest.mark.parametrize(
    ("options", "words"), [({"positives": "class"}, "classes"), ({"margin": 0.0}, "margin")]
)
def test_impossible_wishes_are_named(options, words):
    with pytest.raises(UsageError, match=words):
        HardNegatives(**options)
