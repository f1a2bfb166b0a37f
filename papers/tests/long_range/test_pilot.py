"""Two trainings come first; where they show that a task decides nothing, no others follow."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from sparing.cli import main
from sparing.core.errors import UsageError
from sparing.core.record import Record
from sparing.experiment.registry import find_study
from sparing.report.page import write_report
from sparing.report.run import Run, read_run
from sparing_papers.kerformer.options import Options
from sparing_papers.kerformer.page import build as kerformer_page
from sparing_papers.linformer import study as linformer
from sparing_papers.linformer.page.leads import of_lengths
from sparing_papers.long_range.answers import answers_record
from sparing_papers.long_range.page.lookups import decides, seeds
from sparing_papers.long_range.pilot import idle_after_pilot, unpromising
from sparing_papers.long_range.train import training_cells
from sparing_papers.long_range.work import LongWork, TaskOptions, bare_identity
from tests.train.small import token_task

ARENA = TaskOptions(
    variants=("kerformer",),
    seeds=2,
    task_options={
        "listops": {
            "min_tokens": 8,
            "max_tokens": 40,
            "examples": 32,
            "validation_examples": 20,
            "test_examples": 40,
        }
    },
    trained={"listops": {"epochs": 1, "batch_size": 32}},
)
LATER = ("1/kerformer", "1/softmax", "1/uniform")
SMALL = Options(questions=("arena",), arena=ARENA, noise=(0.5,), looked_at=1)


def answers(arm, right, **labels):
    base = {"question": "arena", "task": "listops", "arm": arm, "seed": 0}
    return answers_record((np.arange(200) < round(200 * right)).tolist(), {**base, **labels})


def why(*records, chance=0.1):
    return unpromising(records, "arena", "listops", chance, 0.01)


@pytest.mark.parametrize("uniform", [0.6, 0.785])
def test_a_task_may_decide_where_dense_attention_is_better_than_both(uniform):
    assert why(answers("softmax", 0.8), answers("uniform", uniform)) == ""


def test_a_task_that_is_not_learned_decides_nothing():
    reason = why(answers("softmax", 0.14), answers("uniform", 0.05))
    assert reason == "of 200 inputs softmax is right on 14.0%, guessing on 10.0%"


@pytest.mark.parametrize("uniform", [0.5, 0.495, 0.7])
def test_a_task_that_needs_no_attention_decides_nothing(uniform):
    reason = why(answers("softmax", 0.5), answers("uniform", uniform))
    assert reason.endswith(f"the mean of all values on {uniform:.1%}")


@pytest.mark.parametrize("labels", [{"seed": 1}, {"factor": 2}, {"task": "imdb"}])
def test_only_the_first_seed_on_the_tasks_own_inputs_counts(labels):
    assert why(answers("softmax", 0.5), answers("uniform", 0.5, **labels)) == ""


def test_matrices_of_dense_attention_are_wanted_all_the_same(tmp_path):
    options = linformer.Options(
        longer=replace(ARENA, variants=("linformer",)), questions=("longer",)
    )
    loaded = linformer._loaded(options, tmp_path, None)
    cells = linformer._cells(options, loaded, tmp_path, None)
    poor = [
        replace(answers(arm, 0.1), labels={**answers(arm, 0.1).labels, "question": "longer"})
        for arm in ("softmax", "uniform")
    ]
    keys = [cell.key for cell in cells if not cell.why_idle(poor)]
    start = "longer/listops"
    assert keys == [f"{start}/0/softmax", f"{start}/0/uniform", f"{start}/1/softmax"]


@pytest.mark.parametrize(
    "changes", [{"pilot": False}, {"seeds": 5}, {"task_options": {}, "tasks": ("cola",)}]
)
def test_some_runs_have_no_pilot(tmp_path, changes):
    task = replace(token_task(), metric="matthews" if "tasks" in changes else "accuracy")
    options = replace(ARENA, trained={}, **{"task_options": {}, **changes})
    work = LongWork("arena", *options.tasks, task, "long_range", tmp_path, options)
    assert idle_after_pilot(work) is None
    assert not any(cell.idle for cell in training_cells(work))
    plain = LongWork("arena", "listops", token_task(), "long_range", tmp_path, ARENA)
    assert [bool(cell.idle) for cell in training_cells(plain)][:3] == [False, False, True]


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    return find_study("kerformer").run(SMALL, tmp_path_factory.mktemp("pilot") / "run")


def trained(result):
    return {(r.labels["arm"], r.labels["seed"]) for r in result.records if r.name == "score"}


def test_what_would_decide_nothing_is_not_trained(left):
    assert left.failures == []
    assert trained(left) == {("softmax", 0), ("uniform", 0)}
    run = read_run(left.folder)
    assert seeds(run) == {"arena/listops": {"softmax": 1, "uniform": 1}}
    assert decides(run, "arena", "listops")[1].startswith("with the first seed, of 40 inputs")
    gone = {r.labels["key"] for r in left.records if r.name == "left_out"}
    assert gone == {f"arena/listops/{end}" for end in ("0/kerformer", *LATER)}


def test_the_page_and_the_plan_say_what_was_left_out_and_why(left, monkeypatch, capsys):
    page = write_report(left.folder)["md"].read_text(encoding="utf-8")
    assert (
        "4 cells of arena/listops left out, as the task does not pass the sensitivity check" in page
    )
    assert "This run is not complete" not in page
    plan = find_study("kerformer").plan(SMALL, left.folder)
    assert plan.minutes_left == 0
    assert sum(bool(cell.idle) for cell in plan.cells) == 4
    monkeypatch.setattr("sparing_papers.kerformer.study.BUDGETS", {"quick": SMALL})
    with pytest.raises(SystemExit, match="0"):
        main(["study", "kerformer", "--output-dir", str(left.folder), "--plan"])
    assert "4 cells are skipped, since little can be decided there" in capsys.readouterr().out


def test_they_may_be_trained_after_all_in_the_same_folder(left, tmp_path):
    everything = replace(SMALL, arena=replace(ARENA, pilot=False))
    again = find_study("kerformer").run(everything, left.folder)
    assert trained(again) == {(a, n) for a in ("softmax", "kerformer", "uniform") for n in (0, 1)}
    assert not [r for r in again.records if r.name == "left_out"]
    config = json.loads((left.folder / "config.json").read_text())
    assert not {"pilot", "variants"} & {*config["identity"]["arena"]}
    assert "vision" not in config["identity"]  # nothing was evaluated on images


def test_arms_may_be_added_in_the_same_folder(left):
    more = replace(SMALL, arena=replace(ARENA, pilot=False, variants=("kerformer", "linear")))
    before = {r.cell for r in left.records if r.cell != "analysis"}
    again = find_study("kerformer").run(more, left.folder)
    assert {arm for arm, _ in trained(again)} == {"softmax", "kerformer", "linear", "uniform"}
    assert before <= {r.cell for r in again.records}
    assert "linear" in json.loads((left.folder / "config.json").read_text())["arms"]
    other = replace(more, arena=replace(more.arena, trained={"listops": {"epochs": 3}}))
    with pytest.raises(UsageError, match="holds another run: arena was"):
        find_study("kerformer").run(other, left.folder)


def test_seeds_may_be_added_in_the_same_folder(left):
    more = replace(SMALL, arena=replace(ARENA, pilot=False, seeds=3, variants=()))
    before = {r.cell for r in left.records if r.cell != "analysis"}
    again = find_study("kerformer").run(more, left.folder)
    assert trained(again) >= {("softmax", 2), ("uniform", 2)}
    assert before <= {r.cell for r in again.records}
    assert json.loads((left.folder / "config.json").read_text())["seeds"] == [0, 1, 2]


def test_a_task_that_was_left_out_hides_no_other_tasks_seeds():
    def mean(task, count):
        labels = {"question": "arena", "task": task, "arm": "softmax", "over": "seeds"}
        return Record("mean_score", 0.5, "share", "measured", labels, (0.4, 0.6), count)

    left_out = {"key": "arena/listops/1/softmax", "why": "of 40 inputs softmax is right on 10.0%"}
    records = [mean("listops", 1), mean("cifar10", 3)]
    records.append(Record("left_out", None, "", "measured", left_out))
    assert seeds(Run({}, records, [], [])) == {"arena/cifar10": {"softmax": 3}}
    assert seeds(Run({}, records[:2], [], [])) == {
        "arena/listops": {"softmax": 1},
        "arena/cifar10": {"softmax": 3},
    }
    labels = {"question": "arena", "task": "listops", "why": "clearly better"}
    decided = [*records, Record("decides", 1.0, "", "measured", labels)]  # by seeds of before
    assert decides(Run({}, decided, [], []), "arena", "listops")[0]


def test_the_verdict_on_lengths_says_why_nothing_is_decided():
    left_out = {
        "key": "longer/listops/0/linformer",
        "why": "of 40 inputs softmax is right on 10.0%",
    }
    labels = {"question": "longer", "task": "listops", "arm": "softmax", "seed": 0}
    records = [
        Record("score", 0.1, "share", "measured", labels, count=40),
        Record("left_out", None, "", "measured", left_out),
    ]
    lead, because = of_lengths(Run({}, records, [], []))
    assert lead.startswith("Undecided")
    assert because == ": listops: with the first seed, of 40 inputs softmax is right on 10.0%."


def test_what_changes_nothing_is_no_part_of_what_a_run_is():
    stages = {"read_at": [], "most_seeds": 3}
    identity = {"arena": {"pilot": True, "seeds": 3}, "pretrained": {"stages": stages}}
    assert bare_identity(identity) == {"arena": {}, "pretrained": {"stages": {}}}
    identity["pretrained"]["stages"]["read_at"] = [128]
    identity["pretrained"]["stages_of"] = {
        "imdb": {"variants": ["linear"], "batch_size": 8, "most_seeds": 3}
    }
    expected = {"stages": {"read_at": [128]}, "stages_of": {"imdb": {"batch_size": 8}}}
    assert bare_identity(identity)["pretrained"] == expected
    timed = {"speed": {"variants": ["softmax"]}, "language": {"masked": {"variants": ["linear"]}}}
    assert bare_identity(timed) == timed  # one cell times several variants


@pytest.mark.parametrize(("multiplies", "taken"), [(True, "bfloat16"), (False, "float32")])
def test_a_run_is_in_the_precision_that_the_machine_takes(monkeypatch, multiplies, taken):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    monkeypatch.setattr("sparing.train.trainer.multiplies_bfloat16", lambda: multiplies)
    recipe_identity = {
        "arena": {"precision": "fast"},
        "pretrained": {"stages": {"precision": taken}},
    }
    of_arena, of_stages = (
        bare_identity(recipe_identity)["arena"],
        bare_identity(recipe_identity)["pretrained"]["stages"],
    )
    assert of_arena == of_stages == {"precision": taken}


def test_swaps_are_part_of_a_run_of_linformers_only_where_there_is_an_encoder(tmp_path):
    options = linformer.Options(questions=("swapped",), longer=TaskOptions(tasks=()))
    options = replace(options, texts=TaskOptions(tasks=()))
    with pytest.raises(UsageError, match="no cell"):
        find_study("linformer").run(options, tmp_path / "run")
    (tmp_path / "data").mkdir()
    loaded = linformer._loaded(replace(options, pretrained="encoder"), tmp_path, tmp_path / "data")
    assert any("imdb was left out" in note for note in loaded.notes)


def test_a_page_has_no_table_of_goals_where_none_was_asked():
    goal = {"name": "a (b)", "target": 0.0, "unit": "share", "met": "undecided"}
    run = Run({"claims": ["claim"]}, [], [goal], [])
    keys = [block.key for block in kerformer_page.tables(run)]
    assert "claims" in keys
    assert "goals" not in keys
