"""The HuggingGreen study from end to end on tiny models, and each of its parts alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.core.record import Record
from sparing.experiment.registry import find_study
from sparing.layers.patches import keep_count
from sparing.tasks import load_task
from sparing.transfer.patching import selector_of
from sparing_papers.hugginggreen import analysis, arms, cells, groups, names, options, stages
from sparing_papers.hugginggreen import study as hugginggreen
from sparing_papers.hugginggreen import train as training
from sparing_papers.hugginggreen.claims import decide_goals
from tests.train.small import token_task

SMALL = replace(
    hugginggreen.BUDGETS["quick"],
    tasks=("digits",),
    width=8,
    heads=2,
    depths=(2,),
    scores=("contrast", "random"),
    schedules=("decay",),
    network_width=4,
    halved=True,
    pairs=2,
    attention_pairs=1,
    stage_pairs=1,
    box_pairs=1,
    batch_size=256,
    trained={
        "digits": {"epochs": 2, "learning_rate": 3e-3},
        "scenes": {"epochs": 1, "learning_rate": 3e-3},
    },
    task_options={"digits": {"patch_size": 2}, "scenes": {"examples": 60, "patch_size": 16}},
    stage_epochs=(1, 1),
    validation_examples=60,
    test_examples=60,
    inference_seconds=0.01,
)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return find_study("hugginggreen").run(SMALL, tmp_path_factory.mktemp("green") / "run")


@pytest.fixture(scope="module")
def digits():
    return load_task("digits", patch_size=2)


def work_on(task, tmp_path, **changes):
    return training.Work("digits", task, tmp_path, replace(SMALL, **changes), 8, 2, 2)


def of_name(result, name, **labels):
    return [r for r in result.records if r.name == name and labels.items() <= r.labels.items()]


def test_every_cell_ends_and_every_question_is_asked(done):
    assert done.failures == []
    trained = {(r.labels["question"], r.labels["arm"]) for r in of_name(done, "accuracy")}
    assert {arm for question, arm in trained if question == "patches"} == {
        "dense",
        "dense again",
        "contrast top 0.7",
        "random top 0.7",
        "contrast top 0.7, decay",
        "fewer steps, as 0.7",
        "larger patches, as 0.7",
        "convolutions, as 0.7",
        "half the layers, distilled",
    }
    assert {arm for question, arm in trained if question == "stages"} == set(stages.arms_of(0))
    assert names.GAUSSIAN_HALF in {arm for _, arm in trained}
    assert len(done.goals) == 7
    assert {goal.met for goal in done.goals} == {"undecided"}  # two pairs decide nothing


def test_boxes_are_scored_with_patches_chosen_and_with_all(done):
    arm_names = {r.labels["arm"] for r in of_name(done, "map50", question="boxes")}
    assert arm_names == {"dense", "dense again", "contrast top 0.7", "random top 0.7"}
    every = {r.labels["arm"] for r in of_name(done, "mean_iou_of_all_patches")}
    assert every == {"contrast top 0.7", "random top 0.7"}
    assert of_name(done, "map50_difference", arm="contrast top 0.7", to="dense")
    baselines = of_name(done, "baseline_difference", question="boxes")
    assert [r.labels["baseline_kind"] for r in baselines] == ["random"]


def test_what_is_set_for_all_tasks_goes_before_a_budgets_own():
    quick = hugginggreen.BUDGETS["quick"]
    assert quick.recipe("digits", 0).epochs == quick.trained["digits"]["epochs"]
    recipe = replace(quick, epochs=1, learning_rate=0.5).recipe("digits", 0)
    assert (recipe.epochs, recipe.learning_rate) == (1, 0.5)


@pytest.mark.parametrize(
    ("setting", "value"), [("trained", {}), ("task_options", {}), ("questions_of", ())]
)
def test_settings_of_no_task_are_refused(setting, value):
    with pytest.raises(UsageError, match=rf"{setting}.digts: .*did you mean 'digits'"):
        replace(hugginggreen.BUDGETS["quick"], **{setting: {"digts": value}})


def test_a_task_without_boxes_is_refused(tmp_path):
    with pytest.raises(UsageError, match="digits has no boxes; scenes has"):
        find_study("hugginggreen").run(replace(SMALL, box_tasks=("digits",)), tmp_path / "run")


def test_the_same_training_twice_differs_in_nothing_but_energy(done):
    for of in ("accuracy", "train_flops", "image_tokens"):
        twice = {
            arm: of_name(done, of, arm=arm, question="patches") for arm in ("dense", "dense again")
        }
        assert [r.value for r in twice["dense"]] == [r.value for r in twice["dense again"]]
    (ratio,) = of_name(done, "energy_ratio", arm="dense again", question="patches")
    assert 0.2 < ratio.value < 5
    assert "holm_p" not in ratio.labels


def test_dropped_patches_save_arithmetic_and_baselines_get_as_much(done):
    share = {
        arm: of_name(done, "flops_ratio", arm=arm, question="patches")[0].value
        for arm in ("contrast top 0.7", "contrast top 0.7, decay", "larger patches, as 0.7")
    }
    assert 0.6 < share["contrast top 0.7"] < 0.75
    assert share["contrast top 0.7"] < share["contrast top 0.7, decay"] < 1
    assert share["larger patches, as 0.7"] >= share["contrast top 0.7"]
    tokens = of_name(done, "image_tokens", arm="contrast top 0.7")[0].value
    assert tokens == 1 + keep_count(16, 0.7)


def test_energy_is_called_an_estimate_and_follows_from_the_curve(done):
    for record in of_name(done, "train_energy_j", question="patches", arm="dense"):
        assert record.obtained == "estimated"
        assert record.interval[0] < record.value < record.interval[1]
        (curve,) = of_name(
            done, "curve", arm="dense", seed=record.labels["seed"], question="patches"
        )
        epochs = json.loads(curve.labels["told"])
        assert epochs[-1]["energy"]["cpu_j"] == pytest.approx(record.value)
        assert epochs[0]["energy"]["cpu_j"] < epochs[-1]["energy"]["cpu_j"]


def test_a_schedule_counts_what_every_epoch_computed(digits, tmp_path):
    work = work_on(digits, tmp_path, schedules=("linear",))
    recipe = replace(work.recipe(0), epochs=3)
    scheduled = arms.selection_arms(work.options, digits, whole=True)[-1]
    model = work.build(scheduled, 0)
    counted = training.arithmetic_of(model, scheduled, digits, recipe)
    assert len(counted.by_epoch) == 3
    per_epoch = [counted.by_epoch[0], *(b - a for a, b in pairwise(counted.by_epoch))]
    assert per_epoch[0] < per_epoch[1] < per_epoch[2]
    images = len(digits.train)
    low, high = (3 * images * training.image_flops(model, digits, patches) for patches in (11, 16))
    assert low <= per_epoch[0] < per_epoch[2] <= high


def test_a_baseline_costs_at_least_what_it_is_compared_with(digits, tmp_path):
    work = work_on(digits, tmp_path, schedule="decay")
    for arm in arms.patch_arms(work.options, digits, whole=False):
        if arm.kind not in ("steps", "larger"):
            continue
        aim = arms.selection_arms(work.options, digits, whole=True)[0]
        recipe = work.recipe(0)
        cost = training.arithmetic_of(work.build(aim, 0), aim, digits, recipe).total
        epochs = cells.epochs_of(work, "patches", arm, 0)
        task = work.task_of(arm)
        flops = training.arithmetic_of(
            work.build(arm, 0), arm, task, replace(recipe, epochs=epochs)
        ).total
        assert flops >= cost * (1 - 1e-9)


def test_too_many_images_are_refused_and_few_are_held(digits, monkeypatch):
    class Lazily(Sequence):
        def __init__(self, pixels):
            self.pixels = pixels

        def __len__(self):
            return len(self.pixels)

        def __getitem__(self, index):
            return self.pixels[index]

    lazy = replace(digits.train, inputs=Lazily(digits.train.inputs))
    held = options._in_memory("digits", lazy)
    assert torch.equal(held.inputs, digits.train.inputs)
    monkeypatch.setattr(options, "MOST_BYTES", 1000)
    with pytest.raises(UsageError, match=r"take fewer \(task_options.digits.examples\)"):
        options._in_memory("digits", lazy)


def test_what_is_distilled_pays_its_teacher_and_stages_pay_all_of_them(done):
    def energy(arm, question):
        return of_name(done, "train_energy_j", arm=arm, question=question, seed=0)[0].value

    assert energy(names.HALVED, "patches") > energy("dense", "patches")
    (share,) = of_name(done, "flops_ratio", arm=names.HALVED)
    assert share.value > 1.5
    (curve,) = of_name(done, "curve", arm=names.HALVED, seed=0)
    first = json.loads(curve.labels["told"])[0]
    assert first["energy"]["cpu_j"] > energy("dense", "patches")
    assert energy(names.CONTRASTIVE, "stages") > energy(names.SCRATCH, "stages")
    steps = {
        arm: of_name(done, "steps", arm=arm, question="stages")[0].value
        for arm in (names.MASKED, f"scratch, steps of {names.MASKED}")
    }
    assert steps[names.MASKED] == steps[f"scratch, steps of {names.MASKED}"]


def test_a_finished_run_is_read_back(done):
    before = (done.folder / "records.jsonl").read_text().splitlines()
    again = find_study("hugginggreen").run(SMALL, done.folder)
    after = (done.folder / "records.jsonl").read_text().splitlines()
    assert [g.value for g in again.goals] == [g.value for g in done.goals]
    assert len(after) == len(before)
    planned = find_study("hugginggreen").plan(SMALL, done.folder)
    assert all(cell.done for cell in planned.cells)
    assert planned.minutes_left == 0


def test_models_that_nothing_needs_are_gone(done):
    left = {path.name for path in (done.folder / "models" / "patches-digits-2").iterdir()}
    assert "dense-1" in left
    assert "larger-patches--as-0.7-1" not in left
    assert "larger-patches--as-0.7-0" in left


def test_pieces_and_plan(tmp_path):
    one = find_study("hugginggreen").run(SMALL, tmp_path / "run", cells="pictures/*")
    assert {r.cell for r in one.records} == {"pictures/digits"}
    planned = find_study("hugginggreen").plan(SMALL, tmp_path / "run")
    assert [cell.key for cell in planned.cells if cell.done] == ["pictures/digits"]
    assert planned.minutes_left > 0
    with pytest.raises(UsageError, match="no cell fits 'pictures/digit'; did you mean"):
        find_study("hugginggreen").run(SMALL, tmp_path / "run", cells="pictures/digit")


def test_pictures_keep_what_the_selector_keeps(done):
    for record in of_name(done, "picture"):
        picture = json.loads(record.labels["told"])
        assert set(picture["scored"]) == {"contrast", "random"}
        for selection in picture["scored"].values():
            assert len(selection["kept"]) == keep_count(16, 0.7)
            assert len(selection["scores"]) == picture["side"] ** 2
    by_contrast = picture["scored"]["contrast"]
    lowest = min(by_contrast["scores"][patch] for patch in by_contrast["kept"])
    left = [s for patch, s in enumerate(by_contrast["scores"]) if patch not in by_contrast["kept"]]
    assert max(left) <= lowest


@pytest.mark.parametrize(
    ("whole", "once", "expected"),
    [(700.0, 100.0, 7), (710.0, 100.0, 8), (1.0, 100.0, 1), (1000.0, 30.0, 34), (0.7 * 3, 0.7, 3)],
)
def test_epochs_of_baselines_are_rounded_up(whole, once, expected):
    assert arms.equal_epochs(whole, once) == expected


def test_arms_of_one_seed_begin_alike(digits, tmp_path):
    work = work_on(digits, tmp_path)
    dense = work.build(arms.Arm("dense", "dense"), 3)
    selecting = arms.selection_arms(SMALL, digits, whole=True)[0]
    chosen = work.build(selecting, 3)
    for name, tensor in dense.state_dict().items():
        assert torch.equal(tensor, chosen.state_dict()[name]), name
    assert selector_of(chosen).selection.keep == 0.7
    assert selector_of(chosen).selection.seed == 3
    halved = work.build(next(a for a in arms.attention_arms(2) if a.name == names.SOFTMAX_HALF), 3)
    state = halved.state_dict()
    assert torch.equal(
        state["vit.embeddings.cls_token"], dense.state_dict()["vit.embeddings.cls_token"]
    )
    assert sum(p.numel() for p in halved.parameters()) < sum(p.numel() for p in dense.parameters())


def test_every_arm_is_drawn_into_every_place():
    named_arms = [arms.Arm(name, "dense") for name in "abcd"]
    orders = {
        tuple(arm.name for arm in arms.shuffled(named_arms, seed, "patches")) for seed in range(60)
    }
    assert len(orders) > 15
    rests = [*named_arms, arms.Arm("n", "network")]
    assert all(arms.shuffled(rests, seed, "patches")[-1].name == "n" for seed in range(20))


def test_a_network_interrupted_keeps_its_number_of_epochs(done):
    work = training.Work("digits", load_task("digits", patch_size=2), done.folder, SMALL, 8, 2, 2)
    arm = next(a for a in arms.patch_arms(SMALL, work.task, whole=True) if a.kind == "network")
    written = work.training_dir("patches", arm.name, 0).with_name("convolutions--as-0.7-0.json")
    written.write_text(json.dumps({"epochs": 41}))
    assert cells.epochs_of(work, "patches", arm, 0) == 41


def test_the_schedules_are_those_that_are_printed():
    decay = arms.named_schedule("decay", 0.7)
    assert (decay.start, decay.rate, decay.field) == (0.5, 5e-3, "chance")
    growing, falling = (arms.named_schedule(name, 0.6) for name in ("linear", "linear-falling"))
    assert (growing.start, growing.end) == (0.6, 1.0)
    assert (falling.start, falling.end) == (1.0, 0.6)


def test_the_papers_configurations_resolve(tmp_path):
    paper = hugginggreen.BUDGETS["paper"]
    assert (paper.width, paper.depths, paper.keeps) == (64, (4, 8, 12), (138,))
    assert (paper.attention_width, paper.attention_depth) == (3072, 16)
    for name in paper.tasks:
        recipe = paper.recipe(name, 0)
        assert (recipe.batch_size, recipe.learning_rate) == (512, 1e-3)
        assert paper.task_options[name] == {"image_size": 224, "patch_size": 16}
    task = replace(load_task("digits"), image_size=224, patch_size=16, tokens=197, channels=3)
    by_name = {arm.name: arm for arm in arms.selection_arms(paper, task, whole=True)}
    assert list(by_name) == [
        "contrast sampled 138",
        "variance sampled 138",
        "entropy sampled 138",
        "random sampled 138",
    ]
    for arm in by_name.values():
        assert keep_count(196, arm.selection.keep) == 138
        assert (arm.schedule.kind, arm.schedule.start, arm.schedule.rate) == ("decay", 0.5, 5e-3)
    work = training.Work("x", task, tmp_path, paper, 64, 4, 4)
    model = work.build(by_name["contrast sampled 138"], 0)
    assert model.config.num_hidden_layers == 4
    assert model(pixel_values=torch.zeros(1, 3, 224, 224)).logits.shape == (1, 10)


def test_it_needs_an_accelerator(tmp_path):
    if torch.accelerator.is_available():
        pytest.skip("there is one")
    with pytest.raises(UsageError, match="needs an accelerator; use the budget standard"):
        hugginggreen.prepare(hugginggreen.BUDGETS["paper"], tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": ("contrst",)}, "did you mean 'contrast'"),
        ({"ways": ("tops",)}, "did you mean 'top'"),
        ({"schedules": ("decays",)}, "did you mean 'decay'"),
        ({"schedule": "decays"}, "did you mean 'decay'"),
        ({"questions": ("patch",)}, "did you mean 'patches'"),
        ({"keeps": (1.2,)}, "1 is the dense variant"),
        ({"keeps": (0.0,)}, "1 is the dense variant"),
        ({"keeps": (1,)}, "1 is the dense variant"),
        ({"keeps": ()}, "keeps must name at least one"),
        ({"scores": ("random", "random")}, "named twice"),
        ({"pairs": 0}, "pairs must be at least 1"),
        ({"margin": 0.0}, "margin must be above 0"),
        ({"trained": {"digits": {"epoch": 3}}}, "did you mean 'epochs'"),
    ],
)
def test_mistakes_get_one_clear_line(changes, message):
    with pytest.raises(UsageError, match=message):
        replace(SMALL, **changes)


def test_tasks_that_do_not_fit(monkeypatch, digits):
    monkeypatch.setattr(options, "load_for", lambda *_: (token_task(), {}))
    with pytest.raises(UsageError, match="a task of texts"):
        options.load(SMALL, "majority", None)
    zeros = {
        split: replace(examples, labels=torch.zeros_like(examples.labels))
        for split in ("train", "validation", "test")
        if (examples := getattr(digits, split)) is not None
    }
    single = replace(digits, labels=("zero",), **zeros)
    monkeypatch.setattr(options, "load_for", lambda *_: (single, {}))
    with pytest.raises(UsageError, match="has one class"):
        options.load(SMALL, "digits", None)
    other = replace(digits, image_size=16)
    monkeypatch.setattr(options, "load_for", lambda *_: (other, {}))
    given = replace(SMALL, unlabelled={"digits": {"task": "other"}})
    with pytest.raises(UsageError, match="have image_size 16, but digits has 8"):
        options.unlabelled(given, "digits", digits, None)
    assert options.unlabelled(SMALL, "digits", digits, None) is digits


def test_what_a_baseline_needs_is_named_where_it_is_missing(digits, tmp_path):
    work = work_on(digits, tmp_path)
    arm = next(a for a in arms.patch_arms(SMALL, digits, whole=True) if a.kind == "network")
    with pytest.raises(UsageError, match=r"contrast-top-0\.7-0 is missing"):
        cells.epochs_of(work, "patches", arm, 0)


def _energy(arm, seed, component, value):
    labels = {"question": "patches", "task": "t", "depth": 2, "arm": arm, "seed": seed}
    component_labels = {**labels, "component": component}
    return Record("train_energy_j", value, "J", "measured", component_labels)


def test_a_counter_that_was_lost_does_not_look_like_energy_saved():
    both = {"dense": ("cpu", "gpu 0"), "contrast top 0.7": ("cpu", "gpu 0")}
    records = [
        _energy(arm, seed, part, 50.0)
        for arm, parts in both.items()
        for seed in range(10)
        for part in parts
        if not (arm != "dense" and part == "gpu 0" and seed < 5)
    ]
    [group] = groups.groups(records, {"t": 100})
    ratio = analysis.ratio_record(
        group, "energy_ratio", "train_energy_j", "contrast top 0.7", "dense"
    )
    assert (ratio.value, ratio.count) == (pytest.approx(1.0), 5)


@pytest.mark.parametrize(
    ("reached", "of", "met"),
    [(0, 10, False), (4, 10, False), (5, 10, "undecided"), (0, 9, "undecided")],
)
def test_an_arm_that_seldom_gets_there_misses_the_goal(digits, reached, of, met):
    arm = arms.selection_arms(SMALL, digits, whole=False)[0].name
    labels = {"task": "digits", "question": "patches", "depth": 2, "arm": arm}
    target_labels = {**labels, "to": "dense", "reached": reached, "of": of}
    record = Record("target_energy_ratio", None, "ratio", "estimated", target_labels)
    goals = decide_goals(SMALL, {"digits": digits}, [record])
    assert next(goal for goal in goals if "less energy than" in goal.name).met == met


@pytest.mark.parametrize(
    ("ratio", "at_plateau", "met"),
    [(0.6, True, True), (0.6, False, "undecided"), (1.5, True, False), (1.5, False, False)],
)
def test_a_saving_beside_a_dense_model_that_still_learns_is_not_met(digits, ratio, at_plateau, met):
    arm = arms.selection_arms(SMALL, digits, whole=False)[0].name
    labels = {"task": "digits", "question": "patches", "depth": 2, "arm": arm}
    interval = (ratio - 0.1, ratio + 0.1)
    saved = Record(
        "target_flops_ratio", ratio, "ratio", "modelled", labels, interval=interval, count=10
    )
    gain_labels = {**labels, "arm": "dense", "at_plateau": at_plateau}
    gain = Record("last_quarter_gain", 0.0, "score", "measured", gain_labels)
    goals = decide_goals(SMALL, {"digits": digits}, [saved, gain])
    assert next(goal for goal in goals if "less arithmetic than" in goal.name).met == met
