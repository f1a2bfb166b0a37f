from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sparing.core.errors import CheckpointError, UsageError
from sparing.train import Distillation, Recipe, default_recipe, evaluate
from sparing.train.checkpoints import load_weights, save_weights
from sparing.train.distillation import distillation_loss, hidden_distance, output_divergence
from sparing.train.evaluation import batches_by_length
from sparing.train.order import LengthGrouped
from tests.train.small import token_model, token_task


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"warmup_share": 1.0},
        {"weight_decay": -1.0},
        {"patience": 0},
        {"precision": "half"},
        {"schedule": "steep"},
        {"save_every_steps": -1},
    ],
)
def test_impossible_recipes_are_refused(options):
    # The checks of the annotations may speak first.
    with pytest.raises((UsageError, TypeError), match=next(iter(options))):
        Recipe(**options)


def test_impossible_distillation_is_refused():
    with pytest.raises(UsageError, match="temperature"):
        Distillation(temperature=0.0)
    with pytest.raises(UsageError, match="outputs"):
        Distillation(outputs=-1.0)


def test_default_recipes_know_both_spellings():
    assert default_recipe("fashion-mnist") == default_recipe("fashion_mnist") != Recipe()
    assert default_recipe("digits", pretrained=True).learning_rate < 1e-3
    assert default_recipe("unheard of") == Recipe()


def test_batches_hold_like_lengths_and_every_example_once():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 100, (1000,), generator=generator).tolist()
    order = LengthGrouped(lengths, 10, seed=0)
    indices = list(order)
    assert Counter(indices) == Counter(range(1000))
    spreads = [
        max(lengths[i] for i in batch) - min(lengths[i] for i in batch)
        for batch in (indices[start : start + 10] for start in range(0, 1000, 10))
    ]
    assert sum(spreads) / len(spreads) < 5
    first = [lengths[indices[start]] for start in range(0, 1000, 10)]
    assert first != sorted(first) != first[::-1]


def test_the_order_is_a_function_of_seed_and_epoch():
    lengths = [3, 1, 2, 5, 4, 3, 2, 1, 1, 9, 9]

    def order(seed, epoch):
        sampler = LengthGrouped(lengths, 2, seed)
        sampler.epoch = epoch
        return list(sampler)

    torch.manual_seed(0)
    first = order(0, 1)
    torch.manual_seed(1)
    assert order(0, 1) == first
    assert order(0, 2) != first != order(1, 1)


def test_the_smaller_batch_stays_last():
    sampler = LengthGrouped([1] * 5 + [2] * 6, 4, seed=0)
    batches = [list(sampler)[start : start + 4] for start in (0, 4, 8)]
    assert [len(batch) for batch in batches] == [4, 4, 3]


def test_examples_of_one_length_are_shuffled():
    assert list(LengthGrouped([1] * 50, 8, seed=0)) != list(range(50))


def test_evaluation_is_in_the_examples_own_order():
    task = token_task()
    model = token_model(task).train()
    evaluation = evaluate(model, task, "train", batch_size=7)
    assert model.training
    model.eval()
    losses = []
    for index in range(len(task.train)):
        batch = task.collate([task.train[index]])
        labels = batch.pop("labels")
        with torch.no_grad():
            logits = model(**batch).logits
        losses.append(float(F.cross_entropy(logits, labels)))
        assert evaluation.correct[index] == bool(logits.argmax(-1) == labels)
    assert evaluation.count == len(losses) == 60
    assert evaluation.accuracy == sum(evaluation.correct) / 60
    assert evaluation.loss == pytest.approx(sum(losses) / 60, rel=1e-5)


def test_evaluation_batches_are_padded_little():
    task = token_task()
    lengths = [
        [task.train.lengths[index] for index in batch] for batch in batches_by_length(task.train, 6)
    ]
    assert sum(max(batch) - min(batch) for batch in lengths) <= max(task.train.lengths)


def test_batches_of_long_examples_are_smaller_and_leave_nothing_out():
    task = token_task()
    lengths, longest = task.train.lengths, max(task.train.lengths)
    batches = list(batches_by_length(task.train, 6, most_tokens=3 * longest))
    assert sorted(index for batch in batches for index in batch) == list(range(len(task.train)))
    padded = [len(batch) * max(lengths[index] for index in batch) for batch in batches]
    assert max(padded) <= 3 * longest
    assert len(batches[0]) == 3
    assert max(map(len, batches)) <= 6
    assert [len(batch) for batch in batches_by_length(task.train, 6, most_tokens=1)] == [1] * 60


def test_evaluation_refuses_what_it_cannot_do():
    task = token_task()
    with pytest.raises(UsageError, match="batch_size is 0"):
        evaluate(token_model(task), task, batch_size=0)
    with pytest.raises(UsageError, match="unknown split"):
        evaluate(token_model(task), task, "dev")


def test_divergence_against_its_definition():
    generator = torch.Generator().manual_seed(0)
    student = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    teacher = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    p, q = (teacher / 3).softmax(-1), (student / 3).softmax(-1)
    expected = 9 * (p * (p / q).log()).sum(-1).mean()
    torch.testing.assert_close(output_divergence(student, teacher, 3.0), expected)


def test_hidden_states_are_matched_by_depth_at_real_tokens():
    keep = torch.tensor([[1, 1, 0]])
    teacher = tuple(torch.full((1, 3, 2), float(layer)) for layer in range(5))
    student = [torch.full((1, 3, 2), float(layer)) for layer in (0, 2, 4)]
    student[1] = torch.full((1, 3, 2), 2.0)
    student[1][0, 2] = 99.0
    assert hidden_distance(tuple(student), teacher, keep) == 0
    assert hidden_distance(tuple(student), teacher, None) > 0
    student[2] = student[2] + 3
    assert hidden_distance(tuple(student), teacher, keep) == 3


def test_teachers_that_do_not_match_are_refused():
    def model(classes, width):
        return lambda output_hidden_states: SimpleNamespace(
            logits=torch.zeros(2, classes), hidden_states=(torch.zeros(2, 3, width),) * 2
        )

    class Fixed(nn.Module):
        def __init__(self, answer):
            super().__init__()
            self.answer = answer

        def forward(self, output_hidden_states=False):
            return self.answer(output_hidden_states)

    batch = {"labels": torch.zeros(2, dtype=torch.long)}
    student = Fixed(model(3, 4))
    with pytest.raises(UsageError, match="5 classes"):
        distillation_loss(student, Fixed(model(5, 4)), batch, Distillation())
    with pytest.raises(UsageError, match=r"set distillation.hidden_states to 0"):
        distillation_loss(student, Fixed(model(3, 8)), batch, Distillation())
    distillation_loss(student, Fixed(model(3, 8)), batch, Distillation(hidden_states=0.0))


class _Shared(nn.Module):
    """Two layers with one weight, as layer-wise sharing makes them, and an empty buffer."""

    def __init__(self, width=3):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.second.weight = self.first.weight
        self.register_buffer("nothing", torch.zeros(0))


def test_shared_weights_are_written_once_and_read_by_all(tmp_path):
    model, other = _Shared(), _Shared()
    save_weights(model, tmp_path)
    load_weights(other, tmp_path)
    assert torch.equal(model.second.weight, other.second.weight)
    assert other.first.weight is other.second.weight


def test_foreign_weights_are_refused(tmp_path):
    save_weights(_Shared(), tmp_path)
    with pytest.raises(CheckpointError, match=r"first.bias is \(3,\), the model's is \(4,\)"):
        load_weights(_Shared(4), tmp_path)
    separate = nn.ModuleDict({"first": nn.Linear(3, 3), "second": nn.Linear(3, 3)})
    with pytest.raises(CheckpointError, match="it holds nothing"):
        load_weights(separate, tmp_path)
    separate.register_buffer("nothing", torch.zeros(0))
    with pytest.raises(CheckpointError, match=r"it does not hold second.weight"):
        load_weights(separate, tmp_path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_weights(_Shared(), tmp_path / "nowhere")
