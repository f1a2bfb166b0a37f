"""Which plans are fine-tuned at fixed width, and where inputs then leave."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from sparing.slim.search.fine_tune import Attempt, Trained, attempts, boldest_alike

from sparing.layers.plan import Plan, full_plan
from sparing.slim.search import fine_tune as tuning
from sparing.slim.search.choose import best_fixed, survey_plans
from sparing.slim.search.exits import Outcomes, dense_flops
from sparing.slim.search.frontier import Point, Variant, best, contenders, points_of
from sparing.slim.state import Form, State, Surveyed, read_state, write_state
from sparing.slim.study import Options, steps_of
from sparing.tasks import load_task
from sparing.transfer.families import layer_sizes

DEEP = Plan((2,) * 4, (8,) * 4, exits=(1, 2, 3), threshold=0.7)
DEPTHS = tuple(
    Surveyed(DEEP.shortened(n).without_choice, 0.2 * n, 0.2 * n, fixed=True) for n in (1, 2, 3, 4)
)


def surveyed(cost, plan=DEEP, fallback=None):
    return State(DEPTHS, chosen=Surveyed(plan, cost, cost), fallback=fallback)


def test_a_shallow_plan_of_no_more_arithmetic_is_tried_first():
    first, second = attempts(surveyed(0.65))
    assert (first.kind, second.kind) == ("shallow", "chosen")
    assert (first.plan.layers, first.plan.stops) == (3, (1, 2))
    assert first.plan.threshold == DEEP.threshold
    assert first.share == second.share == 0.65
    assert second.plan == DEEP


@pytest.mark.parametrize(
    ("most", "depth"),
    [(0.62, 3), (0.58, 2), (0.9, 2), (0.1, 1)],  # near 0.6; only 0.4 fits; none near; none fits
)
def test_a_fixed_plan_is_the_best_of_those_that_cost_nearly_as_much(most, depth):
    lucky = [0.7, 0.9, 0.8]  # the second is the best by chance, at two thirds of the third's cost
    points = [replace(p, score=score) for p, score in zip(DEPTHS[:3], lucky, strict=True)]
    assert best_fixed(State(tuple(points)), most).plan.layers == depth


@pytest.mark.parametrize(
    ("costs", "scores", "kept"),
    [
        ((0.3, 0.4), (0.8, 0.9), (0.3, 0.4)),
        ((0.3, 0.4), (0.9, 0.8), (0.3, 0.4)),  # only a much cheaper one beats it
        ((0.33, 0.4), (0.9, 0.8), (0.33,)),
        ((0.33, 0.4), (0.9, 0.9), (0.33,)),
        ((0.4, 0.45, 0.55), (0.9, 0.88, 0.87), (0.4,)),  # by one that is beaten itself
    ],
)
def test_contenders_are_what_no_plan_of_nearly_the_arithmetic_beats(costs, scores, kept):
    points = [
        Point("depth", Variant(1.0), DEEP, score, cost, 4.0)
        for cost, score in zip(costs, scores, strict=True)
    ]
    found = contenders(points[::-1])
    assert tuple(point.cost_share for point in found) == kept
    assert [point for point in best(points) if point not in found] == []


def test_a_shallow_plan_may_cost_what_its_exits_save():
    first, _ = attempts(surveyed(0.56))
    assert first.plan.layers == 3  # 0.6 of the arithmetic, to be brought down to 0.56
    late = replace(DEEP, exits=(3,))
    first, _ = attempts(surveyed(0.56, late))
    assert first.plan.stops == (1, 2)  # all the model has, not those of the chosen plan alone


def test_without_a_depth_to_leave_before_there_is_nothing_shallow():
    assert [each.kind for each in attempts(surveyed(0.25))] == ["chosen"]
    fixed = DEEP.shortened(3).without_choice
    assert [each.kind for each in attempts(surveyed(0.65, fixed))] == ["chosen"]


def test_what_was_good_already_is_tried_last():
    found = attempts(surveyed(0.65, fallback=Surveyed(DEEP, 0.9, 0.9)))
    assert [(each.kind, each.share) for each in found[1:]] == [("chosen", 0.65), ("fallback", 0.9)]


def test_the_threshold_is_the_boldest_that_answers_alike():
    plan = Plan((2, 2), (8, 8), exits=(1,), threshold=0.7)
    # two classes; the first exit is sure of 0.58 to 0.99, and wrong where it is least sure
    sure = torch.tensor([0.58, 0.8, 0.9, 0.96, 0.99])
    early = torch.stack((sure, 1 - sure), -1).log()
    late = torch.tensor([0.01, 0.99, 0.99, 0.99, 0.99])
    late = torch.stack((late, 1 - late), -1).log()
    whole = replace(plan, exits=(), threshold=1.0)
    flops = torch.ones(2, 5, dtype=torch.float64)
    labels = torch.tensor([1, 0, 0, 0, 0])
    found = Outcomes(whole, (1, 2), torch.stack((early, late)), flops, 0, labels)
    task = load_task("digits", patch_size=4)
    points = points_of(task, Variant(1.0), found, 2.0)

    def threshold(share, changed):
        return boldest_alike(points, found, plan, share, changed).plan.threshold

    assert threshold(1.0, 0.0) == 0.6  # 0.5 lets the wrong one leave
    assert threshold(1.0, 0.2) == 0.5
    assert threshold(0.75, 0.0) == 0.6
    assert threshold(0.5, 0.0) == 0.5  # all leave: nothing else is so cheap
    assert threshold(0.1, 0.0) == 0.5


@pytest.mark.parametrize(
    ("good", "control", "done"),
    [
        ({"chosen"}, True, ["chosen", "alone 0 of 0.4"]),
        ({"alone 0"}, True, ["chosen", "alone 0 of 0.4"]),  # as fast as was asked for
        ({"fallback"}, True, ["chosen", "alone 0 of 0.4", "fallback", "alone 1 of 0.8"]),
        (set(), True, ["chosen", "alone 0 of 0.4", "fallback", "alone 1 of 0.8"]),
        (set(), False, ["chosen", "fallback"]),
    ],
)
def test_a_fixed_plan_as_fast_as_asked_is_tried_before_one_that_is_not(
    tmp_path, monkeypatch, good, control, done
):
    plans = [Attempt(DEEP, 0.4, "chosen"), Attempt(DEEP, 0.8, "fallback")]
    seen = []

    def trained(name, attempt, folder):
        form = Form(attempt.kind, folder, DEEP, attempt.share, attempt.share, 0.9, name in good)
        point = Point("depth", Variant(1.0), DEEP, 0.9, attempt.share, 4.0)
        return Trained(form, [point], 0.0, 0)

    def train(steps, attempt, folder):
        seen.append(attempt.kind)
        assert folder == ("fixed-width" if attempt is plans[0] else "fixed-width-2")
        return trained(attempt.kind, attempt, folder)

    def alone(steps, share, before):
        seen.append(f"alone {before} of {share}")
        return trained(f"alone {before}", Attempt(DEEP, share, "alone"), f"static {before}")

    monkeypatch.setattr(tuning, "attempts", lambda state: plans)
    monkeypatch.setattr(tuning, "_trained", train)
    monkeypatch.setattr(tuning, "_alone", alone)
    steps = steps_of(Options(static_control=control), load_task("digits", patch_size=4), tmp_path)
    write_state(tmp_path, State(chosen=DEPTHS[1], fine_tunes=True, threshold=0.5))
    tuning.fine_tune(steps)
    assert seen == done
    state = read_state(tmp_path)
    assert [form.kind for form in (*state.fine_tuned, *state.alone)] == sorted(
        (name.split()[0] for name in seen), key=lambda kind: kind == "alone"
    )
    assert state.threshold is None  # it was calibrated for what was served before


def test_a_fixed_plan_is_distilled_in_a_folder_of_its_own_and_read_back(tmp_path):
    options = Options(model="vit", task="digits", dense_epochs=1, epochs=1)
    models = steps_of(options, load_task("digits", patch_size=4), tmp_path).models
    models.train_dense()
    whole = full_plan(layer_sizes(models.dense().config))
    first = models.train_static(whole, "static")
    models.train_static(whole.shortened(1), "static-2")
    assert {path.name for path in (tmp_path / "models").glob("static*")} == {"static", "static-2"}
    assert models.opened("static").plan.layers == whole.layers
    assert models.opened("static-2").plan.layers == 1
    again = models.train_static(whole, "static")
    assert (again.steps, again.train_time_s) == (first.steps, first.train_time_s)


def test_costs_are_shares_of_the_dense_model_also_where_heads_were_narrowed(tmp_path):
    options = Options(
        model="vit",
        task="digits",
        dense_epochs=1,
        epochs=1,
        head_dims=0.5,
        widths=(1.0,),
        width_chances=(1.0,),
        tokens=(1.0,),
    )
    steps = steps_of(options, load_task("digits", patch_size=4), tmp_path)
    for training in (steps.models.train_dense, steps.models.train_adaptive):
        training()
    ours = steps.models.adaptive()
    layers = len(ours.encoder.sizes)
    found = [r for r in survey_plans(steps) if r.name == "frontier_score"]
    whole = next(r for r in found if r.labels["kind"] == "depth" and r.labels["depth"] == layers)
    share = dense_flops(ours, steps.parts[0]).mean() / steps.dense_flops
    assert share < 0.9
    assert whole.labels["cost_share"] == pytest.approx(float(share))


def test_the_rows_of_a_step_are_those_of_dense_and_ours(tmp_path):
    task = load_task("digits", patch_size=4)
    usual = steps_of(Options(), task, tmp_path).models
    models = steps_of(Options(batch_size=7), task, tmp_path).models
    assert (models.dense_recipe.batch_size, models.recipe.batch_size) == (7, 7)
    assert models.dense_recipe == replace(usual.dense_recipe, batch_size=7)
