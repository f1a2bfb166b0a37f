"""Only modules that are equal in all that decides their export share a trace."""

from __future__ import annotations

import copy

import onnx
import torch

from tests import traces
from tests.export.segments import text_segments, texts


def test_equal_modules_have_one_key_and_others_another():
    segment, example = text_segments()[0], texts(2, 8)
    key = traces.key_of(segment, example)
    assert traces.key_of(text_segments()[0], texts(2, 8)) == key
    assert traces.key_of(segment, texts(2, 9)) != key
    assert traces.key_of(segment, {"input_ids": example["input_ids"]}) != key
    assert traces.key_of(text_segments(seed=1)[0], example) != key
    changed = copy.deepcopy(segment)
    changed.layers[0].norms[0].eps = 1e-3
    assert traces.key_of(changed, example) != key
    with torch.no_grad():
        segment.head.bias[0] += 1e-6
    assert traces.key_of(segment, example) != key


def test_a_trace_is_made_once_and_given_as_a_copy(monkeypatch):
    monkeypatch.setattr(traces, "_made", {})
    calls = []

    def trace(segment, example):
        calls.append(segment)
        if len(calls) > 1:
            raise RuntimeError("it was traced again")
        return onnx.helper.make_model(onnx.helper.make_graph([], "graph", [], []))

    traced = traces.remembered(trace)
    segment, example = text_segments()[0], texts(2, 8)
    first = traced(segment, example)
    first.graph.name = "changed"
    again = traced(segment, example)
    assert (again.graph.name, len(calls)) == ("graph", 1)
