"""Slim from training to a saved model, on digits in four patches and without ONNX Runtime."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub.repocard import metadata_load
from safetensors.torch import load_file
from sparing.slim.search.fine_tune import attempts

import sparing
from sparing.core.errors import UsageError
from sparing.core.rounding import rounded_up
from sparing.experiment.owned import drop_run
from sparing.experiment.registry import find_study
from sparing.layers.plan import Plan
from sparing.outcome import finish
from sparing.slim import engines, fixed_width, saving, study
from sparing.slim import models as slim_models
from sparing.slim import study as slim
from sparing.slim.engines import Engines
from sparing.slim.options import LONG_SHARES
from sparing.slim.state import State, read_state, served, write_state
from sparing.train import evaluate

SMALL = slim.Options(
    model="vit",
    task="digits",
    task_options={"patch_size": 4},
    dense_epochs=2,
    epochs=2,
    fixed_width_epochs=1,
    batches=(1, 4),
    rounds=1,
    timed_examples=40,
    speed=1.05,
    floor=0.5,
    static_control=True,
    learned_confidence=True,
    memory=False,
)


@pytest.fixture(scope="module", autouse=True)
def without_onnx():
    with pytest.MonkeyPatch.context() as patch:
        for module in (study, engines, saving):
            patch.setattr(module, "has_onnx", lambda: False)
        yield


@pytest.fixture(scope="module")
def told():
    """What the run tells while it is at work."""
    return []


@pytest.fixture(scope="module")
def done(tmp_path_factory, told):
    def tell(fraction, text):
        told.append((fraction, text))

    return find_study("slim").run(SMALL, tmp_path_factory.mktemp("slim") / "run", on_progress=tell)


def of_name(result, name, **labels):
    return [r for r in result.records if r.name == name and labels.items() <= r.labels.items()]


def _confidence(point):
    return json.loads(point.labels["plan"]).get("confidence", "softmax")


def test_every_step_ends(done):
    assert done.failures == []
    assert {record.name for record in done.records} >= {
        "frontier_score",
        "trial_speed",
        "chosen_plan",
        "disagreement_bound",
        "speed_up",
        "score_difference",
        "exit_rate",
        "train_time_s",
    }
    for batch in SMALL.batches:
        forms = of_name(done, "latency_ms", batch=batch, of="mean")
        assert {(r.labels["arm"], r.labels["engine"]) for r in forms} == {
            ("dense", "eager"),
            ("slim", "eager"),
            ("static", "eager"),
        }


def test_its_progress_names_every_training_and_never_goes_back(done, told):
    assert [fraction for fraction, _ in told] == sorted(fraction for fraction, _ in told)
    named = {text.partition(":")[0] for _, text in told if ":" in text}
    assert named >= {"dense", "distil", "fixed-width"}


def test_the_front_rises_and_is_beaten_by_none(done):
    points = of_name(done, "frontier_score")
    front = sorted((p.labels["cost_share"], p.value) for p in points if p.labels["on_front"])
    assert front == sorted(front, key=lambda point: point[1])
    floor = SMALL.floor * of_name(done, "dense_score")[0].value
    for point in points:
        assert ("good" in point.labels) == ("contender" in point.labels)
        assert "contender" in point.labels or not point.labels["on_front"]
        assert not point.labels["on_front"] or point.labels["good"] or point.value < floor
    shown = [p for p in points if p.labels["kind"] != "random" and p.labels["cost_share"] < 1]
    for share, score in front:
        better = [p for p in shown if p.labels["cost_share"] <= share and p.value > score]
        assert not better


def test_the_saved_model_runs_what_was_verified(done):
    model = sparing.load(done.folder / "model")
    assert model.plan == served(read_state(done.folder)).plan
    assert model.budget < 1
    task, _ = slim.load_for("digits", {"patch_size": 4}, "", None)
    timed = of_name(done, "score", arm="slim", engine="eager", batch=4)
    assert timed[0].count == 40
    assert evaluate(model, task).accuracy > 2 * task.chance
    model.budget = 1.0
    assert model.plan.layers == len(model.encoder.layers)


def test_the_control_is_fixed_and_no_dearer(done):
    model = sparing.load(done.folder / "models" / "static")
    chosen, fixed = of_name(done, "chosen_plan")[0], of_name(done, "static_plan")[0]
    assert fixed.obtained == "modelled"  # a share of FLOPs
    plan = Plan.from_dict(json.loads(fixed.labels["plan"]))
    assert not plan.stops
    assert fixed.value <= max(
        chosen.value, of_name(done, "fixed_width_plan")[0].labels["allowed_share"]
    )
    assert [(s.heads, s.neurons) for s in model.encoder.sizes] == list(
        zip(plan.heads, plan.neurons, strict=True)
    )
    seen = {r.labels["arm"]: r.value for r in of_name(done, "train_examples")}  # the last attempt's
    assert seen["static"] == seen["slim"] + seen["slim fixed-width"]
    ratio, gap = (of_name(done, f"static_{n}", batch=1)[0] for n in ("speed_up", "difference"))
    ours, static = (of_name(done, "score", arm=arm, batch=1)[0] for arm in ("slim", "static"))
    assert ratio.interval[0] <= ratio.value <= ratio.interval[1]
    assert gap.value == pytest.approx(ours.value - static.value)


def test_a_plan_of_fixed_width_is_served_at_its_final_widths(done):
    model, tried = sparing.load(done.folder / "model"), of_name(done, "attempted_plan")
    served = of_name(done, "fixed_width_plan")[0]
    plan = Plan.from_dict(json.loads(served.labels["plan"]))
    assert [(s.heads, s.neurons) for s in model.encoder.sizes] == list(
        zip(plan.heads, plan.neurons, strict=True)
    )
    assert (served.value, served.labels) == (tried[-1].value, tried[-1].labels)
    assert served.value <= served.labels["allowed_share"] * (1 + 1e-9)
    kinds = {_confidence(p) for p in of_name(done, "fixed_width_score")}
    assert kinds in ({"softmax", "learned"}, {"softmax"})
    assert bool(model.encoder.confidences) == (kinds == {"softmax", "learned"})
    wide = sparing.load(done.folder / "models" / "adaptive")
    assert not torch.equal(
        model.encoder.layers[0].output.weight,
        wide.encoder.layers[0].output.weight[:, : model.encoder.layers[0].output.weight.shape[1]],
    )


def test_attempts_end_with_the_first_that_is_good(done):
    *tried, alone = of_name(done, "attempted_plan")
    assert alone.labels["attempt"] == "alone"
    assert [each.labels["good"] for each in tried[:-1]] == [False] * (len(tried) - 1)
    assert len(of_name(done, "train_time_s", arm="slim fixed-width")) == len(tried)
    kinds = [attempt.kind for attempt in attempts(read_state(done.folder))]
    assert [each.labels["attempt"] for each in tried] == kinds[: len(tried)]
    assert tried[-1].labels["good"] or len(tried) == len(kinds)


def test_the_model_of_any_budget_lies_beside(done):
    wide = sparing.load(done.folder / "model" / "any-budget")
    wide.budget = 1.0
    assert wide.plan.heads == tuple(size.heads for size in wide.encoder.sizes)
    wide.budget = max(point.cost_share for point in wide.frontier)
    assert wide.budget < 1
    assert "any-budget" in (done.folder / "model" / "README.md").read_text()


@pytest.mark.parametrize("rounded", [True, False])
def test_training_on_imitates_int8_only_where_asked(done, tmp_path, monkeypatch, rounded):
    class Seen(Exception):
        """Training would begin."""

    def look(*_, objective, **__):
        raise Seen(type(objective).__name__)

    monkeypatch.setattr(fixed_width, "train", look)
    task, _ = slim.load_for("digits", {"patch_size": 4}, "", None)
    models = slim.steps_of(SMALL, task, done.folder).models
    plan = read_state(done.folder).chosen.plan
    with pytest.raises(Seen, match="Int8Loss" if rounded else "ElasticLoss"):
        fixed_width.train_slim(models, models.adaptive(), plan, tmp_path, 1, rounded=rounded)


def test_plans_of_the_front_are_measured_on_test_inputs(done):
    front = {p.labels["plan"] for p in of_name(done, "frontier_score") if p.labels["on_front"]}
    speeds, gaps = of_name(done, "front_speed_up"), of_name(done, "front_difference")
    assert 1 <= len(speeds) == len(gaps) <= SMALL.front_plans
    assert {record.labels["plan"] for record in speeds} <= front
    costs = [record.labels["cost_share"] for record in speeds]
    every = [
        p.labels["cost_share"] for p in of_name(done, "frontier_score") if p.labels["on_front"]
    ]
    assert (min(costs), max(costs)) == (min(every), max(every))
    dense = of_name(done, "score", arm="dense", batch=1)[0].value
    for gap, score in zip(gaps, of_name(done, "front_score"), strict=True):
        assert gap.count == SMALL.timed_examples
        assert gap.value == pytest.approx(score.value - dense)
        assert gap.interval[0] <= gap.value <= gap.interval[1]


def test_answers_to_the_whole_test_split_are_kept(done):
    found = load_file(done.folder / "answers.safetensors")
    task, _ = slim.load_for("digits", {"patch_size": 4}, "", None)
    assert set(found) == {"dense", "slim", "static", "labels"}
    assert found["slim"].shape == (len(task.test), 10)
    for arm in ("dense", "slim", "static"):
        right = (found[arm].argmax(-1) == found["labels"]).double().mean()
        assert of_name(done, "whole_score", arm=arm)[0].value == pytest.approx(float(right))
    gap = of_name(done, "whole_difference", arm="slim")[0]
    assert gap.count == len(task.test)


def test_exit_rates_add_up(done):
    assert sum(r.value for r in of_name(done, "exit_rate")) == pytest.approx(1)


def test_the_card_shows_what_was_recorded(done):
    card = (done.folder / "model" / "README.md").read_text()
    bound = of_name(done, "disagreement_bound")[0]
    assert f"{100 * rounded_up(bound.value, 3):g}%" in card
    whole = of_name(done, "whole_score", arm="slim", primary=True)[0]
    assert f"## Scores on all {whole.count} test inputs" in card
    gap = of_name(done, "whole_difference", arm="slim", primary=True)[0]
    assert f"| slim | {whole.value:.4f} | {100 * gap.value:+.1f} (" in card
    for batch in SMALL.batches:
        mean = of_name(done, "latency_ms", arm="slim", batch=batch, of="mean")[0]
        table = card.partition(f"## Speed, batch {batch}\n")[2].partition("\n## ")[0]
        assert f"| slim | eager | {mean.value:.3g} | " in table
    assert str(done.config["machine"]["cpu"]) in card
    assert done.config["machine_id"] not in card
    head = metadata_load(done.folder / "model" / "README.md")
    (result,) = head["model-index"][0]["results"]
    assert result["metrics"][0] == {"type": "accuracy", "value": whole.value}
    assert str(done.folder.parent) not in card


def test_a_step_that_was_killed_before_its_mark_is_done_again(done, tmp_path, monkeypatch):
    """Its state was written: done again, it overwrites that with the same."""
    folder = tmp_path / "run"
    shutil.copytree(done.folder, folder)
    before, log = read_state(folder), folder / "records.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(line for line in lines if '"cell": "calibrate"' not in line))
    assert log.read_text().count("\n") < len(lines)
    write_state(folder, replace(before, threshold=0.123))

    def never(*_, **__):
        raise AssertionError("it was trained again")

    monkeypatch.setattr(slim_models, "train", never)
    again = find_study("slim").run(SMALL, folder)
    assert again.failures == []
    assert read_state(folder) == before
    bound, once = (of_name(run, "disagreement_bound")[0] for run in (again, done))
    assert (bound.value, bound.labels) == (once.value, once.labels)
    assert sparing.load(folder / "model").plan == served(before).plan


def test_a_run_begun_anew_forgets_its_state(done, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(done.folder, folder)
    drop_run(folder)
    assert read_state(folder) == State()


def test_a_finished_run_keeps_no_engines(done, tmp_path):
    assert not (done.folder / "engines").exists()
    folder, elsewhere = tmp_path / "engines", tmp_path / "elsewhere"
    for place in (folder / "dense", folder / "trial-0", elsewhere):
        place.mkdir(parents=True)
        (place / "segment-0.onnx").touch()
    (folder / "trial-0" / "mine.txt").touch()
    (folder / "link").symlink_to(elsewhere)
    task, _ = slim.load_for("digits", {"patch_size": 4}, "", None)
    engines = Engines(task, folder, 1, False)
    engines.drop()
    left = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    assert {"trial-0", "trial-0/mine.txt", "link"} <= left
    assert not any(
        path.startswith("dense") or path.endswith("0/segment-0.onnx")
        for path in left
        if not path.startswith("link")
    )
    assert (elsewhere / "segment-0.onnx").exists()


def test_a_finished_run_is_read_back_by_the_same_call(done, monkeypatch):
    def never(*_, **__):
        raise AssertionError("it was done again")

    monkeypatch.setattr(slim_models, "train", never)
    again = find_study("slim").run(SMALL, done.folder)
    assert (again.failures, len(again.records)) == ([], len(done.records))
    assert all(cell.done for cell in find_study("slim").plan(SMALL, done.folder).cells)


def test_an_outcome_says_where_the_model_lies(done):
    outcome = finish(done)
    text = str(outcome)
    assert text.startswith(outcome.answer)
    assert outcome.answer.split(":")[0] in (done.folder / "report.md").read_text()
    assert f"The model: {done.folder / 'model'}" in text
    assert len(text.splitlines()) <= 40
    assert outcome.to_dict()["model"] == str(done.folder / "model")
    page = (done.folder / "report.md").read_text()
    assert "subset False" not in page


def test_goals_are_decided_by_their_intervals(done):
    speed, kept = done.goals
    assert speed.met in (True, False, "undecided")
    assert kept.value == pytest.approx(kept_by_hand(done), abs=1e-9)


def kept_by_hand(result):
    found = load_file(result.folder / "answers.safetensors")
    right = {a: (found[a].argmax(-1) == found["labels"]).sum() for a in ("slim", "dense")}
    return int(right["slim"]) / int(right["dense"])


def test_a_finished_run_is_read_back(done, monkeypatch):
    def never(*_, **__):
        raise AssertionError("it was trained again")

    monkeypatch.setattr(slim_models, "train", never)
    before = (done.folder / "records.jsonl").read_bytes()
    again = find_study("slim").run(SMALL, done.folder)
    assert again.failures == []
    assert (done.folder / "records.jsonl").read_bytes() == before


@pytest.mark.slow
def test_a_fine_tuned_model_is_taken_as_it_is_and_left_alone(done, tmp_path):
    source = done.folder / "models" / "dense"
    before = {path.name: path.read_bytes() for path in source.iterdir() if path.is_file()}
    options = replace(SMALL, model=str(source), epochs=1, batches=(1,))
    result = find_study("slim").run(options, tmp_path / "run")
    assert result.failures == []
    assert not (tmp_path / "run" / "models" / "dense").exists()
    assert {p.name: p.read_bytes() for p in source.iterdir() if p.is_file()} == before


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": 0.001}, "cannot be guaranteed: it needs at least 2995 rows"),
        ({"choose_on": "test"}, "choose_on='test': plans must be chosen on rows"),
        ({"choose_on": "train"}, "choose_on='train': plans must be chosen on rows"),
    ],
)
def test_rows_that_cannot_choose_or_calibrate_are_refused_before_the_run(tmp_path, changes, words):
    with pytest.raises(UsageError, match=words):
        find_study("slim").run(replace(SMALL, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_promise_that_can_be_kept_is_kept(done, tmp_path):
    source = str(done.folder / "models" / "dense")
    options = replace(SMALL, model=source, epochs=1, batches=(1,), epsilon=0.9)
    result = find_study("slim").run(options, tmp_path / "run")
    bound = of_name(result, "disagreement_bound")[0]
    assert bound.labels["kept"] is True
    assert "at most 0.9 of inputs" in bound.labels["promise"]
    chosen = json.loads(of_name(result, "chosen_plan")[0].labels["plan"])
    final = json.loads(bound.labels["plan"])
    assert final["threshold"] >= chosen["threshold"]


def test_the_control_leaves_as_often_but_not_as_well(done):
    controls = of_name(done, "frontier_score", kind="random")
    assert controls
    adaptive = {
        (p.labels["width"], p.labels["threshold"], p.labels["first_exit"], p.labels["depth"]): p
        for p in of_name(done, "frontier_score", kind="exits")
    }
    for control in controls:
        names = ("width", "threshold", "first_exit", "depth")
        twin = adaptive[tuple(control.labels[name] for name in names)]
        assert control.labels["mean_layers"] == pytest.approx(twin.labels["mean_layers"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"speed": 0.0}, "speed"),
        ({"floor": 1.5}, "floor"),
        ({"epsilon": 1.0}, "epsilon"),
        ({"epochs": -1}, "epochs"),
        ({"rounds": 0}, "rounds"),
    ],
)
def test_impossible_wishes_are_named(change, words):
    with pytest.raises(UsageError, match=words):
        replace(SMALL, **change)


def test_the_result_never_goes_into_the_users_model(done):
    source = done.folder / "models" / "dense"
    with pytest.raises(UsageError, match="choose another folder"):
        find_study("slim").run(replace(SMALL, model=str(source)), source)


def test_trainings_do_not_see_what_calibration_is_held_on(tmp_path):
    task, _ = slim.load_for("digits", {"patch_size": 4}, "", None)
    models = slim.steps_of(SMALL, task, tmp_path).models
    steps = slim.steps_of(SMALL, task, tmp_path)
    assert len(steps.parts[0]) + len(steps.parts[1]) == len(task.validation)
    for shown in (models.shown, models.taught_on):
        assert torch.equal(shown.validation.labels, steps.parts[0].labels)
        assert shown.train is task.train
    elsewhere = slim.steps_of(replace(SMALL, choose_on="test"), task, tmp_path).models
    assert elsewhere.shown is task


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"model": "./nowhere"}, "no model"), ({"model": "bert"}, "reads")],
)
def test_a_model_that_does_not_fit_ends_the_run_before_it_begins(tmp_path, changes, words):
    with pytest.raises(UsageError, match=words):
        find_study("slim").run(replace(SMALL, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_long_inputs_are_surveyed_with_fewer_tokens():
    task, _ = slim.load_for("digits", {"patch_size": 4}, "", None)
    assert SMALL.token_shares(task) == (1.0,)
    longer = replace(task, tokens=197)
    assert SMALL.token_shares(longer) == LONG_SHARES
    assert replace(SMALL, tokens=(0.6,)).token_shares(longer) == (0.6,)


def test_random_generators_are_left_alone(tmp_path, done):
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    find_study("slim").run(SMALL, done.folder)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("longer_is_better", [True, False])
def test_the_baseline_is_the_better_one_where_plans_are_chosen(
    done, tmp_path, monkeypatch, longer_is_better
):
    task, _ = slim.load_for("digits", {"patch_size": 4}, "", None)
    source = str(done.folder / "models" / "dense")
    models = slim.steps_of(replace(SMALL, model=source, choose_on="test"), task, tmp_path).models
    dense, longer, asked = models.dense(), models.dense(), []
    monkeypatch.setattr(type(models), "dense", lambda self: dense)
    monkeypatch.setattr(type(models), "_longer", lambda self: longer)

    def evaluated(model, task, split):
        asked.append((split, len(task.validation)))
        return SimpleNamespace(score=float((model is longer) == longer_is_better))

    monkeypatch.setattr(slim_models, "evaluate", evaluated)
    assert models.baseline() is dense
    assert asked == []
    shutil.copytree(source, tmp_path / "models" / "dense-continued")
    assert models.baseline() is models.baseline()
    assert models.baseline() is (longer if longer_is_better else dense)
    assert asked == [("validation", (len(task.test) + 1) // 2)] * 2
