"""Pooling differences over tasks, seeds and examples: weights, coverage, bad input."""

from __future__ import annotations

import numpy as np
import pytest

from sparing.core.errors import UsageError
from sparing.measure.pooling import parts_of, pool_differences


def test_tasks_count_by_their_examples():
    small, large = np.full((2, 100), -0.5), np.full((3, 300), 0.1)
    pooled = pool_differences([small, large])
    assert pooled.value == pytest.approx((100 * -0.5 + 300 * 0.1) / 400)
    assert (pooled.interval[0] + pooled.interval[1]) / 2 == pytest.approx(pooled.value)
    assert (pooled.examples, pooled.runs) == (400, 5)


def test_variances_of_two_seeds_and_three_examples_by_hand():
    """What is left of the table after its rows and columns has (2 - 1)(3 - 1) degrees of freedom.

    Means of rows are 1 and 3, of columns 2, 1 and 3: left are 0, 1, -1 and 0, -1, 1.
    """
    seeds, examples = parts_of(np.array([[1.0, 1.0, 1.0], [3.0, 1.0, 5.0]]))
    residual, by_seed, by_example = 4 / 2, 3 * 2.0, 2 * 1.0
    assert (seeds.variance, examples.variance) == (by_seed / 6, (by_example - residual) / 6)
    _, examples = parts_of(np.array([[1.0, 1.0, 4.0], [3.0, 1.0, 8.0]]))
    # means 2, 4 and 2, 1, 6: left are 0, 1, -1 and 0, -1, 1, columns vary by 7
    assert examples.variance == pytest.approx((2 * 7.0 - 4 / 2) / 6)


def test_a_bound_speaks_of_other_trainings_only_where_every_task_has_several():
    """One training shows no variance of trainings: it must not count as if there were none."""
    generator = np.random.default_rng(0)
    once, thrice = generator.normal(0, 1, (1, 400)), generator.normal(0, 1, (3, 400))
    assert pool_differences([thrice, thrice]).of_other_trainings
    for tasks, single in (([once, thrice], 1), ([thrice, once, once], 2), ([once], 1)):
        pooled = pool_differences(tasks)
        assert (pooled.single, pooled.of_other_trainings) == (single, False)


def test_few_equal_answers_are_not_certain():
    pooled = pool_differences([np.zeros((2, 60))])
    assert pooled.value == 0
    assert pooled.bound == pytest.approx(0.05 ** (1 / 60) - 1)  # 0.95 of such shares would show
    assert pooled.interval[1] == -pooled.interval[0] > -pooled.bound


def test_copies_of_a_seed_add_no_certainty():
    one = np.random.default_rng(0).choice([-1.0, 0.0, 1.0], (1, 500), p=[0.05, 0.9, 0.05])
    alone, thrice = pool_differences([one]), pool_differences([np.repeat(one, 3, 0)])
    assert thrice.value == pytest.approx(alone.value)
    assert thrice.bound == pytest.approx(alone.bound)
    error = one.std(ddof=1) / np.sqrt(500)
    assert alone.bound == pytest.approx(one.mean() - 1.648 * error, abs=1e-4)


def test_a_variance_from_three_seeds_counts_as_one():
    gaps = np.zeros((3, 2000))
    gaps[0], gaps[1] = 0.02, -0.02
    pooled = pool_differences([gaps])
    assert pooled.value == pytest.approx(0)
    error = 0.02 / np.sqrt(3)  # Student's quantiles with two degrees of freedom
    assert pooled.bound == pytest.approx(-2.920 * error, rel=1e-3)
    assert pooled.interval == pytest.approx((-4.303 * error, 4.303 * error), rel=1e-3)


@pytest.mark.parametrize("of_seeds", [0.0, 0.02, 1.0])
@pytest.mark.parametrize("seeds", [1, 3])
def test_the_bound_holds_as_often_as_it_says(seeds, of_seeds):
    generator, missed, outside, trials = np.random.default_rng(1), 0, 0, 600
    for _ in range(trials):
        tasks = []
        for examples in (150, 400):
            of_example = generator.normal(0, 1, examples)
            of_both = generator.normal(0, 1, (seeds, examples))
            of_seed = generator.normal(0, of_seeds, (seeds, 1)) if seeds > 1 else 0.0
            tasks.append(of_example + of_both + of_seed)
        pooled = pool_differences(tasks)
        missed += pooled.bound > 0
        outside += not pooled.interval[0] <= 0 <= pooled.interval[1]
    assert 0.02 <= missed / trials <= 0.08
    assert 0.02 <= outside / trials <= 0.08


@pytest.mark.parametrize(
    "tasks",
    [[], [np.zeros((0, 3))], [np.zeros((2, 1))], [np.zeros(3)], [np.array([[np.nan, 0.0]])]],
)
def test_what_cannot_be_pooled_is_refused(tasks):
    with pytest.raises(UsageError, match=r"pooling needs|not finite"):
        pool_differences(tasks)


def test_a_confidence_is_a_share():
    with pytest.raises(UsageError, match="confidence"):
        pool_differences([np.zeros((1, 2))], confidence=1.0)
