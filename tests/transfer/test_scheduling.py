"""Schedules of patches: their values, what is selected in a step, and what it adds up to."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import sparing
from sparing.core.errors import UsageError
from sparing.models import build_model
from sparing.tasks import load_task
from sparing.train import Recipe, train
from sparing.train.objective import LabelLoss
from sparing.transfer.patching import Selection
from sparing.transfer.scheduling import PatchSchedule, ScheduledPatches

RECIPE = Recipe(epochs=4, batch_size=10)


def scheduled(schedule, selection=None, examples=35, recipe=RECIPE):
    return ScheduledPatches(
        LabelLoss(), selection or Selection(keep=0.5), schedule, recipe, examples
    )


def test_the_printed_decay_and_that_of_the_code_part_ways():
    printed = PatchSchedule("decay", start=0.5)
    code = PatchSchedule("compounding", start=0.5)
    assert [printed.value(e, 0.0) for e in (0, 1)] == [code.value(e, 0.0) for e in (0, 1)]
    assert printed.value(10, 0.0) == pytest.approx(0.5 / 1.05)
    # what the published code comes to after 5, 10 and 20 epochs
    values = [round(code.value(epoch, 0.0), 3) for epoch in (5, 10, 20)]
    assert values == [0.464, 0.382, 0.181]


@pytest.mark.parametrize(("start", "end"), [(0.3, 1.0), (1.0, 0.3)])
def test_linear_and_cosine_go_both_ways(start, end):
    for kind in ("linear", "cosine"):
        schedule = PatchSchedule(kind, "keep", start, end)
        assert schedule.value(0, 0.0) == pytest.approx(start)
        assert schedule.value(0, 0.5) == pytest.approx((start + end) / 2)
        assert schedule.value(3, 1.0) == pytest.approx(end)
    cosine = PatchSchedule("cosine", "keep", start, end)
    early = end + (start - end) * (1 + math.cos(math.pi / 4)) / 2
    assert cosine.value(0, 0.25) == pytest.approx(early)


def test_all_or_none_is_selected_in_a_step_as_often_as_the_chance_says():
    objective = scheduled(PatchSchedule(start=0.3), examples=10_000)
    drawn = [objective.selection_at(step).chance for step in range(4000)]
    assert set(drawn) == {0.0, 1.0}
    assert sum(drawn) / len(drawn) == pytest.approx(0.3, abs=0.03)
    assert drawn == [objective.selection_at(step).chance for step in range(4000)]
    other = scheduled(PatchSchedule(start=0.3), recipe=replace(RECIPE, seed=1), examples=10_000)
    assert drawn != [other.selection_at(step).chance for step in range(4000)]


def test_tokens_add_up_over_the_whole_training():
    always = scheduled(PatchSchedule())
    assert always.tokens(16) == 4 * 35 * (1 + 8)
    never = scheduled(PatchSchedule(start=0.0))
    assert never.tokens(16, extra=2) == 4 * 35 * (2 + 16)
    growing = scheduled(PatchSchedule("linear", "keep", 0.25, 1.0))
    by_hand = 0
    for step in range(16):
        images = 5 if step % 4 == 3 else 10
        by_hand += images * (1 + round(16 * (0.25 + 0.75 * step / 16)))
    assert growing.tokens(16) == by_hand


@pytest.fixture(scope="module")
def digits():
    task = load_task("digits", patch_size=2)
    few = task.train.subset(list(range(40)))
    return replace(task, train=few)


def small(task):
    model = build_model("vit", task, seed=0, layers=2, width=16, heads=2)
    selection = Selection(keep=0.5, mean=(0.0,), deviation=(1.0,))
    sparing.select_patches(model, selection)
    return model, selection


def test_a_training_sees_the_tokens_that_were_foretold(digits, tmp_path, monkeypatch):
    model, selection = small(digits)
    recipe = Recipe(epochs=3, batch_size=16)
    schedule = PatchSchedule("compounding", start=0.7, rate=0.5)
    objective = ScheduledPatches(LabelLoss(), selection, schedule, recipe, len(digits.train))
    token_counts = []

    def count(module, args, output):
        if module.training:
            token_counts.append(output.shape[0] * output.shape[1])

    model.vit.embeddings.register_forward_hook(count)
    train(model, digits, recipe, output_dir=tmp_path / "run", objective=objective)
    patches = (digits.image_size // digits.patch_size) ** 2
    assert sum(token_counts) == objective.tokens(patches)
    assert len(set(token_counts)) > 2  # some batches whole, some selected, the last one smaller
    chosen = sparing.transfer.patching.selector_of(model).selection
    assert chosen == selection


def test_a_model_that_selects_nothing_is_refused(digits):
    model = build_model("vit", digits, seed=0, layers=1, width=16, heads=2)
    batch = digits.collate([digits.train[0]])
    with pytest.raises(UsageError, match="select_patches"):
        scheduled(PatchSchedule())(model, batch, 0)


def test_the_selection_comes_back_after_a_failure(digits):
    model, selection = small(digits)
    with pytest.raises(ValueError, match="unpack"):
        scheduled(PatchSchedule(start=0.0), selection)(model, {"pixel_values": torch.ones(1)}, 0)
    assert sparing.transfer.patching.selector_of(model).selection == selection


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "cosin"}, "cosine"),
        ({"field": "keeps"}, "keep"),
        ({"start": 1.2}, "start"),
        ({"field": "keep", "end": 0.0}, "end"),
        ({"rate": -1.0}, "rate"),
    ],
)
def test_impossible_schedules_are_named(options, words):
    with pytest.raises(UsageError, match=words):
        PatchSchedule(**options)


def test_a_schedule_needs_images():
    with pytest.raises(UsageError, match="image"):
        scheduled(PatchSchedule(), examples=0)
