from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sparing.compare import cells
from sparing.compare import study as compare
from sparing.compare.analysis import analyse
from sparing.compare.claims import claims_of
from sparing.core.record import Record
from sparing.experiment.claims import Goal, decide
from sparing.experiment.records import RecordTable
from sparing.measure.latency import PairedLatency
from sparing.measure.statistics import Ratio
from sparing.slim.search.resampling import score_difference
from sparing.tasks import load_task


def _accuracy(arm, seed, value):
    labels = {"arm": arm, "seed": seed, "split": "test"}
    return Record("accuracy", value, "share", "measured", labels)


def _ratio(arm, tokens, value, high):
    labels = {"arm": arm, "scope": "attention", "tokens": tokens, "batch": 1}
    return Record("latency_ratio", value, "ratio", "measured", labels, (value * 0.9, high))


def _analyse(records, arms=("softmax", "linear")):
    return analyse(records, arms, "softmax", 0.01, 1000)


def test_accuracy_is_paired_by_seed():
    records = [_accuracy("softmax", s, 0.9 + s / 100) for s in range(5)]
    records += [_accuracy("linear", s, 0.8 + s / 100 + (s % 2) / 1000) for s in range(5)]
    (gap,) = _analyse(records)
    assert gap.name == "accuracy_difference"
    assert gap.value == pytest.approx(-0.1, abs=1e-3)
    assert gap.labels["verdict"] == "worse"
    assert gap.count == 5


def _load(cell, reason="other programs kept 1.8 of 2 processors busy"):
    labels = {"disturbance": reason}
    return Record("machine_load", 0.4, "share", "measured", labels, cell=cell)


def test_a_curve_that_was_disturbed_crosses_nowhere():
    curve = [
        replace(_ratio("linear", tokens, value, 1.05 * value), cell=f"latency/attention/{tokens}")
        for tokens, value in ((64, 1.5), (256, 0.8), (1024, 0.3))
    ]
    (quiet,) = _analyse([*curve, _load("train/linear/0")])
    assert (quiet.name, quiet.value) == ("crossover_tokens", 256.0)
    assert _analyse([*curve, _load("latency/attention/256")]) == []


def test_a_ratio_of_disturbed_times_says_so():
    times = [
        Record("train_time_s", 2.0 + s, "s", "measured", {"arm": arm, "seed": s}, cell=f"{arm}/{s}")
        for arm in ("softmax", "linear")
        for s in range(2)
    ]
    (quiet,) = _analyse(times)
    assert "disturbance" not in quiet.labels
    for arm in ("softmax", "linear"):
        (busy,) = _analyse([*times, _load(f"{arm}/1")])
        assert "1.8 of 2" in busy.labels["disturbance"]


def _goals(records, options, task):
    claims = claims_of(
        options.mechanisms, options.baseline, options.margin, task.chance, task.tokens
    )
    return decide(claims, RecordTable(records))


def test_a_goal_of_speed_is_not_decided_on_a_busy_machine():
    labels = {"arm": "linear", "scope": "model", "tokens": 65, "batch": 1}
    cell = "latency/model/1"
    fast = Record("latency_ratio", 0.5, "ratio", "measured", labels, (0.4, 0.6), cell=cell)
    options, task = compare.Options(mechanisms=("softmax", "linear")), load_task("digits")
    goal = _goals([fast], options, task)[-1]
    assert (goal.met, "note" in goal.to_dict()) == (True, False)
    goal = _goals([fast, _load(cell)], options, task)[-1]
    assert (goal.met, goal.value, goal.interval) == ("undecided", 0.5, (0.4, 0.6))
    assert goal.to_dict()["note"].startswith("not decided: the machine was busy")


@pytest.mark.parametrize(
    ("at_most", "interval", "met"),
    [
        (False, (1.0, 1.2), True),
        (False, (0.8, 1.0), "undecided"),
        (False, (0.8, 0.9), False),
        (True, (0.8, 1.0), True),
        (True, (1.0, 1.2), "undecided"),
        (True, (1.1, 1.2), False),
    ],
)
def test_a_goal_is_missed_only_where_the_whole_interval_misses_it(at_most, interval, met):
    goal = Goal("speed", 1.0, "ratio", at_most)
    assert goal.decide(sum(interval) / 2, interval).met == met


def test_the_share_of_a_model_of_four_layers_by_hand(monkeypatch):
    """A core that takes a tenth of the whole model, four times over, takes two fifths of it."""
    task = load_task("digits")
    arms = cells.Arms(
        task=task,
        task_name="digits",
        task_options={},
        data=None,
        model="vit",
        sizes={"layers": 4},
        options={"softmax": {}},
        given={},
        baseline="softmax",
        folder=Path("unused"),
        rounds=20,
        thread_count=1,
    )
    assert arms.shape.layers == 4
    core = PairedLatency((1.0,), 1.0, 1.0, 1.0, Ratio(0.1, (0.05, 0.15), 10), 1, 1)
    rounds = []

    def timed(calls, *, baseline, **options):
        assert (baseline, set(calls)) == ("encoder", {"encoder", "core"})
        rounds.append(options["rounds"])
        return {"core": core}

    monkeypatch.setattr(cells, "paired_latency", timed)
    share, gain = cells._share_records(arms, 64, lambda: None)
    assert (share.name, gain.name) == ("attention_share", "largest_gain")
    assert share.value == pytest.approx(0.4)
    assert share.interval == pytest.approx((0.2, 0.6))
    assert gain.value == pytest.approx(1 / 0.6)
    assert gain.interval == pytest.approx((1 / 0.8, 1 / 0.4))
    for few in (30, 9):
        cells._share_records(replace(arms, rounds=few), 64, lambda: None)
    assert rounds == [10, 15, 5]  # half of the variants' rounds, but five at least


def test_one_seed_decides_nothing():
    (gap,) = _analyse([_accuracy("softmax", 0, 0.9), _accuracy("linear", 0, 0.2)])
    assert gap.labels["verdict"] == "undecided"
    assert gap.interval is None


def test_an_arm_without_its_seeds_pair_is_left_out():
    assert _analyse([_accuracy("softmax", 0, 0.9), _accuracy("linear", 1, 0.9)]) == []


def test_times_become_ratios_of_pairs():
    records = [
        Record("train_time_s", base * (2 if arm == "linear" else 1), "s", "measured", labels)
        for seed, base in enumerate((3.0, 5.0, 4.0))
        for arm in ("softmax", "linear")
        for labels in [{"arm": arm, "seed": seed}]
    ]
    (ratio,) = _analyse(records)
    assert (ratio.name, ratio.count) == ("train_time_ratio", 3)
    assert ratio.value == pytest.approx(2)


def test_estimates_stay_estimates():
    records = [
        Record("energy_j", 1.0, "J", "estimated", {"arm": arm, "round": 0, "component": "cpu"})
        for arm in ("softmax", "linear")
    ]
    (ratio,) = _analyse(records)
    assert (ratio.name, ratio.obtained) == ("energy_ratio", "estimated")


def test_arms_whose_energy_was_obtained_in_two_ways_have_no_ratio():
    def energy(arm, way):
        return Record("train_energy_j", 2.0, "J", way, {"arm": arm, "seed": 0, "component": "cpu"})

    assert _analyse([energy("softmax", "measured"), energy("linear", "estimated")]) == []
    (ratio,) = _analyse([energy("softmax", "estimated"), energy("linear", "estimated")])
    assert ratio.obtained == "estimated"


def test_exact_quantities_have_no_interval():
    records = [
        Record("flops", value, "FLOP", "modelled", {"arm": arm, "scope": "model", "tokens": 65})
        for arm, value in (("softmax", 4.0), ("linear", 1.0))
    ]
    (ratio,) = _analyse(records)
    assert (ratio.name, ratio.value, ratio.interval) == ("flops_ratio", 0.25, None)


@pytest.mark.parametrize(
    ("curve", "crossover"),
    [
        ([(64, 1.5, 1.6), (256, 0.8, 0.9), (1024, 0.3, 0.4)], 256),
        ([(64, 0.8, 0.9), (256, 1.1, 1.2), (1024, 0.3, 0.4)], 1024),
        ([(64, 1.5, 1.6), (256, 0.95, 1.05)], None),
    ],
)
def test_the_crossover_holds_from_there_on(curve, crossover):
    (record,) = _analyse([_ratio("linear", *point) for point in curve])
    assert record.value == crossover
    assert record.labels["longest_tokens"] == curve[-1][0]


@pytest.mark.parametrize(("lowest", "met"), [(0.5, False), (0.6, True)])
def test_one_seed_at_chance_is_enough_to_say_that_not_every_seed_learned(lowest, met):
    task = load_task("digits")
    options = replace(compare.BUDGETS["quick"], mechanisms=("softmax",))
    records = [
        Record("accuracy", task.chance + above, "share", "measured", {"arm": "softmax", "seed": n})
        for n, above in enumerate((lowest - 0.5, 0.4, 0.4))
    ]
    assert _goals(records, options, task)[0].met is met


def test_of_many_arms_none_is_better_by_chance():
    arms = [f"a{number}" for number in range(27)]
    runs_with_one = 0
    for run in range(20):
        chance = random.Random(run)
        records = [
            _accuracy(arm, seed, 0.8 + chance.gauss(0, 0.02))
            for arm in ("softmax", *arms)
            for seed in range(5)
        ]
        analysed = analyse(records, ["softmax", *arms], "softmax", 0.001, 1000)
        runs_with_one += any(r.labels.get("verdict") in ("better", "worse") for r in analysed)
    assert runs_with_one <= 3


def test_a_quantity_of_one_arm_alone_has_no_ratio():
    def metered(arm, component):
        return [
            Record(
                *("energy_j", 2.0 + number, "J", "measured"),
                {"arm": arm, "component": component, "round": number},
            )
            for number in range(5)
        ]

    arms = ("softmax", "linear", "window")
    records = [metered("softmax", "cpu"), metered("linear", "cpu"), metered("window", "gpu")]
    ratios = _analyse([record for part in records for record in part], arms)
    assert [(r.labels["arm"], r.labels["component"]) for r in ratios] == [("linear", "cpu")]


@pytest.mark.parametrize("mixed", [("softmax", "linear"), ("linear",)])
def test_rounds_that_were_obtained_in_two_ways_have_no_ratio(mixed):
    records = [
        Record(
            "energy_j",
            1.0 + number / 10,
            "J",
            "estimated" if arm in mixed and number > 2 else "measured",
            {"arm": arm, "component": "cpu", "round": number},
        )
        for arm in ("softmax", "linear")
        for number in range(5)
    ]
    assert _analyse(records) == []


def test_a_ratio_without_an_interval_makes_no_crossover():
    labels = {"arm": "linear", "scope": "attention", "tokens": 64, "batch": 1}
    (record,) = _analyse([Record("latency_ratio", 0.5, "ratio", "measured", labels)])
    assert record.value is None


@pytest.mark.parametrize("count", [1, 60])
def test_nothing_lost_on_few_inputs_is_no_proof(count):
    logits, labels = torch.eye(2)[torch.zeros(count).long()], torch.zeros(count).long()
    difference = score_difference("accuracy", logits, logits, labels)
    assert difference.value == 0
    assert difference.interval[0] == pytest.approx(-(1 - 0.05 ** (1 / count)))
    assert difference.interval[1] == -difference.interval[0]
