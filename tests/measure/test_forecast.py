"""Forecasts of intervals, held against other formulas, brute force and simulated studies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sparing.core.errors import UsageError
from sparing.measure.forecast import fewest, reach_with, resized, rests_of, unit_reach
from sparing.measure.pooling import Part, pool_differences, reach_of
from sparing.measure.statistics import geometric_mean_ratio, mean_difference


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("count", [2, 3, 7])
def test_a_forecast_is_the_interval_of_more_values_of_the_same_mean_and_spread(count, confidence):
    values = np.random.default_rng(count).normal(2.0, 1.0, count)
    now = mean_difference(values, np.zeros(count), confidence=confidence)
    for more in (3, 5, 9):  # below ten values the library's interval is Student's
        standard = stats.norm.ppf((np.arange(more) + 0.5) / more)
        other = now.value + standard / standard.std(ddof=1) * values.std(ddof=1)
        expected = mean_difference(other, np.zeros(more), confidence=confidence).interval
        ours = resized(now.value, now.interval, count, more, confidence)
        assert ours == pytest.approx(expected, rel=1e-9)


def test_of_as_many_values_the_interval_stays_as_it_is():
    assert resized(1.0, (0.5, 2.0), 4, 4) == pytest.approx((0.5, 2.0))
    assert resized(1.0, (0.5, 2.0), 4, 4, log=True) == pytest.approx((0.5, 2.0))


def test_a_ratio_grows_and_shrinks_on_its_logarithm():
    ours, theirs = [1.0, 1.2, 1.3], [1.0, 1.0, 1.0]
    ratio = geometric_mean_ratio(ours, theirs)
    low, high = resized(ratio.value, ratio.interval, 3, 6, log=True)
    logs = np.log(ours)
    reach = stats.t.ppf(0.975, 5) * logs.std(ddof=1) / math.sqrt(6)
    assert (low, high) == pytest.approx(
        (ratio.value / math.exp(reach), ratio.value * math.exp(reach))
    )
    assert resized(0.5, (-0.1, 1.0), 3, 6, log=True) == (-0.1, 1.0)


@pytest.mark.parametrize("seed", range(30))
def test_the_fewest_are_those_that_brute_force_finds(seed):
    draws = np.random.default_rng(seed)
    spread, distance = draws.uniform(0.1, 3.0), draws.uniform(0.05, 3.0)
    confidence = draws.choice([0.95, 0.99])

    def decides(count):
        return unit_reach(count, confidence) * spread < distance

    first = next((count for count in range(2, 1001) if decides(count)), None)
    assert fewest(decides) == first


def test_what_even_the_most_do_not_decide_has_no_count():
    assert fewest(lambda count: False) is None
    assert fewest(lambda count: count >= 41, most=40) is None
    assert fewest(lambda count: count >= 40, most=40) == 40
    assert fewest(lambda count: True) == 2


@pytest.mark.parametrize("distance", [0.4, 0.7, 1.2])
def test_about_every_second_study_of_the_forecast_size_decides(distance):
    """The mean is as often nearer to the target as farther, so a forecast is no promise."""
    needed = fewest(lambda count: unit_reach(count, 0.95) < distance)
    decided = {count: power(count, distance) for count in (needed, 2 * needed)}
    assert 0.45 <= decided[needed] <= 0.7  # more with few, as steps of the number are large
    assert decided[2 * needed] > 0.8


def power(count, distance):
    """How many of many simulated studies exclude the target, at their own spread."""
    draws = np.random.default_rng(0).normal(distance, 1.0, (4000, count))
    reach = unit_reach(count, 0.95) * draws.std(axis=1, ddof=1)
    return float(np.mean(np.abs(draws.mean(axis=1)) > reach))


def test_parts_of_examples_stay_where_seeds_grow():
    seeds, examples = Part(0.04, 2), Part(0.01, 999)
    assert reach_with([seeds], [examples], 3, 0.95) == reach_of([seeds, examples], 0.95)
    alone = reach_of([examples], 0.95)
    assert reach_with([seeds], [examples], 10**7, 0.95) == pytest.approx(alone, rel=1e-3)
    spread = math.sqrt(3 * 0.04)
    assert reach_with([seeds], [], 8, 0.99) == pytest.approx(unit_reach(8, 0.99) * spread)


@pytest.mark.parametrize("examples", [0.02, 0.1, 0.5])
def test_what_examples_add_is_found_again_from_the_interval(examples):
    seeds = Part(0.01, 2)
    reach = reach_of([seeds, Part(examples, 10**6)], 0.95)
    fitting = rests_of(reach, [seeds])
    for part in fitting:
        assert reach_of([seeds, part], 0.95) == pytest.approx(reach, rel=2e-3)
    assert min(abs(part.variance - examples) for part in fitting) < 0.01 * examples
    assert [part.variance for part in fitting] == sorted(
        (p.variance for p in fitting), reverse=True
    )


def test_two_variances_may_give_one_width():
    seeds = Part(0.01, 2)
    assert len(rests_of(0.95 * reach_of([seeds], 0.95), [seeds])) == 2


def test_parts_of_a_pooled_difference_are_found_again():
    gaps = np.random.default_rng(3).choice([-1.0, 0.0, 1.0], (3, 400), p=[0.1, 0.7, 0.2])
    whole = pool_differences([gaps])
    of_seeds = Part(float(gaps.mean(1).var(ddof=1)) / 3, 2)
    reach = whole.interval[1] - whole.value
    (fitting, *_) = rests_of(reach, [of_seeds])
    assert reach_of([of_seeds, fitting], 0.95) == pytest.approx(reach, 2e-3)


def test_an_interval_that_no_variance_gives_has_no_rest():
    assert rests_of(0.001, [Part(1.0, 2)]) == []


def test_one_value_has_no_interval():
    with pytest.raises(UsageError, match="two values"):
        unit_reach(1, 0.95)
