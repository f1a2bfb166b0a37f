"""The promise holds as often as promised, is refused when it cannot be made, and is not timid."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sparing.core.errors import UsageError
from sparing.measure.calibration import (
    Guarantee,
    binomial_p_value,
    calibrate,
    early_answers,
    examples_needed,
    hoeffding_bentkus_p_value,
    most_changes,
)

TRIALS = 1000
RISING = (0.0, 0.01, 0.03, 0.045, 0.055, 0.08, 0.2)
UNSTEADY = (0.02, 0.055, 0.01, 0.2, 0.03, 0.055, 0.045)
DEPENDENT = (0.051, 0.052, 0.053, 0.054, 0.055)


def simulated_losses(risks, *, examples, seed):
    """One matrix: an input that is hard fails all bold settings at once, as in a real model."""
    difficulty = np.random.default_rng(seed).uniform(size=(examples, 1))
    return difficulty < np.asarray(risks)


def broken_promises(choose, risks, *, epsilon, examples=400):
    """In how many of TRIALS calibrations the chosen setting's true risk is above epsilon."""
    broken = 0
    for seed in range(TRIALS):
        setting = choose(simulated_losses(risks, examples=examples, seed=seed))
        broken += setting is not None and risks[setting] > epsilon
    return broken


def within_delta(broken, delta):
    return broken / TRIALS <= delta + 3 * math.sqrt(delta * (1 - delta) / TRIALS)


@pytest.mark.parametrize("delta", [0.05, 0.2])
@pytest.mark.parametrize("risks", [RISING, UNSTEADY, DEPENDENT], ids=["rising", "unsteady", "bad"])
def test_the_promise_is_broken_at_most_as_often_as_stated(risks, delta):
    broken = broken_promises(
        lambda losses: calibrate(losses, epsilon=0.05, delta=delta).setting, risks, epsilon=0.05
    )
    assert within_delta(broken, delta), broken / TRIALS


@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_the_promise_is_not_bought_with_timidity(delta):
    """At the first bad risk just above epsilon the chance of error is close to delta."""
    broken = broken_promises(
        lambda losses: calibrate(losses, epsilon=0.05, delta=delta).setting,
        (0.0, 0.0501),
        epsilon=0.05,
    )
    exact = stats.binom.cdf(stats.binom.ppf(delta, 400, 0.05) - 1, 400, 0.0501)
    assert broken / TRIALS == pytest.approx(float(exact), abs=4 * math.sqrt(delta / TRIALS))
    assert broken / TRIALS > delta / 3


def test_the_boldest_setting_by_point_estimate_breaks_it():
    def naive(losses):
        good = np.flatnonzero(losses.mean(axis=0) <= 0.05)
        return int(good[-1]) if good.size else None

    assert not within_delta(broken_promises(naive, RISING, epsilon=0.05), 0.05)


def test_testing_each_setting_without_an_order_breaks_it():
    """Why the search ends at the first failure: the luckiest of many independent bad settings."""

    def any_that_passes(losses):
        passed = [
            setting
            for setting in range(losses.shape[1])
            if binomial_p_value(int(losses[:, setting].sum()), len(losses), 0.05) <= 0.05
        ]
        return passed[-1] if passed else None

    broken = in_order = 0
    for seed in range(300):
        losses = np.random.default_rng(seed).uniform(size=(400, 20)) < 0.0505
        broken += any_that_passes(losses) is not None
        in_order += calibrate(losses, epsilon=0.05).setting is not None
    assert broken / 300 > 0.2
    assert in_order / 300 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)


def test_bounded_losses_keep_the_promise_too():
    broken = 0
    for seed in range(300):
        losses = np.random.default_rng(seed).beta(0.11, 1.89, size=(400, 1))  # mean 0.055
        broken += calibrate(losses, epsilon=0.05).setting is not None
    assert broken / 300 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)


def test_the_boldest_that_passes_in_order_is_chosen():
    losses = np.zeros((1000, 5), dtype=bool)
    for setting, count in enumerate((0, 3, 30, 60, 2)):
        losses[:count, setting] = True
    guarantee = calibrate(losses, epsilon=0.05)
    assert (guarantee.setting, guarantee.examples, guarantee.disagreements) == (2, 1000, 30)
    assert binomial_p_value(30, 1000, guarantee.upper_bound) == pytest.approx(0.05)
    assert "at most 0.05 of inputs" in str(guarantee)
    assert "30 of 1000" in str(guarantee)
    assert calibrate(losses.astype(np.int64), epsilon=0.05) == guarantee
    assert calibrate(losses.astype(np.float32), epsilon=0.05) == guarantee


def test_it_says_when_no_setting_passes():
    losses = np.zeros((1000, 2), dtype=bool)
    losses[:100] = True
    guarantee = calibrate(losses, epsilon=0.05)
    assert guarantee.setting is None
    assert guarantee.disagreements == 100
    assert guarantee.upper_bound > 0.1
    assert str(guarantee).startswith("no setting keeps disagreement")
    losses[:] = True
    assert calibrate(losses, epsilon=0.05).upper_bound == 1.0


def test_too_few_inputs_are_refused_with_the_number_that_is_needed():
    assert examples_needed(0.01) == 299
    assert examples_needed(0.5, 0.5) == 1
    with pytest.raises(UsageError, match="at least 299"):
        calibrate(np.zeros((298, 3)), epsilon=0.01)
    assert calibrate(np.zeros((299, 3)), epsilon=0.01).setting == 2
    with pytest.raises(UsageError, match="0 held-out inputs are too few"):
        calibrate(np.zeros((0, 3)), epsilon=0.01)


@pytest.mark.parametrize(
    ("losses", "levels", "message"),
    [
        (np.zeros(400), {}, r"\(examples, settings\)"),
        (np.zeros((400, 0)), {}, r"\(examples, settings\)"),
        (np.full((400, 2), 2), {}, "between 0 and 1"),
        (np.full((400, 2), -0.1), {}, "between 0 and 1"),
        (np.full((400, 2), np.nan), {}, "between 0 and 1"),
        (np.zeros((400, 2)), {"epsilon": 0.0}, "epsilon"),
        (np.zeros((400, 2)), {"epsilon": 1.0}, "epsilon"),
        (np.zeros((400, 2)), {"delta": 0.0}, "delta"),
        (np.zeros((400, 2)), {"delta": math.nan}, "delta"),
    ],
)
def test_bad_input_is_refused(losses, levels, message):
    with pytest.raises(UsageError, match=message):
        calibrate(losses, **{"epsilon": 0.05, **levels})


def test_p_values_by_hand():
    assert binomial_p_value(1, 3, 0.5) == pytest.approx(0.5)
    assert hoeffding_bentkus_p_value(0, 10, 0.2) == pytest.approx(0.8**10)
    mean, risk = 0.1, 0.2
    hoeffding = math.exp(-50 * (mean * math.log(0.5) + 0.9 * math.log(0.9 / 0.8)))
    bentkus = math.e * stats.binom.cdf(5, 50, risk)
    assert hoeffding_bentkus_p_value(5, 50, risk) == pytest.approx(min(hoeffding, bentkus))
    assert hoeffding_bentkus_p_value(40, 50, risk) == 1.0
    assert hoeffding_bentkus_p_value(0.1 * 3, 50, 0.2) >= hoeffding_bentkus_p_value(0.2, 50, 0.2)


def test_the_bound_of_bounded_losses_is_where_their_p_value_is_delta():
    guarantee = calibrate(np.full((500, 1), 0.02), epsilon=0.05, delta=0.1)
    assert isinstance(guarantee, Guarantee)
    assert guarantee.setting == 0
    assert hoeffding_bentkus_p_value(10, 500, guarantee.upper_bound) == pytest.approx(0.1)


def test_losses_that_could_not_be_larger_have_no_bound_below_one():
    guarantee = calibrate(np.full((300, 1), 0.9999), epsilon=0.05)
    assert guarantee.setting is None


def test_early_answers_leave_at_the_first_sure_exit():
    confidences = np.array([[0.6, 0.9, 0.5], [0.99, 0.2, 0.3], [0.1, 0.2, 0.3]])
    labels = np.array([[0, 1, 2], [0, 1, 2], [0, 1, 2]])
    answers = early_answers(confidences, labels, (1.0, 0.95, 0.9, 0.55, 0.0))
    assert answers.T.tolist() == [[2, 2, 2], [2, 0, 2], [2, 0, 2], [0, 0, 2], [0, 0, 0]]
    assert confidences[0, 2] == 0.5
    with pytest.raises(UsageError, match="exits"):
        early_answers(confidences, labels[:, :2], (0.5,))


@pytest.mark.parametrize("changed", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("examples", [1, 58, 59, 436, 5000])
def test_most_changes_are_the_last_that_the_binomial_test_passes(examples, changed):
    passed = [
        count for count in range(examples + 1) if binomial_p_value(count, examples, changed) <= 0.05
    ]
    assert most_changes(examples, changed) == (max(passed) if passed else -1)
