"""The frontier of certified agreement: exact levels, one promise for all of its points."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from sparing.core.errors import UsageError
from sparing.measure.calibration import examples_needed
from sparing.slim.evidence.certified import EPSILONS, candidates, certified_frontier

DELTA = 0.05
ONE, TWO = np.zeros(1), np.zeros(2)


def rows(examples, *changed):
    """A table with this many changed answers in each column."""
    return (np.arange(examples)[:, None] < np.array(changed)).astype(np.float64)


def sampled(generator, examples, risks):
    return (generator.random((examples, len(risks))) < risks).astype(np.float64)


def graph_of(sequences, delta):
    """Levels and transitions of the graphical procedure, by its hypotheses (epsilon, form).

    The level of each goes to the next of its sequence; that of the last to the first hypothesis of
    the next smaller epsilon.
    """
    nodes = [(e, form) for e in sorted(sequences, reverse=True) for form in sequences[e]]
    level = dict.fromkeys(nodes, 0.0)
    passes = {node: dict.fromkeys(nodes, 0.0) for node in nodes}
    for e, sequence in sequences.items():
        level[e, sequence[0]] = delta / len(sequences)
    for node, after in itertools.pairwise(nodes):
        passes[node][after] = 1.0
    return level, passes


def rejected_by_graph(sequences, p_value, delta):
    """Bretz et al., 2009, algorithm 1, with all levels and transitions written out."""
    level, passes = graph_of(sequences, delta)
    left, rejected = set(level), set()
    while node := next((n for n in left if p_value(*n) <= level[n]), None):
        left.remove(node)
        rejected.add(node)
        new = {}
        for a in left:
            level[a] += level[node] * passes[node][a]
            loop = passes[a][node] * passes[node][a]
            new[a] = {
                b: (passes[a][b] + passes[a][node] * passes[node][b]) / (1 - loop)
                if a != b and loop < 1
                else 0.0
                for b in left
            }
        passes = {**passes, **new}
    return rejected


@pytest.mark.parametrize("seed", range(40))
def test_the_forms_are_those_of_the_graphical_procedure(seed):
    generator = np.random.default_rng(seed)
    risks = generator.uniform(0, 0.09, 7)
    speeds = 1 + 20 * risks + generator.normal(0, 0.2, 7)
    choosing, losses = sampled(generator, 300, risks), sampled(generator, 700, risks)
    divergences = risks + generator.normal(0, 0.01, 7)

    def before(j):
        keys = [(choosing[:, i].sum(), divergences[i]) for i in range(7)]
        return [i for i in range(7) if keys[i] < keys[j]]

    useful = (j for j in range(7) if all(speeds[i] < speeds[j] for i in before(j)))
    front = sorted(useful, key=lambda j: len(before(j)))
    sequences = {e: [j for j in front if choosing[:, j].mean() <= e] for e in EPSILONS}
    sequences = {e: sequence for e, sequence in sequences.items() if sequence}
    rejected = rejected_by_graph(
        sequences, lambda e, j: stats.binom.cdf(int(losses[:, j].sum()), 700, e), DELTA
    )
    for point in certified_frontier(losses, speeds, choosing, divergences):
        forms = {j for e, j in rejected if e <= point.epsilon}
        assert set(point.forms) == forms
        assert point.form == max(forms, key=lambda j: speeds[j], default=None)


def test_every_point_holds_at_once():
    """Forms just worse than each epsilon, where the temptation is greatest."""
    risks = np.array([1.02 * epsilon for epsilon in EPSILONS])
    speeds = np.arange(2.0, 7.0)
    generator = np.random.default_rng(0)
    false, lucky, runs = 0, 0, 600
    for _ in range(runs):
        choosing, losses = sampled(generator, 400, risks), sampled(generator, 1000, risks)
        points = certified_frontier(losses, speeds, choosing, risks, delta=DELTA)
        false += any(risks[j] > point.epsilon for point in points for j in point.forms)
        lucky += bool((losses.mean(0) <= np.array(EPSILONS)).any())
    assert 0 < false / runs <= DELTA
    assert lucky / runs > 0.9  # what is measured alone would be believed in most runs


def test_good_forms_are_certified():
    risks = np.array([0.0, 0.004, 0.02, 0.06])
    speeds = np.array([1.1, 2.0, 3.0, 4.0])
    generator = np.random.default_rng(1)
    choosing, losses = sampled(generator, 2000, risks), sampled(generator, 3000, risks)
    points = certified_frontier(losses, speeds, choosing, risks)
    assert [point.form for point in points] == [1, 1, 2, 2, 3]
    assert [point.speed for point in points] == [2.0, 2.0, 3.0, 3.0, 4.0]
    assert points[0].changed == int(losses[:, 1].sum())
    assert [point.epsilon for point in points] == list(EPSILONS)
    assert points[4].examples == 3000
    assert all({*a.forms} <= {*b.forms} for a, b in itertools.pairwise(points))


def test_one_point_takes_the_whole_level():
    needed = examples_needed(0.03, DELTA)
    for examples, form in ((needed, 0), (needed - 1, None)):
        table = rows(examples, 0)
        (point,) = certified_frontier(table, np.array([2.0]), table, ONE, [0.03])
        assert point.form == form


def test_a_finished_sequence_passes_its_level_on():
    """At 2 % both points share the level; once 5 % is done, 2 % is tested at all of it."""
    examples = examples_needed(0.02, DELTA)
    table = rows(examples, 0)
    assert 0.98**examples > DELTA / 2
    assert 0.95**examples <= DELTA / 2
    small, large = certified_frontier(table, np.array([2.0]), table, ONE, [0.05, 0.02])
    assert (small.epsilon, small.form, large.form) == (0.02, 0, 0)
    # a second candidate for 5 % fails, so that nothing is passed on
    choosing, losses = rows(100, 0, 4), rows(examples, 0, 40)
    small, large = certified_frontier(losses, np.array([2.0, 3.0]), choosing, TWO, [0.02, 0.05])
    assert (small.form, large.form) == (None, 0)


def test_points_that_cannot_be_reached_take_no_level():
    """No form has 1 % on the choosing examples: 3 % is tested at the whole level."""
    examples = examples_needed(0.03, DELTA)
    point = certified_frontier(rows(examples, 0), np.array([2.0]), rows(100, 2), ONE, [0.01, 0.03])
    assert [p.form for p in point] == [None, 0]


def test_candidates_are_faster_than_all_before_them():
    losses = rows(10, 0, 0, 3, 2, 5)
    speeds = np.array([1.0, 1.5, 1.4, 1.5, 9.0])
    assert candidates(losses, np.zeros(5), speeds) == [1, 4]
    assert candidates(losses, np.array([0.1, 0.2, 0.0, 0.0, 0.0]), speeds) == [0, 1, 4]
    assert candidates(losses, np.array([0.2, 0.1, 0.0, 0.0, 0.0]), speeds) == [1, 4]


def test_the_safer_of_equal_forms_is_certified_where_the_faster_fails():
    """Both change nothing of 100 answers to choose by; of those to calibrate on, one and none."""
    choosing, losses = rows(100, 0, 0), rows(60, 1, 0)
    speeds = np.array([2.65, 2.48])
    for divergences, form in (([0.02, 0.01], 1), ([0.01, 0.02], None)):
        (point,) = certified_frontier(losses, speeds, choosing, np.array(divergences), [0.05])
        assert point.form == form
    passing = rows(100, 0, 0)
    (point,) = certified_frontier(passing, speeds, choosing, np.array([0.02, 0.01]), [0.05])
    assert (point.form, point.forms) == (0, (0, 1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"losses": np.zeros(5)}, r"losses must be \(examples, forms\), not empty; got \(5,\)"),
        ({"losses": np.full((5, 2), np.nan)}, "losses must be 0 or 1"),
        ({"choosing_losses": np.full((5, 2), 0.5)}, "choosing_losses must be 0 or 1"),
        ({"choosing_losses": np.zeros((0, 2))}, "not empty"),
        ({"speeds": np.ones(3)}, r"speeds must be one number for each of 2 forms: \(3,\)"),
        ({"divergences": np.ones((2, 1))}, "divergences must be one number for each of 2 forms"),
        ({"divergences": np.array([0.1, np.nan])}, "divergences must be finite"),
        ({"choosing_losses": np.zeros((5, 3))}, "must be of the same forms"),
        ({"speeds": np.array([1.0, np.nan])}, "speeds must be positive and finite"),
        ({"speeds": np.array([1.0, 0.0])}, "speeds must be positive and finite"),
        ({"epsilons": ()}, "epsilons must be different shares"),
        ({"epsilons": (0.1, 0.1)}, "epsilons must be different shares"),
        ({"epsilons": (-0.1,)}, "epsilon must be between 0 and 1"),
        ({"epsilons": (0.0,)}, "epsilon must be between 0 and 1"),
        ({"delta": 1.0}, "delta must be between 0 and 1"),
    ],
)
def test_wrong_input_is_named(changes, message):
    given = {"losses": np.zeros((5, 2)), "speeds": np.ones(2), "choosing_losses": np.zeros((5, 2))}
    given["divergences"] = TWO
    with pytest.raises(UsageError, match=message):
        certified_frontier(**{**given, **changes})
