"""What slim's reductions give at other shapes: speed at up to 2,048 tokens, memory, training time.

    python benchmarks/slim_shapes.py [--full] [--run runs/slim-mrpc]

Models of MiniLM's and BERT-base's shape with random weights and interpolated positions, one thread,
float32. Each plan, in PyTorch and in ONNX Runtime, takes turns with the dense model in PyTorch
(fused attention), ``torch.compile`` and ONNX Runtime; the fastest of these three is the baseline.
Random weights say nothing about early exits, so the exit rates of each layer are given: they are
those of the committed runs on SST-2 and MRPC ("exit_rate"). Then the memory of a batch of 8 texts
of 512 tokens, each form in a process of its own. Last, the time of a step of distilling beside one
of fine-tuning. Its texts are those of ``--run`` (a finished run of slim with its data) or of
generated lengths.

Under eight minutes on a quiet machine; ``--full`` adds more batches of 8, BERT-base at all lengths
and torch.compile for it (an hour). Finished cells stay in the output folder: the same command goes
on after any interruption. The machine should have nothing else to do.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from functools import cache
from pathlib import Path

import numpy as np

import slim_shape_training as training
from slim_shape_forms import DENSE, FREE, SHAPES, Forms, Ours, counts, inputs, plans, recorded_plan
from slim_shapes_page import page
from sparing.core.record import RECORDS, Label, Record, RecordLog
from sparing.experiment.run import Cell, open_run, write_atomically
from sparing.experiment.study import base_config
from sparing.measure.flops import count_flops, model_flops
from sparing.measure.latency import paired_latency
from sparing.measure.machine import machine, machine_id
from sparing.measure.statistics import median_ratio
from sparing.slim import memory

RESULTS = Path(__file__).parent / "results"
RECORDED = {"SST-2": "slim-sst2-75e78039-2026-11", "MRPC": "slim-mrpc-75e78039-2026-11"}
DEFAULT = {
    ("minilm", 1): (128, 512, 1024, 2048),
    ("minilm", 8): (128,),
    ("bert-base", 1): (128, 512),
}
FULL = {
    ("minilm", 1): (128, 512, 1024, 2048),
    ("minilm", 8): (128, 512, 1024),
    ("bert-base", 1): (128, 512, 1024, 2048),
    ("bert-base", 8): (128,),
}
MEMORY_BATCH, MEMORY_TOKENS = 8, 512
ROUNDS, CELL_SECONDS = 15, 20.0
EAGER, ONNX = "eager", "onnxruntime"

Call = Callable[[], object]
Samples = dict[str, np.ndarray]


def calls_of(forms: Forms, batch: int, tokens: int) -> tuple[dict[str, Call], dict[str, list]]:
    """Every call of a cell by name, and for each form which calls it is made of, with weights.

    One text at a time leaves at one place, so that a form is the mean over places with the stated
    shares. A batch holds texts that leave at all of them, in numbers nearest to the shares.
    """
    calls: dict[str, Call] = {}
    made: dict[str, list] = {}

    def add(form: str, run: Callable[[dict], object], parts: Iterable[tuple[list[int], float]]):
        made[form] = []
        for leaves, weight in parts:
            name, given = f"{form}/{leaves}", inputs(leaves, tokens)
            calls[name] = lambda run=run, given=given: run(given)
            made[form].append((name, weight))

    whole = [([0] * batch, 1.0)]
    for engine, run in forms.dense_runs.items():
        add(f"{DENSE}|{engine}", run, whole)
    add(f"{FREE}|{EAGER}", forms.free, whole)
    for ours in forms.ours:
        for engine, run in forms.our_runs[ours.name].items():
            add(f"{ours.name}|{engine}", run, parts_of(ours, batch))
    return calls, made


def parts_of(ours: Ours, batch: int) -> list[tuple[list[int], float]]:
    """Where the texts of each call leave, and what the call counts for."""
    if batch == 1:
        return [([position], share) for position, share in enumerate(ours.shares) if share > 0]
    numbers = counts(ours.shares, batch)
    return [([position for position, count in enumerate(numbers) for _ in range(count)], 1.0)]


def mixed(samples: Samples, made: dict[str, list]) -> Samples:
    """The milliseconds of each form in each round."""
    return {
        form: sum(weight * samples[name] for name, weight in parts) for form, parts in made.items()
    }


def speed(forms: Forms, batch: int, tokens: int, rounds: int) -> list[Record]:
    """Times, speed over the fastest dense form, executed FLOPs, and attention's share."""
    calls, made = calls_of(forms, batch, tokens)
    first = next(iter(calls))
    times = paired_latency(
        calls, baseline=first, rounds=rounds, warmup=1, threads=1, budget_s=CELL_SECONDS
    )
    rows = mixed({name: np.array(latency.samples_ms) for name, latency in times.items()}, made)
    shape = {"shape": forms.shape.name, "batch": batch, "tokens": tokens}
    records = speed_records(rows, shape)
    for form, parts in made.items():
        arm, engine = form.split("|")
        if engine == EAGER:
            flops = sum(weight * count_flops(calls[name]) for name, weight in parts)
            labels: dict[str, Label] = {**shape, "arm": arm}
            records.append(Record("flops", flops, "FLOP", "measured", labels))
    given = inputs([0] * batch, tokens)
    counted = model_flops(forms.model, given)
    share = counted.attention / counted.total
    return [*records, Record("attention_flops_share", share, "share", "modelled", dict(shape))]


def speed_records(rows: Samples, shape: dict[str, Label]) -> list[Record]:
    """Median times and paired ratios; the baseline is the dense form with the lowest median."""
    dense = [form for form in rows if form.startswith(f"{DENSE}|")]
    baseline = min(dense, key=lambda form: float(np.median(rows[form])))
    records = []
    for form, samples in rows.items():
        arm, engine = form.split("|")
        labels: dict[str, Label] = {**shape, "arm": arm, "engine": engine}
        value, count = float(np.median(samples)), len(samples)
        records.append(Record("latency_ms", value, "ms", "measured", labels, count=count))
        if form != baseline:
            ratio = median_ratio(rows[baseline].tolist(), samples.tolist())
            pair_labels = {**labels, "over": baseline.split("|")[1]}
            records.append(
                Record(
                    "speed_up", ratio.value, "ratio", "measured", pair_labels, ratio.interval, count
                )
            )
    free = median_ratio(rows[f"{FREE}|{EAGER}"].tolist(), rows[f"{DENSE}|{EAGER}"].tolist())
    low, high = free.interval or (free.value, free.value)
    share = {**shape, "engine": EAGER}
    interval = (1 - high, 1 - low)
    return [
        *records,
        Record("attention_share", 1 - free.value, "share", "measured", share, interval, free.count),
    ]


def peaks(forms: Forms) -> list[Record]:
    """Activation peak and weights of each form, without early exits: the dearest case."""
    folder = forms.folder
    forms.model.save_pretrained(folder / "dense")
    memory_forms = [memory.Form(DENSE, EAGER, (folder / "dense",))]
    memory_forms.append(memory.Form(DENSE, ONNX, (forms.dense_exported(),)))
    for number, ours in enumerate(forms.ours):
        saved = folder / f"saved-{number}"
        forms.frozen(ours).save_pretrained(saved)
        memory_forms.append(memory.Form(ours.name, EAGER, (saved,)))
        files = tuple(forms.exported(ours))
        memory_forms.append(memory.Form(ours.name, ONNX, files, ours.plan.threshold))
    last = max(len(ours.shares) for ours in forms.ours) - 1
    records = memory.peaks(memory_forms, inputs([last] * MEMORY_BATCH, MEMORY_TOKENS))
    return [labelled(record, shape=forms.shape.name) for record in records]


def labelled(record: Record, **more: Label) -> Record:
    """The record with more labels."""
    return Record(
        record.name,
        record.value,
        record.unit,
        record.obtained,
        {**record.labels, **more},
        record.interval,
        record.count,
    )


def cells_of(options: argparse.Namespace, finished: set[str]) -> list[Cell]:
    """All chosen cells; what they need is built when the first of them begins."""
    recorded = {task: RecordLog(RESULTS / name / RECORDS) for task, name in RECORDED.items()}

    @cache
    def forms(name: str) -> Forms:
        shape = SHAPES[name]
        carried = [recorded_plan(task, log.read(), shape) for task, log in recorded.items()]
        compiled = options.full or name == "minilm"
        folder = options.work_dir / name
        return Forms(shape, plans(shape, carried), folder, compiled=compiled)

    cells = [
        Cell(
            f"speed/{name}/batch-{batch}/{tokens}",
            lambda name=name, batch=batch, tokens=tokens: speed(
                forms(name), batch, tokens, options.rounds
            ),
            weight=batch * tokens,
        )
        for (name, batch), lengths in (FULL if options.full else DEFAULT).items()
        for tokens in lengths
    ]
    cells += [
        Cell(f"memory/{name}", lambda name=name: peaks(forms(name)), weight=2000)
        for name in (SHAPES if options.full else ("minilm",))
    ]
    rounds = 2 if options.full else 1
    cells += [
        Cell(
            f"training/{precision}{'' if dropout else '/no-attention-dropout'}",
            lambda precision=precision, dropout=dropout: training.overhead(
                options.run, precision, dropout, rounds
            ),
            weight=500,
        )
        for precision, dropout in training.SETTINGS
    ]
    cells.append(Cell("training/memory", lambda: training.peaks(options.run), weight=500))
    selected = [cell for cell in cells if any(part in cell.key for part in options.only)]
    return [cell for cell in selected if cell.key not in finished]


def committed() -> dict[str, list[Record]]:
    """The records of the committed runs of slim, by task."""
    return {task: RecordLog(RESULTS / name / RECORDS).read() for task, name in RECORDED.items()}


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="all shapes, batches and lengths")
    parser.add_argument("--run", type=Path, help="a finished run of slim, for its training texts")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        help="cells with names that hold one of these: speed/minilm",
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="at most, per cell")
    parser.add_argument("--work-dir", type=Path, default=Path("runs/slim-shapes"))
    parser.add_argument("--output-dir", type=Path, help="benchmarks/results/slim-shapes-...")
    return parser.parse_args(given)


def main() -> None:
    """Measure what is not measured yet, and write the page."""
    options = arguments()
    name = f"slim-shapes-{machine_id(machine())}-{date.today():%Y-%m}"
    folder = options.output_dir or RESULTS / name
    identity = {"threads": 1, "recorded": RECORDED, "machine_id": machine_id(machine())}
    config = base_config("slim-shapes", identity)
    config["command"] = " ".join(["python", "benchmarks/slim_shapes.py", *sys.argv[1:]])
    earlier = {task: training.totals(records) for task, records in committed().items()}
    start = time.monotonic()

    def tell(_: float, text: str) -> None:
        print(f"{time.monotonic() - start:6.0f} s  {text}", file=sys.stderr, flush=True)

    with open_run(folder, config) as run:
        failures = run.do(cells_of(options, run.finished()), tell)
        write_atomically(folder / "report.md", page(run.records(), earlier))
    (folder / ".lock").unlink(missing_ok=True)
    for failure in failures:
        print(f"{failure.cell}: {failure.error}", file=sys.stderr)
    print(folder / "report.md")


if __name__ == "__main__":
    main()
