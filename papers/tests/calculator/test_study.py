"""The calculator study from end to end on few epochs, and its parts alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from sparing.calculator.web import TRAINED
from sparing.core.errors import UsageError
from sparing.core.record import RECORDS, Record, RecordLog
from sparing.experiment.records import RecordTable
from sparing.experiment.registry import find_study
from sparing.predictors import build_predictor, load_predictor
from sparing.report.page import write_report
from sparing.report.run import Run
from sparing.tasks.shared.calculation_scores import legacy_errors
from sparing.tasks.shared.published import corrected, published
from sparing_papers.calculator import analysis, claims, evaluation
from sparing_papers.calculator import study as calculator
from sparing_papers.calculator.arms import ARMS
from sparing_papers.calculator.names import FNN2, LSTM, PUBLISHED
from sparing_papers.calculator.options import Options
from sparing_papers.calculator.page import content, tables

RECORDED = Path(__file__).parents[2] / "results/calculator-study-a8ce2ffc-2026-11"

SMALL = Options(
    variants=("FNN2", "LSTM with attention", "NAU"),
    seeds=2,
    epochs=1,
    language_model_sizes={"width": 16, "layers": 1, "heads": 2, "inner": 16},
    language_model_epochs=1,
    language_model_tests=7,
)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    return find_study("calculator").run(SMALL, tmp_path_factory.mktemp("study") / "run")


def test_every_cell_ends_and_every_set_is_evaluated(ended):
    assert ended.failures == []
    table = RecordTable(ended.records)
    for arm in ("baseline", *SMALL.variants):
        for name in evaluation.test_sets():
            assert set(analysis.by_seed(table, "exact", arm, set=name)) == {0, 1}
    for arm in ("two weights", "calculator (text)"):
        exact = [
            analysis.by_seed(table, "exact", arm, set=name)[None] for name in evaluation.test_sets()
        ]
        assert exact == [1.0] * len(exact)
    assert analysis.by_seed(table, "exact", "always 0", set="in")[None] == pytest.approx(103 / 1457)


def test_scores_are_relative_to_the_mean_baseline(ended):
    table = RecordTable(ended.records)
    bounded = analysis.by_seed(table, "bounded_score", "baseline")
    assert sum(bounded.values()) / 2 == pytest.approx(50, abs=2)
    assert analysis.by_seed(table, "bounded_score", "two weights")[None] > 99.9
    assert "two weights" not in {r.labels["arm"] for r in ended.records if r.name == "legacy_score"}


def test_the_published_score_of_one_network_is_the_recorded_one():
    records = RecordLog(RECORDED / RECORDS).read()
    table = RecordTable(records)
    network, sets = load_predictor(TRAINED / "FNN2"), published()
    errors = legacy_errors(sets, {n: network.predict(sets[n]) for n in ("in", "out", "long")})
    for part, error in errors.items():
        assert error == pytest.approx(
            analysis.by_seed(table, "legacy_error", "FNN2", part=part)[0], 1e-4
        )
    measured = [record for record in records if record.cell != "analysis"]
    again = RecordTable(analysis.analyse(measured))
    score = analysis.by_seed(again, "legacy_score", "FNN2")[0]
    assert score == pytest.approx(2.6419016)
    # of out: the 192 sums whose operands' sizes add to 22; of long: those of four operands
    zeros = {name: [0.0] * len(sums) for name, sums in sets.items()}
    expected = {"in": 4.0185312, "out": 11.0, "long": 5.19, "relative": 1.0}
    assert legacy_errors(sets, zeros) == pytest.approx(expected)


def test_claims_are_goals_and_two_seeds_may_not_decide_them(ended):
    assert len(ended.goals) == len(claims.CLAIMS)
    goals = json.loads((ended.folder / "goals.json").read_text())["goals"]
    assert [goal["name"] for goal in goals] == [goal.name for goal in ended.goals]


@pytest.mark.parametrize(("others", "met"), [(PUBLISHED, True), ((FNN2, LSTM), "undecided")])
def test_the_best_of_all_is_told_only_beside_all(others, met):
    records = [
        Record("mean_error", value, "", "measured", {"arm": arm, "seed": seed, "set": "long"})
        for arm in {LSTM, *others}
        for seed, value in enumerate([1.0, 1.1, 0.9, 1.0, 1.05])
    ]
    ours = [r for r in records if r.labels["arm"] == LSTM]
    rest = [replace(r, value=r.value + 5) for r in records if r not in ours]
    goals = {goal.name.partition(":")[0]: goal for goal in claims.decide_goals([*ours, *rest])}
    best = next(goal for name, goal in goals.items() if "predict longer expressions" in name)
    assert (best.value, best.met) == (pytest.approx(5.0), met)
    worse = [replace(r, value=r.value - 10) for r in rest]  # one is enough to lose to
    assert claims.decide_goals([*ours, *worse])[list(goals.values()).index(best)].met is False


def test_a_finished_run_is_not_trained_again(ended, monkeypatch):
    monkeypatch.setattr("sparing.experiment.cells.training.train", None)
    again = find_study("calculator").run(SMALL, ended.folder)
    assert len(again.records) == len(ended.records)
    assert find_study("calculator").plan(SMALL, ended.folder).minutes_left == 0


def test_the_page_shows_everything(ended):
    pages = write_report(ended.folder)
    page = pages["html"].read_text()
    for text in ("FNN2", "two weights", "calculator (text)", "Gemini 2.5 Pro", "tiny, adapters"):
        assert text in page
    assert "No claim is made" in page
    markdown = pages["md"].read_text()
    assert "Beside the published table" in markdown
    assert pages["trade"].is_file()


def test_parts_can_be_run_alone(tmp_path):
    result = find_study("calculator").run(SMALL, tmp_path / "run", cells="fixed/two-weights")
    assert {record.cell for record in result.records} == {"fixed/two-weights", "analysis"}
    page = write_report(tmp_path / "run")["html"].read_text()
    assert "This run is not complete" in page
    with pytest.raises(UsageError, match="no cell fits"):
        find_study("calculator").run(SMALL, tmp_path / "run", cells="fixed/two-weigths")


def test_budgets_hold_the_published_columns():
    standard = calculator.BUDGETS["standard"]
    assert standard.seeds >= 5
    assert set(PUBLISHED) <= set(standard.variants) == set(ARMS)
    for arm in ARMS.values():
        build_predictor(arm.network, **arm.options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"variants": ("FNN4",)}, "did you mean 'FNN3'"),
        ({"variants": ("FNN2", "FNN2")}, "named twice"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"language_model_rank": -1}, "language_model_rank must be at least 0"),
    ],
)
def test_options_refuse(given, message):
    with pytest.raises(UsageError, match=message):
        replace(SMALL, **given)


def test_sensitivity_of_what_is_right_is_one_everywhere():
    model = build_predictor("accumulator")
    model.network.weight.data.copy_(model.network.weight.new_tensor([1.0, -1.0]))
    records = evaluation.probe_records(model, {"arm": "x", "seed": 0})
    places = [r for r in records if "place" in r.labels]
    assert len(places) == 11
    assert all(r.value == pytest.approx(1, abs=1e-5) for r in records if r.name == "sensitivity")


def test_missing_answers_count_as_wrong_and_have_no_score():
    records = evaluation.score_records(lambda sums: [None] * len(sums), {"arm": "x", "seed": 0})
    by_name = {
        (r.name, r.labels.get("set")): r.value for r in records if "operands" not in r.labels
    }
    assert by_name[("exact", "in")] == 0
    assert by_name[("missing", "in")] == 1457
    assert not any(r.name == "legacy_error" for r in records)


def test_errors_by_operand_and_by_size_cover_their_sets():
    records = evaluation.score_records(lambda sums: [0.0] * len(sums), {"arm": "x", "seed": 0})
    counts = {r.labels["operands"]: r.count for r in records if "operands" in r.labels}
    assert counts == dict.fromkeys(range(2, 9), 100)
    largest = {r.labels["largest"]: r.count for r in records if "largest" in r.labels}
    assert sum(largest.values()) == len(corrected()["out"])
    assert set(largest) == {5, 6, 7, 8, 9}


def test_what_is_printed_has_a_figure_for_each_published_network():
    printed = tables.printed()
    assert tuple(printed["arms"]) == PUBLISHED
    columns = [printed["architecture"], printed["optimizer"]]
    columns += [row[name] for row in printed["rows"] for name in ("first", "later")]
    assert {len(column) for column in columns} == {len(PUBLISHED)}
    for model in printed["language_models"]:
        assert len(model["printed"]) == len(model["asked"]) == len(tables.PUBLISHED_SETS)


def scores(**means):
    """Bounded scores of networks by seed, and their means."""
    records = []
    for arm, values in means.items():
        labels = {"arm": arm, "set": "in"}
        records += [Record("exact", 0.5, "share", "measured", {**labels, "seed": 0})]
        records += [
            Record("bounded_score", value, "", "measured", {"arm": arm, "seed": seed})
            for seed, value in enumerate(values)
        ]
        for name, value in (("bounded_score", fmean(values)), ("train_time_s", 1.0)):
            mean_labels = {"arm": arm, "over": "seeds"}
            records.append(
                Record(f"mean_{name}", value, "", "measured", mean_labels, count=len(values))
            )
    return records


@pytest.mark.parametrize(
    ("means", "lead"),
    [
        ({"FNN2": [60.0, 61.0, 62.0], "RNN2": [40.0, 42.0, 41.0]}, "FNN2 generalizes best"),
        ({"FNN2": [60.0, 61.0, 62.0], "RNN2": [59.0, 62.0, 60.0]}, "Undecided which generalizes"),
        ({"FNN2": [60.0, 61.0], "RNN2": [40.0, 42.0]}, "No claim is made"),
        ({"FNN2": [60.0, 61.0, 62.0]}, "No verdict yet"),
        ({"FNN2": [60.0, 61.0, 62.0], "NAU": [100.0, 100.0, 99.0]}, "No verdict yet"),
    ],
)
def test_the_best_network_is_named_where_its_seeds_say_so(means, lead):
    run = Run({"arms": list(means), "claims": []}, scores(**means), [], [])
    assert content.verdict(run).lead.startswith(lead)


def test_goals_stand_fall_or_are_undecided():
    verdicts = [claims.verdict_of({"met": met}) for met in (True, False, "undecided")]
    assert verdicts == ["holds", "fails", "undecided"]
