"""The text's recurrent networks: searches, longer sums, and the claims that need them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import fmean

import pytest

from sparing.core.errors import UsageError
from sparing.core.record import Record
from sparing.experiment.records import RecordTable
from sparing.experiment.registry import find_study
from sparing.predictors import build_predictor
from sparing.report.page import write_report
from sparing.tasks.shared.expressions import Expression
from sparing_papers.calculator import analysis, claims, longer, searches
from sparing_papers.calculator.arms import ARMS, EVERY, FURTHER
from sparing_papers.calculator.cells import all_cells
from sparing_papers.calculator.names import FNN2, QUESTIONS, RNN2, TEXT_GRU, TEXT_RNN, TEXTS
from sparing_papers.calculator.options import BUDGETS, Options

SMALL = Options(
    questions=("recurrence",),
    variants=("FNN2", "FNN2, SGD", "FNN2, relu"),
    searched=("NAU",),
    seeds=2,
    epochs=1,
    language_model="",
)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    return find_study("calculator").run(SMALL, tmp_path_factory.mktemp("study") / "run")


def test_every_rate_of_a_search_is_recorded_and_the_best_is_taken(ended):
    assert ended.failures == []
    table = RecordTable(ended.records)
    assert SMALL.searches == ("FNN2, SGD", "FNN2, relu", "NAU")
    for arm in SMALL.searches:
        losses = {r.labels["rate"]: r.value for r in table.matching("search_loss", {"arm": arm})}
        assert tuple(losses) == EVERY[arm].rates
        assert {r.labels["seed"] for r in table.all("search_loss", arm=arm)} == {searches.SEED}
        best = table.value("search_rate", arm=arm)
        assert losses[best] == min(value for value in losses.values() if value is not None)
        assert len(table.all("search_time_s", arm=arm)) >= 1
        if arm in SMALL.variants:
            taken = analysis.by_seed(table, "learning_rate", arm)
            assert taken == {0: best, 1: best}
    assert analysis.by_seed(table, "learning_rate", FNN2) == {0: 1e-3, 1: 1e-3}


def test_a_rate_that_diverges_is_recorded_without_a_loss(tmp_path, monkeypatch):
    monkeypatch.setattr("sparing_papers.calculator.arms.RATES", (1e-3, 1e6))
    options = replace(SMALL, variants=("FNN2, SGD",), searched=())
    records = searches.search_cells(options, tmp_path)[0].work()
    losses = {r.labels["rate"]: r.value for r in records if r.name == "search_loss"}
    assert losses[1e6] is None
    assert losses[1e-3] is not None
    assert [r.value for r in records if r.name == "search_rate"] == [1e-3]


def test_means_over_seeds_leave_searches_out(ended):
    names = {r.name for r in ended.records if r.cell == "analysis"}
    assert "mean_learning_rate" in names
    assert not any("search" in name for name in names)


def test_the_page_has_longer_sums_and_searches(ended):
    page = write_report(ended.folder)["md"].read_text()
    for text in ("Sums of 6 to 10 numbers", "Which number answers lean to", "0.003: "):
        assert text in page
    assert "The fifth tests a claim" not in page


def grown(one, index):
    numbers = [number + (n == index) for n, number in enumerate(one.operands)]
    return Expression(tuple(numbers), one.operators)


@pytest.mark.parametrize(("name", "count"), [("lstm", 10), ("feed_forward", 8), ("gru", 6)])
def test_influence_against_sums_that_are_written_out(name, count):
    model = build_predictor(name, seed=1)
    sums = longer.longer_sums()[count][:30]
    for index, move in enumerate(longer.influence(model, sums)):
        small = [one for one in sums if one.operands[index] < 4]
        before, after = model.predict(small), model.predict([grown(o, index) for o in small])
        slow = fmean(abs(b - a) for a, b in zip(before, after, strict=True))
        assert move == pytest.approx(slow, abs=1e-5)


def test_a_right_network_leans_nowhere():
    model = build_predictor("accumulator")
    model.network.weight.data.copy_(model.network.weight.new_tensor([1.0, -1.0]))
    records = longer.longer_records(model, {"arm": "x", "seed": 0})
    assert {r.labels["set"] for r in records if "set" in r.labels} == {"6 to 8"}
    gaps = [r.value for r in records if r.name == "influence_gap"]
    assert gaps == [pytest.approx(0, abs=1e-5)]
    nearer = [r for r in records if r.name == "nearer_to_last"]
    assert len(nearer) == 4
    assert all(r.value == pytest.approx(r.labels["truth"]) for r in nearer)
    assert all(r.value == 1 for r in records if r.name == "exact")


def test_longer_sums_are_of_the_training_range_and_all_different():
    sums = longer.longer_sums()
    assert {count: len(of_count) for count, of_count in sums.items()} == dict.fromkeys(
        range(6, 11), 200
    )
    for count, of_count in sums.items():
        assert {len(one.operands) for one in of_count} == {count}
        assert {number for one in of_count for number in one.operands} == {*range(-5, 5)}
        assert len({one.text for one in of_count}) == 200


def test_errors_on_longer_sums_are_those_of_their_lengths():
    records = longer.longer_records(build_predictor("gru"), {"arm": "x", "seed": 0})
    errors = [r for r in records if r.name == "mean_error" and r.labels["set"] == "6 to 10"]
    whole = [r.value for r in errors if "operands" not in r.labels]
    parts = [r.value for r in errors if "operands" in r.labels]
    assert len(parts) == 5
    assert whole == [pytest.approx(fmean(parts))]


def invented(options):
    """A record of each quantity that claims name, for every variant and seed of a budget."""
    quantities = (
        *("bounded_score", "validation_loss", "attention_size"),
        *((n, {"set": s}) for n in ("mean_error",) for s in ("out", "6 to 8", "6 to 10")),
        *((n, {"set": s}) for n in ("influence_gap", "nearer_to_last") for s in longer.SPANS),
    )
    for number, arm in enumerate(options.trained):
        for seed in range(options.seeds):
            for quantity in quantities:
                name, labels = quantity if isinstance(quantity, tuple) else (quantity, {})
                value = number + 0.01 * seed * number
                given = {"arm": arm, "seed": seed, **labels}
                yield Record(name, value, "", "measured", given)


@pytest.mark.parametrize("budget", ["recurrence", "variations"])
def test_a_budget_decides_every_claim_of_its_question(budget):
    options = BUDGETS[budget]
    assert options.seeds >= 5
    goals = claims.decide_goals([*invented(options)], options.questions)
    assert [goal.name for goal in goals if goal.value is None] == []
    assert {type(goal.met) for goal in goals} == {bool}


def test_claims_are_told_apart_and_of_one_question():
    assert [name for name, n in Counter(c.text for c in claims.EVERY).items() if n > 1] == []
    assert {question for claim in claims.EVERY for question in claim.questions} == {*QUESTIONS}
    assert claims.claims_of(("networks",)) == [*claims.CLAIMS]
    families = {claim.family: claim.questions for claim in claims.EVERY}
    assert all(families[claim.family] == claim.questions for claim in claims.EVERY)


def test_a_default_run_trains_what_the_published_table_names():
    assert set(Options().variants) == set(ARMS)
    assert Options().searches == ()
    assert not ARMS.keys() & FURTHER.keys()
    for arm in FURTHER.values():
        build_predictor(arm.network, **arm.options)


def test_three_activations_three_optimizers_and_two_shares_of_dropout():
    for name in (FNN2, TEXT_RNN):
        of_name = [
            EVERY[name],
            *(arm for key, arm in FURTHER.items() if key.startswith(f"{name},")),
        ]
        assert {arm.options.get("activation_name", "prelu") for arm in of_name} == {
            *("prelu", "relu", "tanh")
        }
        assert {arm.optimizer for arm in of_name} == {"adamw", "sgd", "rmsprop"}
    for name in (FNN2, *TEXTS):
        shares = {
            s for s in (0.2, 0.5) if EVERY[f"{name}, dropout {s}"].options["dropout_share"] == s
        }
        assert shares == {0.2, 0.5}


def test_a_variant_waits_for_its_search(tmp_path):
    options = replace(SMALL, variants=(TEXT_GRU, RNN2, f"{TEXT_RNN}, dropout 0.5"), seeds=1)
    needs = {cell.key: cell.needs for cell in all_cells(options, tmp_path)}
    assert needs["arm/gru-of-the-text/0"] == ("search/gru-of-the-text",)
    assert needs["arm/rnn2/0"] == ()
    assert needs["arm/rnn-of-the-text-dropout-0-5/0"] == ("search/rnn-of-the-text",)
    assert {"search/gru-of-the-text", "search/rnn-of-the-text", "search/nau"} <= needs.keys()
    with pytest.raises(UsageError, match="did you mean 'GRU of the text'"):
        replace(SMALL, searched=("GRU of the tex",))
