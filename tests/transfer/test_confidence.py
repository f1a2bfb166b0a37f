"""A learned confidence is right about agreement, is saved, and leaves the model as it is."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

import sparing
from sparing.core.errors import UsageError
from sparing.layers.plan import full_plan
from sparing.slim.search.exits import decide, outcomes
from sparing.tasks import Examples, Task
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.confidence import fit_confidence
from sparing.transfer.freezing import freeze, segments
from tests.transfer.classifiers import dense


def _task(count=300):
    generator = torch.Generator().manual_seed(2)
    lengths = torch.randint(1, 13, (count,), generator=generator).tolist()
    rows = [torch.randint(3, 50, (length,), generator=generator) for length in lengths]
    split = Examples("input_ids", rows, torch.arange(count) % 3)
    return Task("small", "tokens", split, split, split, ("a", "b", "c"), 12, "none", "generated")


@pytest.fixture(scope="module")
def task():
    return _task()


def _adaptive(exits=(2, 3)):
    """A model whose exits differ from its end on a good part of the inputs."""
    adaptive = adapt(dense(dtype=torch.float32), list(exits))
    with torch.no_grad():
        for number, head in enumerate(adaptive.encoder.heads.values()):
            head.classifier.weight.mul_(2)
            head.classifier.bias[number % 3] += 0.3
    return adaptive


@pytest.fixture(scope="module")
def fitted(task):
    adaptive = _adaptive()
    before = copy.deepcopy(adaptive.state_dict())
    fits = fit_confidence(adaptive, task, examples=250, seed=1)
    after = adaptive.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    return adaptive, fits


def test_the_surer_the_oftener_it_agrees(task, fitted):
    adaptive, fits = fitted
    exits = outcomes(adaptive, task, task.test, full_plan(adaptive.encoder.sizes))
    answer = exits.logits[-1].argmax(-1)
    assert [fit.layer for fit in fits] == [2, 3]
    for fit in fits:
        index = exits.exit_index(fit.layer)
        agree = (exits.logits[index].argmax(-1) == answer).double()
        assert 10 < fit.agreed < 240 == fit.examples - 10
        probabilities = exits.learned[index]
        assert bool(((probabilities > 0) & (probabilities < 1)).all())
        assert abs(float(probabilities.mean() - agree.mean())) < 0.06, "probabilities, not scores"
        order = probabilities.argsort(descending=True)
        assert agree[order[:150]].mean() > agree[order[150:]].mean() + 0.1
    assert bool(exits.learned[-1].isnan().all())


def test_a_decision_by_what_was_learned_is_what_the_model_does(task, fitted):
    adaptive, _ = fitted
    plan = replace(full_plan(adaptive.encoder.sizes), confidence="learned")
    exits = outcomes(adaptive, task, task.test.subset(range(40)), plan)
    values = exits.learned[1].sort().values
    # between two inputs: one alone is rounded otherwise than in a batch
    tried = (decide(exits, float(middle)) for middle in (values[1:] + values[:-1]) / 2)
    decision = next(candidate for candidate in tried if len(candidate.layers.unique()) == 3)
    adaptive.plan = decision.plan
    layers, flops = [], []
    for index in range(40):
        batch = task.collate([task.test[index]])
        batch.pop("labels")
        with sparing.record(adaptive) as log, torch.no_grad():
            layers.append(int(adaptive(**batch).layers))
        flops.append(float(log["encoder/flops"][0]))
    assert decision.layers.tolist() == layers
    assert decision.flops.tolist() == flops


def test_it_is_saved_and_frozen_and_older_models_have_none(task, fitted, tmp_path):
    adaptive, _ = fitted
    plan = replace(full_plan(adaptive.encoder.sizes), exits=(3,), threshold=0.5)
    adaptive.plan = replace(plan, confidence="learned")
    adaptive.save_pretrained(tmp_path / "new")
    loaded = sparing.load(tmp_path / "new")
    frozen = freeze(adaptive)
    assert list(loaded.encoder.confidences) == ["2", "3"]
    assert list(frozen.encoder.confidences) == ["3"]
    batch = task.collate([task.test[index] for index in range(30)])
    batch.pop("labels")
    layers = adaptive(**batch).layers
    assert len(layers.unique()) == 2
    for other in (loaded, frozen):
        assert torch.equal(other(**batch).layers, layers)
    assert [segment.confidence is not None for segment in segments(adaptive)] == [True, False]
    older = _adaptive()
    older.save_pretrained(tmp_path / "old")
    assert "confidences" not in (tmp_path / "old" / "config.json").read_text()
    assert not sparing.load(tmp_path / "old").encoder.confidences
    with pytest.raises(UsageError, match="fit_confidence"):
        older.plan = adaptive.plan = replace(plan, confidence="learned")


def test_other_examples_make_another_head_and_the_same_make_the_same(task):
    heads = []
    for seed in (0, 0, 1):
        adaptive = _adaptive()
        fit_confidence(adaptive, task, examples=120, seed=seed)
        heads.append(adaptive.encoder.confidence_head(2).linear.weight)
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


def test_where_all_agree_nothing_is_certain(task):
    adaptive = adapt(dense(dtype=torch.float32), [2])
    with torch.no_grad():
        for head in adaptive.encoder.heads.values():
            head.classifier.bias[0] += 1e3
    (fit,) = fit_confidence(adaptive, task, examples=10)  # the fewest that there may be
    assert fit.agreed == 10
    (fit,) = fit_confidence(adaptive, task, examples=98)
    assert (fit.agreed, fit.strength) == (98, None)
    head = adaptive.encoder.confidence_head(2)
    probabilities = head(torch.randn(4, 16), torch.randn(4, 3))
    torch.testing.assert_close(probabilities, torch.full((4,), 99 / 100))


def test_what_cannot_be_fitted(task):
    with pytest.raises(UsageError, match="no exit before the last layer"):
        fit_confidence(_adaptive(()), task)
    with pytest.raises(UsageError, match="10 examples or more"):
        fit_confidence(_adaptive(), task, examples=9)
    with pytest.raises(UsageError, match="unknown split 'trian'"):
        fit_confidence(_adaptive(), task, split="trian")
