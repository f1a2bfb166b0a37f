from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from sparing.core.errors import UsageError
from sparing.core.heads import Heads
from sparing.core.record import Record
from sparing.core.recording import record
from sparing.experiment.registry import find_study
from sparing.measure.flops import count_flops
from sparing.measure.inputs import InputTimes
from sparing.mechanisms.adaptive import Adaptive
from sparing.transfer.layers import find_layers
from sparing_papers.adaattention import arithmetic, arms
from sparing_papers.adaattention import published as paper
from sparing_papers.adaattention import study as adaattention
from sparing_papers.adaattention.cells import curves, speed
from sparing_papers.adaattention.cells import timing as cells
from sparing_papers.adaattention.cells.certificate import head_errors
from sparing_papers.adaattention.cells.patterns import INNER_PLACES, _by_place

SMALL = replace(
    adaattention.BUDGETS["quick"],
    tasks=("digits",),
    sizes={"layers": 2, "width": 16, "heads": 2},
    variants=("adaptive", "skip", "prune", "prune-gradual", "uniform-rotated", "slim"),
    dense_epochs=1,
    epochs=1,
    batch_size=128,
    timed_examples=4,
    rounds=1,
    shape_layers=0,
)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return find_study("adaattention").run(SMALL, tmp_path_factory.mktemp("study") / "run")


def of_name(result, name, **labels):
    label_items = labels.items()
    return [
        r
        for r in result.records
        if r.name == name and r.obtained != "paper" and label_items <= r.labels.items()
    ]


def test_every_printed_figure_is_a_record_with_its_source_and_reason():
    printed = paper.printed()
    counts = Counter(r.labels["source"] for r in printed)
    assert counts == {
        "Table I": 5 * 9 + 9,
        "Table II": 5 * 4,
        "Table III": 5 * 4,
        "Table IV": 4 * 2,
        "Table V": 4 * 3,
        "Table VI": 4 * 3,
        "Section III.D": 3 + 3 * 2,
        "Section IV.B": 1,
    }
    assert {r.obtained for r in printed} == {"paper"}
    assert all(r.labels["reason"] and r.labels["printed"] and r.labels["row"] for r in printed)
    places = Counter((r.labels["source"], r.labels["row"], r.labels["column"]) for r in printed)
    assert max(places.values()) == 1


def test_printed_milliseconds_stand_as_speeds_over_the_papers_own_baseline():
    label_items = {"source": "Table II", "row": "adaptive", "column": "Latency"}.items()
    (record,) = (record for record in paper.printed() if label_items <= record.labels.items())
    assert record.labels["printed"] == "260 ms"
    assert record.value == pytest.approx(450 / 260)
    assert record.labels["arm"] == speed.AS_PRINTED


def test_scorers_have_as_many_parameters_as_the_mechanism():
    heads = Heads(4, 8, width=32, tokens=16)
    built = Adaptive(heads, scorer_share=0.5)
    assert sum(p.numel() for p in built.parameters()) == arithmetic.scorer_params(32, 4, 0.5)
    assert arithmetic.scorer_params(768, 12, 0.25) == 187_020


def test_arithmetic_allows_a_few_per_cent():
    assert arithmetic.largest_speed_up(512) == pytest.approx(1.018, abs=1e-3)
    assert arithmetic.largest_speed_up(512, free=True) == pytest.approx(1.111, abs=1e-3)
    assert arithmetic.largest_speed_up(512, scorer=True) < 1
    assert arithmetic.largest_speed_up(1 << 20) < 1 / (1 - 0.175)


def test_the_averages_that_are_wrong_are_named_and_only_these():
    named = [r.labels["printed"] for r in arithmetic.impossible()]
    assert {text for text in named if text.startswith("average")} == {
        "average of full: 88.2",
        "average of skip: 87.1",
        "average of adaptive: 88.0",
    }


def test_the_weight_rises_as_printed_and_none_stays_none():
    by_name = {arm.name: arm for arm in arms.ARMS}
    assert (by_name["adaptive"].weight, by_name["adaptive"].last_weight) == (0.01, 0.05)
    assert by_name["weight-0"].last_weight == 0
    assert by_name["weight-0.1"].last_weight == 0.1


def test_full_is_always_an_arm_and_unknown_ones_are_named():
    assert [arm.name for arm in arms.chosen(("prune",))] == ["full", "prune"]
    with pytest.raises(UsageError, match="prune"):
        arms.chosen(("prunne",))


@pytest.fixture(scope="module")
def layer():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=20, intermediate_size=16, **sizes)
    model = BertForSequenceClassification(config).eval()
    for name, value in model.named_parameters():
        if "attention.self" in name:
            torch.nn.init.normal_(value)
    return find_layers(model)[0]


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_the_certificate_bounds_every_error(layer, share):
    x = torch.randn(9, 16, dtype=torch.float64)
    score, score_bound, error, bound, trivial, _ = head_errors(layer, x, share)
    assert bool((score <= score_bound + 1e-9).all())
    assert bool((error <= bound + 1e-9).all())
    assert bool((bound <= trivial + 1e-12).all())
    assert float(score.max()) > 1e-3


def test_nothing_cut_is_no_error(layer):
    score, score_bound, error, *_ = head_errors(layer, torch.randn(5, 16).double(), 1.0)
    assert float(score.abs().max()) == float(score_bound.abs().max()) == 0
    assert float(error.max()) < 1e-12


def test_the_certificate_sees_the_same_scores_as_attention(layer):
    x = torch.randn(6, 16, dtype=torch.float64)
    *_, size = head_errors(layer, x, 0.5)
    with torch.no_grad():
        layer.module.double()
        output = layer.module(x[None])[0][0].view(6, 2, 8)
        layer.module.float()
    assert torch.allclose(size.view(2, 6), output.norm(dim=-1).T, atol=1e-6)


def test_places_are_the_first_the_last_and_what_is_between():
    scores = torch.arange(12.0).view(1, 1, 12, 1)
    keep = torch.ones(1, 12, dtype=torch.long)
    keep[0, 10:] = 0
    places = _by_place(scores, {"attention_mask": keep})[0, 0]
    assert places[0] == 0
    assert places[-1] == 9
    assert places[1:-1].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len(places) == INNER_PLACES + 2


def test_half_the_heads_are_cut_as_printed():
    model = speed.form(speed.Encoder(1, 32, 200), speed.AS_PRINTED)
    with record(model) as log, torch.inference_mode():
        model(input_ids=torch.ones(1, 16, dtype=torch.long))
    scores = next(value[0] for name, value in log.items() if name.endswith("/score"))
    assert torch.allclose(scores[0, :6], torch.tensor(0.3), atol=1e-5)
    assert torch.allclose(scores[0, 6:], torch.tensor(0.9), atol=1e-5)


def test_forms_that_drop_work_execute_less_and_the_scorer_costs():
    encoder = speed.Encoder(2, 64, 200)
    names = (arms.FULL, speed.AS_PRINTED, "skip", "prune", speed.NARROW, speed.FREE)
    flops = {name: count_flops(speed._call(speed.form(encoder, name), 64)) for name in names}
    assert max(flops.values()) == flops[speed.AS_PRINTED]
    for name in ("skip", "prune", speed.NARROW, speed.FREE):
        assert flops[name] < flops[arms.FULL]


def test_speeds_are_of_all_inputs_and_of_each_class_that_has_enough():
    import numpy

    lengths = [20] * 30 + [100] * 5
    full = InputTimes(numpy.full((1, 35), 4.0), [None] * 35)
    fast = InputTimes(numpy.full((1, 35), 2.0), [None] * 35)
    records = cells.times_of({arms.FULL: full, "fast": fast}, lengths, {"task": "t"})
    speeds = {r.labels["inputs"]: r for r in records if r.name == "speed_up"}
    assert set(speeds) == {"all", "10-50"}
    assert speeds["all"].value == 2.0
    assert speeds["10-50"].count == 30


def test_memory_counts_weights_and_peak():
    def one(name, value, arm):
        labels = {"arm": arm, "shape": speed.SHAPE, "tokens": 64}
        return Record(name, value, "bytes", "measured", labels)

    given = [
        one("peak_bytes", 10, arms.FULL),
        one("weight_bytes", 90, arms.FULL),
        one("peak_bytes", 10, "prune"),
        one("weight_bytes", 40, "prune"),
    ]
    ratios = {r.labels["arm"]: r.value for r in speed.memory_ratios(given)}
    assert ratios == {arms.FULL: 1.0, "prune": 0.5}


def test_a_run_trains_times_and_evaluates_every_arm(done):
    assert done.failures == []
    for arm in ("full", "adaptive", "skip", "prune", "slim", "full int8", "adaptive int8"):
        assert of_name(done, "score", arm=arm, task="mean"), arm
        assert of_name(done, "latency_ms", arm=arm, of="p99"), arm
    for arm in ("adaptive", "skip", "prune", "slim", "adaptive int8"):
        assert of_name(done, "score_difference", arm=arm, task="mean"), arm
        assert of_name(done, "speed_up", arm=arm, task="mean"), arm
    assert 0 < of_name(done, "head_score", arm="adaptive", task="mean")[0].value < 1
    whole = of_name(done, "flops", arm="full")[0].value
    assert of_name(done, "flops", arm="prune")[0].value < whole
    assert of_name(done, "flops", arm="adaptive")[0].value > 0
    assert {r.labels["arm"] for r in of_name(done, "train_step_ratio")} == {
        "adaptive",
        "prune",
        "prune-gradual",
        "uniform-rotated",
    }
    assert len(done.goals) == 7
    for name in ("epoch_score", "epoch_latency"):
        assert {r.labels["arm"] for r in of_name(done, name)} >= {"full", "adaptive", "slim"}
    (entry,) = of_name(done, "epoch_head_score", arm="adaptive")
    assert entry.labels["epoch"] == 1
    assert {r.labels["arm"] for r in of_name(done, "train_time_ratio")} >= {"adaptive", "slim"}


def test_pruning_removed_half_the_heads(done):
    detail = json.loads(of_name(done, "arm", arm="prune")[0].labels["told"])
    assert detail == {"removed_heads": 2, "heads": 4}


def test_pruning_in_stages_removes_as_many_and_tells_each_stage(done):
    detail = json.loads(of_name(done, "arm", arm="prune-gradual")[0].labels["told"])
    assert detail["removed_heads"] == 2
    assert [stage["left"] for stage in detail["stages"]["stages"]] == [2]
    lefts = [r.labels["heads_left"] for r in of_name(done, "heads_score")]
    assert lefts == sorted(lefts, reverse=True)
    assert lefts[0] == 1.0
    assert lefts[-1] < 0.5


def test_widths_are_held_against_the_full_model_in_both_bases(done):
    differences = of_name(done, "width_difference")
    assert len(differences) == 2 * len(curves.WIDTH_SHARES)
    assert {r.labels["basis"] for r in differences} == {"first", "rotated"}
    full = of_name(done, "score", arm="full", task="digits", metric="accuracy")[0].value
    for r in differences:
        assert r.value == pytest.approx(r.labels["score"] - full)
        assert r.interval[0] <= r.value <= r.interval[1]


def test_throughput_is_of_every_baseline_and_every_metric_is_kept(done):
    baselines = {"full", "adaptive", "skip", "prune", "prune-gradual", "slim"}
    assert {r.labels["arm"] for r in of_name(done, "throughput")} == baselines
    assert all(r.value > 0 for r in of_name(done, "throughput"))
    main = of_name(done, "score", arm="full", task="digits", main=True)
    assert [r.labels["metric"] for r in main] == ["accuracy"]
    shown = of_name(done, "score", arm="full", task="imagenet", metric="Top-1")
    assert [(r.value, r.labels["stand_in"]) for r in shown] == [(main[0].value, "digits")]


def test_the_plan_says_what_is_done_and_what_each_cell_takes(done, tmp_path):
    before = find_study("adaattention").plan(SMALL, tmp_path / "new")
    assert not any(cell.done for cell in before.cells)
    assert all(cell.minutes > 0 for cell in before.cells)
    assert before.minutes_left == sum(cell.minutes for cell in before.cells)
    assert not (tmp_path / "new").exists()
    after = find_study("adaattention").plan(SMALL, done.folder)
    assert all(cell.done for cell in after.cells)
    assert after.minutes_left == 0
    assert "what finished cells took" in after.basis
    assert [cell.key for cell in after.cells] == [cell.key for cell in before.cells]
    assert len(after.groups()["digits/train"]) == 8


def test_patterns_name_every_head_and_third(done):
    assert len(of_name(done, "pattern_head")) == 2 * 2
    assert [r.labels["difficulty"] for r in of_name(done, "pattern_difficulty")] == [
        "hard",
        "middle",
        "easy",
    ]
    sure = [r.labels["confidence"] for r in of_name(done, "pattern_difficulty")]
    assert sure == sorted(sure)


def test_examples_tell_which_patches_are_kept(done):
    examples = of_name(done, "kept_tokens")
    assert examples
    labels = examples[0].labels
    assert len(json.loads(labels["kept"])) == len(json.loads(labels["grey"]))
    kept_count = 1 + sum(json.loads(labels["kept"]))
    assert examples[0].value == pytest.approx(kept_count / (1 + len(json.loads(labels["kept"]))))


def test_a_finished_run_is_not_repeated(done):
    before = [r for r in done.records if r.cell != "analysis"]
    again = find_study("adaattention").run(SMALL, done.folder)
    assert [r for r in again.records if r.cell != "analysis"] == before


def test_the_records_alone_go_on_and_tell_the_same(done, tmp_path):
    for name in ("config.json", "records.jsonl", "failed.json"):
        shutil.copy(done.folder / name, tmp_path / name)
    again = find_study("adaattention").run(SMALL, tmp_path)

    def measurements(result):
        return [replace(r, time="") for r in result.records]

    assert measurements(again) == measurements(done)
    assert of_name(again, "score_difference", arm="adaptive", task="digits")


def test_records_of_trainings_without_answers_do_not_go_on(done, tmp_path):
    shutil.copy(done.folder / "config.json", tmp_path / "config.json")
    lines = (done.folder / "records.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    older = [line for line in lines if json.loads(line)["name"] != "answers"]
    assert len(older) < len(lines)
    (tmp_path / "records.jsonl").write_text("".join(older), encoding="utf-8")
    with pytest.raises(UsageError, match="without its answers, as older versions"):
        find_study("adaattention").run(SMALL, tmp_path)
    assert (tmp_path / "records.jsonl").read_text(encoding="utf-8") == "".join(older)
