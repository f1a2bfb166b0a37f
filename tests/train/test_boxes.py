"""Detection: the loss, the scores against a slow obvious form, and a model that learns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sparing.core.errors import Unsupported, UsageError
from sparing.models import build_model
from sparing.tasks import load_task
from sparing.train import Recipe, evaluate, train
from sparing.train.boxes import (
    BoxLoss,
    Detections,
    detect,
    evaluate_boxes,
    mean_average_precision,
    paired_iou,
)
from sparing.transfer.patching import select_patches
from sparing.transfer.swap import swap


@pytest.fixture(scope="module")
def scenes():
    return load_task("scenes", examples=40)


def small(task, **sizes):
    return build_model("vit_detector", task, **{"layers": 1, "heads": 2, "width": 16} | sizes)


def slow_average_precision(chances, labels, overlaps, kind, least):
    """Ranked detections one by one; every chance differs."""
    order = sorted(range(len(labels)), key=lambda index: -chances[index][kind])
    positives, hits, total = sum(label == kind for label in labels), 0, 0.0
    for rank, index in enumerate(order, 1):
        if labels[index] == kind and overlaps[index] >= least:
            hits += 1
            total += hits / rank
    return total / positives


def slow_iou(first, second):
    """By counting cells of a fine grid."""
    cells = torch.linspace(0, 1, 801)
    cells = (cells[:-1] + cells[1:]) / 2
    insides = []
    for x, y, width, height in (first, second):
        across, down = (cells - x).abs() <= width / 2, (cells - y).abs() <= height / 2
        insides.append(down[:, None] & across)
    return float((insides[0] & insides[1]).sum() / (insides[0] | insides[1]).sum())


def test_average_precision_is_what_counting_gives():
    torch.manual_seed(0)
    chances = torch.rand(60, 4).softmax(-1)
    labels = torch.randint(0, 4, (60,))
    boxes = torch.rand(60, 4) * 0.3 + 0.3
    guessed = (boxes + 0.08 * torch.randn(60, 4)).clamp(0.05, 0.95)
    precision = mean_average_precision(Detections(chances, guessed), labels, boxes)
    overlaps = paired_iou(guessed, boxes)
    assert 5 < int((overlaps >= 0.5).sum()) < 55
    per_kind = [
        slow_average_precision(chances.tolist(), labels.tolist(), overlaps.tolist(), kind, 0.5)
        for kind in range(4)
    ]
    assert precision == pytest.approx(sum(per_kind) / 4)


def test_overlap_is_the_share_of_area():
    torch.manual_seed(1)
    first, second = torch.rand(6, 4) * 0.4 + 0.3, torch.rand(6, 4) * 0.4 + 0.3
    expected = [slow_iou(a.tolist(), b.tolist()) for a, b in zip(first, second, strict=True)]
    assert paired_iou(first, second).tolist() == pytest.approx(expected, abs=0.02)
    same = torch.tensor([[0.5, 0.5, 0.2, 0.2]])
    apart = torch.tensor([[0.1, 0.1, 0.1, 0.1]])
    assert paired_iou(same, same).item() == pytest.approx(1)
    assert paired_iou(same, apart).item() == 0
    assert paired_iou(same[:0], apart[:0]).shape == (0,)


def test_the_gold_answer_scores_all_and_a_constant_one_little(scenes):
    labels, boxes = scenes.test.labels, scenes.test.boxes
    gold = Detections(torch.eye(10)[labels], boxes)
    assert mean_average_precision(gold, labels, boxes) == 1
    nowhere = Detections(torch.eye(10)[labels], torch.full_like(boxes, 0.01))
    assert mean_average_precision(nowhere, labels, boxes) == 0
    blind = Detections(torch.full((len(labels), 10), 0.1), boxes)
    assert mean_average_precision(blind, labels, boxes) == pytest.approx(0.1, abs=0.01)


def test_the_loss_falls_to_zero_at_the_truth(scenes):
    batch = scenes.collate([scenes.train[index] for index in range(6)])

    class Knows(torch.nn.Module):
        def forward(self, pixel_values):
            logits = 50.0 * torch.nn.functional.one_hot(batch["labels"], 10)
            return type("Answer", (), {"logits": logits, "boxes": batch["boxes"]})

    assert BoxLoss()(Knows(), batch, 0).item() == pytest.approx(0, abs=1e-4)
    assert BoxLoss()(small(scenes), batch, 0).item() > 1


def test_a_detector_learns_and_is_read_back(scenes, tmp_path):
    model = small(scenes)
    recipe = Recipe(epochs=8, batch_size=10, learning_rate=5e-3, device="cpu")
    result = train(model, scenes, recipe, output_dir=tmp_path, objective=BoxLoss())
    losses = [entry["train_loss"] for entry in result.curve]
    assert losses[-1] < 0.8 * losses[0]
    assert result.metric == "map50"
    after = evaluate_boxes(model, scenes)
    again = small(scenes)
    train(again, scenes, recipe, output_dir=tmp_path, objective=BoxLoss())
    assert evaluate_boxes(again, scenes).scores == after.scores
    assert evaluate(model, scenes).accuracy == pytest.approx(after.scores["accuracy"])


def test_patches_and_mechanisms_go_with_it(scenes):
    model = small(scenes, layers=2).eval()
    whole = detect(model, scenes, "validation")
    select_patches(model, "contrast", keep=64)
    torch.testing.assert_close(detect(model, scenes, "validation").boxes, whole.boxes)
    select_patches(model, "contrast", keep=0.5)
    swap(model, "linear")
    detections = detect(model, scenes, "validation")
    assert detections.boxes.shape == (500, 4)
    assert not torch.allclose(detections.boxes, whole.boxes)


def test_mistakes_get_one_clear_line(scenes):
    batch = scenes.collate([scenes.train[0]])
    with pytest.raises(Unsupported, match="gives no boxes: take the model vit_detector"):
        BoxLoss()(build_model("vit", scenes), batch, 0)
    digits = load_task("digits")
    with pytest.raises(UsageError, match="a task with boxes"):
        BoxLoss()(small(digits), digits.collate([digits.train[0]]), 0)
    with pytest.raises(UsageError, match="task digits has no boxes in its test split"):
        evaluate_boxes(small(digits), digits)
    with pytest.raises(UsageError, match="must not be negative"):
        BoxLoss(distance=-1.0)


def test_it_saves_and_loads(scenes, tmp_path):
    model = small(scenes).eval()
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).eval()
    pixels = scenes.test.inputs[:3]
    torch.testing.assert_close(loaded(pixels).boxes, model(pixels).boxes)


def test_images_that_are_not_finite_are_named(scenes, tmp_path):
    pixels = scenes.train.inputs.clone()
    pixels[3, 0, 5, 5] = float("nan")
    broken = replace(scenes, train=replace(scenes.train, inputs=pixels))
    with pytest.raises(UsageError, match="the input pixel_values is not finite"):
        train(
            small(scenes),
            broken,
            Recipe(epochs=1, batch_size=40, device="cpu"),
            output_dir=tmp_path,
            objective=BoxLoss(),
        )
