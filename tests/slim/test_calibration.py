"""The guarantee of slim rests on held-out rows that had no part in choosing the plan."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from sparing.slim.verify import calibrate_plan

from sparing.core.errors import UsageError
from sparing.layers.plan import full_plan
from sparing.measure.calibration import upper_bound
from sparing.slim.engines import Engines
from sparing.slim.models import Models, halves, recipes
from sparing.slim.options import Options
from sparing.slim.state import State, Surveyed, read_state, write_state
from sparing.slim.steps import Steps
from sparing.tasks import Examples, Task
from sparing.train.elastic import Draw
from sparing.transfer.adaptive import adapt
from tests.transfer.classifiers import dense, images

ROWS = 41
DELTA = 0.05
CLASSES = ("a", "b", "c")


@pytest.fixture(scope="module")
def task():
    pixels = images(ROWS)["pixel_values"].float()
    labels = torch.arange(ROWS) % 3
    # the position of each row, so that a half can be traced back to its rows
    pixels[:, 0, 0, 0] = torch.arange(float(ROWS))
    held_out, test = (
        Examples("pixel_values", pixels, labels),
        Examples("pixel_values", pixels + 100, labels),
    )
    return Task("small", "image", test, held_out, test, CLASSES, 5, "none", "generated")


def _named(model):
    model.config.id2label = dict(enumerate(CLASSES))
    model.config.label2id = {name: number for number, name in enumerate(CLASSES)}
    return model


@pytest.fixture(scope="module")
def models(task, tmp_path_factory):
    """A served model that answers otherwise than the dense one for some of the rows."""
    folder = tmp_path_factory.mktemp("slim")
    _named(dense("vit", dtype=torch.float32)).save_pretrained(folder / "source")
    served = folder / "models" / "adaptive"
    adapt(_named(dense("vit", dtype=torch.float32, seed=2))).save_pretrained(served)
    (served / "result.json").write_text("{}")
    source = str(folder / "source")
    return Models(source, task, folder, *recipes("digits", source, 1, 1, 0), Draw(), 0)


def _steps(models, epsilon=0.0, **plan):
    """The steps, in a folder where a plan is chosen and was calibrated before, by mistake."""
    whole = replace(full_plan(models.adaptive().encoder.sizes), **plan)
    write_state(models.folder, State(chosen=Surveyed(whole, 1.0), threshold=0.123))
    engines = Engines(models.task, models.folder / "engines", 1, compiled=False)
    return Steps(models, engines, Options(epsilon=epsilon, delta=DELTA))


@torch.no_grad()
def _disagreements(models, examples):
    given = {"pixel_values": examples.inputs}
    answers = [model(**given).logits.argmax(-1) for model in (models.adaptive(), models.baseline())]
    return int((answers[0] != answers[1]).sum())


def test_the_halves_are_disjoint_and_calibration_reads_the_second(models):
    first, second = halves(models.task.validation)
    rows = [set(half.inputs[:, 0, 0, 0].tolist()) for half in (first, second)]
    assert not rows[0] & rows[1]
    assert rows[0] | rows[1] == set(range(ROWS))
    assert (len(first), len(second)) == (21, 20)
    counts = [_disagreements(models, half) for half in (first, second)]
    assert counts[0] != counts[1], "these rows could not show which half was read"
    share, bound = calibrate_plan(_steps(models))
    assert share.count == bound.count == len(second)
    assert share.labels["disagreements"] == counts[1]
    assert share.value == counts[1] / len(second)
    assert bound.value == upper_bound(counts[1], len(second), DELTA)


def test_the_half_that_chose_is_the_first(models):
    steps = _steps(models)
    for half, expected in zip(steps.parts, halves(models.task.validation), strict=True):
        assert torch.equal(half.inputs, expected.inputs)


def test_a_rate_is_promised_only_from_enough_rows_of_the_second_half(models):
    with pytest.raises(UsageError, match=r"^20 held-out inputs are too few"):
        calibrate_plan(_steps(models, epsilon=0.1))


def test_a_calibration_that_is_done_again_does_not_begin_from_its_old_threshold(models):
    steps = _steps(models, exits=(1,), threshold=0.6)
    bound = calibrate_plan(steps)[1]
    assert read_state(models.folder).threshold == steps.served().plan.threshold == 0.6
    assert json.loads(bound.labels["plan"]) == steps.served().plan.to_dict()
