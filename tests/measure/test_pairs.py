"""What is said of pairs: against scipy, by hand, and by simulation where nothing differs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sparing.core.errors import UsageError
from sparing.measure.pairs import carbon_g, compare_pairs, energy_to_target


def drawn(count, effect=0.0, spread=0.05, seed=0):
    generator = np.random.default_rng(seed)
    baseline = np.exp(generator.normal(3.0, 0.5, count))
    return baseline * np.exp(generator.normal(effect, spread, count)), baseline


def test_the_numbers_are_those_of_the_library_on_log_ratios():
    candidate, baseline = drawn(14, -0.1)
    logs = np.log(candidate / baseline)
    comparison = compare_pairs(candidate, baseline)
    assert comparison.normal_p == pytest.approx(stats.shapiro(logs).pvalue)
    assert comparison.follow_up == "t"
    assert comparison.follow_up_p == pytest.approx(
        stats.ttest_rel(np.log(candidate), np.log(baseline)).pvalue
    )
    assert comparison.effect == pytest.approx(logs.mean() / logs.std(ddof=1))
    assert comparison.ratio.value == pytest.approx(math.exp(logs.mean()))
    assert comparison.enough


def test_ratios_far_from_normal_lead_to_wilcoxon():
    logs = np.array([0.01, 0.02, 0.015, 0.012, 0.018, 0.011, 0.016, 0.013, 0.017, 2.5])
    comparison = compare_pairs(np.exp(logs), np.ones(10))
    assert comparison.normal_p < 0.05
    assert comparison.follow_up == "wilcoxon"
    assert comparison.follow_up_p == pytest.approx(stats.wilcoxon(logs).pvalue)
    # one odd pair moves the mean by a quarter, and the typical ratio hardly
    assert comparison.ratio.value > 1.25
    assert comparison.typical_ratio < 1.03


def test_ranks_by_hand():
    logs = np.array([0.1, -0.2, 0.3, 0.4])
    comparison = compare_pairs(np.exp(logs), np.ones(4))
    assert comparison.rank_effect == pytest.approx((1 - 2 + 3 + 4) / 10)
    means = [(a + b) / 2 for i, a in enumerate(logs) for b in logs[i:]]
    assert comparison.typical_ratio == pytest.approx(math.exp(np.median(means)))


def test_the_arms_swapped_say_the_inverse():
    candidate, baseline = drawn(11, 0.07)
    one, other = compare_pairs(candidate, baseline), compare_pairs(baseline, candidate)
    assert one.ratio.value == pytest.approx(1 / other.ratio.value)
    assert one.typical_ratio == pytest.approx(1 / other.typical_ratio)
    assert one.rank_effect == pytest.approx(-other.rank_effect)
    assert one.sign_flip_p == pytest.approx(other.sign_flip_p)


def test_arms_that_do_not_differ_say_so_as_often_as_they_should():
    covered = rejected = 0
    for seed in range(400):
        comparison = compare_pairs(*drawn(10, seed=seed))
        low, high = comparison.ratio.interval
        covered += low <= 1 <= high
        rejected += comparison.sign_flip_p <= 0.05
    assert 0.92 <= covered / 400 <= 0.98
    assert rejected / 400 <= 0.075


def test_ten_pairs_see_a_difference_of_a_tenth():
    detected = sum(
        compare_pairs(*drawn(10, -0.1, 0.08, seed)).sign_flip_p <= 0.05 for seed in range(200)
    )
    assert detected / 200 > 0.85


def test_ten_pairs_are_enough_for_a_claim_and_nine_are_not():
    assert compare_pairs(*drawn(10, -0.1)).enough
    assert not compare_pairs(*drawn(9, -0.1)).enough


def test_what_few_pairs_cannot_say():
    one = compare_pairs([2.0], [1.0])
    assert one.ratio.interval is None
    assert one.normal_p is one.follow_up_p is one.effect is None
    assert not one.enough
    equal = compare_pairs([2.0] * 4, [1.0] * 4)
    assert equal.normal_p is equal.follow_up_p is equal.effect is None
    assert equal.rank_effect == 1
    same = compare_pairs([1.0] * 4, [1.0] * 4)
    assert same.rank_effect == 0
    assert same.sign_flip_p == 1


@pytest.mark.parametrize(("candidate", "baseline"), [([1.0], [1.0, 2.0]), ([], []), ([0.0], [1.0])])
def test_what_is_no_pair_is_refused(candidate, baseline):
    with pytest.raises(UsageError):
        compare_pairs(candidate, baseline)


def test_energy_to_a_target_is_that_of_the_validation_that_reaches_it():
    scores, energies = [0.5, 0.7, 0.65, 0.8], [10.0, 20.0, 30.0, 40.0]
    assert energy_to_target(scores, energies, 0.6) == 20.0
    assert energy_to_target(scores, energies, 0.7) == 20.0
    assert energy_to_target(scores, energies, 0.75) == 40.0
    assert energy_to_target(scores, energies, 0.9) is None
    with pytest.raises(UsageError, match="fall"):
        energy_to_target(scores, energies[::-1], 0.6)
    with pytest.raises(UsageError, match="4 scores"):
        energy_to_target(scores, energies[:2], 0.6)


def test_carbon_is_kilowatt_hours_times_the_stated_intensity():
    assert carbon_g(3.6e6, 400.0) == pytest.approx(400.0)
    with pytest.raises(UsageError, match="negative"):
        carbon_g(1.0, -1.0)
