"""Training and evaluating models of several labels and of entities, from files to scores."""

from __future__ import annotations

import math
import random

import pytest
import torch
from torch.nn import functional as F

from sparing.core.errors import UsageError
from sparing.experiment.evaluation import evaluate_fitting, score_intervals
from sparing.experiment.inputs.fit import require_fit
from sparing.models import build_model
from sparing.tasks import load_task
from sparing.tasks.shared.task import UNLABELLED
from sparing.train import Distillation, Recipe, evaluate, train
from sparing.train.answers import label_loss, predictions_of
from sparing.train.distillation import distillation_loss, labels_divergence
from sparing.transfer.importance import importance
from sparing.transfer.opening import open_model
from tests.tasks.conll import save_conll

SMALL = {"layers": 1, "heads": 2, "width": 32, "feed_forward_dim": 32}


@pytest.fixture(scope="module")
def entities(tmp_path_factory):
    folder = save_conll(tmp_path_factory.mktemp("ner") / "ner", train=160, dev=40, test=40)
    return load_task(str(folder))


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    """Texts with a word for each of their labels."""
    chance, path = random.Random(0), tmp_path_factory.mktemp("labels") / "t.jsonl"
    lines = []
    for _ in range(200):
        held = [name for name in ("spam", "rude", "odd") if chance.random() < 0.4]
        words = ["the", "text", *(f"{name}word" for name in held)]
        chance.shuffle(words)
        named = ", ".join(f'"{name}"' for name in held)
        lines.append(f'{{"text": "{" ".join(words)}", "label": [{named}]}}')
    path.write_text("\n".join(lines))
    return load_task(str(path), answer="labels")


@pytest.fixture
def task(request):
    return request.getfixturevalue(request.param)


BOTH = pytest.mark.parametrize("task", ["entities", "labels"], indirect=True)


@BOTH
def test_a_model_learns_is_saved_and_evaluated(tmp_path, task):
    model = build_model("bert", task, seed=0, **SMALL)
    before = evaluate(model, task)
    recipe = Recipe(epochs=10, batch_size=8, learning_rate=0.01)
    result = train(model, task, recipe, output_dir=tmp_path / "run")
    scores = evaluate_fitting(model, "m", (task, {}), "test", lambda fraction, text: None)
    assert scores.score > 0.85 > before.score
    assert result.metric == task.metric == {"entities": "entity_f1"}.get(task.answer, "micro_f1")
    assert scores.evaluation.loss < before.loss
    for name, (low, high) in scores.intervals.items():
        assert 0 <= low <= scores.evaluation.scores[name] <= high <= 1
    assert f"of {len(task.test)} right" in str(scores)
    again = open_model(str(tmp_path / "run"))
    require_fit(again, task, "again")
    assert evaluate(again, task).scores == scores.evaluation.scores


@BOTH
def test_the_loss_of_a_split_is_the_mean_over_its_examples(task):
    model = build_model("bert", task, seed=0, **SMALL).eval()
    losses = []
    for index in range(len(task.test)):
        batch = task.collate([task.test[index]])
        given = batch.pop("labels")
        with torch.inference_mode():
            logits = model(**batch).logits[0]
        if task.answer == "labels":
            losses.append(F.binary_cross_entropy_with_logits(logits, given[0]))
        else:
            places = [n for n in range(given.shape[1]) if given[0, n] != UNLABELLED]
            picked = [-logits[n].log_softmax(-1)[given[0, n]] for n in places]
            losses.append(sum(picked) / len(picked))
    assert evaluate(model, task).loss == pytest.approx(float(sum(losses)) / len(losses), abs=1e-5)


@BOTH
def test_the_students_loss_is_its_formula(task):
    student, teacher = (build_model("bert", task, seed=seed, **SMALL).eval() for seed in (0, 1))
    order = sorted(range(len(task.train)), key=lambda index: task.train.lengths[index])
    batch = task.collate([task.train[index] for index in (*order[:3], *order[-3:])])
    assert not batch["attention_mask"].all()  # pads have no part in the loss
    weights = Distillation(labels=0.0, outputs=1.0, hidden_states=0.0, temperature=2.0)
    given = {name: value for name, value in batch.items() if name != "labels"}
    ours, theirs = (model(**given).logits.double().detach() for model in (student, teacher))
    if task.answer == "labels":
        p, q = (theirs / 2).sigmoid(), (ours / 2).sigmoid()
        far = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
        expected = 4 * far.sum(1).mean()
    else:
        keep = batch["attention_mask"].bool()
        p, q = ((logits[keep] / 2).softmax(-1) for logits in (theirs, ours))
        expected = 4 * (p * (p / q).log()).sum(1).mean()
    loss = distillation_loss(student, teacher, batch, weights, task.answer)
    assert loss.item() == pytest.approx(float(expected), rel=1e-4)
    weighted = Distillation(labels=1.0, outputs=0.0, hidden_states=0.0)
    alone = distillation_loss(student, teacher, batch, weighted, task.answer)
    by_labels = label_loss(ours.float(), batch["labels"], answer=task.answer)
    assert alone.item() == pytest.approx(by_labels.item(), rel=1e-5)


def test_a_batch_without_a_label_has_no_loss():
    logits = torch.randn(2, 3, 4, requires_grad=True)
    none = torch.full((2, 3), UNLABELLED)
    loss = label_loss(logits, none, answer="entities")
    loss.backward()
    assert loss.item() == 0
    assert not logits.grad.any()
    assert label_loss(logits, none, reduction="none", answer="entities").tolist() == [0, 0]


def test_divergence_of_labels_is_zero_for_the_same_and_finite_for_sure_ones():
    logits = torch.tensor([[0.3, -80.0, 80.0]])
    assert labels_divergence(logits, logits).tolist() == [[0, 0, 0]]
    assert labels_divergence(-logits, logits).isfinite().all()


def test_all_labels_of_an_example_must_be_right():
    outputs = torch.tensor([[1.0, -1.0], [1.0, 1.0]])
    truth = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert predictions_of(outputs, truth, "labels") == ([[0], [0, 1]], [True, False])


@BOTH
def test_heads_have_an_importance(task):
    model = build_model("bert", task, seed=0, **SMALL)
    batches = [task.collate([task.train[index] for index in range(8)])]
    scores = importance(model, batches)
    assert all(math.isfinite(value) and value >= 0 for value in torch.cat([*scores.heads]).tolist())


def test_a_model_of_another_answer_is_named(entities, labels):
    tagger = build_model("bert", entities, seed=0, **SMALL)
    several = build_model("bert", labels, seed=0, **SMALL)
    assert several.config.problem_type == "multi_label_classification"
    with pytest.raises(UsageError, match="gives a label for each token, but task t needs several"):
        require_fit(tagger, labels, "tagger")
    with pytest.raises(UsageError, match="gives several labels, but task ner needs a label for"):
        require_fit(several, entities, "several")
    reordered = build_model("bert", entities, seed=0, **SMALL)
    names = [entities.labels[0], *reversed(entities.labels[1:])]
    reordered.config.id2label = dict(enumerate(names))
    with pytest.raises(UsageError, match="in the task's order"):
        require_fit(reordered, entities, "reordered")


def test_intervals_of_entities_resample_texts(entities):
    model = build_model("bert", entities, seed=0, **SMALL)
    evaluation = evaluate(model, entities)
    evaluation.outputs[:] = evaluation.truth
    perfect = type(evaluation)(**{**vars(evaluation), "scores": {"entity_f1": 1.0}})
    assert score_intervals(perfect)["entity_f1"] == (1.0, 1.0)
