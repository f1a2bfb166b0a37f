"""What the verdict speaks of: the whole model, and the longest length measured."""

from __future__ import annotations

from tests.compare import records as make
from tests.compare.test_verdict import FAST, decide, situation


def test_it_names_the_whole_model_and_the_gain_at_the_longest_length():
    records, config = situation({"a": (FAST, "no worse")})
    records.append(make.record("attention_share", 0.2, "share", tokens=128))
    records.append(make.record("largest_gain", 1.25, "ratio", tokens=128))
    text = str(decide(records, config))
    assert "makes the whole model 2.0× faster" in text
    assert "at 4,096 tokens attention is 80 % of the model's time" in text
    assert "more than 5.0× faster" in text
    assert "1.25" not in text
