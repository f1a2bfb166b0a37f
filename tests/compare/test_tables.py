from __future__ import annotations

import math

import pytest
from scipy import stats

from sparing.compare.page.lineup import lineup
from sparing.compare.page.lookups import mean_interval
from sparing.compare.page.tables import table_columns, table_rows
from sparing.report.wording import share
from tests.compare import records as make

ARMS = ("softmax", "linear", "kerformer")
TIMES, DASH, MINUS = "\u00d7", "\u2013", "\u2212"


@pytest.fixture(scope="module")
def full():
    return make.records(ARMS, 3)


@pytest.fixture
def config():
    return make.config(ARMS, 3)


def rows_of(records, config, failed=()):
    run = make.run_of(records, config, failed)
    return table_rows(run, lineup(run))


def cell(records, config, arm, key, failed=()):
    rows = {row.arm: row for row in rows_of(records, config, failed)}
    return rows[arm].cells[key]


def without(records, *names):
    return [record for record in records if record.name not in names]


def test_one_row_an_arm_with_a_cell_for_every_column(full, config):
    rows = rows_of(full, config)
    assert [row.arm for row in rows] == list(ARMS)
    assert [row.baseline for row in rows] == [True, False, False]
    keys = {column.key for column in table_columns(make.run_of(full, config))}
    assert all(set(row.cells) == keys for row in rows)
    assert all(cell.tone != "missing" for row in rows for cell in row.cells.values())


def test_the_baseline_comes_first_whatever_the_order(full, config):
    config["arms"] = ["linear", "kerformer", "softmax"]
    assert [row.arm for row in rows_of(full, config)] == ["softmax", "linear", "kerformer"]


def test_accuracy_is_a_mean_with_students_interval(full, config):
    values = [r.value for r in full if r.name == "accuracy" and r.labels["arm"] == "linear"]
    shown = cell(full, config, "linear", "accuracy")
    assert shown.value == pytest.approx(sum(values) / 3)
    expected = stats.t.interval(0.95, 2, loc=shown.value, scale=stats.sem(values))
    assert shown.interval == pytest.approx(expected)
    assert shown.notes[-1] == "3 seeds"


def test_an_interval_of_shares_stays_within_them():
    assert mean_interval([0.99, 1.0])[1][1] == 1.0
    assert mean_interval([0.0, 0.01])[1][0] == 0.0


def test_one_seed_has_no_interval():
    shown = cell(make.records(ARMS, 1), make.config(ARMS, 1), "linear", "accuracy")
    assert shown.interval is None
    assert shown.notes == ("1 seed, no interval",)


@pytest.mark.parametrize(
    ("value", "interval", "text", "notes", "tone"),
    [
        (0.5, (0.4, 0.5), f"2.0{TIMES} faster", f"2.0{DASH}2.5{TIMES}", "gain"),
        (2.0, (1.9, 2.1), f"2.0{TIMES} slower", f"1.90{DASH}2.1{TIMES}", "loss"),
        (0.98, (0.9, 1.1), "no clear difference", f"0.90{DASH}1.10{TIMES}", "neutral"),
        (0.5, None, f"2.0{TIMES} faster", "no interval", "gain"),
    ],
)
def test_a_cost_says_its_direction(full, config, value, interval, text, notes, tone):
    labels = {"arm": "linear", "scope": "model", "tokens": 65, "batch": 1}
    changed = [*full, make.record("latency_ratio", value, "ratio", interval, **labels)]
    shown = cell(changed, config, "linear", "latency")
    assert (shown.text, shown.notes[0], shown.tone) == (text, notes, tone)
    assert shown.value == value


@pytest.mark.parametrize("verdict", ["better", "worse", "no worse", "undecided"])
def test_the_difference_is_one_of_four_words(full, config, verdict):
    labels = {"arm": "linear", "baseline": "softmax", "verdict": verdict, "margin": 0.01}
    changed = [
        *without(full, "accuracy_difference"),
        make.record("accuracy_difference", -0.012, "share", (-0.02, -0.004), **labels),
    ]
    shown = cell(changed, config, "linear", "difference")
    assert shown.text == verdict
    assert shown.notes == (f"{MINUS}1.2 points", f"{MINUS}2.0 to {MINUS}0.4")


@pytest.mark.parametrize("obtained", ["measured", "integrated", "estimated", "modelled"])
def test_energy_says_how_it_was_obtained(config, obtained):
    labels = {"arm": "linear", "scope": "model", "tokens": 65, "batch": 1}
    records = [
        make.record("energy_j", 0.01, "J", None, obtained, **labels),
        make.record("energy_ratio", 0.5, "ratio", (0.4, 0.6), obtained, **labels),
    ]
    result = cell(records, config, "linear", "energy")
    assert result.notes[-1] == f"10.0 mJ, {obtained}"
    assert result.obtained == obtained


def test_components_of_energy_stand_apart_and_the_largest_leads(config):
    records = []
    for arm, factor in (("softmax", 1.0), ("linear", 0.5)):
        for seed in range(2):
            for component, joules, obtained in (
                ("cpu", 10.0, "estimated"),
                ("gpu", 30.0, "measured"),
            ):
                labels = {"arm": arm, "seed": seed, "component": component}
                value = joules * factor * (1 + 0.2 * seed)
                records.append(make.record("train_energy_j", value, "J", None, obtained, **labels))
    for component, value in (("cpu", 0.7), ("gpu", 0.5)):
        labels = {"arm": "linear", "component": component}
        near = (0.9 * value, 1.1 * value)
        records.append(make.record("train_energy_ratio", value, "ratio", near, **labels))
    dense = cell(records, config, "softmax", "train_energy")
    assert (dense.text, dense.notes) == ("gpu 33.0 J", ("measured", "cpu 11.0 J, estimated"))
    other = cell(records, config, "linear", "train_energy")
    assert other.text == f"2.0{TIMES} less"
    assert other.notes == (
        f"gpu: 1.82{DASH}2.2{TIMES}",
        "gpu 16.5 J, measured",
        "cpu 5.50 J, estimated",
    )


def test_rounds_are_averaged(config):
    labels = {"arm": "softmax", "scope": "model", "tokens": 65, "batch": 1, "component": "cpu"}
    records = [
        make.record("energy_j", value, "J", None, "estimated", **labels, round=number)
        for number, value in enumerate((1.0, 2.0, 6.0))
    ]
    assert cell(records, config, "softmax", "energy").text == "3.00 J"


def test_a_missing_quantity_says_why(full, config):
    none = without(full, "energy_j", "energy_ratio")
    shown = cell(none, config, "linear", "energy")
    assert (shown.text, shown.tone) == ("not measured", "missing")
    assert shown.notes == ("not part of this run so far",)

    waiting = [r for r in full if r.name != "accuracy" or r.labels["arm"] != "linear"]
    assert cell(waiting, config, "linear", "accuracy").notes == ("not reached yet",)

    failed = [{"cell": "train/linear/seed=1", "error": "boom"}]
    assert cell(waiting, config, "linear", "accuracy", failed).notes == ("failed, see below",)
    other = [{"cell": "train/linear-two/seed=1", "error": "boom"}]
    assert cell(waiting, config, "linear", "accuracy", other).notes == ("not reached yet",)

    reason = make.record("energy_j", None, "J", arm="linear", reason="no counter here")
    assert cell([*none, reason], config, "linear", "energy").notes == ("no counter here",)


def test_without_a_ratio_the_two_values_give_one_without_interval(full, config):
    shown = cell(without(full, "latency_ratio"), config, "kerformer", "latency")
    assert shown.interval is None
    assert shown.notes[0] == "no interval"
    ratio = make.run_of(full, config).table.value("latency_ratio", arm="kerformer", scope="model")
    assert shown.value == pytest.approx(ratio)


def test_figures_of_papers_never_enter_the_table(full, config):
    labels = {"arm": "linear", "scope": "model", "tokens": 65, "batch": 1}
    claim = make.record("latency_ratio", 0.01, "ratio", (0.01, 0.01), "paper", **labels)
    assert rows_of([*full, claim], config) == rows_of(full, config)


def test_the_later_of_two_records_counts(full, config):
    again = make.record("accuracy", 0.5, "share", arm="linear", seed=0, split="test")
    rows = [r for r in full if r.name == "accuracy" and r.labels["arm"] == "linear"]
    expected = (0.5 + sum(r.value for r in rows if r.labels["seed"] != 0)) / 3
    assert cell([*full, again], config, "linear", "accuracy").value == pytest.approx(expected)


def test_costs_are_taken_at_the_tasks_own_length(full, config):
    far = {"arm": "linear", "scope": "model", "tokens": 512, "batch": 1}
    changed = [*full, make.record("latency_ratio", 0.1, "ratio", (0.1, 0.1), **far)]
    assert cell(changed, config, "linear", "latency") == cell(full, config, "linear", "latency")
    config["task"]["tokens"] = 500
    assert cell(changed, config, "linear", "latency").value == 0.1


def test_columns_name_chance_margin_and_size(full, config):
    notes = {column.key: column.note for column in table_columns(make.run_of(full, config))}
    assert notes["accuracy"] == "chance 10 %"
    assert notes["difference"] == "margin 1 point"
    assert notes["latency"] == "whole model, 65 tokens, batch 1"


def test_rows_are_a_pure_function(full, config):
    before = repr((full, config))
    assert rows_of(full, config) == rows_of(full, config)
    assert repr((full, config)) == before


def test_no_cell_holds_a_number_that_is_not_finite(full, config):
    for row in rows_of(full, config):
        for shown in row.cells.values():
            assert shown.value is None or math.isfinite(shown.value)


def test_correlations_below_zero_keep_their_interval():
    value, (low, high) = mean_interval([-0.10, -0.12, -0.11])
    assert low < value < high < 0
    assert share(value) == "−11.0 %"
