"""BERT-base's time over MiniLM's and over a slimmed MiniLM's, on the same texts.

    python benchmarks/slim_from_bert.py runs/slim-tasks/sst2-0 --output FILE

Papers on faster encoders start from BERT-base. A finished run of slim started from a smaller model,
so its own factors cannot be set beside their speed-ups. Here BERT-base answers the run's test texts
too. Its weights are random: times are compared, and nothing is said about its answers. All run in
turns on one thread: BERT-base and the run's dense model in ONNX Runtime, float32 and INT8, and the
form that the run serves. Factors are over BERT-base in ONNX Runtime, float32, with 95 % intervals
over texts.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

from sparing.core.errors import SparingError
from sparing.core.writing import write_atomically
from sparing.experiment.study import base_config
from sparing.export.dense import dense_segment
from sparing.export.engine import Chain
from sparing.export.folder import open_chain
from sparing.export.forms import Forms
from sparing.measure.inputs import InputTimes, speed_up, time_inputs
from sparing.report.estimates import with_ends
from sparing.report.markdown import plain_table
from sparing.report.run import read_run
from sparing.slim.inputs import inputs_of
from sparing.slim.options import Options, with_fewer
from sparing.slim.promise import promise_of
from sparing.slim.steps import Steps
from sparing.slim.study import steps_of, task_of

BERT, DENSE, SERVED = "BERT-base, random weights", "dense", "served"
BASELINE = f"{BERT}, float32"
BLOCK = 6
HEADS = ("form", "batch", "mean, ms", "times as fast as BERT-base")


def steps_in(folder: Path) -> Steps:
    """The steps of a run, as it was begun."""
    given = read_run(folder).config["identity"]
    options = Options(**{n: tuple(v) if isinstance(v, list) else v for n, v in given.items()})
    return steps_of(options, with_fewer(task_of(options)[0], options), folder)


def bert_base(steps: Steps) -> BertForSequenceClassification:
    """BERT-base for the run's classes and vocabulary."""
    small = steps.models.baseline().config
    torch.manual_seed(0)
    config = BertConfig(vocab_size=small.vocab_size, num_labels=steps.task.classes)
    return BertForSequenceClassification(config).eval()


def chains(steps: Steps, scratch: Path) -> dict[str, Chain]:
    """Both dense models in ONNX Runtime, and the served form."""
    opened: dict[str, Chain] = {}
    engines = steps.engines
    for name, model in ((BERT, bert_base(steps)), (DENSE, steps.models.baseline())):
        segment = dense_segment(model).eval()
        forms = Forms([segment], folder=scratch / name.split(",")[0], **engines.options)
        exported = (form for form in forms if form.engine == "onnxruntime")
        opened |= {f"{name}, {form.precision}": forms[form] for form in exported}
    promise = promise_of(read_run(steps.models.folder).table)
    if promise is None or promise.form.engine == "eager":
        raise SystemExit(f"{steps.models.folder} serves no exported form")
    opened[f"{SERVED}: {promise.form}"] = open_chain(steps.models.folder / "model" / "serve")
    return opened


def measure(steps: Steps, opened: Mapping[str, Chain], texts: int, rounds: int) -> list[Any]:
    """A row for each form and batch size."""
    test, rows = steps.task.test, []
    chosen = random.Random(0).sample(range(len(test)), min(texts, len(test)))
    calls = {name: lambda x, chain=chain: chain(x)[0] for name, chain in opened.items()}
    for batch in steps.options.batches:
        inputs = [given for _, given in inputs_of(steps.task, test.subset(sorted(chosen)), batch)]
        random.Random(0).shuffle(inputs)
        times = time_inputs(calls, inputs, rounds=rounds, threads=1, block=BLOCK)
        rows += [_row(name, times, batch) for name in calls]
    return rows


def _row(name: str, times: Mapping[str, InputTimes[Any]], batch: int) -> dict[str, Any]:
    ratio = speed_up(times[name], times[BASELINE])
    mean_ms = float(times[name].typical_ms.mean())
    facts = {"form": name, "batch": batch, "mean_ms": mean_ms, "calls": ratio.inputs}
    return {**facts, "speed_up": ratio.value, "interval": ratio.interval}


def show(rows: list[Any]) -> str:
    """The rows as a table."""
    lines = []
    for row in rows:
        factor = with_ends(row["speed_up"], row["interval"], "{:.2f}".format)
        lines.append((row["form"], str(row["batch"]), f"{row['mean_ms']:.2f}", factor))
    return plain_table(HEADS, lines)


def main() -> None:
    """Measure, print the table and write the rows with the machine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="the folder of a finished run of slim")
    parser.add_argument("--texts", type=int, default=200, help="test texts that are timed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    try:
        steps = steps_in(given.run)
        with tempfile.TemporaryDirectory() as scratch:
            rows = measure(steps, chains(steps, Path(scratch)), given.texts, given.rounds)
    except SparingError as error:
        raise SystemExit(str(error)) from error
    print(show(rows))
    if given.output is not None:
        facts = base_config("slim-from-bert", {"run": given.run.name}, [steps.task])
        write_atomically(given.output, json.dumps({**facts, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
