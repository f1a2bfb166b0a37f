"""What the AdaAttention study makes of several seeds and tasks; nothing here is trained."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from papers.tests.adaattention.test_parts import work_of
from papers.tests.adaattention.test_study import SMALL

from sparing.core.errors import DataError
from sparing.core.record import Record
from sparing.experiment.registry import find_study
from sparing.measure.latency import PairedLatency
from sparing.measure.pooling import pool_differences
from sparing.measure.statistics import median_ratio
from sparing.tasks import Examples
from sparing_papers.adaattention import analysis, claims, gaps
from sparing_papers.adaattention import options as ada_options
from sparing_papers.adaattention import study as adaattention
from sparing_papers.adaattention.analysis import analyse
from sparing_papers.adaattention.cells import answers as answer_store
from sparing_papers.adaattention.cells import speed
from sparing_papers.adaattention.findings import own_group_first
from tests.train.small import token_task

COUNT = 400


def right_with(chance, seed, labels):
    """Answers that are right with this chance, example by example."""
    generator = torch.Generator().manual_seed(seed)
    right = torch.rand(len(labels), generator=generator) < chance
    return torch.nn.functional.one_hot(torch.where(right, labels, 1 - labels), 2).float()


def work_with(folder, arms, name="sst2", metric="accuracy"):
    """A task with the answers of variants, each a list of chances by seed."""
    task = token_task()
    labels = torch.randint(0, 2, (COUNT,), generator=torch.Generator().manual_seed(0))
    test = Examples("input_ids", [torch.ones(3, dtype=torch.long)] * COUNT, labels)
    metrics = tuple(dict.fromkeys((metric, "accuracy")))
    work = work_of(replace(task, name=name, test=test, metric=metric, metrics=metrics), folder)
    for number, (arm, chances) in enumerate(arms.items()):
        for seed, chance in enumerate(chances):
            answer_store.keep(work, arm, seed, right_with(chance, 10 * number + seed, labels))
    return work


def scores_of(work, arms):
    return [
        record
        for arm, chances in arms.items()
        for seed in range(len(chances))
        for record in answer_store.scored(
            work, arm, seed, answer_store.kept_answers(work, arm, seed)
        )
    ]


def width(record):
    return record.interval[1] - record.interval[0]


def test_one_task_is_pooled_as_runs_of_slim_are(tmp_path):
    work = work_with(tmp_path, {"full": [0.8] * 3, "adaptive": [0.8, 0.7, 0.75]})
    gap = gaps.gap_of(work, "adaptive", "full", (0, 1, 2))
    record = gap.record("score_difference", {}, 3)
    labels = work.task.test.labels
    right = {
        arm: np.stack(
            [
                (answer_store.kept_answers(work, arm, seed).argmax(-1) == labels).double().numpy()
                for seed in range(3)
            ]
        )
        for arm in ("full", "adaptive")
    }
    pooled = pool_differences([right["adaptive"] - right["full"]])
    assert record.value == pytest.approx(pooled.value)
    assert record.interval == pytest.approx(pooled.interval)


def test_trainings_that_differ_widen_what_examples_alone_would_say(tmp_path):
    alike = work_with(tmp_path / "a", {"full": [0.8] * 3, "adaptive": [0.75] * 3})
    apart = work_with(tmp_path / "b", {"full": [0.8] * 3, "adaptive": [0.95, 0.55, 0.75]})
    same, other = (
        gaps.gap_of(work, "adaptive", "full", (0, 1, 2)).record("gap", {}, 3)
        for work in (alike, apart)
    )
    assert width(other) > 3 * width(same)


@pytest.mark.parametrize("chances", [[0.75], [0.75, 0.7, 0.8]])
def test_a_metric_of_all_answers_is_resampled_to_the_same_parts(tmp_path, chances):
    work = work_with(tmp_path, {"full": [0.8] * len(chances), "adaptive": chances})
    pairs = [
        (
            answer_store.kept_answers(work, "adaptive", seed),
            answer_store.kept_answers(work, "full", seed),
        )
        for seed in range(len(chances))
    ]
    exact = gaps.parts_of(gaps._gaps(work, pairs).numpy())
    drawn = gaps._resampled(work, pairs)
    assert [part.freedom for part in drawn] == [part.freedom for part in exact]
    for one, other in zip(
        drawn, exact, strict=True
    ):  # five hundred draws know it to a few per cent
        assert one.variance == pytest.approx(other.variance, abs=5e-5)
    by_f1 = work_with(tmp_path / "f1", {"full": [0.8] * 2, "adaptive": [0.7] * 2}, metric="f1")
    record = gaps.gap_of(by_f1, "adaptive", "full", (0, 1)).record("gap", {}, 2)
    assert record.interval[0] < record.value < record.interval[1]


def test_a_mean_over_tasks_knows_more_than_each(tmp_path):
    arms = {"full": [0.8] * 3, "adaptive": [0.7, 0.75, 0.8]}
    works = [work_with(tmp_path / name, arms, name) for name in ("sst2", "cola")]
    task_gaps = [gaps.gap_of(work, "adaptive", "full", (0, 1, 2)) for work in works]
    mean = gaps.mean_gap(task_gaps).record("gap", {}, 2)
    assert mean.value == pytest.approx(sum(gap.value for gap in task_gaps) / 2)
    assert width(mean) < min(width(gap.record("gap", {}, 3)) for gap in task_gaps)


def test_adapting_is_held_against_each_control_by_itself(tmp_path):
    arms = {
        "full": [0.8] * 3,
        "adaptive": [0.78] * 3,
        "random": [0.5] * 3,
        "global": [0.78] * 3,
    }
    work = work_with(tmp_path, arms)
    by_control = {
        r.labels["to"]: r
        for r in analyse(scores_of(work, arms), [work], (0, 1, 2))
        if r.name == "control_difference"
    }
    assert {*by_control} == {"random", "global"}
    assert by_control["random"].interval[0] > 0.1
    assert by_control["global"].interval[0] < 0 < by_control["global"].interval[1]
    assert by_control["random"].count == 3


def test_means_of_table_one_are_over_tasks_that_have_all_its_rows(tmp_path):
    arms = {"full": [0.8], "adaptive": [0.7]}
    texts = work_with(tmp_path / "texts", arms)
    numbers = work_with(tmp_path / "numbers", arms, name="stsb")
    numbers = replace(numbers, task=replace(numbers.task, answer="number"))
    records = [record for work in (texts, numbers) for record in scores_of(work, arms)]
    analysed = analyse(records, [texts, numbers], (0,))
    mean = next(r for r in analysed if r.name == "score" and r.labels["task"] == "glue")
    assert mean.labels["tasks"] == "sst2"


def speed_of(value, seed, task="sst2"):
    labels = {"arm": "slim", "task": task, "inputs": "all", "seed": seed}
    return Record("speed_up", value, "ratio", "measured", labels, (0.98 * value, 1.02 * value), 200)


def test_a_speed_is_a_mean_over_seeds_and_as_sure_as_they_are_alike(tmp_path):
    work = work_with(tmp_path, {})
    speeds = []
    for values in ((2.0, 2.0, 2.0), (1.0, 2.0, 4.0), (2.0,)):
        records = [speed_of(value, seed) for seed, value in enumerate(values)]
        analysed = analyse(records, [work], (0, 1, 2))
        speeds.append(next(r for r in analysed if r.labels["task"] == "mean"))
    assert [r.value for r in speeds] == pytest.approx([2.0, 2.0, 2.0])
    alike, apart, single = speeds
    assert alike.interval == pytest.approx((1.96, 2.04), abs=0.01)
    assert single.interval == pytest.approx((1.96, 2.04), abs=0.01)
    assert apart.interval[0] < 1 < 4 < apart.interval[1]


def test_training_times_are_compared_seed_by_seed(tmp_path):
    def took(arm, seed, value):
        labels = {"arm": arm, "task": "sst2", "seed": seed}
        return Record("train_time_s", value, "s", "measured", labels)

    given = [took("full", 0, 10.0), took("full", 1, 20.0), took("dense", 0, 5.0)]
    given += [took("slim", 0, 20.0), took("slim", 1, 40.0), took("slim", 2, 1.0)]
    analysed = analyse(given, [work_with(tmp_path, {})], (0, 1))
    (ratio,) = [r for r in analysed if r.name == "train_time_ratio"]
    assert (ratio.labels["arm"], ratio.value, ratio.count) == ("slim", pytest.approx(2.0), 2)


@pytest.mark.parametrize(("cut", "met"), [(0.0, "undecided"), (0.3, True)])
def test_an_arm_that_cuts_nothing_decides_nothing(tmp_path, cut, met):
    options = replace(SMALL, seeds=(0, 1, 2))
    works = ada_options.works_of(options, tmp_path, None)[0]
    labels = {"arm": "adaptive", "task": "digits"}
    records = [
        Record("cut_share", 0.6, "share", "measured", {"arm": "adaptive", "task": "another"}),
        Record("cut_share", cut, "share", "measured", labels),
        Record("score_difference", 0.0, "score", "measured", labels, (0.0, 0.0), 3),
        Record(
            "score_difference",
            0.0,
            "score",
            "measured",
            {"arm": "adaptive", "task": "every"},
            (-0.001, 0.001),
            1,
        ),
    ]
    goals = claims.decide_goals(records, options, works)
    assert next(g for g in goals if "adaptive loses at most" in g.name).met == met


def test_what_the_method_adds_to_int8_is_told_round_by_round():
    def timed(*samples):
        ratio = median_ratio(samples, samples)
        return PairedLatency(samples, 1.0, 1.0, 1.0, ratio, 1, 1)

    times = {"full int8": timed(*[1.0] * 8), "as-printed int8": timed(*[1.25] * 8)}
    (record,) = speed._gain_over_int8(times, speed.Encoder(), 512)
    assert (record.name, record.value) == ("gain_over_int8", pytest.approx(0.8))
    assert record.labels["tokens"] == 512
    assert speed._gain_over_int8({"full int8": times["full int8"]}, speed.Encoder(), 512) == []


def test_full_comes_first_and_main_arms_are_timed_with_every_seed(tmp_path):
    options = replace(SMALL, seeds=(0, 1), variants=("adaptive", "weight-0", "slim"))
    works = ada_options.works_of(options, tmp_path, None)[0]
    keys = [cell.key for cell in adaattention._cells(options, works)]
    for seed in (0, 1):
        seed_keys = [key for key in keys if "/train/" in key and key.endswith(f"/{seed}")]
        assert [key.split("/")[2] for key in seed_keys[:2]] == ["dense", "full"]
    times = [key for key in keys if "/time/" in key]
    assert times == [f"digits/time/{group}" for group in ("rivals/0", "rivals/1", "weights/0")]


def test_another_machines_precision_is_another_run(tmp_path, monkeypatch):
    def identity(name, native):
        monkeypatch.setattr("sparing.train.trainer.multiplies_bfloat16", lambda: native)
        options = replace(SMALL, precision="fast")
        run = find_study("adaattention").run(options, tmp_path / name, cells="arith*")
        return run.config["identity"], run.config["recipes"]["digits"]["precision"]

    (with_it, precision), (without, plain) = identity("a", True), identity("b", False)
    assert (precision, plain) == ("bfloat16", "float32")
    assert with_it != without


def test_a_loss_is_decided_by_its_whole_interval(tmp_path):
    options = replace(SMALL, variants=("full", "slim"), seeds=(0, 1, 2))
    works = ada_options.works_of(options, tmp_path, None)[0]
    labels = {"arm": "slim", "task": "digits"}
    every = {"arm": "slim", "task": "every"}
    records = [
        Record("score_difference", 0.0, "score", "measured", labels, (0.0, 0.0), 3),
        Record("score_difference", 0.0, "score", "measured", every, (-0.004, 0.006), 1),
    ]
    goals = claims.decide_goals(records, options, works)
    goal = next(g for g in goals if g.name == "ours: loses at most 0.5 points")
    assert (goal.met, goal.interval) == (True, (-0.004, 0.006))
    wide = replace(records[1], interval=(-0.0051, 0.006))
    goals = claims.decide_goals([records[0], wide], options, works)
    assert next(g for g in goals if g.name == goal.name).met == "undecided"


def test_claims_on_inputs_speak_of_texts_where_there_are_any(tmp_path):
    (image,) = ada_options.works_of(SMALL, tmp_path, None)[0]
    text = work_with(tmp_path, {})
    assert analysis.of_claims([image]) == ["digits"]
    assert analysis.of_claims([image, text]) == ["sst2"]


def test_a_tasks_speed_is_the_mean_of_its_seeds(tmp_path):
    def timed(seed, value, group="rivals", inputs="all"):
        labels = {"arm": "prune", "task": "digits", "seed": seed, "inputs": inputs, "group": group}
        return Record("speed_up", value, "ratio", "measured", labels, (value, value), 50)

    given = [timed(0, 1.0), timed(1, 4.0), timed(0, 9.0, group="int8"), timed(0, 3.0, inputs="10")]
    analysed = analyse(given, [work_with(tmp_path, {}, name="digits")], (0, 1))
    (record,) = [record for record in analysed if record.labels.get("group") == "seeds"]
    assert (record.value, record.count) == (pytest.approx(2.0), 2)
    assert own_group_first([*given, record])[0] is record


@pytest.mark.parametrize(
    ("answer", "logits"),
    [
        ("class", torch.tensor([[0.2, 0.1, 0.7], [2.0, 1.0, -3.0]])),
        ("number", torch.tensor([[2.5], [-0.125], [1e-6]])),
        ("span", torch.tensor([[1.0, 0.0], [0.25, 1.0]])),
    ],
)
def test_answers_stand_in_a_record_too(tmp_path, answer, logits):
    work = work_of(replace(token_task(), answer=answer), tmp_path)
    record = Record(**json.loads(answer_store.keep(work, "full", 1, logits).to_json()))
    read = answer_store.answers_of(record)
    if answer == "class":
        assert read.tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    else:
        assert torch.equal(read, logits)
    elsewhere = work_of(work.task, tmp_path / "elsewhere")
    answer_store.restore([elsewhere], [record], {f"{work.name}/train/full/1", "arithmetic"})
    assert torch.equal(answer_store.kept_answers(elsewhere, "full", 1), read)


@pytest.mark.parametrize(
    ("name", "value"),
    [("packed", "no base 64!"), ("packed", "AAA="), ("kind", "words"), ("columns", 1)],
)
def test_a_damaged_record_of_answers_is_named(tmp_path, name, value):
    work = work_of(token_task(), tmp_path)
    record = answer_store.keep(work, "full", 0, torch.eye(2))
    with pytest.raises(DataError, match="record of answers"):
        answer_store.answers_of(replace(record, labels={**record.labels, name: value}))


def test_answers_are_put_back_whole_or_not_at_all(tmp_path, monkeypatch):
    work = work_of(token_task(), tmp_path)
    record = answer_store.keep(work, "full", 0, torch.eye(2))
    elsewhere = work_of(work.task, tmp_path / "elsewhere")

    def torn(tensors, path):
        path.write_bytes(b"half")
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", torn)
        with pytest.raises(OSError, match="no space"):
            answer_store.restore([elsewhere], [record], set())
    assert answer_store.kept_answers(elsewhere, "full", 0) is None
    answer_store.restore([elsewhere], [record], {f"{work.name}/train/full/0"})
    assert torch.equal(answer_store.kept_answers(elsewhere, "full", 0), torch.eye(2))
