"""What training for INT8 is worth: a finished slim run's plan in INT8, with it and without.

    python benchmarks/int8_aware.py --run runs/slim-sst2

The run's chosen plan and its dense model are each distilled a little longer while they imitate
INT8, and, as a control, the plan as long in float32. Then all are exported, quantised and scored
on the run's test split, one input at a time. Nothing is written into the run. One epoch on 20,000
short texts takes about four minutes of one core of a 2020s server for each of the three; what is
finished is read back.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sparing.slim.fixed_width import train_dense, train_slim, trained_dense, trained_slim
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.core.progress import progress_to
from sparing.core.writing import write_atomically
from sparing.experiment.inputs.task import load_for
from sparing.export.dense import dense_segment
from sparing.export.engine import Chain
from sparing.export.int8 import Int8Settings, logit_shift, quantise
from sparing.export.onnx import export_onnx
from sparing.slim import study as slim
from sparing.slim.engines import Engines
from sparing.slim.inputs import inputs_of
from sparing.slim.search.resampling import score_difference
from sparing.slim.steps import Steps
from sparing.tasks import Examples
from sparing.tasks.shared.scores import metric

SCALES = ("tensor", "channel")
TRAINED, CONTROL = " trained for INT8", " trained on in float32"


@dataclass(frozen=True)
class Row:
    """One form: its score, its difference to dense float32, how far INT8 moved its logits.

    ``gain`` is the difference to the same form and settings without further training; intervals are
    90 %, over test inputs.
    """

    form: str
    settings: str
    score: float
    difference: float
    interval: tuple[float, float]
    shift: float
    changed: int
    gain: float | None = None
    gain_interval: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class Exported:
    """A form's float32 segments, and the threshold at which inputs leave."""

    segments: list[Path]
    threshold: float


def opened(folder: Path, data: Path | None) -> tuple[slim.Options, Steps]:
    """A finished run's options, and its models with its state."""
    if not (folder / "config.json").is_file():
        raise UsageError(f"{folder} is not a run of sparing slim")
    config = json.loads((folder / "config.json").read_text())
    if config.get("study") != "slim":
        raise UsageError(f"{folder} holds a run of {config.get('study')}, not of slim")
    known = {field.name for field in fields(slim.Options)}
    given = {name: value for name, value in config["identity"].items() if name in known}
    lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    options = slim.Options(**{**given, **lists})
    task, _ = load_for(options.task, options.task_options, options.model, data)
    return options, slim.steps_of(options, task, folder)


def exported(engines: Engines, plan: Any, models: dict[str, Any]) -> dict[str, Exported]:
    """Every model's float32 segments; names that begin with "dense" are dense."""
    by_name = {}
    for name, model in models.items():
        if name.startswith("dense"):
            path = engines.folder / name / "dense.onnx"
            segment = dense_segment(model).eval()
            by_name[name] = Exported([export_onnx(segment, engines.example(), path)], 1.0)
        else:
            by_name[name] = Exported(engines.exported(model, plan, name), plan.threshold)
    return by_name


def answers(steps: Steps, form: Exported, paths: Sequence[Path], examples: Examples) -> Tensor:
    """The logits of each input alone, as it is served."""
    chain = Chain(list(paths), form.threshold, longest=steps.engines.longest)
    logits = torch.zeros(len(examples), steps.task.classes)
    for indices, inputs in inputs_of(steps.task, examples, 1):
        logits[indices] = chain(inputs)[0]
    return logits


def compare(steps: Steps, forms: dict[str, Exported], examples: Examples) -> list[Row]:
    """Every form in float32 and in INT8 with each way to share scales."""
    task, labels = steps.task, examples.labels
    plain = {name: answers(steps, form, form.segments, examples) for name, form in forms.items()}
    reference = plain["dense"]
    by_form: dict[tuple[str, str], Tensor] = {(name, "float32"): z for name, z in plain.items()}
    for name, form in forms.items():
        for scales in SCALES:
            settings = Int8Settings(scales)  # type: ignore[arg-type]
            folder = steps.engines.folder / f"{name}-{scales}"
            paths = quantise(form.segments, folder, settings)
            by_form[name, str(settings)] = answers(steps, form, paths, examples)
    rows = []
    for (name, settings), logits in by_form.items():
        gap = score_difference(task.metric, logits, reference, labels)
        shift = logit_shift(plain[name], logits)
        row = Row(
            name,
            settings,
            metric(task.metric).score(logits, labels),
            gap.value,
            gap.interval or (gap.value, gap.value),
            shift.relative,
            shift.changed,
        )
        before = name.removesuffix(TRAINED).removesuffix(CONTROL)
        if before != name:
            gain = score_difference(task.metric, logits, by_form[before, settings], labels)
            row = replace(row, gain=gain.value, gain_interval=gain.interval)
        rows.append(row)
    return rows


def show(rows: list[Row], metric_name: str, count: int) -> None:
    """The rows as a table; differences in points, with 90 % intervals."""
    columns = ("form", "settings", metric_name, "to dense float32", "gain", "shift", "changed")
    table = Table(*columns, box=None)
    for row in rows:
        gain = "" if row.gain is None else _points(row.gain, row.gain_interval)
        table.add_row(
            row.form,
            row.settings,
            f"{100 * row.score:.2f}",
            _points(row.difference, row.interval),
            gain,
            f"{100 * row.shift:.1f} %",
            str(row.changed),
        )
    console = Console(width=160)
    console.print(table)
    console.print(
        f"{count} test inputs, one at a time; differences in points with 90 % intervals over "
        "inputs; gain: over the same form without further training; shift and changed: logits "
        "and answers against the same form in float32"
    )


def _points(value: float, interval: tuple[float, float] | None) -> str:
    low, high = interval or (value, value)
    return f"{100 * value:+.2f} ({100 * low:+.2f} to {100 * high:+.2f})"


def main() -> None:
    """Train what is missing, then compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="a finished run of sparing slim")
    parser.add_argument("--output-dir", type=Path, default=Path("runs/int8-aware"))
    parser.add_argument("--data", type=Path, help="the folder of data sets, else SPARING_DATA")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seed", type=int, help="another order of examples than the run's")
    parser.add_argument("--rate", type=float, help="learning rate, else half of distillation's")
    parser.add_argument("--precision", default="fast", help="of training")
    given = parser.parse_args()
    torch.set_num_threads(1)
    options, steps = opened(given.run, given.data)
    seed = options.seed if given.seed is None else given.seed
    recipe = replace(steps.models.recipe, precision=given.precision, seed=seed)
    plan = steps.served().plan
    models = replace(steps.models, recipe=recipe, seed=seed)
    steps = replace(steps, models=models, engines=replace(steps.engines, folder=given.output_dir))
    models_dir = given.output_dir / "models"
    with Progress() as bar:
        for name in ("slim", "control", "dense"):
            line = bar.add_task(name, total=1.0)

            def tell(share: float, text: str, line: Any = line) -> None:
                bar.update(line, completed=share)

            with progress_to(tell):
                if name == "dense":
                    train_dense(models, models_dir / name, given.epochs, given.rate)
                    continue
                rounded = name == "slim"
                where = models_dir / name
                train_slim(
                    models, steps.model(), plan, where, given.epochs, given.rate, rounded=rounded
                )
    built = {
        "dense": models.baseline(),
        f"dense{TRAINED}": trained_dense(models_dir / "dense"),
        "slim": steps.model(),
        f"slim{CONTROL}": trained_slim(models_dir / "control"),
        f"slim{TRAINED}": trained_slim(models_dir / "slim"),
    }
    rows = compare(steps, exported(steps.engines, plan, built), steps.task.test)
    show(rows, steps.task.metric, len(steps.task.test))
    content = {"task": steps.task.name, "examples": len(steps.task.test), "epochs": given.epochs}
    content |= {"seed": seed, "rate": given.rate, "rows": [asdict(row) for row in rows]}
    write_atomically(given.output_dir / "summary.json", json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
