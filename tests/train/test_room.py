"""Lengths that memory does not allow are refused before the first step, with the prediction."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.models import build_model
from sparing.tasks import Examples
from sparing.train import Recipe, evaluate, train
from sparing.train import room as room_module
from sparing.train.room import fitting_batch, predicted_bytes, require_room
from sparing.transfer.swap import swap
from tests.train.small import token_model, token_task


def bert(mechanism="", **options):
    task = token_task()
    model = build_model("bert", task, layers=3, heads=2, width=8)
    if mechanism:
        swap(model, mechanism, tokens=task.tokens, **options)
    return model


@pytest.fixture
def free(monkeypatch):
    def to(count):
        monkeypatch.setattr(room_module, "free_bytes", lambda: count)

    return to


def saved_for_backward(model, batch, tokens):
    """Bytes of the distinct tensors that the forward pass keeps."""
    bytes_of_storage = {}

    def keep(tensor):
        bytes_of_storage[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    ids = torch.full((batch, tokens), 2)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model(input_ids=ids).logits.sum()
    del output
    return sum(bytes_of_storage.values())


def test_eager_keeps_a_square_in_every_layer():
    square = 4 * 5 * 2 * 100**2  # bytes, examples, heads
    model = bert("eager")
    assert predicted_bytes(model, 5, 100) == 2 * square
    assert predicted_bytes(model, 5, 100, training=True) == (3 + 1) * square
    model.bert.encoder.gradient_checkpointing = True
    assert predicted_bytes(model, 5, 100, training=True) == 2 * square
    model.bert.encoder.gradient_checkpointing = False
    model.bert.embeddings.requires_grad_(False)
    assert predicted_bytes(model, 5, 100, training=True) == 2 * square


def test_the_prediction_is_never_more_than_what_a_model_keeps():
    task = replace(token_task(), tokens=300)
    for name in ("softmax", "eager", "linear", "linformer", "window", "nystrom", "uniform"):
        model = build_model("bert", task, layers=3, heads=2, width=8)
        swap(model, name, tokens=300)
        predicted = predicted_bytes(model, 4, 300, training=True)
        peak = predicted_bytes(model, 4, 300)
        assert 0 < predicted <= saved_for_backward(model, 4, 300) + peak, name


def test_fused_attention_has_no_square():
    model = bert()
    assert model.config._attn_implementation == "sdpa"
    assert predicted_bytes(model, 32, 10**6, training=True) == 0
    model.set_attn_implementation("eager")
    assert predicted_bytes(model, 1, 10**6) == 2 * 4 * 2 * 10**12
    model = bert("softmax")
    long, longer = (predicted_bytes(model, 1, n, training=True) for n in (10**5, 2 * 10**5))
    assert longer == 2 * long


def test_training_that_cannot_fit_is_refused_with_the_prediction(tmp_path, free):
    task = token_task()
    model = bert("eager")
    longest = max(task.train.lengths)
    needed = predicted_bytes(model, 16, longest, training=True)
    free(needed - 1)
    with pytest.raises(UsageError, match=r"training on a batch of 16 examples of 9 tokens"):
        train(model, task, Recipe(epochs=1, batch_size=16), output_dir=tmp_path / "a")
    with pytest.raises(UsageError, match=r"smaller batches \(recipe.batch_size\), or a mechanism"):
        require_room(model, task, Recipe(batch_size=16))
    assert not (tmp_path / "a").exists()
    require_room(model, task, Recipe(batch_size=8))
    free(needed)
    require_room(model, task, Recipe(batch_size=16))
    # the fused twin of the same size goes through
    train(token_model(task), task, Recipe(epochs=1, batch_size=16), output_dir=tmp_path / "b")


def test_evaluating_takes_smaller_batches_and_refuses_what_cannot_fit(free):
    task, model = token_task(), bert("eager")
    free(10**9)
    whole = evaluate(model, task)
    longest = max(task.test.lengths)
    one = predicted_bytes(model, 1, longest)
    free(8 * one)
    assert fitting_batch(model, task, task.test, 128) == 2
    assert fitting_batch(model, task, task.test.subset([0, 1]), 128) == 128
    evaluation = evaluate(model, task)
    assert evaluation.predictions == whole.predictions
    assert evaluation.loss == pytest.approx(whole.loss, rel=1e-5)
    free(one - 1)
    with pytest.raises(UsageError, match=r"evaluating one example of 9 tokens needs at least 0\.0"):
        evaluate(model, task)


def test_pictures_are_not_asked(free):
    task = token_task()
    pictures = Examples("pixel_values", torch.zeros(3, 1, 8, 8), torch.zeros(3, dtype=torch.long))
    free(10**4)
    require_room(bert("eager"), replace(task, train=pictures), Recipe())
