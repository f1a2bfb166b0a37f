"""Answers of tokens as rows: the same rows exactly where the answers are the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sparing.answers.base import Encoded
from sparing.answers.entities import entities_in
from sparing.answers.spans import span_of
from sparing.tasks.shared.text import fast_tokenizer
from sparing.tasks.shared.tokens import (
    MARK,
    NOTHING,
    SECOND,
    entity_codes,
    row_of,
    segments_in,
    span_codes,
    types_of,
    words_of,
)
from tests.tasks.tokenizers import save_tokenizer

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
PLAIN = ("O", "PER", "LOC")
CHANCES = (0.5, 0.15, 0.15, 0.1, 0.1)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return fast_tokenizer(str(save_tokenizer(tmp_path_factory.mktemp("words") / "tokenizer")))


def read(tokenizer, *texts):
    """A row as sparing agree reads it, and the words of its tokens."""
    (one,) = tokenizer([texts[0]], *([text] for text in texts[1:])).encodings
    encoded = Encoded({"input_ids": one.ids}, one.offsets, one.sequence_ids, one.word_ids)
    return encoded, words_of(one)


def drawn(labels, count, seed):
    """Logits of labels that are sampled, so that entities occur and go on."""
    chance = np.random.default_rng(seed)
    shares = CHANCES if labels is LABELS else (0.4, 0.3, 0.3)
    logits = chance.normal(size=(count, len(labels))) * 0.1
    logits[np.arange(count), chance.choice(len(labels), size=count, p=shares)] += 5
    return torch.from_numpy(logits).float()


@pytest.mark.parametrize("labels", [LABELS, PLAIN])
@pytest.mark.parametrize("texts", [("w1 good bad xyzzy w22 fine",), ("good w12", "bad w7 great")])
def test_rows_are_the_same_exactly_where_the_entities_are(tokenizer, labels, texts):
    encoded, words = read(tokenizer, *texts)
    assert len({*words.tolist()}) < len(words)  # some words are of several tokens
    seen = {}
    for seed in range(400):
        logits = drawn(labels, len(words), seed)
        entities = frozenset(entities_in(logits.numpy(), encoded, labels))
        row = tuple(entity_codes(logits.argmax(-1), words, labels).tolist())
        assert seen.setdefault(row, entities) == entities
    assert len({*seen.values()}) == len(seen) > 20


def test_segments_are_the_entities_of_a_row(tokenizer):
    encoded, words = read(tokenizer, "good w12", "bad w7 great")
    for seed in range(100):
        logits = drawn(LABELS, len(words), seed)
        row = entity_codes(logits.argmax(-1), words, LABELS)
        listed = [
            (encoded.parts[a], encoded.offsets[a][0], encoded.offsets[b - 1][1], kind)
            for a, b, kind in segments_in(row, words, LABELS)
        ]
        entities = entities_in(logits.numpy(), encoded, LABELS)
        assert listed == [(e.part, e.start, e.end, e.type) for e in entities]


def test_the_ends_of_a_span_are_those_of_the_slow_reader(tokenizer):
    encoded, words = read(tokenizer, "good w12", " ".join(f"w{n}" for n in range(40)))
    for seed in range(50):
        logits = torch.from_numpy(np.random.default_rng(seed).normal(size=(len(words), 2)))
        first, last = span_codes(logits.float(), words).long().tolist()
        begin, end, _ = span_of(logits.float().numpy(), encoded)
        assert (encoded.offsets[first][0], encoded.offsets[last][1]) == (begin, end)


def test_pads_and_other_tokens_have_no_part_in_a_row():
    words = torch.tensor([MARK, 0, 0, 1, SECOND, MARK])
    logits = torch.zeros(9, len(LABELS))
    logits[:, 0], logits[1, 1], logits[3, 2], logits[4, 2], logits[7, 1] = 1, 5, 5, 5, 9
    row = row_of("entities", logits, words, LABELS, 8)
    assert row.tolist() == [NOTHING, 1, NOTHING, 2, 1, NOTHING, NOTHING, NOTHING]
    assert types_of(LABELS) == types_of(PLAIN) == ["PER", "LOC"]
    ends = row_of("span", torch.zeros(9, 2), words, ("start", "end"), 8)
    assert ends.tolist() == [4, 4, *[NOTHING] * 6]


def test_logits_that_are_not_finite_hold_no_answer():
    words, logits = torch.tensor([MARK, 0, SECOND, MARK]), torch.zeros(6, 2)
    logits[5] = float("nan")  # a pad
    assert row_of("span", logits, words, ("start", "end"), 4).isfinite().all()
    logits[1, 0] = float("inf")
    assert row_of("span", logits, words, ("start", "end"), 4).isnan().all()
    assert row_of("entities", logits, words, ("O", "A"), 4).isnan().all()


def test_a_text_without_words_has_no_entities():
    row = entity_codes(torch.zeros(2, dtype=torch.long), torch.tensor([MARK, MARK]), LABELS)
    assert row.tolist() == [NOTHING, NOTHING]
    assert segments_in(row, torch.tensor([MARK, MARK]), LABELS) == []
