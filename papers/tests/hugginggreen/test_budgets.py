"""Attention by EM, the printed rule of patches, boxes beside a guess, and other meters."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import combinations
from types import ModuleType, SimpleNamespace

import pytest
import torch
from papers.tests.hugginggreen.records import config
from papers.tests.hugginggreen.test_study import SMALL, of_name, work_on

from sparing.core.errors import UsageError
from sparing.core.record import Record
from sparing.experiment.registry import find_study
from sparing.report.run import Run
from sparing.tasks import load_task
from sparing.train.boxes import paired_iou
from sparing.transfer.patching import selector_of
from sparing_papers.hugginggreen import analysis, arms, names, options, records
from sparing_papers.hugginggreen import study as hugginggreen
from sparing_papers.hugginggreen import train as training
from sparing_papers.hugginggreen.claims import decide_goals
from sparing_papers.hugginggreen.page import content

EM = replace(SMALL, questions=("attention",), attentions=tuple(options.ATTENTIONS))
RULE = replace(
    SMALL,
    questions=("patches",),
    scores=("contrast", "variance", "random"),
    ways=("sampled",),
    schedules=(),
    schedule="decay",
    at_inference=False,
    every_score=True,
    network_width=0,
    halved=False,
    pairs=1,
)


@pytest.fixture(scope="module")
def by_em(tmp_path_factory):
    return find_study("hugginggreen").run(EM, tmp_path_factory.mktemp("em") / "run")


@pytest.fixture(scope="module")
def by_rule(tmp_path_factory):
    return find_study("hugginggreen").run(RULE, tmp_path_factory.mktemp("rule") / "run")


@pytest.fixture(scope="module")
def digits():
    return load_task("digits", patch_size=2)


def test_named_attentions_are_trained_and_none_is_softmax(by_em, digits, tmp_path):
    assert by_em.failures == []
    assert {r.labels["arm"] for r in of_name(by_em, "curve")} == {"dense", *options.ATTENTIONS}
    work = work_on(digits, tmp_path)
    pixels = torch.stack([digits.train[n]["pixel_values"] for n in range(8)])
    logits = [work.build(arm, 0).eval()(pixels).logits for arm in arms.chosen_attentions(EM)]
    for one, other in combinations(logits, 2):
        assert not torch.equal(one, other)


def test_each_step_of_em_costs_arithmetic(by_em):
    share = {r.labels["arm"]: r.value for r in of_name(by_em, "flops_ratio", to="dense")}
    assert 1 < share["uniform prior"] < share["keys by one step of EM"]
    assert share["keys by one step of EM"] < share["keys by two steps of EM"]
    assert share["values by EM"] == pytest.approx(share["keys by one step of EM"])
    assert share["values propagated"] == pytest.approx(share["keys by two steps of EM"])
    assert share["uniform weights"] < 1


def test_named_attentions_have_goals_and_the_control_has_none(by_em):
    goal_names = [goal.name for goal in by_em.goals]
    assert len(goal_names) == 10
    assert "digits: values propagated: at most 1 point less than softmax" in goal_names
    assert "digits: uniform prior: fewer FLOPs than softmax" in goal_names
    assert not [name for name in goal_names if "uniform weights" in name]


def test_a_loss_of_boxes_that_a_guess_has_too_decides_nothing(digits):
    given = replace(SMALL, box_tasks=("scenes",), scores=("contrast", "random"), median_box=True)
    for guess, met in ((-0.008, "undecided"), (-0.05, True)):
        group = {"question": "boxes", "task": "scenes", "depth": 2}
        trained = [
            Record("map50", value, "score", "measured", {**group, "arm": arm, "seed": seed})
            for seed in range(10)
            for arm, value in (
                ("dense", 0.2),
                ("contrast top 0.7", 0.2 + 0.001 * (-1) ** seed),
                ("median box", 0.2 + guess + 0.001 * (-1) ** seed),
            )
        ]
        accuracies = [replace(record, name="accuracy") for record in trained]
        derived = analysis.analyse([*trained, *accuracies], {"scenes": 500}, 0.01)
        by_name = {goal.name: goal.met for goal in decide_goals(given, {"digits": digits}, derived)}
        name = "scenes: boxes by contrast top 0.7: at most 1 point less than dense"
        assert by_name[name] == met
        assert by_name["scenes: boxes are guessed worse"] is True


def em_records(arm, change, noise=0.0005, labels=None):
    """Ten pairs of a variant and dense on digits, with a change of accuracy."""
    group = {"question": "attention", "task": "digits", "depth": 2}
    return [
        Record("accuracy", value, "score", "measured", {**group, "arm": name, "seed": seed})
        for seed in range(10)
        for name, value in (("dense", 0.9), (arm, 0.9 + change + noise * (-1) ** seed))
    ]


@pytest.mark.parametrize(
    ("change", "control", "met"),
    [
        (0.0, -0.1, True),
        (-0.03, -0.1, False),
        (0.0, 0.0, "undecided"),
        (0.0, -0.008, "undecided"),
        (-0.03, 0.0, "undecided"),
        (0.0, None, "undecided"),
    ],
)
def test_a_task_that_needs_no_attention_decides_no_accuracy(digits, change, control, met):
    trained = em_records("uniform prior", change)
    if control is not None:
        trained += [r for r in em_records("uniform weights", control) if r.labels["arm"] != "dense"]
    derived = analysis.analyse(trained, {"digits": 10_000}, 0.01)
    goals = decide_goals(EM, {"digits": digits}, derived)
    name = "digits: uniform prior: at most 1 point less than softmax"
    assert next(goal for goal in goals if goal.name == name).met == met


def test_a_page_without_patches_says_what_its_goals_say(by_em):
    goals = [goal.to_dict() for goal in by_em.goals]
    made = config(meter="own", identity={"questions": ["attention"]})
    run = Run(made, [r for r in by_em.records if r.name != "machine_load"], goals, [])
    verdict = content.verdict(run, content.groups_of(run))
    assert verdict.lead == "0 of 10 goals met"
    assert any("keys by two steps of EM" in sentence for sentence in verdict.second)
    assert "uniform weights" in dict(content.words(run, content.groups_of(run)))


def test_the_printed_rule_selects_in_training_alone(by_rule, tmp_path, digits):
    assert by_rule.failures == []
    assert not [r for r in by_rule.records if r.name.endswith("of_all_patches")]
    work = training.Work("digits", digits, tmp_path, RULE, 8, 2, 2)
    (arm, *_) = arms.selection_arms(RULE, digits, whole=True)
    model = work.build(arm, 0)
    pixels = torch.stack([digits.train[n]["pixel_values"] for n in range(4)])
    dense = work.build(arms.Arm("dense", "dense"), 0).eval()
    assert torch.equal(model.eval()(pixels).logits, dense(pixels).logits)
    assert selector_of(model).selection.way == "sampled"
    assert (arm.schedule.kind, arm.schedule.start) == ("decay", 0.5)


def test_the_printed_rule_saves_in_training_and_not_in_a_prediction(by_rule):
    image = {r.labels["arm"]: r.value for r in of_name(by_rule, "image_flops")}
    total = {r.labels["arm"]: r.value for r in of_name(by_rule, "train_flops")}
    assert image["contrast sampled 0.7"] == image["dense"]
    assert 0.7 < total["contrast sampled 0.7"] / total["dense"] < 1
    tokens = {r.labels["arm"]: r.value for r in of_name(by_rule, "image_tokens")}
    assert 12 < tokens["contrast sampled 0.7"] < 17  # 11 of 16 patches in half of the batches


def test_every_score_has_goals(by_rule):
    goal_names = {goal.name for goal in by_rule.goals}
    for score in ("contrast", "variance"):
        assert f"digits: {score} sampled 0.7 is better than random patches" in goal_names
        assert f"digits: {score} sampled 0.7 loses at most 1 point" in goal_names
    assert not [name for name in goal_names if name.startswith("digits: random")]
    beside_random = of_name(by_rule, "baseline_difference", baseline_kind="random")
    assert {r.labels["arm"] for r in beside_random} == {
        "contrast sampled 0.7",
        "variance sampled 0.7",
    }
    assert all(r.labels["holm_p"] >= r.labels["sign_flip_p"] for r in beside_random)


def test_a_guess_of_boxes_has_the_classes_of_dense(tmp_path):
    given = replace(SMALL, questions=("boxes",), median_box=True, box_pairs=2)
    done = find_study("hugginggreen").run(given, tmp_path / "run")
    assert done.failures == []
    task = load_task("scenes", examples=60, patch_size=16)
    accuracy = {(r.labels["arm"], r.labels["seed"]): r.value for r in of_name(done, "accuracy")}
    overlaps = {r.value for r in of_name(done, "mean_iou", arm=names.MEDIAN_BOX)}
    assert all(accuracy["median box", seed] == accuracy["dense", seed] for seed in (0, 1))
    loaded, _ = options.load(given, "scenes", None, boxes=True)
    box = task.train.boxes.median(0).values
    expected = paired_iou(box.expand(len(loaded.test), 4), loaded.test.boxes).mean()
    (overlap,) = overlaps
    assert overlap == pytest.approx(float(expected), abs=1e-6)
    assert len([goal for goal in done.goals if goal.name.startswith("scenes: boxes")]) == 3
    assert of_name(done, "map50_difference", arm=names.MEDIAN_BOX, to="dense")


def test_a_guess_without_its_dense_model_is_named(tmp_path):
    given = replace(SMALL, questions=("boxes",), median_box=True)
    done = find_study("hugginggreen").run(given, tmp_path / "run", cells="boxes/*/median box")
    assert "dense-0 is missing" in done.failures[0].error


class Tracker:
    """CodeCarbon's offline tracker, as far as it is used."""

    def __init__(self, **given):
        self._hardware = [SimpleNamespace(_mode="constant")]

    def start(self):
        pass

    def stop(self):
        self.final_emissions_data = SimpleNamespace(
            cpu_energy=2e-6, ram_energy=1e-6, gpu_energy=0.0, gpu_count=0
        )


def test_codecarbon_is_a_meter_of_the_study(monkeypatch, tmp_path, digits):
    module = ModuleType("codecarbon")
    module.OfflineEmissionsTracker = Tracker
    monkeypatch.setitem(sys.modules, "codecarbon", module)
    given = replace(EM, attentions=("uniform weights",), meter="codecarbon")
    done = find_study("hugginggreen").run(given, tmp_path / "run")
    spent = {r.labels["component"]: r for r in of_name(done, "train_energy_j", arm="dense")}
    epochs = SMALL.trained["digits"]["epochs"]
    assert spent["cpu"].value == pytest.approx(7.2 * epochs)  # a window for each epoch
    assert spent["ram"].value == pytest.approx(3.6 * epochs)
    assert spent["cpu"].labels["method"] == "CodeCarbon, constant mode"
    notices = content.notices(Run(config(meter="codecarbon"), done.records, [], []), [])
    assert any("estimates by codecarbon" in notice for notice in notices)
    assert not any("CPU seconds times" in notice for notice in notices)
    work = work_on(digits, tmp_path, meter="codecarbon")
    assert {r.labels["component"] for r in _predictions(work)} == {"cpu", "ram"}


def _predictions(work):
    model = work.build(arms.Arm("dense", "dense"), 0)
    return records.inference_energy(model, work.task, work.options, {})


def test_a_meter_that_is_not_there_is_named_before_the_first_cell(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "codecarbon", None)
    with pytest.raises(UsageError, match=r"codecarbon is not installed"):
        hugginggreen.prepare(replace(SMALL, meter="codecarbon"), tmp_path)
    with pytest.raises(UsageError, match="did you mean 'codecarbon'"):
        replace(SMALL, meter="codecarbons")
