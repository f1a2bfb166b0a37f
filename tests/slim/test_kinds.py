"""Models of several labels and of a number, from texts to a served folder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForSequenceClassification,
    BertForSequenceClassification,
    ViTConfig,
    ViTForImageClassification,
)

import sparing
from sparing.core.errors import Unsupported, UsageError
from sparing.report.page import write_report
from sparing.slim.answer import Number, SeveralLabels, deviation
from sparing.slim.evidence.changed import Changed, Shifted, changed_of, read_changed, write_changed
from sparing.slim.options import Options
from sparing.slim.study import prepare, steps_of, task_of
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.confidence import fit_confidence
from tests.agree.kinds import LABELS, save
from tests.slim.conftest import TINY, of_name, run_of
from tests.slim.served import expected, formed, written
from tests.transfer.classifiers import dense

RULES = {"labels": {"threshold": 0.6}, "number": {"most_difference": 0.5}}
SMALL = {
    "image_size": 8,
    "patch_size": 4,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
CHANGES = {"labels": {"problem_type": "multi_label_classification"}, "number": {"num_labels": 1}}
METRICS = {"labels": "probability_closeness", "number": "correlation"}
SAID = {
    "labels": "if all labels are the same; one is given from a probability of 0.6 on.",
    "number": "Two numbers agree if they differ by at most 0.5.",
}


@pytest.fixture(scope="module", params=sorted(RULES))
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def options(kind, texts_file, tmp_path_factory):
    folder = save(tmp_path_factory.mktemp(kind) / "model", kind, num_hidden_layers=3)
    return Options(model=str(folder), task="", texts=str(texts_file), **TINY, **RULES[kind])


@pytest.fixture(scope="module")
def finished(kind, options, tmp_path_factory):
    return run_of(options, tmp_path_factory.mktemp("run") / kind, "onnxruntime")


def test_the_run_ends_with_a_bound_on_other_answers(finished, kind):
    assert [failure.error for failure in finished.failures] == []
    (seen,) = of_name(finished, "disagreement")
    named = {"labels": "label_threshold", "number": "most_difference"}[kind]
    assert seen.labels[named] == next(iter(RULES[kind].values()))
    assert "least_cosine" not in seen.labels
    assert of_name(finished, "frontier_score", kind="exits") == []
    assert {r.labels["threshold"] for r in of_name(finished, "candidate_speed")} == {1.0}
    assert {r.labels["metric"] for r in of_name(finished, "whole_score")} == {METRICS[kind]}
    shares = {r.labels["class"] for r in of_name(finished, "dense_answers")}
    assert shares == ({*LABELS} if kind == "labels" else set())


def test_agreement_is_counted_by_the_rule(finished, kind):
    answers = load_file(finished.folder / "answers.safetensors")
    for record in of_name(finished, "agreement", arm="slim"):
        name = f"slim, {record.labels['engine']} {record.labels['precision']}"
        ours, dense = (
            next(value for key, value in answers.items() if key.startswith(start)).double()
            for start in (name, "dense, eager float32")
        )
        if kind == "labels":
            same = ((ours.sigmoid() >= 0.6) == (dense.sigmoid() >= 0.6)).all(1)
            target = dense.sigmoid()
            far = torch.nn.functional.binary_cross_entropy_with_logits(
                ours, target, reduction="none"
            ) - torch.nn.functional.binary_cross_entropy(target, target, reduction="none")
            distance = float(far.sum(1).mean())
        else:
            same = (ours - dense).abs()[:, 0] <= 0.5
            distance = float((ours - dense).abs().mean())
        assert record.value == pytest.approx(float(same.double().mean()))
        assert record.labels["divergence"] == pytest.approx(distance, abs=1e-6)


def test_the_page_says_when_two_agree(finished, kind):
    page = write_report(finished.folder)["md"].read_text()
    assert SAID[kind] in page
    assert ("nats on the choosing inputs" in page) == (kind == "labels")
    card = (finished.folder / "model" / "torch" / "README.md").read_text()
    assert SAID[kind] in card
    assert ("The answer is one number." in card) == (kind == "number")


def test_the_saved_model_answers_and_learns_as_its_kind(finished, kind, options):
    model = sparing.load(finished.folder / "model" / "torch")
    opened = AutoModelForSequenceClassification.from_pretrained(finished.folder / "model" / "torch")
    ids = torch.tensor([[2, 7, 8, 3]])
    torch.testing.assert_close(opened(input_ids=ids).logits, model(input_ids=ids).logits)
    labels = torch.tensor([[0.0, 1.0, 0.0]]) if kind == "labels" else torch.tensor([0.5])
    dense = BertForSequenceClassification.from_pretrained(options.model)
    assert dense(input_ids=ids, labels=labels).loss.ndim == 0
    assert model(input_ids=ids, labels=labels).loss.isfinite()
    assert model.encoder.exits == (model.plan.layers,)  # no heads for exits are saved


@pytest.mark.parametrize("model", ["dense", "slim"])
def test_the_program_on_the_card_of_the_served_folder_gives_the_answer(
    finished, options, kind, model, tmp_path
):
    steps = steps_of(options, task_of(options)[0], finished.folder)
    form = formed(model, "onnxruntime")
    card, answer = written(steps, form, tmp_path / "serve")
    np.testing.assert_allclose(answer, expected(steps, form), rtol=0, atol=1e-4)
    assert ("Labels:" in card) == (kind == "labels")


def test_they_need_texts_and_numbers_a_largest_difference(options, kind, texts_file, tmp_path):
    with pytest.raises(Unsupported, match="give --texts FILE, which needs no labels, or a --task"):
        prepare(replace(options, texts="", task=""), tmp_path / "run")
    if kind == "number":
        with pytest.raises(UsageError, match="give --most-difference"):
            prepare(replace(options, most_difference=None), tmp_path / "run")
    model = AutoModelForSequenceClassification.from_pretrained(options.model)
    with pytest.raises(Unsupported, match="give --texts FILE"):
        sparing.slim(model, output_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_rule_of_another_kind_and_an_impossible_one_are_refused(options, kind, tmp_path):
    other = {"most_difference": 0.1} if kind == "labels" else {"threshold": 0.3}
    for changes in (other, {"least_cosine": 0.9}):
        with pytest.raises(UsageError, match=r"is for models that give .*; these give"):
            prepare(replace(options, **changes), tmp_path / "run")
    for number in (float("nan"), float("inf"), -1.0):
        with pytest.raises(UsageError, match=r"must be (between 0 and 1|at least 0); got"):
            prepare(replace(options, **dict.fromkeys(RULES[kind], number)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_of_images_only_one_class_is_taken(kind, tmp_path):
    ViTForImageClassification(ViTConfig(**SMALL, **CHANGES[kind])).save_pretrained(tmp_path / "vit")
    with pytest.raises(Unsupported, match="of images slim takes classifiers of one class"):
        prepare(Options(model=str(tmp_path / "vit"), task="digits"), tmp_path / "run")


def test_no_confidence_is_fitted_where_none_has_a_meaning(kind):
    model = adapt(dense(**CHANGES[kind]))
    with pytest.raises(UsageError, match="only one class an input says how sure it is"):
        fit_confidence(model, _task())


def test_labels_in_the_file_are_not_used(options, texts_file, tmp_path):
    lines = texts_file.read_text().splitlines()
    table = "\n".join(["text\tlabel", *(f"{line}\t1" for line in lines)])
    (tmp_path / "texts.tsv").write_text(table + "\n")
    task, _ = task_of(replace(options, texts=str(tmp_path / "texts.tsv")))
    assert "labels are not used: the dense model's answers are" in task.notes


def test_sets_of_labels_that_changed_are_listed_with_the_surest_first(tmp_path):
    answer = SeveralLabels(0.5)
    dense = torch.tensor([[2.0, -2.0], [1.0, -1.0], [-3.0, 1.0]])
    served = torch.tensor([[1.0, -1.0], [0.5, 3.0], [-3.0, -0.1]])
    assert answer.differs(served, dense).tolist() == [False, True, True]
    changed = changed_of(_task(), _examples(3), served, dense, answer)
    assert [(c.index, c.dense, c.served) for c in changed] == [
        (1, "spam", "spam + threat"),
        (2, "threat", "(none)"),
    ]
    assert changed[0].served_confidence == pytest.approx(1 / (1 + np.exp(-3)))
    assert changed[1].served_confidence == pytest.approx(1 / (1 + np.exp(-0.1)))
    write_changed(tmp_path, changed)
    assert read_changed(tmp_path) == changed
    assert all(isinstance(one, Changed) for one in changed)


def test_numbers_that_changed_are_listed_with_the_largest_difference_first(tmp_path):
    answer = Number(0.5)
    dense = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    served = torch.tensor([[1.5], [3.0], [1.0], [torch.nan]])
    assert answer.differs(served, dense).tolist() == [False, True, True, True]
    shifted = changed_of(_task(), _examples(3), served[:3], dense[:3], answer)
    assert [(one.index, one.dense, one.served) for one in shifted] == [(2, 3.0, 1.0), (1, 2.0, 3.0)]
    write_changed(tmp_path, shifted)
    assert read_changed(tmp_path) == shifted
    assert isinstance(shifted[0], Shifted)


def test_labels_to_rank_by_are_sampled_around_the_answers():
    generator = torch.Generator().manual_seed(0)
    logits = torch.full((4000, 2), 1.0)
    drawn = SeveralLabels(0.5).sampled(logits, generator)
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    assert float(drawn.mean()) == pytest.approx(float(torch.tensor(1.0).sigmoid()), abs=0.02)
    numbers = torch.randn(4000, 1, generator=generator) * 3
    sampled = Number(1.0).sampled(numbers, generator)
    assert deviation(sampled - numbers[:, 0]) == pytest.approx(3, abs=0.15)
    assert deviation(torch.ones(5)) == 1.0


def _task():
    from sparing.tasks import Task

    examples = _examples(3)
    return Task(
        "toy", "values", examples, examples, examples, ("spam", "threat"), 1, "none", "here"
    )


def _examples(count):
    from sparing.tasks import Examples

    return Examples("values", torch.zeros(count, 1), torch.zeros(count, dtype=torch.long))
