"""The comparison of rules, parts and certificates on runs of slim."""

from __future__ import annotations

import importlib
import math

import numpy as np
import pytest

from sparing.core.record import Record
from tests.benchmarks.conftest import FOLDER

BEFORE = "slim-before-2026-12"
ONE_RUN = "slim-mpqa-seed-1-ca3658b2-2026-11"


@pytest.fixture
def slim_rules():
    return importlib.import_module("slim_rules")


@pytest.fixture
def slim_parts():
    return importlib.import_module("slim_parts")


@pytest.fixture
def slim_certified():
    return importlib.import_module("slim_certified")


@pytest.fixture
def root(tmp_path):
    """A folder with one committed run."""
    (tmp_path / ONE_RUN).symlink_to(FOLDER / "results" / BEFORE / ONE_RUN)
    return tmp_path


def record(name, value, interval=None, **labels):
    return Record(name, value, "", "measured", labels, interval)


def logits(classes, size=2.0):
    return size * np.eye(2, dtype=np.float32)[list(classes)]


def toy(slim_rules, task="t", **more):
    """Four rows: dense is right on three; slim agrees on three, static is right on all four."""
    forms = {
        "labels": np.array([0, 0, 0, 0]),
        "dense": logits([0, 0, 0, 1]),
        "slim": logits([0, 0, 1, 1]),
        "static": logits([0, 0, 0, 0]),
        "slim int8": logits([0, 0, 1, 1]),
        "dense int8": logits([0, 0, 0, 1]),
    }
    speeds = {"slim": 3.0, "static": 2.0, "slim int8": 6.0, "dense int8": 2.5}
    records = [record("speed_up", s, arm=arm, batch=1) for arm, s in speeds.items()]
    return slim_rules.SlimRun(task, [*records, *more.get("records", [])], forms)


def test_one_run_is_shown_by_every_table(
    root, slim_rules, slim_parts, slim_certified, monkeypatch, capsys
):
    for module in (slim_rules, slim_parts, slim_certified):
        monkeypatch.setattr("sys.argv", [f"{module.__name__}.py", str(root)])
        module.main()
    shown = capsys.readouterr().out
    for rule in slim_rules.RULES:
        assert f"| {rule} | " in shown
    assert (
        "| shallow plan with exits | static pruned model | 1 | +48.43 (+44.47 to +52.40)" in shown
    )
    for name in slim_certified.PROCEDURES:
        assert f"| {name.replace('_', chr(92) + '_')} | 500 and 300 | " in shown


def test_rows_of_a_form_by_hand(slim_rules):
    run = toy(slim_rules)
    slim, static = run.rows["slim"], run.rows["static"]
    assert slim["accuracy"].tolist() == [1, 1, 0, 0]
    assert slim["dense"].tolist() == [1, 1, 1, 0]
    assert slim["agreement"].tolist() == [1, 1, 0, 1]
    assert static["agreement"].tolist() == [1, 1, 1, 0]
    # classes at logits 2 and 0, exchanged: (p - q) times the log-odds of 2, and 2 * 2 ** 2
    p = 1 / (1 + math.exp(-2))
    assert slim["divergence"] == pytest.approx([0, 0, -(2 * p - 1) * 2, 0])
    assert slim["squares"] == pytest.approx([0, 0, -8, 0])


def test_rules_choose_by_hand(slim_rules):
    run = toy(slim_rules)
    rows = [run.rows["slim"], run.rows["static"]]
    values = slim_rules.means(rows, np.arange(4))
    assert values["accuracy"].tolist() == [0.5, 1.0]
    assert values["agreement"].tolist() == [0.75, 0.75]
    # slim loses 0.25 with a standard error of sqrt(3) / 8 = 0.217: below 0.5 % of 0.75
    assert values["good"].tolist() == [0.0, 1.0]
    speeds = np.array([3.0, 2.0])
    assert slim_rules.pick(("good", "accuracy"), values, speeds) == 1
    assert slim_rules.pick(("agreement",), values, speeds) == 0  # equal, so the faster
    assert slim_rules.pick(("agreement",), values, speeds[::-1]) == 1


def test_gains_are_over_a_form_at_random_on_other_rows(slim_rules):
    """Slim agrees everywhere, static nowhere: agreement picks slim whatever the split."""
    forms = {"labels": np.zeros(40, dtype=int), "dense": logits([0] * 40)}
    forms |= {"slim": logits([0] * 40), "static": logits([1] * 40)}
    records = [record("speed_up", s, arm=a, batch=1) for a, s in (("slim", 4.0), ("static", 1.0))]
    run = slim_rules.SlimRun("t", records, forms)
    gains = slim_rules.rule_gains(run, ("slim", "static"), 10)
    assert gains == pytest.approx(np.tile([0.5, 1.0, 0.5, 1.0, math.log(2)], (6, 1)))


def test_correlations_with_and_without_tasks(slim_rules):
    triples = [("a", 0.0, 1.0), ("a", 1.0, 0.0), ("b", 10.0, 11.0), ("b", 11.0, 10.0)]
    overall, within = slim_rules.correlations(triples)
    assert overall == pytest.approx(99.0 / 101.0)
    assert within == pytest.approx(-1.0)
    assert slim_rules.correlations(triples[:1]) == (None, None)


def test_what_pays(slim_parts):
    yes, loss = (0.03, (0.01, 0.05)), (-0.02, (-0.03, -0.01))
    assert slim_parts.pays(yes, (None, None)) == "yes"
    assert slim_parts.pays((0.019, (0.01, 0.03)), ()) == "no"
    assert slim_parts.pays((0.03, (-0.01, 0.07)), ()) == "no"
    assert slim_parts.pays((0.03, None), ()) == "no"
    assert slim_parts.pays(yes, (loss, None)) == "trade"
    assert slim_parts.pays(loss, ((0.002, (0.001, 0.003)), None)) == "trade"


def test_random_exits_are_the_mixture_of_two_depths(slim_rules, slim_parts):
    def point(kind, depth, mean, score, exits):
        plan = f'{{"exits": {exits}}}'
        labels = {"kind": kind, "depth": depth, "mean_layers": mean, "plan": plan}
        return record("frontier_score", score, width=1.0, tokens_kept=1.0, **labels)

    depths = [point("depth", 2, 2.0, 0.6, "[]"), point("depth", 4, 4.0, 0.8, "[]")]
    seen = point("exits", 4, 3.5, 0.79, "[2]")  # a quarter exits
    rare = point("exits", 4, 3.9, 0.0, "[2]")  # one in twenty: left out
    run = toy(slim_rules, records=[*depths, seen, rare])
    assert slim_parts.over_random(run) == pytest.approx(0.79 - 0.25 * 0.6 - 0.75 * 0.8)
    assert slim_parts.over_random(toy(slim_rules, records=depths)) is None


def test_scores_are_compared_at_the_same_speed(slim_rules, slim_parts):
    front = [
        record(name, value, plan=plan)
        for plan, speed, gap in (("a", 1.0, 0.0), ("b", 9.0, -0.04), ("c", 20.0, -0.3))
        for name, value in (("front_speed_up", speed), ("front_difference", gap))
    ]
    labels = {"batch": 1, "engine": "onnxruntime"}
    gap = record("score_difference", -0.01, arm="slim", **labels)
    run = toy(slim_rules, records=[*front, gap])
    assert slim_parts.over_adaptive(run, "slim") == pytest.approx(-0.01 + 0.02)  # 3 of 1 to 9
    fast = slim_rules.SlimRun("t", [r for r in run.records if r.value != 9.0], run.answers)
    assert fast.speed("slim") == 3.0


def test_cascades_answer_as_dense_where_unsure(slim_rules, slim_certified):
    run = toy(slim_rules)
    unsure = run.answers["slim"].copy()
    unsure[2] = [0.0, 0.1]  # the one row where slim differs: just above a half
    run = slim_rules.SlimRun("t", run.records, {**run.answers, "slim": unsure})
    changed, speeds, names = slim_certified.forms_of(run)
    assert changed.shape == (4, 4 + 7 * 8)
    assert (names[4], names[12], names[-1]) == (
        *("slim to dense", "slim to dense int8"),
        "dense int8 to dense",
    )
    assert changed[:, 0].tolist() == [0, 0, 1, 0]
    assert changed[:, 4].tolist() == [0, 0, 0, 0]
    assert speeds[4] == pytest.approx(1 / (1 / 3 + 0.25 / 1))
    assert speeds[12] == pytest.approx(1 / (1 / 3 + 0.25 / 2.5))


def test_false_frontiers_are_counted(slim_certified, monkeypatch):
    losses = np.zeros((100, 1))
    losses[:6] = 1.0
    procedures = {
        "all": lambda held, speeds, choosing: [{0}] * 5,
        "last": lambda held, speeds, choosing: [*[set()] * 4, {0}],
    }
    monkeypatch.setattr(slim_certified, "PROCEDURES", procedures)
    result = slim_certified.simulated(losses, np.array([2.0]), (50, 50), draws=2)
    assert result["all"] == pytest.approx(np.array([[1.0, *[math.log(2)] * 5]] * 2))
    assert result["last"] == pytest.approx(np.array([[0.0] * 5 + [math.log(2)]] * 2))
