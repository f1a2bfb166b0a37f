"""The Linformer study from end to end on few examples, and its page."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.experiment.registry import find_study
from sparing.report.page import write_report
from sparing_papers.linformer import study as linformer
from sparing_papers.linformer.options import CostOptions, ErrorOptions, Options
from sparing_papers.long_range.work import TaskOptions

SIZES = {"min_tokens": 6, "max_tokens": 16, "examples": 24}
SMALL = Options(
    longer=TaskOptions(
        variants=("linformer", "linformer, pooled"),
        seeds=2,
        pilot=False,
        task_options={"listops": {**SIZES, "validation_examples": 8, "test_examples": 16}},
        trained={"listops": {"epochs": 1, "batch_size": 12}},
    ),
    questions=("longer", "sharing", "shift", "spectrum", "error", "cost"),
    factors=(1, 2),
    length_examples=6,
    sharing=("kv",),
    ranks=("n/2",),
    spectrum_lengths=(8, 16, 32),
    spectrum_texts=2,
    error=ErrorOptions(lengths=(16,), slots=(4, 8), draws=2, texts=4, held=2, steps=3),
    cost=CostOptions(
        tokens=64, lengths=(32, 64), slots=(4,), rounds=2, most_seconds=30.0, most_bytes=0.0
    ),
)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.delenv("SPARING_DATA", raising=False)
    yield find_study("linformer").run(SMALL, tmp_path_factory.mktemp("study") / "run")
    patch.undo()


def find(result, name, **labels):
    return [r for r in result.records if r.name == name and labels.items() <= r.labels.items()]


def test_every_cell_ends_and_what_needs_data_is_noted(ended):
    assert ended.failures == []
    assert any("imdb is left out" in note for note in ended.config["task"]["notes"])
    assert {key.split("/")[0] for key in ended.config["cells"]} == {
        *("longer", "sharing", "spectrum", "error", "cost")
    }


def test_arms_are_evaluated_at_each_length_with_both_ways_of_lengthening(ended):
    records = find(ended, "length_score", factor=2)
    arms = {r.labels["arm"] for r in records}
    assert arms == {
        *("softmax", "uniform", "linformer, pooled"),
        *("linformer, sliced", "linformer, interpolated"),
    }
    for seed in (0, 1):
        ways = find(ended, "length_score", factor=1, seed=seed)
        score = {r.labels["arm"]: r.value for r in ways}
        assert score["linformer, sliced"] == score["linformer, interpolated"]
    assert find(ended, "length_score_difference", arm="linformer, sliced", less="softmax", factor=2)
    assert find(ended, "length_drop_difference", arm="linformer, pooled", less="softmax", factor=2)
    for record in find(ended, "length_score", factor=2):
        [answers] = find(ended, "answers", **record.labels)
        assert answers.value == pytest.approx(record.value * answers.count)


def test_forms_are_compared_with_the_trainings_of_the_longer_question(ended):
    arms = {r.labels["arm"] for r in find(ended, "mean_score", question="sharing")}
    assert arms == {
        *("softmax", "uniform", "linformer"),
        *("linformer, shared kv", "linformer, k = 8"),
    }
    assert len(find(ended, "decides", question="sharing", task="listops")) == 1
    assert {r.labels["arm"] for r in find(ended, "score", question="sharing")} == arms


def test_ranks_grow_with_an_exponent_of_each_model(ended):
    for span, longest in (("trained", 16), ("all", 32)):
        (exponent,) = find(ended, "exponent", of="effective_rank", range=span)
        assert (exponent.count, exponent.labels["longest"]) == (2, longest)
        assert (exponent.labels["over"], exponent.labels["models"]) == ("models", 2)
        assert exponent.interval[0] < exponent.value < exponent.interval[1]
        assert 0 < exponent.value < 1.5
    assert {r.labels["beyond"] for r in find(ended, "effective_rank", tokens=32)} == {True}


def test_what_is_predicted_to_take_too_much_is_not_run(ended):
    assert not find(ended, "latency_ms")
    assert not find(ended, "peak_bytes")
    left = find(ended, "not_run")
    assert len(left) == 2 * 2 * 2 * 4
    assert all("GiB" in r.labels["why"] for r in left)


def test_goals_of_accuracy_stay_undecided_where_nothing_is_learned(ended):
    goals = json.loads((ended.folder / "goals.json").read_text())["goals"]
    assert [goal["name"] for goal in goals] == [goal.name for goal in ended.goals]
    scores = [goal for goal in ended.goals if goal.name.startswith("listops, ")]
    arm_names = {goal.name.removeprefix("listops, ").partition(":")[0] for goal in scores}
    forms = {"linformer, shared kv", "linformer, k = 8"}
    ways = {"linformer", "linformer, sliced", "linformer, pooled", "linformer, interpolated"}
    assert arm_names == forms | ways
    assert {goal.met for goal in scores} == {"undecided"}
    assert any(goal.met is not None and "effective rank" in goal.name for goal in ended.goals)


def test_a_finished_run_is_not_done_again(ended, monkeypatch):
    monkeypatch.delenv("SPARING_DATA", raising=False)
    monkeypatch.setattr("sparing.experiment.cells.training.train", None)
    again = find_study("linformer").run(SMALL, ended.folder)
    assert len(again.records) == len(ended.records)
    assert find_study("linformer").plan(SMALL, ended.folder).minutes_left == 0


def test_the_page_shows_everything(ended):
    pages = write_report(ended.folder)
    page = " ".join(pages["html"].read_text().split())
    for text in (
        *("Undecided whether Linformer holds", "linformer, interpolated", "linformer, shared kv"),
        *("Does the rank grow with the length?", "vacuous: no solution", "Not run"),
        "imdb is left out",
    ):
        assert text in page
    assert pages["rank"].is_file()
    assert pages["longer-listops"].is_file()
    assert "Errors of the output" in pages["md"].read_text()


def test_parts_can_be_run_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("SPARING_DATA", raising=False)
    result = find_study("linformer").run(SMALL, tmp_path / "run", cells="cost/core/32/*")
    assert {r.cell for r in result.records} - {"analysis"} == {
        *("cost/core/32/time", "cost/core/32/memory")
    }
    assert "This run is not complete" in write_report(tmp_path / "run")["html"].read_text()
    alone = find_study("linformer").run(SMALL, tmp_path / "run", cells="spectrum/listops/0/8")
    assert "is not trained on listops so far" in alone.failures[0].error


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"questions": ("langer",)}, "did you mean 'longer'"),
        ({"sharing": ("head",)}, "not one of none, headwise"),
        ({"ranks": ("n/x",)}, "counts such as 64"),
        ({"factors": (2, 4)}, "must rise from 1"),
        ({"spectrum_texts": 0}, "at least 1"),
    ],
)
def test_options_refuse(given, message):
    with pytest.raises(UsageError, match=message):
        replace(SMALL, **given)


def test_costs_and_errors_refuse():
    with pytest.raises(UsageError, match="must divide"):
        CostOptions(tokens=100, lengths=(64,))
    with pytest.raises(UsageError, match=r"error\.steps"):
        ErrorOptions(steps=0)


def test_budgets_ask_every_question():
    for options in (o for o in linformer.BUDGETS.values() if not o.seeds_fixed):
        assert options.questions == linformer.BUDGETS["quick"].questions
        assert max(options.factors) == 8
    assert linformer.BUDGETS["standard"].longer.seeds >= 3


def test_a_question_that_trains_nothing_has_a_page(tmp_path):
    alone = replace(SMALL, questions=("cost",))
    find_study("linformer").run(alone, tmp_path / "run", cells="cost/core/*")
    assert "softmax" in write_report(tmp_path / "run")["md"].read_text(encoding="utf-8")


def test_the_paper_budget_needs_an_accelerator(tmp_path, monkeypatch):
    paper = linformer.BUDGETS["paper"]
    assert (paper.longer.seeds, paper.texts.seeds) == (5, 5)
    assert {128, 256} <= {*paper.language.masked.slots}  # those of the paper
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.raises(UsageError) as refused:
        find_study("linformer").run(paper, tmp_path / "run")
    assert "need an accelerator; use the budget standard" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_what_the_machine_must_have_makes_no_other_run(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    ours, other = (
        linformer.prepare(replace(SMALL, needs=needs), tmp_path).config["identity"]
        for needs in ("", "accelerator")
    )
    assert ours == other


def test_planned_seeds_are_those_of_the_part_that_a_goal_is_of(tmp_path):
    texts, longer = replace(SMALL.texts, seeds=7), replace(SMALL.longer, seeds=4)
    seeds = linformer.prepare(replace(SMALL, texts=texts, longer=longer), tmp_path).seeds
    assert seeds("imdb, linformer: score at the trained length less softmax's") == 7
    assert seeds("imdb, linear in the pretrained encoder, distilled: score") == 4
    assert seeds("listops, linformer: score less softmax's") == 4
    assert seeds("masked words, 128 tokens, linformer: perplexity over softmax's") == 4
