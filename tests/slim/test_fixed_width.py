"""The plan that is cut out and fine-tuned at its width, and the control that is trained alone."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import sparing
from sparing.core.errors import UsageError
from sparing.layers.plan import Plan
from sparing.slim import saving
from sparing.slim.evidence.candidates import Candidate
from sparing.slim.inputs import inputs_of
from sparing.slim.search import fixed_width
from sparing.slim.search.choose import survey_plans
from sparing.slim.search.exits import dense_flops
from sparing.slim.search.fixed_width import fine_tune, static_records, train_static
from sparing.slim.state import State, read_state, write_state
from sparing.slim.study import Options, steps_of, task_of
from sparing.tasks import load_task
from tests.slim.conftest import DIGITS, of_name, only


@pytest.fixture(scope="module")
def task():
    return load_task("digits", patch_size=4)


@pytest.fixture
def steps(images_run, task, tmp_path):
    """The steps of the images run, in a folder of their own with its models."""
    shutil.copytree(images_run.folder / "models", tmp_path / "models")
    write_state(tmp_path, read_state(images_run.folder))
    return steps_of(DIGITS, task, tmp_path)


def test_every_exit_of_the_plan_stays_and_its_widths_are_final(texts_run):
    state = read_state(texts_run.folder)
    model = sparing.load(texts_run.folder / "models" / state.folder)
    plan = state.chosen.plan
    assert [(size.heads, size.neurons) for size in model.encoder.sizes] == list(
        zip(plan.heads, plan.neurons, strict=True)
    )
    wide = sparing.load(texts_run.folder / "models" / "adaptive")
    stops = tuple(n for n in wide.encoder.exits if n < plan.layers)
    assert model.plan.stops == stops, "the exits of a plan are cut off at a threshold of 1"
    assert stops, "this test needs a plan with exits"
    parts = of_name(texts_run, "form_segments", arm="slim")
    exiting = [record.value for record in parts if record.labels["threshold"] < 1]
    assert exiting == [len(stops) + 2]  # and the dense model at the end
    cuts = {r.labels["layers"]: r.value for r in parts if r.labels["layers"]}
    assert cuts == dict.fromkeys((*stops, plan.layers), 2)
    trained, cut = model.encoder.layers[0].output.weight, wide.encoder.layers[0].output.weight
    assert not torch.equal(trained, cut[:, : trained.shape[1]])
    for (name, mine), (_, theirs) in zip(
        model.embeddings.named_parameters(), wide.embeddings.named_parameters(), strict=True
    ):
        assert torch.equal(mine, theirs), f"{name} costs no FLOPs and is not trained"


def test_its_points_name_thresholds_and_the_front_is_kept(images_run):
    points = of_name(images_run, "fixed_width_score")
    stored = read_state(images_run.folder).thresholds
    front = {point.labels["plan"] for point in points if point.labels["on_front"]}
    assert front == {json.dumps(point.plan.to_dict()) for point in stored}
    assert all("divergence" in point.labels for point in points)


def test_without_a_chosen_plan_it_says_so(steps):
    write_state(steps.models.folder, State())
    with pytest.raises(UsageError, match="an earlier step has failed"):
        fine_tune(steps)


def test_the_training_has_no_dropout_and_all_exits(steps, monkeypatch):
    class Seen(Exception):
        """Training would begin."""

    def look(model, task, recipe, *, objective, **_):
        raise Seen(model, task, recipe, objective)

    monkeypatch.setattr(fixed_width, "train", look)
    with pytest.raises(Seen) as seen:
        fine_tune(steps)
    model, taught, recipe, objective = seen.value.args
    assert model.config.hidden_dropout_prob == model.config.attention_probs_dropout_prob == 0
    assert recipe.epochs == DIGITS.fixed_width_epochs
    assert type(objective).__name__ == "ElasticLoss"
    assert torch.equal(taught.validation.labels, steps.parts[0].labels)


def test_the_epoch_is_chosen_by_the_whole_plan_and_not_by_its_first_exit(
    texts_run, texts_options, tmp_path, monkeypatch
):
    run = shutil.copytree(texts_run.folder, tmp_path / "run")
    steps = steps_of(texts_options, task_of(texts_options)[0], run)

    class Seen(Exception):
        """Training would begin."""

    def look(model, *_, **__):
        raise Seen(model)

    monkeypatch.setattr(fixed_width, "train", look)
    with pytest.raises(Seen) as seen:
        fine_tune(steps)
    model = seen.value.args[0].eval()
    _, batch = inputs_of(steps.task, steps.parts[0], 64)[0]
    assert model.plan.stops, "this test needs a plan with exits"
    answers, plan = [], model.plan
    for threshold in (plan.threshold, 1.0, 0.0):
        model.plan = replace(plan, threshold=threshold)
        with torch.no_grad():
            answers.append(model(**batch).logits)
    validated, whole, first = answers
    assert torch.equal(validated, whole)
    assert not torch.allclose(validated, first)


SERVED = (
    ("slim", 0.9, False, None),
    ("slim", 0.9, True, None),
    ("slim", 0.9, True, 1),
    ("slim", 1.0, False, None),
    ("dense", 1.0, False, None),
)


@pytest.mark.parametrize(("model", "threshold", "cascade", "layers"), SERVED)
def test_a_control_is_trained_only_where_exits_are_served(
    steps, monkeypatch, model, threshold, cascade, layers
):
    """It costs no more FLOPs than the served form has in the mean."""
    state = read_state(steps.models.folder)
    timed = next(t for t in state.candidates if t.candidate.model == model)
    one = replace(timed.candidate, threshold=threshold, cascade=cascade, layers=layers)
    points = tuple(replace(p, candidate=one, speed=99.0) for p in state.points)
    write_state(steps.models.folder, replace(state, points=points, static=""))
    assert steps.served() == one
    trained = []

    class Result:
        train_time_s, examples_seen = 1.0, 10

    monkeypatch.setattr(
        type(steps.models), "train_static", lambda _, plan, name: trained.append(plan) or Result
    )
    records = static_records(steps, train_static(steps))
    if not one.exits:
        assert (records, trained, read_state(steps.models.folder).static) == ([], [], "")
        return
    (plan,) = trained
    assert not plan.stops
    assert read_state(steps.models.folder).static == "static"
    record = next(r for r in records if r.name == "static_plan")
    assert Plan.from_dict(json.loads(record.labels["plan"])) == plan
    cheapest = min(point.cost_share for point in state.fixed)
    assert record.value <= max(record.labels["against"], cheapest)


def test_the_control_is_trained_as_long_as_ours_and_read_back(images_run, steps):
    assert steps.models.whole_recipe.epochs == DIGITS.epochs + DIGITS.fixed_width_epochs
    point = read_state(images_run.folder).fixed[0]
    first = steps.models.train_static(point.plan, "static-alone")
    again = steps.models.train_static(point.plan, "static-alone")
    assert (again.steps, again.train_time_s) == (first.steps, first.train_time_s)
    seen = {r.labels["arm"]: r.value for r in of_name(images_run, "train_examples")}
    assert first.examples_seen == seen["slim"] + seen["slim at fixed width"]
    assert steps.models.opened("static-alone").plan.layers == point.plan.layers


def test_costs_are_shares_of_the_dense_model(steps):
    ours = steps.models.adaptive()
    layers = len(ours.encoder.sizes)
    records = [r for r in survey_plans(steps) if r.name == "frontier_score"]
    whole = next(
        r
        for r in records
        if r.labels["kind"] == "depth" and r.labels["depth"] == layers and r.labels["width"] == 1
    )
    share = dense_flops(ours, steps.parts[0]).mean() / steps.dense_flops
    assert whole.labels["cost_share"] == pytest.approx(float(share))


def test_the_rows_of_a_step_are_those_of_dense_and_ours(task, tmp_path):
    usual = steps_of(Options(), task, tmp_path).models
    models = steps_of(Options(batch_size=7), task, tmp_path).models
    assert (models.dense_recipe.batch_size, models.recipe.batch_size) == (7, 7)
    assert models.dense_recipe == replace(usual.dense_recipe, batch_size=7)


def test_what_both_dense_models_answer_costs_both(texts_run, texts_options, monkeypatch):
    """At a second threshold of 0.5 the dense model in INT8 answers all that go on, near 1 none."""
    monkeypatch.setattr("sparing.export.forms.missing_packages", only("onnxruntime"))
    steps = steps_of(texts_options, task_of(texts_options)[0], texts_run.folder)
    key = next(form.candidate for form in steps.state.forms if form.candidate.exits)
    one = replace(key, threshold=0.9, cascade=True, second=0.7)
    alone = fixed_width._mean_share(steps, replace(one, cascade=False, second=1.0))
    straight = fixed_width._mean_share(steps, replace(one, second=1.0))
    assert alone < straight
    assert fixed_width._mean_share(steps, replace(one, second=0.5)) == pytest.approx(straight)
    both = fixed_width._mean_share(steps, replace(one, second=0.999999))
    assert both - straight == pytest.approx(straight - alone)


@pytest.mark.parametrize(
    ("one", "layers", "threshold"),
    [
        (Candidate("slim", "eager", "float32", "", 0.9, cascade=True), 3, 0.9),
        (Candidate("slim", "eager", "float32"), 3, 1.0),
        (Candidate("slim", "eager", "float32", "", 0.9, cascade=True, layers=2), 2, 1.0),
        (Candidate("dense", "eager", "float32"), 3, 1.0),
    ],
)
def test_the_saved_plan_is_what_is_served(one, layers, threshold):
    model = SimpleNamespace(plan=Plan((2, 2, 1), (8, 8, 4), exits=(1, 2), threshold=0.5))
    plan = saving._plan_of(model, one)
    assert (plan.layers, plan.threshold, bool(plan.exits)) == (layers, threshold, threshold < 1)
