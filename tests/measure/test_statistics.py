"""Intervals cover what they promise, tests keep their level, verdicts do not overreach."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from sparing.core.errors import UsageError
from sparing.measure.statistics import (
    Difference,
    equivalence,
    geometric_mean_ratio,
    holm,
    mcnemar_p_value,
    mean_difference,
    median_ratio,
    non_inferiority,
    sign_flip_p_value,
    verdict,
)

TRIALS = 1000


def within_binomial_error(hits: int, trials: int, promised: float) -> bool:
    """Whether a count of hits is what a chance of ``promised`` gives, at four standard errors."""
    return abs(hits / trials - promised) <= 4 * math.sqrt(promised * (1 - promised) / trials)


def noisy_pairs(count: int, *, seed: int, effect: float = 1.0, spread: float = 0.1):
    """TRIALS pairs of lists: shared noise per pair, own noise of ``spread`` on the log ratio."""
    generator = np.random.default_rng(seed)
    shared = generator.lognormal(0, 0.3, (TRIALS, count))
    noise = generator.normal(0, spread / math.sqrt(2), (2, TRIALS, count))
    return effect * shared * np.exp(noise[0]), shared * np.exp(noise[1])


@pytest.mark.parametrize("ratio", [geometric_mean_ratio, median_ratio])
@pytest.mark.parametrize("count", [2, 3, 5, 10, 20])
def test_interval_of_the_same_against_itself_covers_one(ratio, count):
    candidate, baseline = noisy_pairs(count, seed=count)
    intervals = [ratio(a, b).interval for a, b in zip(candidate, baseline, strict=True)]
    hits = sum(low <= 1 <= high for low, high in intervals)
    assert within_binomial_error(hits, TRIALS, 0.95), hits / TRIALS


@pytest.mark.parametrize("count", [5, 10, 20])
def test_interval_of_a_difference_covers_the_truth(count):
    generator = np.random.default_rng(count)
    candidate = 0.9 + generator.normal(0.01, 0.02, (TRIALS, count))
    baseline = 0.9 + generator.normal(0, 0.02, (TRIALS, count))
    intervals = [mean_difference(a, b).interval for a, b in zip(candidate, baseline, strict=True)]
    hits = sum(low <= 0.01 <= high for low, high in intervals)
    assert within_binomial_error(hits, TRIALS, 0.95), hits / TRIALS


def test_a_plain_percentile_bootstrap_would_not_have_passed():
    """The reason for the widened one, and proof that the coverage test can fail."""
    candidate, baseline = noisy_pairs(5, seed=5)
    logs = np.log(candidate / baseline)
    draws = np.random.default_rng(0).integers(0, 5, (1000, 5))
    low, high = np.quantile(logs[:, draws].mean(2), (0.025, 0.975), axis=1)
    hits = int(((low <= 0) & (high >= 0)).sum())
    assert hits / TRIALS < 0.9
    assert not within_binomial_error(hits, TRIALS, 0.95)


def test_the_widened_bootstrap_is_as_wide_as_students_interval_on_normal_values():
    values = np.random.default_rng(6).normal(size=(200, 10))
    widths = np.diff([mean_difference(a, np.zeros(10)).interval for a in values])[:, 0]
    student = 2 * stats.t.ppf(0.975, 9) * values.std(axis=1, ddof=1) / math.sqrt(10)
    assert np.mean(widths / student) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(("ratio", "fewest"), [(geometric_mean_ratio, 10), (median_ratio, 6)])
def test_the_bootstrap_begins_at_the_stated_number_of_pairs(ratio, fewest):
    for count in (fewest - 1, fewest):
        logs = np.arange(count) ** 3 / 100  # skewed, as Student's interval is not
        low, high = np.log(ratio(np.exp(logs), np.ones(count)).interval)
        reach = stats.t.ppf(0.975, count - 1) * logs.std(ddof=1) / math.sqrt(count)
        student = (logs.mean() - reach, logs.mean() + reach)
        assert (low, high) == pytest.approx(student) if count < fewest else low > student[0] + 0.1


@pytest.mark.parametrize(("count", "spread"), [(5, 0.05), (10, 0.1), (20, 0.1)])
def test_an_effect_of_ten_percent_is_found_with_the_stated_power(count, spread):
    """The power of a paired t test on logs, stated in docs/explanation/statistics.md."""
    shift = math.log(1.1) / (spread / math.sqrt(count))
    limit = stats.t.ppf(0.975, count - 1)
    stated = stats.nct.sf(limit, count - 1, shift)
    candidate, baseline = noisy_pairs(count, seed=100 + count, effect=1.1, spread=spread)
    ratios = [geometric_mean_ratio(a, b) for a, b in zip(candidate, baseline, strict=True)]
    detected = sum(ratio.interval[0] > 1 for ratio in ratios)
    assert within_binomial_error(detected, TRIALS, float(stated)), (detected / TRIALS, stated)
    assert abs(np.median([ratio.value for ratio in ratios]) - 1.1) < 0.01


def test_ratios_know_their_value_and_their_inverse():
    candidate, baseline = [2.0, 8.0, 4.0, 1.0, 9.0, 3.0], [1.0, 2.0, 4.0, 1.0, 3.0, 2.0]
    assert geometric_mean_ratio([2.0, 8.0], [1.0, 1.0]).value == pytest.approx(4.0)
    assert median_ratio(candidate, baseline).value == pytest.approx(math.sqrt(2 * 1.5))
    forth, back = (
        geometric_mean_ratio(candidate, baseline),
        geometric_mean_ratio(baseline, candidate),
    )
    assert forth.value * back.value == pytest.approx(1.0)
    assert forth.interval[0] * back.interval[1] == pytest.approx(1.0)
    assert forth.count == 6


def test_the_least_spread_of_an_accuracy_is_that_of_rounding_by_hand():
    """Two values, each rounded to steps r, differ by a triangle over -r to r: its spread r/√6."""
    difference = mean_difference([0.9, 0.9], [0.8, 0.8], resolution=0.06)
    spread = 0.06 / 2.449489742783178
    reach = 12.706204736 * spread / 1.4142135623730951  # Student's quantile of one degree
    assert difference.interval == pytest.approx((0.1 - reach, 0.1 + reach), rel=1e-9)
    assert reach == pytest.approx(0.2200779, rel=1e-6)
    many = mean_difference([0.9] * 12, [0.8] * 12, resolution=0.06)
    reach = 2.200985160 * spread / 12**0.5
    assert many.interval == pytest.approx((0.1 - reach, 0.1 + reach), rel=1e-9)
    drawn = np.random.default_rng(0).uniform(-0.03, 0.03, (2, 200_000))
    assert (drawn[0] - drawn[1]).std() == pytest.approx(spread, rel=0.01)


def test_the_same_numbers_give_the_same_interval_and_leave_the_generator_alone():
    candidate, baseline = noisy_pairs(12, seed=1)
    state = np.random.get_state()[1].copy()  # noqa: NPY002  the global one is what is watched
    first = geometric_mean_ratio(candidate[0], baseline[0])
    assert first == geometric_mean_ratio(candidate[0], baseline[0])
    assert first != geometric_mean_ratio(candidate[0], baseline[0], seed=1)
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


def test_more_confidence_is_a_wider_interval():
    candidate, baseline = noisy_pairs(12, seed=1)
    low, high = mean_difference(candidate[0], baseline[0]).interval
    wider = mean_difference(candidate[0], baseline[0], confidence=0.99).interval
    assert wider[0] < low < high < wider[1]


def test_one_pair_has_no_interval():
    assert geometric_mean_ratio([1.1], [1.0]).interval is None
    assert median_ratio([1.1], [1.0]).interval is None
    assert mean_difference([0.9], [0.5]) == Difference(0.4, None, 1)


def test_coarse_measures_do_not_look_certain():
    candidate, baseline = [0.91, 0.92], [0.90, 0.91]
    low, high = mean_difference(candidate, baseline).interval
    assert high - low < 1e-12
    low, high = mean_difference(candidate, baseline, resolution=0.01).interval
    assert low < 0 < high


@pytest.mark.parametrize(
    ("interval", "count", "expected"),
    [
        ((0.02, 0.05), 5, "better"),
        ((-0.05, -0.02), 5, "worse"),
        ((-0.004, 0.006), 5, "equivalent"),
        ((0.001, 0.006), 5, "equivalent"),
        ((-0.02, 0.006), 5, "undecided"),
        ((0.005, 0.03), 5, "better"),
        ((-0.01, 0.0), 5, "undecided"),
        ((0.02, 0.02), 4, "undecided"),
        ((0.02, 0.02), 5, "better"),
        ((0.0, 0.0), 5, "equivalent"),
        (None, 1, "undecided"),
    ],
)
def test_verdicts(interval, count, expected):
    value = 0.0 if interval is None else sum(interval) / 2
    assert verdict(Difference(value, interval, count), 0.01) == expected


def test_verdicts_turn_round_for_losses():
    better = Difference(-0.1, (-0.2, -0.05), 5)
    assert verdict(better, 0.01, higher_is_better=False) == "better"
    assert verdict(better, 0.01) == "worse"
    with pytest.raises(UsageError, match="margin"):
        verdict(better, -0.1)


def test_false_verdicts_are_as_rare_as_promised():
    generator = np.random.default_rng(3)
    pairs = generator.normal(0.9, 0.02, (TRIALS, 2, 5))
    verdicts = [verdict(mean_difference(a, b), 0.0) for a, b in pairs]
    decided = sum(word in ("better", "worse") for word in verdicts)
    assert within_binomial_error(decided, TRIALS, 0.05)


def brute_force_p_value(differences):
    patterns = list(product((1, -1), repeat=len(differences)))
    observed = abs(sum(differences)) - 1e-12
    extreme = [abs(np.dot(signs, differences)) >= observed for signs in patterns]
    return sum(extreme) / len(patterns)


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_sign_flips_are_counted_exactly(count):
    differences = np.random.default_rng(count).normal(0.5, 1, count)
    p_value = sign_flip_p_value(differences, np.zeros(count))
    assert p_value == pytest.approx(brute_force_p_value(differences))


def test_sign_flips_count_ties():
    assert sign_flip_p_value([0.1] * 6, [0.0] * 6) == pytest.approx(2 / 64)
    assert sign_flip_p_value([0.1, 0.2, 0.3] * 2, [0.0] * 6) == pytest.approx(2 / 64)
    assert sign_flip_p_value([0.5] * 4, [0.5] * 4) == 1.0


def test_sampled_sign_flips_agree_with_the_normal_limit():
    differences = np.random.default_rng(0).normal(0.25, 1, 60)
    score = differences.sum() / np.sqrt((differences**2).sum())
    p_value = sign_flip_p_value(differences, np.zeros(60), resamples=20_000)
    assert p_value == pytest.approx(2 * stats.norm.sf(score), rel=0.2)
    exact = sign_flip_p_value(differences[:20], np.zeros(20))
    again = sign_flip_p_value(np.append(differences[:20], 0.0), np.zeros(21), resamples=20_000)
    assert again == pytest.approx(exact, abs=0.015)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
    with pytest.raises(UsageError, match="between 0 and 1"):
        holm([1.2])


def test_holm_controls_the_family_error_where_raw_values_do_not():
    generator = np.random.default_rng(4)
    families = generator.uniform(size=(2000, 7))
    raw = sum(min(family) <= 0.05 for family in families)
    held = sum(min(holm(family)) <= 0.05 for family in families)
    assert raw / 2000 > 0.25
    assert within_binomial_error(held, 2000, 0.05)


def test_holm_finds_more_than_bonferroni():
    assert sum(value <= 0.05 for value in holm([0.01, 0.02, 0.03, 0.5])) == 1
    assert sum(value <= 0.05 for value in holm([0.001, 0.016, 0.02, 0.5])) == 3


def test_equivalence_keeps_its_level_at_the_margin():
    generator = np.random.default_rng(5)
    candidate = generator.normal(0.01, 0.01, (TRIALS, 10))
    at_margin = [equivalence(a, np.zeros(10), 0.01) for a in candidate]
    rejections = sum(value <= 0.05 for value in at_margin)
    assert within_binomial_error(rejections, TRIALS, 0.05)
    same = [equivalence(a - 0.01, np.zeros(10), 0.01) for a in candidate]
    assert sum(value <= 0.05 for value in same) > 0.7 * TRIALS


def test_non_inferiority_is_one_sided():
    candidate, baseline = [0.80, 0.82, 0.81, 0.83, 0.80], [0.70, 0.71, 0.73, 0.72, 0.70]
    assert non_inferiority(candidate, baseline, 0.01) < 0.001
    assert non_inferiority(baseline, candidate, 0.01) > 0.99
    assert equivalence(candidate, baseline, 0.01) > 0.99
    assert equivalence(baseline, candidate, 0.01) > 0.99
    better = stats.ttest_1samp(
        np.subtract(candidate, baseline), -0.01, alternative="greater"
    ).pvalue
    assert non_inferiority(candidate, baseline, 0.01) == pytest.approx(better)


def test_tests_within_a_margin_know_their_limits():
    assert equivalence([0.5], [0.5], 0.01) == 1.0
    assert equivalence([0.5] * 3, [0.5] * 3, 0.01) == 0.125
    assert non_inferiority([0.5] * 3, [0.6] * 3, 0.01) == 1.0
    with pytest.raises(UsageError, match="margin"):
        equivalence([0.5], [0.5], 0.0)


def test_mcnemar_counts_only_disagreements():
    candidate = [True] * 9 + [False] + [True] * 50 + [False] * 5
    baseline = [False] * 9 + [True] + [True] * 50 + [False] * 5
    assert mcnemar_p_value(candidate, baseline) == pytest.approx(2 * 11 / 1024)
    assert mcnemar_p_value(baseline, candidate) == mcnemar_p_value(candidate, baseline)
    assert mcnemar_p_value(candidate, candidate) == 1.0
    with pytest.raises(UsageError, match="same examples"):
        mcnemar_p_value([True], [])


@pytest.mark.parametrize("statistic", [geometric_mean_ratio, median_ratio, mean_difference])
def test_wrong_pairs_are_refused(statistic):
    with pytest.raises(UsageError):
        statistic([1.0, 2.0], [1.0])
    with pytest.raises(UsageError):
        statistic([], [])
    with pytest.raises(UsageError):
        statistic([1.0, math.nan], [1.0, 1.0])


def test_ratios_of_nothing_are_refused():
    with pytest.raises(UsageError, match="above zero"):
        median_ratio([0.0, 1.0], [1.0, 1.0])


def test_a_loss_of_the_margin_itself_is_not_shown_to_be_less():
    generator = np.random.default_rng(0)
    for _ in range(200):
        count = int(generator.integers(50, 3000))
        right, lost = generator.integers(count // 2, count, 5), int(generator.integers(1, 6))
        candidate, baseline = (right - lost) / count, right / count
        assert non_inferiority(candidate.tolist(), baseline.tolist(), lost / count) >= 0.05
