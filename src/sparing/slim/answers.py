"""The answers of every form to the whole test split, one input at a time, kept for later."""

from __future__ import annotations

import torch
from torch import Tensor

from sparing.core.record import Label, Record
from sparing.experiment.run import Run, save_tensors
from sparing.slim.cells import DENSE, OURS, STATIC, Steps, final_plan
from sparing.slim.engines import Run as Call
from sparing.slim.engines import Runs
from sparing.slim.int8 import chosen_int8
from sparing.slim.models import inputs_of
from sparing.slim.search.resampling import score_difference
from sparing.tasks.shared.scores import metric

FILE = "answers.safetensors"


def answer_all(steps: Steps, run: Run) -> list[Record]:
    """Score dense and ours, and INT8 where it was tried, on all of the test split.

    Timing may have used only some of it. The logits go to ``answers.safetensors`` under the arms'
    names, beside ``labels``, so that runs can be pooled example by example.
    """
    task = steps.task
    found = {arm: _logits(steps, call) for arm, call in _forms(steps, run).items()}
    save_tensors(run.folder / FILE, {**found, "labels": task.test.labels})
    records: list[Record] = []
    for arm, logits in found.items():
        for name in dict.fromkeys((task.metric, "accuracy")):
            labels: dict[str, Label] = {"arm": arm, "metric": name, "split": "test"}
            labels["judged"] = name == task.metric
            value, count = metric(name).score(logits, task.test.labels), len(task.test)
            records.append(Record("whole_score", value, "score", "measured", labels, count=count))
            if arm == DENSE:
                continue
            gap = score_difference(name, logits, found[DENSE], task.test.labels)
            records.append(
                Record(
                    "whole_difference",
                    gap.value,
                    "score",
                    "measured",
                    labels,
                    gap.interval,
                    gap.count,
                )
            )
    return records


def _forms(steps: Steps, run: Run) -> Runs:
    """Each arm in one engine: ONNX Runtime where it is installed, else PyTorch."""
    engines = steps.engines
    dense = engines.dense(steps.models.rival())
    engine = "onnxruntime" if "onnxruntime" in dense else "eager"
    forms = {DENSE: dense[engine]}
    forms[OURS] = engines.ours(steps.models.served(), final_plan(run), "answers")[engine]
    static = steps.models.static()
    if static is not None:
        forms[STATIC] = engines.ours(static, static.plan, "answers-static")[engine]
    return forms | chosen_int8(steps, run)


def _logits(steps: Steps, call: Call) -> Tensor:
    found = torch.zeros(len(steps.task.test), steps.task.classes)
    for indices, inputs in inputs_of(steps.task, steps.task.test, 1):
        found[indices] = call(inputs).float()
    return found
