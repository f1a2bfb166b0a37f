"""Inputs that are answered side by side, and one after another."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
import torch

from sparing.slim import engines as module
from sparing.slim.engines import BothForms
from sparing.slim.evidence.candidates import Candidate
from sparing.slim.inputs import alone
from sparing.tasks import Examples, load_task

COUNT = 40


@pytest.fixture(scope="module")
def task():
    rows = [torch.tensor([number, 1]) for number in range(1, COUNT + 1)]
    examples = Examples("input_ids", rows, torch.zeros(COUNT, dtype=torch.long))
    given = load_task("listops", examples=20)
    return replace(given, test=examples)


def test_side_by_side_the_answers_keep_their_order(task):
    seen, met = set(), threading.Barrier(4, timeout=20)

    def call(inputs):
        if len(seen) < 4:
            seen.add(threading.get_ident())
            met.wait()  # four calls are open at the same time
        time.sleep(0.001 * float(inputs["input_ids"][0, 0] % 3))  # later ones may end before
        return inputs["input_ids"].float()

    together = torch.cat([*alone(task, task.test, call, at_once=4)])
    assert together[:, 0].tolist() == list(range(1, COUNT + 1))
    assert len(seen) == 4


def test_an_error_leaves_the_rest_unanswered(task):
    answered = []

    def call(inputs):
        answered.append(1)
        time.sleep(0.01)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        [*alone(task, task.test, call, at_once=2)]
    assert len(answered) < COUNT / 2


@pytest.mark.parametrize(
    ("engine", "threads", "expected"),
    [("onnxruntime", 1, 8), ("openvino", 2, 4), ("openvino", 16, 1), ("eager", 1, 1)],
)
def test_every_free_processor_answers_with_a_file(engine, threads, expected, monkeypatch):
    monkeypatch.setattr(module, "usable_processors", lambda: 8)
    both = BothForms({}, {}, threads, None)  # type: ignore[arg-type]
    assert both.at_once(Candidate("dense", engine, "float32")) == expected
