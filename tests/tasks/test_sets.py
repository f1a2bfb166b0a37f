from __future__ import annotations

import itertools

import pytest
import torch
from sklearn.metrics import f1_score

from sparing.tasks.shared.scores import metric
from sparing.tasks.shared.sets import SCORES, entity_counts, resampled, summed
from sparing.tasks.shared.tokens import entity_codes, segments_in

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def rows_of(seed, count=60, tokens=12):
    """Rows of entities in texts with words of one to three tokens, and the words."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, 4, (tokens,), generator=generator)
    words = torch.repeat_interleave(torch.arange(tokens), sizes)[:tokens]
    words[-1] = -1  # the tokenizer's mark
    chosen = torch.randint(0, len(LABELS), (count, tokens), generator=generator)
    return torch.stack([entity_codes(row, words, LABELS) for row in chosen]), words


def test_entities_are_counted_as_sets_of_spans_with_types():
    answers, words = rows_of(0)
    truth = torch.where(torch.arange(60)[:, None] % 3 == 0, answers, rows_of(1)[0])
    truth = torch.stack([row.where(words >= 0, -1) for row in truth])
    truth = torch.where(answers < 0, answers, truth.clamp(min=0))
    truth = torch.stack([consistent(row) for row in truth])
    sets = [[{*segments_in(row, words, LABELS)} for row in rows] for rows in (answers, truth)]
    both = sum(len(one & two) for one, two in zip(*sets, strict=True))
    counts = summed(entity_counts(answers, truth))
    assert (int(counts.both), int(counts.answered), int(counts.labelled)) == (
        both,
        sum(map(len, sets[0])),
        sum(map(len, sets[1])),
    )
    assert 20 < both < counts.answered < 1000
    assert float(counts.f1) == 2 * both / int(counts.answered + counts.labelled)


def consistent(row):
    """The row with a beginning wherever an entity would go on from another type or from none."""
    before = 0
    for position in (row >= 0).nonzero().flatten().tolist():
        code = int(row[position])
        if code > 0 and code % 2 == 0 and before not in (code, code - 1):
            row[position] = code - 1
        before = int(row[position])
    return row


@pytest.mark.parametrize(
    ("answers", "truth", "expected"),
    [
        ([[-1, 1, 2, 0]], [[-1, 1, 2, 0]], (1, 1, 1)),
        ([[-1, 1, 0, 0]], [[-1, 1, 2, 0]], (0, 1, 1)),  # another end
        ([[-1, 1, 2, 2]], [[-1, 1, 2, 1]], (0, 1, 2)),
        ([[-1, 3, 4, 0]], [[-1, 1, 2, 0]], (0, 1, 1)),  # another type
        ([[-1, 0, 1, 0]], [[-1, 1, 2, 0]], (0, 1, 1)),  # another beginning
        ([[-1, 1, -1, 2]], [[-1, 1, -1, 2]], (1, 1, 1)),  # a word of two tokens
        ([[-1, 0, 0, 0]], [[-1, 0, 0, 0]], (0, 0, 0)),
    ],
)
def test_one_entity_counts_by_beginning_end_and_type(answers, truth, expected):
    counts = summed(entity_counts(torch.tensor(answers).float(), torch.tensor(truth).float()))
    assert tuple(map(int, counts)) == expected
    scores = [float(part) for part in (counts.precision, counts.recall, counts.f1)]
    assert scores == ([1, 1, 1] if expected[0] else [0, 0, 0])


@pytest.mark.parametrize("seed", [0, 1])
def test_scores_of_several_labels_are_those_of_scikit_learn(seed):
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(50, 4, generator=generator)
    truth = (torch.rand(50, 4, generator=generator) < torch.tensor([0.5, 0.2, 0.1, 0.0])).float()
    outputs[:, 3] = -1  # a label that is neither given nor true
    given = (outputs >= 0).int().numpy()
    for average in ("micro", "macro"):
        theirs = f1_score(truth.int().numpy(), given, average=average, zero_division=0)
        assert metric(f"{average}_f1").score(outputs, truth) == pytest.approx(theirs)
    same = sum(given[row].tolist() == truth[row].tolist() for row in range(50)) / 50
    assert metric("same_labels").score(outputs, truth) == pytest.approx(same)


@pytest.mark.parametrize("name", ["micro_f1", "macro_f1", "same_labels"])
def test_the_chance_level_is_that_of_the_best_constant_set(name):
    generator = torch.Generator().manual_seed(3)
    truth = (torch.rand(40, 4, generator=generator) < torch.tensor([0.6, 0.3, 0.2, 0.05])).float()
    constant = [
        metric(name).score(torch.tensor(flags).float().expand(40, 4) - 0.5, truth)
        for flags in itertools.product([0, 1], repeat=4)
    ]
    assert metric(name).chance(truth) == pytest.approx(max(constant))


@pytest.mark.parametrize("name", sorted(SCORES))
def test_samples_have_the_scores_of_their_rows(name):
    generator = torch.Generator().manual_seed(0)
    if name.startswith("entity"):
        outputs, truth = rows_of(0)[0], rows_of(0)[0].flip(0)
        truth = torch.stack([consistent(row) for row in truth])
    else:
        outputs = torch.randn(60, 4, generator=generator)
        truth = (torch.rand(60, 4, generator=generator) < 0.3).float()
    draws = torch.randint(60, (5, 60), generator=generator)
    slow = [metric(name).score(outputs[row], truth[row]) for row in draws]
    assert resampled(name, outputs, truth, draws).tolist() == pytest.approx(slow)
    assert 0 < slow[0] < 1
