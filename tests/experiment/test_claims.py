"""Claims: one rule by which intervals decide, held against Holm's steps on p-values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sparing.core.record import Record
from sparing.experiment.claims import (
    Claim,
    Estimate,
    at_once,
    decide,
    least,
    of_pairs,
    of_record,
    recorded,
    widened,
)
from sparing.experiment.records import RecordTable
from sparing.measure.statistics import holm

NOTHING = RecordTable([])


def normal(value, error, count=None):
    """A measure of a normal quantity whose error is known."""

    def measure(records, confidence):
        reach = stats.norm.ppf((1 + confidence) / 2) * error
        return Estimate(value, (value - reach, value + reach), count)

    return measure


def met(*claims):
    return [result.met for result in decide(claims, NOTHING)]


@pytest.mark.parametrize("seed", range(20))
def test_claims_of_a_family_are_decided_as_by_holms_p_values(seed):
    draws = np.random.default_rng(seed).normal(size=12) * 3
    claims = [Claim(str(n), normal(float(z), 1.0), 0.0, family="t") for n, z in enumerate(draws)]
    adjusted = holm([2 * stats.norm.sf(abs(z)) for z in draws])
    expected = [
        bool(z > 0) if p <= 0.05 else "undecided" for z, p in zip(draws, adjusted, strict=True)
    ]
    assert met(*claims) == expected


def test_a_family_errs_in_one_study_of_twenty_at_most():
    draws = np.random.default_rng(0).normal(size=(400, 8))
    wrong = alone = 0
    for row in draws:
        claims = [Claim(str(n), normal(float(z), 1.0), 0.0, family="t") for n, z in enumerate(row)]
        wrong += any(word != "undecided" for word in met(*claims))
        alone += any(abs(z) > 1.96 for z in row)
    assert wrong / len(draws) <= 0.05 + 3 * (0.05 * 0.95 / len(draws)) ** 0.5
    assert alone / len(draws) > 0.2


def test_the_interval_that_is_given_is_the_one_that_decided():
    sure, unsure = normal(9.0, 1.0), normal(2.1, 1.0)
    first, second, third = decide(
        [
            Claim(name, measure, 0.0, family="t")
            for name, measure in (("a", sure), ("b", unsure), ("c", unsure))
        ],
        NOTHING,
    )
    assert first.interval == pytest.approx(sure(NOTHING, 1 - 0.05 / 3).interval)
    assert second.interval == third.interval == unsure(NOTHING, 1 - 0.05 / 2).interval
    assert second.met == "undecided"
    assert met(Claim("b", unsure, 0.0)) == [True]


def test_what_cannot_be_decided_takes_nothing_from_the_others():
    claim = Claim("a", normal(2.1, 1.0), 0.0, family="t")
    rest = [
        Claim("few", normal(0.1, 1.0, count=2), 0.0, family="t"),
        Claim("missing", lambda records, confidence: None, 0.0, family="t"),
        Claim("no interval", lambda records, confidence: Estimate(1.0, None), 0.0, family="t"),
        Claim("guarded", normal(9.0, 1.0), 0.0, guards=(lambda *_: False,), family="t"),
    ]
    assert met(claim, *rest) == [True, *["undecided"] * 4]
    assert [r.value for r in decide(rest, NOTHING)] == [0.1, None, 1.0, 9.0]


def test_a_guard_may_let_a_claim_fail_and_not_hold():
    def only_misses(records, result):
        return result.met is False

    good, bad = normal(9.0, 1.0), normal(-9.0, 1.0)
    claims = [Claim(str(v), v, 0.0, guards=(only_misses,)) for v in (good, bad)]
    assert met(*claims) == ["undecided", False]


def test_a_time_of_a_busy_machine_decides_nothing_and_says_so():
    labels = {"arm": "a", "disturbance": "a core was busy"}
    record = Record("latency_ratio", 0.5, "ratio", "measured", labels, (0.4, 0.6), 9)
    claim = Claim("faster", recorded("latency_ratio", arm="a"), 1.0, at_most=True)
    (result,) = decide([claim], RecordTable([record]))
    assert (result.met, result.interval) == ("undecided", (0.4, 0.6))
    assert "a core was busy" in result.note


def test_intervals_grow_as_quantiles_do():
    reach = {level: stats.t.ppf((1 + level) / 2, 4) for level in (0.95, 0.99)}
    wide = widened(1.0, (1 - reach[0.95], 1 + reach[0.95]), 0.99, count=5)
    assert wide == pytest.approx((1 - reach[0.99], 1 + reach[0.99]))
    assert widened(2.0, (1.0, 4.0), 0.95, count=5) == (1.0, 4.0)
    low, high = widened(2.0, (1.0, 4.0), 0.99, scale="log")
    assert low * high == pytest.approx(4.0)
    assert low < 1 < 4 < high
    lower, higher = widened(0.0, (-1.0, 2.0), 0.99)
    assert higher == pytest.approx(-2 * lower)


def test_the_least_of_several_fails_only_at_intervals_that_hold_at_once():
    one = Estimate(1.1, (1.05, 1.15), 5)
    two = Estimate(1.2, (0.90, 1.30), 3)
    wide = [Estimate(1.1, (1.0, 1.25), 5), Estimate(1.2, (0.8, 1.4), 3)]
    assert least([one, two, None], [*wide, None]) == Estimate(1.1, (0.90, 1.25), 3)
    assert least([one, Estimate(1.0, None)], wide).interval is None
    assert least([None], [None]) is None
    assert at_once(0.95, 5) == pytest.approx(0.99)


@pytest.mark.parametrize(("count", "word"), [(4, "undecided"), (5, True), (None, True)])
def test_an_interval_without_width_needs_five_seeds(count, word):
    assert met(Claim("a", lambda *_: Estimate(1.0, (1.0, 1.0), count), 0.0)) == [word]


def test_a_mean_over_seeds_keeps_its_count_and_a_timing_has_none():
    record = Record("gap", 0.1, "share", "measured", {}, (0.0, 0.2), 3)
    assert of_record(record, 0.95).count == 3
    assert of_record(record, 0.95, of_seeds=False).count is None


def test_pairs_meet_by_seed():
    estimate = of_pairs({0: 3.0, 1: 4.0, 2: 9.0}, {1: 1.0, 0: 1.0}, 0.95)
    assert (estimate.value, estimate.count) == (2.5, 2)
    assert of_pairs({0: 1.0}, {1: 1.0}, 0.95) is None
