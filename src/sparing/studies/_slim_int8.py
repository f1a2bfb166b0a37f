"""The chosen plan in INT8: which settings keep the answers, and what that is worth beside dense."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparing.core.record import Label, Record
from sparing.export.engine import Chain
from sparing.export.int8 import Int8Settings, quantise, sensitivities
from sparing.measure.inputs import fastest, speed_up, time_inputs
from sparing.studies._run import Run
from sparing.studies._slim_cells import (
    DENSE,
    OURS,
    Steps,
    final_plan,
    in_order,
    records_of,
    sample,
    timed,
)
from sparing.studies._slim_engines import Runs, logits_of
from sparing.studies._slim_models import inputs_of
from sparing.tasks import Examples
from sparing.tasks._scores import metric

SCALES = ("tensor", "channel", "blocks")
SENSITIVE = (2, 4)
SENSITIVITY_BATCH = 32
SAMPLE = 60


def int8_plan(steps: Steps, run: Run) -> list[Record]:
    """Try settings on the first half of validation, then judge the best of each arm on the test.

    The dense model gets the same choice among the same settings, so that the comparison is fair.
    """
    place = steps.engines.folder
    plan = final_plan(run)
    ours = steps.engines.exported(steps.models.adaptive(), plan, "int8-from")
    dense = [place / "dense" / "dense.onnx"]
    records: list[Record] = []
    chosen: dict[str, tuple[list[Path], float]] = {}
    for arm, paths, threshold in ((DENSE, dense, 1.0), (OURS, ours, plan.threshold)):
        best, found = _best_settings(steps, arm, paths, threshold)
        chosen[arm] = (best, threshold)
        records += found
    return records + _verify(steps, chosen, dense, (ours, plan.threshold))


def _best_settings(
    steps: Steps, arm: str, paths: list[Path], threshold: float
) -> tuple[list[Path], list[Record]]:
    """The fastest settings that lose at most the floor's share, else those that lose least."""
    examples = steps.parts[0]
    inputs = sample(steps, examples, SAMPLE)
    float32 = _chain(steps, paths, threshold)
    own = _score(steps, float32, examples)
    trials, records = [], []
    for number, settings in enumerate(_candidates(steps, paths)):
        folder = steps.engines.folder / f"{arm}-int8-{number}"
        quantised = quantise(paths, folder, settings)
        chain = _chain(steps, quantised, threshold)
        score = _score(steps, chain, examples)
        calls: Runs = {"float32": logits_of(float32), "int8": logits_of(chain)}
        times = time_inputs(calls, inputs, rounds=2, threads=steps.engines.thread_count)
        gain = speed_up(times["int8"], times["float32"])
        labels: dict[str, Label] = {"arm": f"{arm} int8", "settings": str(settings), "score": score}
        labels |= {"float32_score": own}
        records.append(
            Record(
                "int8_trial", gain.value, "ratio", "measured", labels, gain.interval, gain.inputs
            )
        )
        trials.append((score, gain.value, quantised))
    good = [trial for trial in trials if trial[0] >= steps.floor * own]
    best = max(good, key=lambda trial: trial[1]) if good else max(trials, key=lambda t: t[:2])
    records = [
        replace(record, labels={**record.labels, "chosen": trial is best})
        for record, trial in zip(records, trials, strict=True)
    ]
    return best[2], records


def _candidates(steps: Steps, paths: list[Path]) -> list[Int8Settings]:
    """Every way to share scales, and per channel with the most sensitive layers in float32."""
    found = [Int8Settings(scales) for scales in SCALES]  # type: ignore[arg-type]
    batch = next(iter(inputs_of(steps.task, steps.parts[0], SENSITIVITY_BATCH)))[1]
    order = sensitivities(paths, batch, steps.engines.folder / "sensitivities")
    names = [name for name, _ in order]
    return [*found, *(Int8Settings("channel", False, tuple(names[:count])) for count in SENSITIVE)]


def _chain(steps: Steps, paths: Sequence[Path], threshold: float) -> Chain:
    return Chain(
        list(paths),
        threshold,
        thread_count=steps.engines.thread_count,
        longest=steps.engines.longest,
    )


def _score(steps: Steps, chain: Chain, examples: Examples) -> float:
    """One by one, as scales that a whole batch shares would let neighbours decide."""
    logits = torch.zeros(len(examples), steps.task.classes)
    for indices, inputs in inputs_of(steps.task, examples, 1):
        logits[indices] = chain(inputs)[0]
    return metric(steps.task.metric).score(logits, examples.labels)


def _verify(
    steps: Steps,
    chosen: dict[str, tuple[list[Path], float]],
    dense: list[Path],
    ours: tuple[list[Path], float],
) -> list[Record]:
    """Dense and ours, float32 and INT8, on the same test inputs one by one."""
    forms = {
        f"{DENSE} onnxruntime": _chain(steps, dense, 1.0),
        f"{OURS} onnxruntime": _chain(steps, *ours),
        **{f"{arm} int8 onnxruntime": _chain(steps, *form) for arm, form in chosen.items()},
    }
    calls: dict[str, Any] = {name: logits_of(chain) for name, chain in forms.items()}
    examples = timed(steps)
    batches = inputs_of(steps.task, examples, 1)
    random.Random(0).shuffle(batches)
    inputs = [inputs for _, inputs in batches]
    times = time_inputs(calls, inputs, rounds=steps.rounds, threads=steps.engines.thread_count)
    logits: dict[str, Tensor] = {n: in_order(batches, t, examples) for n, t in times.items()}
    reference = fastest(times, [f"{DENSE} onnxruntime"])
    records = []
    for name in (f"{DENSE} int8 onnxruntime", f"{OURS} int8 onnxruntime"):
        arm, _, engine = name.rpartition(" ")
        labels: dict[str, Label] = {"arm": arm, "engine": engine, "batch": 1}
        pair = (logits[name], logits[reference])
        records += records_of(steps.task, times[name], times[reference], pair, examples, labels)
    both = speed_up(times[f"{OURS} int8 onnxruntime"], times[f"{DENSE} int8 onnxruntime"])
    labels = {"arm": f"{OURS} int8", "engine": "onnxruntime", "batch": 1}
    records.append(
        Record("int8_speed_up", both.value, "ratio", "measured", labels, both.interval, both.inputs)
    )
    return records
