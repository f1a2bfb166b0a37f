"""The study's options, plan and pieces, and answers of other kinds; nothing here is trained."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from papers.tests.adaattention.test_study import SMALL

from sparing.core.errors import UsageError
from sparing.core.record import Record
from sparing.experiment.registry import find_study
from sparing.experiment.run import Cell
from sparing.measure.statistics import unseen
from sparing.models import build_model
from sparing.tasks import load_task
from sparing_papers.adaattention import arms, claims
from sparing_papers.adaattention import options as ada_options
from sparing_papers.adaattention import plan as plans
from sparing_papers.adaattention import study as adaattention
from sparing_papers.adaattention.analysis import analyse
from sparing_papers.adaattention.cells import answers as answer_store
from sparing_papers.adaattention.cells import patterns, speed
from tests.train.small import token_task


def test_a_plan_scales_guesses_by_what_finished_cells_took(tmp_path, monkeypatch):
    monkeypatch.setattr(plans, "_step_ratio", lambda work: 3.0)
    works, _ = ada_options.works_of(SMALL, tmp_path, None)
    cells_ = [Cell(f"digits/train/{name}/0", list, weight=60.0) for name in "ab"]
    guessed = plans.make_plan(cells_, works, [], set())
    assert [cell.minutes for cell in guessed.cells] == [3.0, 3.0]
    took = Record(plans.TIME, 999.0, "s", "measured", {"core_s": 30.0}, cell=cells_[0].key)
    known = plans.make_plan(cells_, works, [took], {cells_[0].key})
    assert [(cell.minutes, cell.done) for cell in known.cells] == [(0.5, True), (0.5, False)]


def test_a_run_in_pieces_does_what_is_asked_and_says_what_is_missing(tmp_path):
    one = find_study("adaattention").run(SMALL, tmp_path / "run", cells="arith*")
    assert {r.cell for r in one.records} == {"arithmetic"}
    assert len(one.config["cells"]) > 10
    none = find_study("adaattention").run(SMALL, tmp_path / "run", minutes=0.0)
    assert {r.cell for r in none.records} == {"arithmetic"}
    with pytest.raises(UsageError, match="no cell fits"):
        find_study("adaattention").run(SMALL, tmp_path / "run", cells="sst3/*")


def work_of(task, folder, **changes):
    return arms.Work(task.name, task, folder, "", {}, replace(arms.Length(), **changes))


def test_other_answers_get_the_arms_that_there_are(tmp_path):
    task = replace(load_task("digits"), answer="number", labels=("value",), metric="pearson")
    work = work_of(task, tmp_path)
    inside = [arm.name for arm in replace(SMALL, variants=()).arms_of(work)]
    assert "adaptive" in inside
    assert not {"skip", "slim"} & {*inside}
    outside = replace(SMALL, variants=(), ablations=("sst2",)).arms_of(work)
    assert [arm.name for arm in outside] == ["full", "adaptive", "linformer", "bigbird", "prune"]


def test_text_answers_are_scored_question_by_question(tmp_path):
    task = replace(token_task(), answer="span", labels=("start", "end"), metric="token_f1")
    task = replace(task, metrics=("token_f1", "exact_match"))
    work = work_of(task, tmp_path)
    scores = torch.tensor([[0.5, 0.0], [1.0, 1.0]])
    assert answer_store.score_of(work, scores) == 0.75
    assert answer_store.score_of(work, scores, "exact_match", torch.tensor([1, 1])) == 1.0
    answer_store.keep(work, "full", 0, scores)
    answer_store.keep(work, "adaptive", 0, scores * torch.tensor([[1.0], [0.5]]))
    scored = [r for arm in ("full", "adaptive") for r in answer_store.scored(work, arm, 0, scores)]
    records = analyse(scored, [work], (0,))
    gap = [r for r in records if r.name == "score_difference" and r.labels["task"] == work.name]
    assert gap[0].value == pytest.approx(-0.25)
    shown = {r.labels["metric"] for r in records if r.labels.get("task") == "squad"}
    assert shown == {"EM", "F1"}


def test_answers_that_all_agree_do_not_prove_that_none_ever_differs(tmp_path):
    task = replace(token_task(), answer="span", labels=("start", "end"), metric="token_f1")
    work = work_of(replace(task, metrics=("token_f1", "exact_match")), tmp_path)
    scores = torch.ones(50, 2)
    for arm in ("full", "adaptive"):
        answer_store.keep(work, arm, 0, scores)
    scored = [r for arm in ("full", "adaptive") for r in answer_store.scored(work, arm, 0, scores)]
    for gap in analyse(scored, [work], (0,)):
        if gap.name == "score_difference" and gap.labels["arm"] == "adaptive":
            assert gap.interval == pytest.approx((-unseen(50, 0.95), unseen(50, 0.95)))


def test_speeds_are_neither_the_papers_nor_those_beside_the_int8_forms(tmp_path):
    labels = {"arm": "adaptive", "task": "sst2", "inputs": "all"}
    quoted = Record("speed_up", 1.78, "ratio", "paper", labels)
    measured = Record("speed_up", 0.9, "ratio", "measured", labels, (0.8, 1.0))
    again = replace(measured, value=0.5, labels={**labels, "group": "int8"})
    works = [work_of(replace(token_task(), name="sst2"), tmp_path)]
    speeds = [r for r in analyse([quoted, again, measured], works, (0,)) if r.name == "speed_up"]
    assert {r.labels["task"] for r in speeds} == {"mean", "every", "glue"}
    mean = [r for r in speeds if r.labels["task"] == "mean"]
    assert [r.value for r in mean] == [pytest.approx(0.9)]
    assert mean[0].interval == pytest.approx((0.8, 1.0))


def test_means_are_over_the_tasks_that_run_every_arm(tmp_path):
    def timed(task, value):
        labels = {"arm": "adaptive", "task": task, "inputs": "all"}
        return Record("speed_up", value, "ratio", "measured", labels, (value, value))

    both = [timed("sst2", 0.9), timed("imdb", 0.4)]
    works = [work_of(replace(token_task(), name=name), tmp_path) for name in ("sst2", "imdb")]
    means = {r.labels["task"]: r.value for r in analyse(both, works, (0,), ["sst2"])}
    assert means == {
        "mean": pytest.approx(0.9),
        "every": pytest.approx(0.6),
        "glue": pytest.approx(0.9),
    }


def test_the_test_split_may_be_drawn_and_the_notes_say_so():
    task = ada_options._limited(load_task("digits"), 50)
    assert len(task.test) == 50
    assert "test: 50 of" in task.notes[-1]
    assert ada_options._limited(task, 50) is task


def test_int8_weights_are_counted_where_they_are():
    encoder = speed.Encoder(1, 16, 100)
    whole = speed.weight_bytes(speed.form(encoder, arms.FULL))
    small = speed.weight_bytes(speed.form(encoder, "full int8"))
    layers = 12 * 768 * 768 + 768 * 768
    assert whole - small == pytest.approx(3 * layers, rel=0.01)


def test_settings_of_training_reach_the_recipe(tmp_path):
    options = replace(
        SMALL,
        tasks=("digits",),
        precision="bfloat16",
        attention_dropout=False,
        trained={"digits": {"epochs": 3, "learning_rate": 0.5}},
    )
    work = ada_options.works_of(options, tmp_path, None)[0][0]
    arm, dense = work.recipe(0, dense=False), work.recipe(0, dense=True)
    assert (arm.epochs, arm.learning_rate, arm.precision) == (3, 0.5, "bfloat16")
    assert (dense.epochs, dense.learning_rate) == (1, 0.5)
    assert work.build(0).config.attention_probs_dropout_prob == 0


def test_a_task_may_be_evaluated_on_fewer_examples_than_the_others(tmp_path):
    task_options = {"digits": {"test_examples": 7}}
    options = replace(SMALL, tasks=("digits",), test_examples=50, task_options=task_options)
    assert len(ada_options.works_of(options, tmp_path, None)[0][0].task.test) == 7


@pytest.mark.parametrize(("metric", "scored"), [("f1", "accuracy"), ("matthews", "matthews")])
def test_accuracy_scores_in_place_of_f1_alone(tmp_path, monkeypatch, metric, scored):
    given = replace(load_task("digits"), metric=metric, metrics=(metric, "accuracy"))
    monkeypatch.setattr(ada_options, "load_for", lambda *_: (given, {}))
    task = ada_options.works_of(SMALL, tmp_path, None)[0][0].task
    assert (task.metric, task.metrics) == (scored, (metric, "accuracy"))


def test_a_trained_head_for_numbers_keeps_its_bias():
    task = replace(load_task("digits"), answer="number", labels=("value",), metric="pearson")
    model = build_model("vit", task, layers=1, width=8, heads=1)
    with torch.no_grad():
        model.get_submodule("classifier").get_parameter("bias").fill_(2.0)
    arms._answer_the_mean(model, task)
    assert model.get_submodule("classifier").get_parameter("bias").item() == 2.0


def test_a_new_head_for_numbers_begins_at_their_mean(tmp_path):
    task = replace(load_task("digits"), answer="number", labels=("value",), metric="pearson")
    labels = task.train.labels.float()
    built = work_of(task, tmp_path).build(0)
    head = built.get_submodule("classifier")
    assert head.get_parameter("bias").item() == pytest.approx(float(labels.mean()))


def test_long_inputs_are_weighed_by_fewer(tmp_path):
    task = load_task("digits")
    assert arms.importance_examples(task) == 512
    assert arms.importance_examples(replace(task, tokens=512)) == 128


def test_texts_that_are_shown_are_short_where_there_are_such():
    assert patterns._readable([3, 10, *[20] * patterns.SHOWN, 500])[0] == 1
    long = [300, 7, *range(200, 100, -1)]
    shown = patterns._readable(long)
    assert (len(shown), max(long[n] for n in shown)) == (patterns.SHOWN, 100 + patterns.SHOWN)


def test_mechanisms_get_as_far_whatever_the_rate_and_the_steps():
    standard = adaattention.BUDGETS["standard"]
    reaches = [560 * standard.learning_rate * standard.mechanism_rate_factor]
    for task, steps in (("mrpc", 310), ("stsb", 486), ("imdb", 250), ("squad", 208)):
        recipe = standard.trained[task]
        reaches.append(steps * recipe["learning_rate"] * recipe["mechanism_rate_factor"])
    assert reaches == pytest.approx([11_200 * 5e-5] * 5)


def test_the_standard_budget_has_three_seeds_and_every_kind_of_task():
    standard = adaattention.BUDGETS["standard"]
    assert len(standard.seeds) == 3
    assert {"sst2", "mrpc", "stsb", "imdb", "squad"} < {*standard.tasks}
    assert standard.task_options["imdb"]["max_tokens"] == 512
    paper_budget = adaattention.BUDGETS["paper"]
    assert (paper_budget.learning_rate, paper_budget.batch_size) == (5e-5, 32)


@pytest.mark.parametrize(
    ("tasks", "seeds", "met"), [(2, 1, True), (1, 1, "undecided"), (2, 0, "undecided")]
)
def test_a_claim_on_all_tasks_waits_for_all_of_them(tmp_path, tasks, seeds, met):
    options = replace(SMALL, tasks=("digits", "scenes"), task_options={"scenes": {"examples": 20}})
    works = ada_options.works_of(options, tmp_path, None)[0]
    every = {"arm": "adaptive", "task": "every"}
    records = [Record("speed_up", 1.9, "ratio", "measured", every, (1.85, 1.95), tasks)]
    for work in works[:tasks]:
        labels = {"arm": "adaptive", "task": work.name}
        records.append(
            Record("score_difference", 0.0, "score", "measured", labels, (0.0, 0.0), seeds)
        )
    goals = claims.decide_goals(records, options, works)
    assert next(goal for goal in goals if "on the tasks' texts" in goal.name).met == met


@pytest.mark.parametrize(("seeds", "met"), [((0,), "undecided"), ((0, 1, 2), True)])
def test_one_seed_decides_no_accuracy(tmp_path, seeds, met):
    options = replace(SMALL, seeds=seeds)
    works = ada_options.works_of(options, tmp_path, None)[0]
    records = [
        Record("score_difference", 0.01, "score", "measured", labels, (0.005, 0.015), count)
        for labels, count in (
            ({"arm": "slim", "task": "digits"}, len(seeds)),
            ({"arm": "slim", "task": "every"}, 1),
        )
    ]
    goals = claims.decide_goals(records, options, works)
    assert next(g for g in goals if g.name.startswith("ours: loses at most")).met == met


def test_all_arms_keep_their_weights_by_the_printed_rule(tmp_path, monkeypatch):
    monkeypatch.setattr(arms.Work, "open", lambda *_: None)
    monkeypatch.setattr(arms, "evaluate", lambda *_: SimpleNamespace(score=0.9))
    work = work_of(load_task("digits"), tmp_path)
    assert {arms._auxiliary(work, arm, 0).baseline for arm in arms.ARMS} == {0.9}


def test_one_size_that_is_set_leaves_the_others(tmp_path):
    options = replace(SMALL, tasks=("digits",), sizes={"layers": 3})
    [work] = ada_options.works_of(options, tmp_path, None)[0]
    assert work.sizes == {**ada_options.IMAGE_SIZES, "layers": 3}


def test_another_model_of_the_same_name_is_another_run(tmp_path):
    places = [tmp_path / name / "base" for name in "ab"]
    for layers, folder in enumerate(places, start=1):
        build_model("vit", load_task("digits"), width=16, layers=layers).save_pretrained(folder)
    options = replace(SMALL, sizes={}, image_model=str(places[0]))
    find_study("adaattention").run(options, tmp_path / "run", cells="arith*")
    other = replace(options, image_model=str(places[1]))
    with pytest.raises(UsageError, match="the model base have changed"):
        find_study("adaattention").run(other, tmp_path / "run", cells="arith*")


def test_places_without_tokens_have_no_record():
    places = torch.full((1, 2, patterns.INNER_PLACES + 2), 0.5)  # one layer, two texts
    places[..., 2] = torch.nan
    positions = [record.labels["place"] for record in patterns._place_records([places], {})]
    assert len(positions) == patterns.INNER_PLACES + 1
    assert "part 2" not in positions


def test_models_stand_in_the_configuration_by_name_alone(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    options = replace(SMALL, model=str(folder))
    named = adaattention._named({"model": str(folder), "more": {"tokenizer": str(folder)}}, options)
    assert named == {"model": "mine", "more": {"tokenizer": "mine"}}


def test_the_papers_own_setting_says_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.raises(UsageError, match="accelerator"):
        find_study("adaattention").run(adaattention.BUDGETS["paper"], tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seeds": ()}, "seeds must name at least one"),
        ({"seeds": (1, 1)}, "twice"),
        ({"rounds": 0}, "rounds"),
        ({"lengths": (0,), "shape_layers": 1}, "lengths"),
        ({"variants": ("nothing",)}, "unknown variant"),
        ({"test_examples": -1}, "test_examples"),
        ({"task_options": {"digits": {"test_examples": -1}}}, "test_examples"),
        ({"trained": {"digits": {"epoch": 1}}}, "did you mean 'epochs'"),
    ],
)
def test_impossible_wishes_are_named(change, words):
    with pytest.raises(UsageError, match=words):
        replace(SMALL, **change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ablations": ("sst2",)}, "none of ablations"),
        ({"needs": "pretrained"}, "--set model=PATH"),
        ({"trained": {"digitz": {"epochs": 1}}}, "'digitz', which is no task"),
    ],
)
def test_options_for_other_tasks_are_named(tmp_path, change, words):
    with pytest.raises(UsageError, match=words):
        ada_options.works_of(replace(SMALL, **change), tmp_path, None)


def test_without_data_the_study_takes_digits(monkeypatch, tmp_path):
    monkeypatch.delenv(ada_options.DATA, raising=False)
    works, facts = ada_options.works_of(replace(SMALL, tasks=()), tmp_path, None)
    assert [work.name for work in works] == list(facts) == [ada_options.WITHOUT_DATA]
