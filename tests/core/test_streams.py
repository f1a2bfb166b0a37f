"""A stream that is no tensor is named, and not looked into."""

from __future__ import annotations

import pytest
import torch
from jaxtyping import config

import sparing


@pytest.mark.parametrize(("name", "position"), [("adaptive", 3), ("longformer", 3), ("softmax", 1)])
@pytest.mark.parametrize("value", [None, "x"])
def test_a_stream_that_is_no_tensor_is_refused(name, position, value, monkeypatch):
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # as users have it
    made = sparing.mechanism(name, sparing.Heads(2, 8, tokens=5))
    streams = [torch.randn(1, 2, 5, 8)] * 3 + ([None] if position == 3 else [])
    streams[position] = value
    stream = "qkvx"[position]
    with pytest.raises(sparing.UsageError, match=rf"{name}: {stream} must be a tensor, not"):
        made(*streams)
