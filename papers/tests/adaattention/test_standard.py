"""The AdaAttention page of a run on several tasks and seeds: which of them speaks."""

from __future__ import annotations

import dataclasses

import pytest
from papers.tests.adaattention.records import config, one, records

from sparing.core.record import Label, Record
from sparing.experiment.records import RecordTable
from sparing.report.page import write_report
from sparing.report.run import Run
from sparing_papers.adaattention.findings import kind_of_inputs, ours_beside
from sparing_papers.adaattention.page.arms import arm_columns, arm_rows
from sparing_papers.adaattention.page.content import facts, notices, verdict
from sparing_papers.adaattention.page.curves import blocks, epoch_block, task_block
from sparing_papers.adaattention.page.patterns import maps
from sparing_papers.adaattention.page.tables import here, length_block, printed_blocks
from sparing_papers.adaattention.page.texts import TEXT
from tests.compare import records as make

TASKS = ["sst2", "mrpc", "cifar10"]
PRETRAINED = {"name": "MiniLM-L6"}
RECIPES = {
    "sst2": {"model": "MiniLM-L6", "pretrained": True},
    "mrpc": {"model": "MiniLM-L6", "pretrained": True},
    "cifar10": {"model": "vit", "pretrained": False},
}
CONTROLS = ("random", "global", "uniform")


def read(records: list[Record], **changes: object) -> tuple[Run, RecordTable]:
    """A run on three tasks and three seeds, and the table of its records."""
    defaults = {"tasks": TASKS, "ablations": ["sst2"], "seeds": [0, 1, 2], "recipes": RECIPES}
    run = Run(config(**{**defaults, **changes}), records, [], [])
    return run, RecordTable(records, run.config["arms"])


def cell_of(records: list[Record], column: str, arm: str = "adaptive, as the paper") -> str:
    rows = {row.arm: row for row in arm_rows(read(records)[1], ["sst2"])}
    return rows[arm].cells[column].text


def said(records: list[Record], **changes: object) -> str:
    return " ".join(notices(read(records, **changes)[0]))


def accuracy_of(records: list[Record]) -> str:
    return verdict(*read(records)).second[1]


def gap(to: str, value: float, low: float, high: float) -> Record:
    """The adaptive variant's score less a control's."""
    labels: dict[str, Label] = {"arm": "adaptive", "to": to, "task": "mean"}
    return Record("control_difference", value, "score", "measured", labels, (low, high), 3)


def cutting(share: float) -> list[Record]:
    """The records where the adaptive variant cuts such a share of heads."""
    return [
        dataclasses.replace(r, value=share)
        if r.name == "cut_share" and r.labels["arm"] == "adaptive"
        else r
        for r in records()
    ]


def elsewhere(name: str, value: float, unit: str, arm: str = "adaptive") -> Record:
    """A record of a task that does not run every variant."""
    return one(name, value, unit, arm=arm, task="mrpc")


def test_arithmetic_and_times_are_those_of_the_tasks_that_run_every_arm():
    measured = [
        elsewhere("flops", 2e6, "FLOP", "full"),
        elsewhere("flops", 8e6, "FLOP"),
        one("latency_ms", 77.0, "ms", arm="adaptive", task="mrpc", of="p50"),
        *records(),
    ]
    assert cell_of(measured, "flops") == "1.00 of full"
    assert cell_of(measured, "p50") == "3.00 ms"


def test_lengths_have_a_row_for_each_arm_on_each_task():
    labels: dict[str, Label] = {"arm": "adaptive", "task": "mrpc"}
    measured = [*records(), one("speed_up", 0.7, "ratio", **labels, inputs="50-200")]
    block = length_block(read(measured)[1], TASKS)
    assert block.heads == ("Task", "Variant", "10-50 tokens", "50-200 tokens")
    adaptive = [row for row in block.rows if row[1] == "adaptive, as the paper"]
    assert adaptive == [
        ("sst2", "adaptive, as the paper", "0.86× (0.83× to 0.89×)", "–"),
        ("mrpc", "adaptive, as the paper", "–", "0.70× (0.67× to 0.73×)"),
    ]


def test_the_time_of_a_step_is_of_a_task_that_runs_every_arm():
    measured = [elsewhere("train_step_ratio", 3.0, "ratio"), *records()]
    assert cell_of(measured, "training") == "+20 %"
    without = [
        r for r in measured if (r.name, r.labels.get("task")) != ("train_step_ratio", "sst2")
    ]
    assert cell_of(without, "training") == "+200 %"


def test_the_time_of_the_training_done_goes_before_that_of_a_step():
    labels: dict[str, Label] = {"arm": "adaptive", "task": "sst2"}
    measured = [
        *records(),
        elsewhere("train_time_ratio", 3.0, "ratio"),
        one("train_time_ratio", 1.5, "ratio", **labels),
    ]
    assert cell_of(measured, "training") == "+50 %"
    assert cell_of(measured, "training", "slim") == "–"  # not of a step: the two do not compare
    titled = next(column for column in arm_columns() if column.key == "training")
    assert titled.title == "Training"
    assert titled.note == "time, beside full"
    assert "time of the whole training" in dict(TEXT.pairs("glossary"))["training"]


def test_a_claim_on_the_time_of_training_is_written_as_that_of_a_step():
    table = read(records())[1]
    (printed,) = (r for r in table.claims if r.labels["source"] == "Section IV.B")
    ours = ours_beside(table, ["sst2"], printed)
    assert ours is not None
    renamed = dataclasses.replace(ours, name="train_time_ratio")
    assert here(printed, renamed) == here(printed, ours)
    assert here(printed, ours).startswith("+20 % longer")


def test_intervals_cover_trainings_where_there_are_several():
    definition = dict(TEXT.pairs("glossary"))["interval"]
    assert "trained and timed with several seeds, they are over trainings too" in definition
    assert "With one seed it says nothing of other trainings" in definition
    assert (
        "95 % intervals over its test examples and trainings, then"
        in task_block(*read(records())).explain
    )
    alone = task_block(*read(records(), seeds=[0])).explain
    assert "95 % intervals over its test examples, then" in alone


@pytest.mark.parametrize(
    ("seeds", "notice"), [(1, "not other trainings"), (2, "2 seeds: too few"), (3, "")]
)
def test_few_seeds_are_said(seeds, notice):
    text = said(records(), seeds=list(range(seeds)))
    assert ("not other trainings" in text) == (seeds == 1)
    assert ("too few to know how far trainings differ" in text) == (seeds == 2)
    assert notice in text


def test_one_rule_keeps_the_weights_of_all_arms():
    definition = dict(TEXT.pairs("glossary"))["full"]
    assert "All variants keep their weights by one rule" in definition
    assert "last validation that is at least 95 %" in definition
    assert "else of the best one" in definition
    assert "after it was above" in definition


def test_controls_are_compared_by_pairs():
    measured = [
        *records(),
        gap("random", 0.01, 0.004, 0.016),
        gap("global", 0.001, -0.004, 0.006),
        gap("uniform", -0.008, -0.014, -0.002),
    ]
    sentence = accuracy_of(measured)
    assert "In three comparisons (each by itself, 95 %) it does" in sentence
    assert "better than random scores (+1.0 points, +0.4 to +1.6)" in sentence
    assert "worse than uniform half width (−0.8 points, −1.4 to −0.2)" in sentence
    assert "not shown to differ from fixed global scores" in sentence
    assert "overlap" not in sentence


def test_controls_that_do_not_differ_are_said_not_to():
    sentence = accuracy_of([*records(), *(gap(to, 0.001, -0.004, 0.006) for to in CONTROLS)])
    assert "In three comparisons (each by itself, 95 %) it is not shown to differ" in sentence
    assert "better" not in sentence
    single = accuracy_of([*records(), gap("random", 0.001, -0.004, 0.006)])
    assert "In one comparison (" in single


def test_without_paired_differences_intervals_to_full_are_compared():
    assert "comparison" not in accuracy_of(records())
    assert "The intervals overlap" in accuracy_of(records())


def test_a_scorer_that_cuts_nothing_says_nothing_of_adapting():
    gaps = [gap(to, 0.01, 0.004, 0.016) for to in CONTROLS]
    sentence = accuracy_of([*cutting(0.0), *gaps])
    assert "scorer cut no head." in sentence
    assert "dense attention plus a scorer, and say nothing of adapting" in sentence
    assert "comparison" not in sentence
    assert "random scores" not in sentence
    assert "no head to speak of (0.3 % of them)" in accuracy_of(cutting(0.003))
    assert "cut no head" not in accuracy_of(cutting(0.005))


def test_distilled_arms_are_said_to_be():
    glossary = dict(TEXT.pairs("glossary"))
    for arm in ("skip tokens", "slim"):
        assert "istilled from the dense model (logits and hidden states)" in glossary[arm]
        assert "the other variants learn from labels alone" in glossary[arm]


def places(task: str) -> list[Record]:
    labels: dict[str, Label] = {"task": task, "arm": "adaptive", "layer": 1}
    return [one("pattern_place", 0.4, **labels, place=position) for position in ("first", "last")]


@pytest.mark.parametrize("known", ["default", "pretrained", "examples"])
def test_maps_go_by_the_kind_of_their_own_task(known):
    measured = [*records(examples=False), *places("cifar10")]
    changes: dict[str, object] = {}
    if known == "pretrained":
        changes["identity"] = {"image_model": "google/vit-base-patch16"}
        changes["recipes"] = {**RECIPES, "cifar10": {"model": "vit-base-patch16"}}
    elif known == "examples":
        changes["recipes"] = None
        measured.append(one("kept_tokens", 0.5, task="cifar10", kept="[true]", grey="[0.1]"))
    drawn = {heatmap.title: heatmap for heatmap in maps(*read(measured, **changes))}
    image, text = drawn["By place in the image, cifar10"], drawn["By place in the text, sst2"]
    assert image.heads == ("class", "last")
    assert "patches" in image.explain
    assert "[SEP]" not in image.explain
    assert text.heads[0] == "[CLS]"
    assert "patches" not in text.explain


def inputs_with(**changes: object) -> str:
    run, table = read(records(), **changes)
    return kind_of_inputs(run.config, table)


def test_inputs_are_named_by_the_tasks_that_run_every_arm():
    task = {**config()["task"], "kind": "image"}
    changes = {"tasks": ["cifar10", "sst2"], "task": task}
    assert inputs_with(**changes) == "texts"
    assert inputs_with(**changes, ablations=["cifar10"]) == "images"
    assert inputs_with(**changes, ablations=["cifar10", "sst2"]) == "inputs"


def test_a_pretrained_model_is_not_taken_for_bert_base():
    text = said(records(), model=PRETRAINED)
    assert "The pretrained model is MiniLM-L6" in text
    assert "do not carry over to BERT-base" in text
    assert "Models of cifar10 begin with random weights" in text
    base = said(records(), model={"name": "bert-base-uncased"}, recipes={})
    assert "BERT-base" not in base
    assert "random weights" in said(records())


def test_few_examples_are_those_of_the_tasks_that_run_every_arm():
    examples = {"sst2": {"test": 872}, "mrpc": {"test": 90_000}}
    task = {**config()["task"], "examples": examples}
    assert "872 test examples of sst2" in said(records(), task=task)
    assert "test examples of" not in said(records(), task=task, ablations=["mrpc"])


def test_what_p99_is_over_is_said():
    definition = dict(TEXT.pairs("glossary"))["p99"]
    assert "over inputs, each by the median of a few rounds" in definition


@pytest.mark.parametrize(
    ("precision", "wording"),
    [("bfloat16", "bfloat16"), ("fast", "fast (bfloat16 where the processor has it)")],
)
def test_the_precision_of_training_is_said(precision, wording):
    whole = {"dense_epochs": 2, "epochs": 2, "batch_size": 32, "learning_rate": 1e-4}
    recipes = {"sst2": {**whole, "precision": precision}}
    assert f"Models were trained in {wording} (mixed precision)" in said(records(), recipes=recipes)
    assert dict(facts(read(records(), recipes=recipes)[0]))["training, sst2"].endswith(
        f", {wording}"
    )


def test_what_mechanisms_bring_is_said_to_learn_faster_where_it_does():
    whole = {"dense_epochs": 2, "epochs": 2, "batch_size": 32, "learning_rate": 1e-4}
    for factor, wording in (
        (20.0, "rate 0.0001 (20 times that for what mechanisms"),
        (1.0, "rate"),
    ):
        recipe = {**whole, "mechanism_rate_factor": factor}
        line = dict(facts(read(records(), recipes={"sst2": recipe})[0]))["training, sst2"]
        assert wording in line
        assert ("mechanisms add" in line) == (factor != 1)


def test_a_precision_that_is_float32_is_no_news():
    assert "trained in" not in said(records(), recipes={"sst2": {"precision": "float32"}})


def epochs() -> list[Record]:
    """Two seeds of the adaptive variant, the second of which ends after its first epoch."""
    records = []
    for seed, epoch, score in ((0, 1, 0.8), (1, 1, 0.9), (0, 2, 0.7)):
        labels: dict[str, Label] = {"task": "sst2", "arm": "adaptive", "seed": seed, "epoch": epoch}
        records.append(one("epoch_score", score, "score", **labels))
        records.append(one("epoch_latency", 2.0 + seed, "ms", **labels))
        records.append(one("epoch_head_score", 0.3 + 0.2 * seed, **labels))
    labels = {"task": "sst2", "arm": "full", "seed": 0, "epoch": 1}
    records.append(one("epoch_score", 0.75, "score", **labels))
    other: dict[str, Label] = {"task": "mrpc", "arm": "full", "seed": 0, "epoch": 1}
    return [*records, one("epoch_score", 0.5, "score", **other)]


def test_epochs_stand_one_by_one_for_the_tasks_that_run_every_arm():
    block = epoch_block(*read(epochs()))
    assert block.heads == (
        "Variant",
        "Epoch",
        "Validation",
        "One input",
        "Mean head score",
        "Trainings",
    )
    assert block.rows == (
        ("full (dense)", "1", "75.0 %", "–", "–", "1"),
        ("adaptive, as the paper", "1", "85.0 %", "2.50 ms", "0.40", "2"),
        ("adaptive, as the paper", "2", "70.0 %", "2.00 ms", "0.30", "1"),
    )
    several = epoch_block(*read(epochs(), ablations=["sst2", "mrpc"]))
    assert several.heads[0] == "Task"
    assert several.rows[-1] == ("mrpc", "full (dense)", "1", "50.0 %", "–", "–", "1")


def test_without_records_of_epochs_there_is_no_table(tmp_path):
    assert "Epoch by epoch" not in [block.title for block in blocks(*read(records()))]
    for name, epoch_records, shown in (("none", [], False), ("some", epochs(), True)):
        make.write_run(tmp_path / name, config(), [*records(), *epoch_records])
        files = write_report(tmp_path / name)
        assert ("Epoch by epoch" in files["html"].read_text()) is shown
        assert ("Epoch by epoch" in files["md"].read_text()) is shown


def test_a_claim_of_no_task_stands_beside_a_task_that_runs_every_arm():
    measured = [
        *records(),
        one("train_step_ratio", 3.0, "ratio", arm="adaptive", task="mrpc", batch=32),
    ]
    table = printed_blocks(read(measured)[1], ["sst2"], ("Section IV.B",))[0]
    cells = " ".join(cell for row in table.rows for cell in row)
    assert "+20 % longer" in cells
    assert "+200 %" not in cells
