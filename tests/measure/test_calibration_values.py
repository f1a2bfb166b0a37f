"""P-values and bounds against worked examples."""

from __future__ import annotations

import math

import pytest

from sparing.measure.calibration import (
    binomial_p_value,
    examples_needed,
    hoeffding_bentkus_p_value,
    upper_bound,
)


def _hoeffding(mean, examples, epsilon):
    rest = (1 - mean) * math.log((1 - mean) / (1 - epsilon))
    return math.exp(-examples * (mean * math.log(mean / epsilon) + rest))


def test_binomial_p_values_are_sums_of_the_first_terms():
    assert binomial_p_value(0, 3, 0.5) == pytest.approx(1 / 8)
    assert binomial_p_value(1, 3, 0.5) == pytest.approx(4 / 8)
    assert binomial_p_value(3, 3, 0.5) == 1.0


def test_hoeffdings_part_where_it_is_the_smaller():
    # h(0.25, 0.5) = 0.25 ln 0.5 + 0.75 ln 1.5, and e P(Binomial(4, 0.5) <= 1) = 0.849
    expected = math.exp(-4 * (0.25 * math.log(0.5) + 0.75 * math.log(1.5)))
    assert expected < math.e * 5 / 16
    assert hoeffding_bentkus_p_value(1, 4, 0.5) == pytest.approx(expected)


@pytest.mark.parametrize(("total", "examples", "epsilon"), [(3.5, 100, 0.1), (20, 1000, 0.05)])
def test_the_smaller_part_is_the_p_value(total, examples, epsilon):
    bentkus = math.e * binomial_p_value(math.ceil(total), examples, epsilon)
    expected = min(1.0, _hoeffding(total / examples, examples, epsilon), bentkus)
    assert hoeffding_bentkus_p_value(total, examples, epsilon) == pytest.approx(expected)


def test_bentkus_part_where_it_is_the_smaller():
    # no loss at all: (1 - epsilon)^n is the smaller, e times it is Bentkus's
    assert hoeffding_bentkus_p_value(0, 10, 0.5) == pytest.approx(0.5**10)
    assert hoeffding_bentkus_p_value(10, 10, 0.5) == 1.0


def test_examples_needed_and_bounds():
    assert examples_needed(0.01) == 299
    assert examples_needed(0.5, 0.5) == 1
    assert examples_needed(0.5, 0.25) == 2
    # with no loss among n the bound is 1 - delta^(1/n)
    assert upper_bound(0, 20) == pytest.approx(1 - 0.05 ** (1 / 20))
    assert upper_bound(20, 20) == 1.0
