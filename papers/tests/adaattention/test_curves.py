"""The page's tables of tasks, throughput, rotated heads and fewer heads, and partial runs."""

from __future__ import annotations

import json

import pytest
from papers.tests.adaattention.records import config, one, records

from sparing.core.record import Label, Record
from sparing.experiment.records import RecordTable
from sparing.report.page import write_report
from sparing.report.run import Run
from sparing_papers.adaattention.page.content import notices
from sparing_papers.adaattention.page.curves import (
    blocks,
    heads_block,
    rotation_block,
    task_block,
    throughput_block,
)
from sparing_papers.adaattention.page.tables import printed_blocks
from tests.compare import records as make

TASKS = ["sst2", "stsb"]


def read(records: list[Record], **changes: object) -> tuple[Run, RecordTable]:
    """A run on both tasks and the table of its records."""
    run = Run(config(**{"tasks": TASKS, **changes}), records, [], [])
    return run, RecordTable(records, run.config["arms"])


def scores() -> list[Record]:
    """Full and adaptive on both tasks, skip on the classification alone."""
    records = []
    for arm, tasks in (("full", TASKS), ("adaptive", TASKS), ("skip", TASKS[:1])):
        for task in tasks:
            labels: dict[str, Label] = {"arm": arm, "task": task}
            metric = "pearson" if task == "stsb" else "accuracy"
            records.append(one("seed_score", 0.8, "score", **labels, metric=metric, seed=0))
            records.append(one("score", 0.8, "score", **labels, metric=metric, main=True))
            if arm != "full":
                records.append(one("score_difference", -0.01, **labels))
                records.append(
                    one("speed_up", 0.9, "ratio", **labels, inputs="all", group="rivals")
                )
                records.append(one("speed_up", 0.5, "ratio", **labels, inputs="all", group="int8"))
    return records


def test_every_arm_stands_task_by_task_and_what_is_not_there_is_a_dash():
    block = task_block(*read(scores()))
    assert block.heads == ("Variant", "sst2", "stsb")
    rows = {row[0]: row[1:] for row in block.rows}
    assert rows["full: score"] == ("80.0 % (accuracy)", "80.0 % (pearson)")
    assert rows["adaptive, as the paper"][1].endswith(", 0.90×")
    assert rows["adaptive, as the paper"][1].startswith("−1.0 (")
    assert rows["skip tokens"][1] == "–"


def test_one_task_needs_no_table_of_tasks():
    one_task = [r for r in scores() if r.labels["task"] == "sst2"]
    results = read(one_task, tasks=["sst2"])
    assert task_block(*results).rows == ()
    assert blocks(*results) == []


def test_throughput_stands_beside_full():
    labels: dict[str, Label] = {"task": "sst2", "batch": 32}
    records = [
        one("throughput", 1234.0, "1/s", **labels, arm="full"),
        one("throughput", 617.0, "1/s", **labels, arm="adaptive"),
        one("batch_speed_up", 0.5, "ratio", **labels, arm="adaptive"),
    ]
    assert throughput_block(read(records)[1]).rows == (
        ("sst2", "full (dense)", "1,234", "baseline"),
        ("sst2", "adaptive, as the paper", "617", "0.50× (0.47× to 0.53×)"),
    )


def test_rotation_is_held_against_the_first_coordinates():
    records = [
        one("width_difference", value, basis=basis, kept_share=0.5, task="sst2")
        for basis, value in (("first", -0.02), ("rotated", 0.0))
    ]
    records.append(one("score_difference", -0.004, arm="uniform", task="mean"))
    rows = rotation_block(read(records)[1]).rows
    assert rows[0][0] == "50 % of each head, untrained"
    assert rows[0][1].startswith("−2.0")
    assert rows[0][2].startswith("0.0")
    assert rows[1][0] == "uniform half width, trained on"
    assert rows[1][2] == "–"


def test_scores_stand_against_heads_left_with_and_without_training():
    records = [
        one("heads_score", score, "score", task="sst2", heads_left=left)
        for left, score in ((1.0, 0.9), (0.75, 0.88), (0.5, 0.7))
    ]
    stages = [{"left": 6, "before": 0.86, "after": 0.89}, {"left": 4, "before": 0.8, "after": 0.87}]
    detail = json.dumps({"heads": 8, "stages": {"stages": stages}})
    labels: dict[str, Label] = {"arm": "prune-gradual", "task": "sst2", "told": detail}
    arm = Record("arm", None, "", "measured", labels)
    assert heads_block(*read([*records, arm])).rows == (
        ("sst2", "100 %", "90.0 %", "–", "–"),
        ("sst2", "75 %", "88.0 %", "86.0 %", "89.0 %"),
        ("sst2", "50 %", "70.0 %", "80.0 %", "87.0 %"),
    )
    damaged = Record("arm", None, "", "measured", {**labels, "told": "[]"})
    assert heads_block(*read([*records, damaged])).rows[1][3] == "–"


def test_a_partial_run_says_what_is_missing(tmp_path):
    cells = ["cell", "sst2/train/full/0", "sst2/train/full/1", "mrpc/train/full/0"]
    done = [*records(), one("score", 0.7, arm="full", task="mean")]
    said = notices(read(done, cells=cells)[0])[0]
    assert "1 of 4 cells are done" in said
    assert "sst2/train (all 2), mrpc/train (all 1)" in said
    make.write_run(tmp_path, config(cells=cells), done)
    assert "This run is not complete" in write_report(tmp_path)["html"].read_text()


def test_unusual_training_is_said():
    recipes = {"sst2": {"precision": "bfloat16", "attention_dropout": False}}
    said = " ".join(notices(read(records(), recipes=recipes)[0]))
    assert "trained in bfloat16" in said
    assert "No attention weights were dropped" in said
    assert "trained in" not in " ".join(notices(read(records())[0]))


@pytest.mark.parametrize("task", ["cifar10", "squad"])
def test_what_stands_in_for_a_printed_task_is_named(task):
    source, printed, metric = {
        "cifar10": ("Table III", "imagenet", "Top-1"),
        "squad": ("Table II", "squad", "EM"),
    }[task]
    labels: dict[str, Label] = {"arm": "full", "task": printed, "metric": metric}
    with_stand_in = [*records(), one("score", 0.4, "score", **labels, stand_in=task)]
    rows = {row[0]: row for row in printed_blocks(read(with_stand_in)[1], TASKS, (source,))[0].rows}
    cell = rows["full (dense)"][2]
    assert cell == ("40.0 % on cifar10 instead" if task == "cifar10" else "40.0 %")


def test_a_printed_speed_stands_beside_the_arms_own_group():
    labels: dict[str, Label] = {"arm": "adaptive", "task": "sst2", "inputs": "all"}
    speed_records = [
        one("speed_up", 0.86, "ratio", **labels, group="rivals"),
        one("speed_up", 0.4, "ratio", **labels, group="int8"),
    ]
    block = printed_blocks(read([*records(), *speed_records])[1], TASKS, ("Table I",))[0]
    speeds = [row[3] for row in block.rows if row[1] == "speed, sst2"]
    assert speeds[0].startswith("0.86×")
