"""Few texts instead of all, beside as many at random."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sparing.slim.evidence.representative import evenly, representative

TEXTS = 3000


@pytest.mark.parametrize("count", [1, 7, 120, 500])
@pytest.mark.parametrize("most", [1, 7, 24, 120])
def test_the_middles_of_equal_parts_are_taken(count, most):
    numbers = evenly(count, most)
    assert len(set(numbers)) == min(count, most)
    width = count / len(numbers)
    for position, number in enumerate(numbers):
        assert number == int((position + 0.5) * width)


def times_of(seed):
    """Exits of two forms, lengths, and times: of the dense form, then of the two."""
    generator = np.random.default_rng(seed)
    sure = generator.random((TEXTS, 4))
    exits = np.stack([(sure < share).argmax(1) for share in (0.5, 0.8)])
    lengths = generator.geometric(0.05, TEXTS)
    dense = 4.0 + lengths
    return exits, lengths, np.stack([dense, *(1 + exits) * dense / 4])


def test_the_speed_on_them_is_nearer_to_that_on_all_than_at_random():
    """Over many samples of texts: less than half of the spread of as many at random."""
    chosen, by_chance = [], []
    for seed in range(60):
        exits, lengths, times = times_of(seed)
        numbers = representative(torch.from_numpy(exits).double().mean(0), lengths.tolist(), 120)
        assert len(set(numbers)) == 120
        assert numbers == sorted(numbers)
        others = np.random.default_rng(seed + 1000).choice(TEXTS, 120, replace=False)
        for errors, taken in ((chosen, numbers), (by_chance, others)):
            few, every = times[:, taken].mean(1), times.mean(1)
            errors.append(few[0] / few[1:] / (every[0] / every[1:]) - 1)
    spread, of_chance = (np.std(errors, axis=0) for errors in (chosen, by_chance))
    assert (spread < 0.5 * of_chance).all()
    assert np.abs(np.mean(chosen, axis=0)).max() < 0.01


@pytest.mark.parametrize("texts", [1, 3, 119, 120])
def test_few_texts_are_all_taken(texts):
    efforts = torch.rand(texts, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert representative(efforts, [5] * texts, 120) == list(range(texts))


def test_without_exits_it_goes_by_length():
    lengths = list(range(1, 401))
    numbers = representative(torch.zeros(400, dtype=torch.float64), lengths, 40)
    assert np.mean([lengths[number] for number in numbers]) == pytest.approx(200.5, abs=1)
    assert np.diff(numbers).max() < 25
