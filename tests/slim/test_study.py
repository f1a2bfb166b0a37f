"""Slim from start to end: texts without labels, and images from a new model."""

from __future__ import annotations

import errno
import json
import shutil
from dataclasses import replace

import pytest
import torch
from huggingface_hub.repocard import metadata_load
from safetensors.torch import load_file

import sparing
from sparing.core.errors import UsageError
from sparing.experiment.owned import drop_run
from sparing.experiment.registry import find_study
from sparing.experiment.schema import schema_of
from sparing.outcome import finish
from sparing.slim import models as slim_models
from sparing.slim import study as slim
from sparing.slim.evidence import certify
from sparing.slim.evidence.candidates import Candidate
from sparing.slim.search import fixed_width
from sparing.slim.state import State, read_state, served
from sparing.tasks import load_task
from sparing.train import evaluate
from tests.slim.conftest import DIGITS, TINY, of_name, run_of

CELLS = {
    *("dense", "distil", "baseline", "survey", "choose", "fixed-width", "forms", "candidates"),
    *("certify", "verify/batch-1", "verify/batch-4", "exits", "answers"),
}


@pytest.fixture(params=["texts", "images"])
def done(request):
    """Each of the two runs."""
    return request.getfixturevalue(f"{request.param}_run")


def _cells(folder):
    lines = (folder / "records.jsonl").read_text().splitlines()
    return [json.loads(line)["cell"] for line in lines if "cell" in json.loads(line)]


def never(*_, **__):
    raise AssertionError("it was done again")


def test_every_step_ends(done, texts_run):
    assert done.failures == []
    more = {"dense-answers"} if done is texts_run else {"static"}
    assert set(_cells(done.folder)) >= CELLS | more
    for batch in TINY["batches"]:
        timed = of_name(done, "latency_ms", batch=batch, of="mean")
        dense = {r.labels["engine"] for r in timed if r.labels["arm"] == "dense"}
        ours = {r.labels["engine"] for r in timed if r.labels["arm"] == "slim"}
        assert dense == ours == ({"eager", "onnxruntime"} if done is texts_run else {"eager"})


def test_all_its_records_are_declared(done):
    schema = schema_of(find_study("slim"))
    for record in done.records:
        declared = schema.entry(record.name)
        assert set(record.labels) <= set(declared.labels), record.name
        assert record.unit in declared.units, record.name


def test_what_is_served_follows_the_rule(done):
    state = read_state(done.folder)
    one = served(state, 0.05)
    (seen,) = of_name(done, "disagreement")
    assert Candidate.from_labels(seen.labels) == one
    speeds = {timed.candidate: timed.speed for timed in state.candidates}
    point = next(point for point in state.points if point.epsilon == 0.05)
    reference = (one.model, one.precision) == ("dense", "float32")
    if not reference:
        assert one == point.candidate
        exact = [
            speed
            for form, speed in speeds.items()
            if (form.model, form.precision) == ("dense", "float32")
        ]
        assert speeds[one] > max(exact)
        assert seen.value <= 0.05
    assert seen.labels["reference"] is reference
    assert {p.labels["epsilon"] for p in of_name(done, "certified_speed")} == {
        *(0.01, 0.02, 0.03, 0.05, 0.08)
    }


def test_the_front_rises_and_no_plan_beats_it(done):
    points = of_name(done, "frontier_score")
    front = sorted((p.labels["cost_share"], p.value) for p in points if p.labels["on_front"])
    assert front == sorted(front, key=lambda point: point[1])
    shown = [p for p in points if p.labels["kind"] != "random" and p.labels["cost_share"] < 1]
    for share, score in front:
        assert not [p for p in shown if p.labels["cost_share"] <= share and p.value > score]


def test_random_exits_are_as_many_as_the_plans(done):
    adaptive = {
        (p.labels["width"], p.labels["threshold"], p.labels["first_exit"], p.labels["depth"]): p
        for p in of_name(done, "frontier_score", kind="exits")
    }
    for control in of_name(done, "frontier_score", kind="random"):
        names = ("width", "threshold", "first_exit", "depth")
        twin = adaptive[tuple(control.labels[name] for name in names)]
        assert control.labels["mean_layers"] == pytest.approx(twin.labels["mean_layers"])


def test_answers_to_the_whole_test_split_are_kept(images_run):
    answers = load_file(images_run.folder / "answers.safetensors")
    task = load_task("digits", patch_size=4)
    for record in of_name(images_run, "whole_score", primary=True):
        form = Candidate.from_labels(record.labels)
        name = "static" if form.model == "static" else str(form)
        assert answers[name].shape == (len(task.test), 10)
        right = (answers[name].argmax(-1) == task.test.labels).double().mean()
        assert record.value == pytest.approx(float(right))
        assert record.count == len(task.test)
    gap = of_name(images_run, "whole_difference", arm="slim")[0]
    assert gap.count == len(task.test)


def test_a_task_with_labels_reports_its_score_and_agreement(images_run):
    form = served(read_state(images_run.folder), 0.05).labels
    assert of_name(images_run, "whole_score", metric="accuracy", **form)
    assert of_name(images_run, "agreement", **form)
    claims = [claim.text for claim in slim.claims_of(DIGITS)]
    assert claims == [
        "speed over the best dense form, batch 1",
        "answers of the dense model kept",
        "share of the dense score kept",
    ]


def test_exit_rates_add_up(done):
    rates = of_name(done, "exit_rate")
    form = served(read_state(done.folder), 0.05)
    assert bool(rates) == (form.model == "slim" and not form.layers)
    assert not rates or sum(rate.value for rate in rates) == pytest.approx(1)


def test_the_saved_model_runs_the_plan_that_was_cut_out(done):
    model = sparing.load(done.folder / "model" / "torch")
    state = read_state(done.folder)
    form = served(state, 0.05)
    assert model.plan.layers == (form.layers or state.chosen.plan.layers)
    assert model.budget < 1
    assert {path.name for path in (done.folder / "model").iterdir()} <= {"torch", "serve", "forms"}


def test_a_finished_run_still_gives_the_model_of_all_widths(images_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(images_run.folder, folder)
    again = run_of(replace(DIGITS, keep=("any-budget",)), folder)
    assert (again.failures, len(again.records)) == ([], len(images_run.records))
    wide = sparing.load(folder / "model" / "any-budget")
    wide.budget = 1.0
    assert wide.plan.heads == tuple(size.heads for size in wide.encoder.sizes)
    with pytest.raises(UsageError, match="keep may be any-budget"):
        replace(DIGITS, keep=("any",))


def test_the_saved_images_model_answers_better_than_chance(images_run):
    model, task = (
        sparing.load(images_run.folder / "model" / "torch"),
        load_task("digits", patch_size=4),
    )
    assert evaluate(model, task).accuracy > 2 * task.chance


def test_the_card_and_the_outcome_name_no_folder_of_this_machine(done):
    card = (done.folder / "model" / "torch" / "README.md").read_text()
    assert str(done.config["machine"]["cpu"]) in card
    assert done.config["machine_id"] not in card
    assert str(done.folder.parent) not in card
    assert metadata_load(done.folder / "model" / "torch" / "README.md")
    outcome = finish(done)
    assert str(outcome).startswith(outcome.answer)
    assert f"The model: {done.folder / 'model' / 'torch'}" in str(outcome)
    assert outcome.to_dict()["model"] == str(done.folder / "model" / "torch")


def test_a_finished_run_is_read_back_by_the_same_call(images_run, monkeypatch):
    monkeypatch.setattr(slim_models, "train", never)
    monkeypatch.setattr("sparing.export.forms.missing_packages", lambda *_: ["openvino"])
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    again = find_study("slim").run(DIGITS, images_run.folder)
    assert torch.equal(torch.rand(1), expected), "random generators are left alone"
    assert (again.failures, len(again.records)) == ([], len(images_run.records))
    assert all(cell.done for cell in find_study("slim").plan(DIGITS, images_run.folder).cells)


def _without_speeds(state):
    """The state without what was timed; a chosen plan is the same at this goal for speed."""
    candidates = [
        (timed.candidate, timed.changed, pytest.approx(timed.divergence), timed.good)
        for timed in state.candidates
    ]
    epsilons = [(point.epsilon, point.count) for point in state.points]
    return (
        *(state.survey, state.chosen, state.folder, state.thresholds),
        *(candidates, epsilons),
    )


def test_a_step_that_was_killed_before_its_mark_is_done_again(images_run, tmp_path, monkeypatch):
    """Its results were written: done again, it overwrites them with the same."""
    folder = tmp_path / "run"
    shutil.copytree(images_run.folder, folder)
    before, log = read_state(folder), folder / "records.jsonl"
    monkeypatch.setattr(slim_models, "train", _read_back(slim_models.train))
    monkeypatch.setattr(fixed_width, "train", _read_back(fixed_width.train))
    for cell in dict.fromkeys(_cells(images_run.folder)):
        lines = log.read_text().splitlines(keepends=True)
        rest = [line for line in lines if json.loads(line).get("cell") != cell]
        assert len(rest) < len(lines)
        log.write_text("".join(rest))
        again = run_of(DIGITS, folder)
        assert again.failures == [], cell
        assert _without_speeds(read_state(folder)) == _without_speeds(before), cell
    # which form is served depends on times, and with it these records
    served = {"exit_rate", "static_plan", "static_speed_up", "static_difference"}
    names = [{r.name for r in result.records} - served for result in (again, images_run)]
    assert names[0] == names[1]


def _read_back(train):
    """A training that has ended is read back; whether a control is needed depends on times."""

    def run(*given, output_dir, **more):
        ended = (output_dir / "result.json").is_file()
        assert ended or output_dir.name == "static", "it was trained again"
        return train(*given, output_dir=output_dir, **more)

    return run


def test_a_full_disk_in_the_middle_loses_nothing(images_run, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(images_run.folder, folder)
    log = folder / "records.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(line for line in lines if json.loads(line).get("cell") != "forms"))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(certify, "save_tensors", full)
        with pytest.raises(Exception, match=r"(?i)no space left") as seen:
            run_of(DIGITS, folder)
    assert "\n" not in str(seen.value)
    assert run_of(DIGITS, folder).failures == []


def test_a_run_begun_anew_forgets_what_it_wrote(done, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(done.folder, folder)
    drop_run(folder)
    assert read_state(folder) == State()
    assert not [path.name for path in folder.rglob("*.safetensors")]


def test_the_result_never_goes_into_the_users_model(toy, texts_options):
    with pytest.raises(UsageError, match="choose another folder"):
        find_study("slim").run(texts_options, toy)


def test_trainings_do_not_see_what_calibration_is_held_on(tmp_path):
    task = load_task("digits", patch_size=4)
    steps = slim.steps_of(DIGITS, task, tmp_path)
    assert len(steps.parts[0]) + len(steps.parts[1]) == len(task.validation)
    for shown in (steps.models.shown, steps.models.taught_on):
        assert torch.equal(shown.validation.labels, steps.parts[0].labels)
        assert shown.train is task.train
    elsewhere = slim.steps_of(replace(DIGITS, choose_on="test"), task, tmp_path).models
    assert elsewhere.shown is task


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "./nowhere"}, "no model"),
        ({"model": "bert"}, "reads"),
        ({"agree": 0.999}, "needs at least 2,995 examples to calibrate on, and there are"),
        ({"choose_on": "test"}, "neither"),
    ],
)
def test_what_cannot_end_well_ends_before_it_begins(tmp_path, changes, words):
    with pytest.raises(UsageError, match=words):
        find_study("slim").run(replace(DIGITS, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()
