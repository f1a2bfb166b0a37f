"""Two trainings come first; where they show that a task decides nothing, no others follow."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from sparing.cli import main
from sparing.report import write_report
from sparing.studies import kerformer, linformer
from sparing.studies._ker_answers import answers_record
from sparing.studies._ker_options import Options
from sparing.studies._long_pilot import why_undecided
from sparing.studies._long_work import TaskOptions

ARENA = TaskOptions(
    arms=("kerformer",),
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
    own = {"question": "arena", "task": "listops", "arm": arm, "seed": 0}
    return answers_record((np.arange(200) < round(200 * right)).tolist(), {**own, **labels})


def why(*records, chance=0.1):
    return why_undecided(records, "arena", "listops", chance)


def test_a_task_may_decide_where_dense_attention_is_better_than_both():
    assert why(answers("softmax", 0.8), answers("uniform", 0.6)) == ""


def test_a_task_that_is_not_learned_decides_nothing():
    told = why(answers("softmax", 0.14), answers("uniform", 0.05))
    assert told == "of 200 inputs softmax is right on 14.0%, guessing on 10.0%"


@pytest.mark.parametrize("uniform", [0.5, 0.49, 0.7])
def test_a_task_that_needs_no_attention_decides_nothing(uniform):
    told = why(answers("softmax", 0.5), answers("uniform", uniform))
    assert told.endswith(f"the mean of all values on {uniform:.1%}")


@pytest.mark.parametrize("labels", [{"seed": 1}, {"factor": 2}, {"task": "imdb"}])
def test_only_the_first_seed_on_the_tasks_own_inputs_counts(labels):
    assert why(answers("softmax", 0.5), answers("uniform", 0.5, **labels)) == ""


def test_matrices_of_dense_attention_are_wanted_all_the_same(tmp_path):
    options = linformer.Options(longer=replace(ARENA, arms=("linformer",)), questions=("longer",))
    loaded = linformer._loaded(options, tmp_path, None)
    cells = linformer._cells(options, loaded, tmp_path, None)
    poor = [
        replace(answers(arm, 0.1), labels={**answers(arm, 0.1).labels, "question": "longer"})
        for arm in ("softmax", "uniform")
    ]
    keys = [cell.key for cell in cells if not cell.why_idle(poor)]
    start = "longer/listops"
    assert keys == [f"{start}/0/softmax", f"{start}/0/uniform", f"{start}/1/softmax"]


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    return kerformer.run(SMALL, tmp_path_factory.mktemp("pilot") / "run")


def trained(result):
    return {(r.labels["arm"], r.labels["seed"]) for r in result.records if r.name == "score"}


def test_what_would_decide_nothing_is_not_trained(left):
    assert left.failures == []
    assert trained(left) == {("softmax", 0), ("uniform", 0)}
    gone = {r.labels["key"] for r in left.records if r.name == "left_out"}
    assert gone == {f"arena/listops/{end}" for end in ("0/kerformer", *LATER)}


def test_the_page_and_the_plan_say_what_was_left_out_and_why(left, monkeypatch, capsys):
    page = write_report(left.folder)["md"].read_text(encoding="utf-8")
    assert "4 cells of arena/listops left out, since nothing can be decided there" in page
    assert "This run is not complete" not in page
    plan = kerformer.plan(SMALL, left.folder)
    assert plan.minutes_left == 0
    assert sum(bool(cell.idle) for cell in plan.cells) == 4
    monkeypatch.setattr("sparing.studies.kerformer.BUDGETS", {"quick": SMALL})
    with pytest.raises(SystemExit, match="0"):
        main(["study", "kerformer", "--output-dir", str(left.folder), "--plan"])
    assert "4 cells are left out, since nothing can be decided there" in capsys.readouterr().out


def test_they_may_be_trained_after_all_in_the_same_folder(left, tmp_path):
    everything = replace(SMALL, arena=replace(ARENA, pilot=False))
    again = kerformer.run(everything, left.folder)
    assert trained(again) == {(a, n) for a in ("softmax", "kerformer", "uniform") for n in (0, 1)}
    assert not [r for r in again.records if r.name == "left_out"]
    identity = json.loads((left.folder / "config.json").read_text())["identity"]
    assert "pilot" not in identity["arena"]
