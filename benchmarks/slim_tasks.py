"""Slim one pretrained encoder on several tasks and seeds, and pool what was gained and lost.

    python benchmarks/slim_tasks.py --model PATH --tasks sst2,mrpc,imdb --seeds 0,1,2
    python benchmarks/slim_tasks.py --records benchmarks/results --tasks sst2,mrpc,mpqa

Each (task, seed) is a run of ``sparing slim`` in its own folder, with the dense rival trained on
as long as ours is distilled, plans chosen on the dev set where there is one, and accuracy judged
on the whole labelled test set, example by example. What is finished is read back, so that the
whole may be run in pieces, also by several processes. Data comes from SPARING_DATA; ``cr`` and
``mpqa`` (Hu and Liu, 2004; Wiebe et al., 2005) have no published split: three fifths of their
texts, each once, are trained on, a fifth chooses, a fifth judges, in every run the same. Training
is in bfloat16 where the processor multiplies in it (AVX512-BF16, AMX): on one thread of such a
server expect three quarters of an hour for each run of sst2 or mrpc, less for cr and mpqa, and
four hours for imdb, on another one about twice that. With ``--records`` nothing is run: what lies
there as ``slim-TASK-seed-SEED-MACHINE-DATE`` is pooled.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable
from dataclasses import asdict, replace
from math import exp, log
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from safetensors.torch import load_file

from sparing.core.record import Record, RecordLog
from sparing.measure.pooling import PooledDifference, pool_differences
from sparing.report import write_report
from sparing.studies import slim
from sparing.studies._run import write_atomically
from sparing.studies._slim_answers import FILE
from sparing.studies._slim_cells import DENSE
from sparing.tasks import _table as tables
from sparing.tasks._files import find, given_folder

ARMS = ("slim", "slim int8", "static")
TASKS: dict[str, dict[str, Any]] = {
    "sst2": {
        "task_options": {"test": "labelled", "examples": 20000},
        "choose_on": "dev",
        "dense_epochs": 2,
        "epochs": 2,
        "polish_epochs": 3,
    },
    "mrpc": {
        "speed": 1.8,  # at half the widths 3,300 pairs do not bring back what is lost
        "task_options": {"test": "labelled"},
        "choose_on": "dev",
        "dense_epochs": 4,
        "epochs": 4,
        "polish_epochs": 5,
    },
    "imdb": {
        "task_options": {"max_tokens": 512, "examples": 4000},
        "dense_epochs": 2,
        "epochs": 2,
        "polish_epochs": 2,
        "timed_examples": 300,
        "attention_dropout": False,
    },
    "cr": {"dense_epochs": 4, "epochs": 8, "polish_epochs": 8},
    "mpqa": {"dense_epochs": 3, "epochs": 4, "polish_epochs": 4},
}
SENTENCES = {"cr": "custrev.all", "mpqa": "mpqa.all"}
LINES = tables.Table(("text",), "label", names=("label", "text"), separator=" ", encoding="latin-1")


def split_sentences(task: str, folder: Path) -> None:
    """Write a file of labelled sentences as the splits of a task of one's own, where not there."""
    if (folder / "train.tsv").is_file():
        return
    root = given_folder(None)
    if root is None:
        raise SystemExit(f"{task} needs SPARING_DATA with sent-conv/{SENTENCES[task]}")
    place = find(task, root / "sent-conv", (SENTENCES[task],))
    found, _ = tables.read_table(place, LINES, tables.classes(("0", "1")), skip_broken=True)
    rows = [(row.texts[0], row.label) for row in found]
    labels = dict(reversed(rows))  # each text once
    texts = sorted(labels)
    random.Random(0).shuffle(texts)
    fifth = len(texts) // 5
    splits = {"test": texts[:fifth], "validation": texts[fifth : 2 * fifth]}
    folder.mkdir(parents=True, exist_ok=True)
    for name, chosen in {**splits, "train": texts[2 * fifth :]}.items():
        lines = ["text\tlabel", *(f"{text}\t{labels[text]}" for text in chosen)]
        write_atomically(folder / f"{name}.tsv", "\n".join(lines) + "\n")


def options_of(task: str, model: str, seed: int, given: argparse.Namespace) -> slim.Options:
    """The settings of one run."""
    own = dict(TASKS[task])
    if task in SENTENCES:
        folder = given.output_dir / "sentences" / task
        split_sentences(task, folder)
        own |= {"task": "text", "task_options": {"source": str(folder)}}
    common = slim.Options(
        model=model,
        task=task,
        speed=given.speed,
        seed=seed,
        continue_dense=True,
        static_control=seed == 0,
        compiled=True,
        precision="fast",
    )
    return replace(common, **own)


def forms(records: Iterable[Record], name: str, arm: str, batch: int) -> list[Record]:
    """The records of one arm at one batch size, every engine."""
    wanted = {"arm": arm, "batch": batch}.items()
    return [r for r in records if r.name == name and wanted <= r.labels.items()]


def summary_of(records: list[Record], batch: int) -> dict[str, Any] | None:
    """Speed and score difference of ours in its fastest engine; None where there is none."""
    speeds = forms(records, "speed_up", "slim", batch)
    if not speeds:
        return None
    best = max(speeds, key=lambda record: record.value or 0.0)
    gap = next(
        record
        for record in forms(records, "score_difference", "slim", batch)
        if record.labels["engine"] == best.labels["engine"]
    )
    return {
        "speed_up": best.value,
        "speed_interval": best.interval,
        "difference": gap.value,
        "difference_interval": gap.interval,
        "examples": gap.count,
    }


def gaps_of(folder: Path, arm: str) -> NDArray[np.float64] | None:
    """By test example: 1 where only this arm is right, -1 where only dense is, else 0."""
    answers = load_file(folder / FILE)
    if arm not in answers:
        return None
    right = {name: answers[name].argmax(-1) == answers["labels"] for name in (arm, DENSE)}
    gaps: NDArray[np.float64] = (right[arm].double() - right[DENSE].double()).numpy()
    return gaps


def pooled(folders: dict[str, list[Path]], arm: str) -> PooledDifference | None:
    """The accuracy that an arm loses or gains over all tasks and seeds; None where none has it.

    ``folders`` are the runs of each task, one for each seed. The bound is the one-sided 95 % one.
    """
    tasks = []
    for places in folders.values():
        found = [gaps for place in places if (gaps := gaps_of(place, arm)) is not None]
        if found:
            tasks.append(np.stack(found))
    return pool_differences(tasks) if tasks else None


def speeds(rows: list[dict[str, Any]], batch: int) -> float | None:
    """The geometric mean of the runs' speeds; each task counts as much as the others."""
    chosen = [row for row in rows if row["batch"] == batch]
    tasks = {row["task"] for row in chosen}
    logs = [mean(log(row["speed_up"]) for row in chosen if row["task"] == task) for task in tasks]
    return exp(mean(logs)) if logs else None


def show(rows: list[dict[str, Any]], totals: dict[str, PooledDifference]) -> None:
    """The runs and what they come to."""
    table = Table("task", "seed", "batch", "speed over the fastest dense", "difference", box=None)
    for row in rows:
        low, high = (100 * end for end in row["difference_interval"])
        gap = f"{100 * row['difference']:+.2f} ({low:+.2f} to {high:+.2f}) points"
        table.add_row(
            row["task"], str(row["seed"]), str(row["batch"]), f"{row['speed_up']:.2f}", gap
        )
    console = Console()
    console.print(table)
    for batch in sorted({row["batch"] for row in rows}):
        console.print(f"batch {batch}: {speeds(rows, batch):.2f} times as fast over all tasks")
    for arm, total in totals.items():
        console.print(
            f"{arm}: {100 * total.value:+.2f} points of accuracy, above {100 * total.bound:+.2f} "
            f"with 95 % confidence, over {total.examples} test examples and {total.runs} runs"
        )


def run_one(task: str, seed: int, given: argparse.Namespace, bar: Progress) -> list[dict[str, Any]]:
    """Do what is missing of a run, and sum it up by batch size."""
    place = place_of(task, seed, given)
    if given.records is not None:
        return rows_of(RecordLog(place / "records.jsonl").read(), task, seed)
    line = bar.add_task(place.name, total=1.0)

    def tell(share: float, text: str) -> None:
        bar.update(line, completed=share, description=f"{place.name}: {text}")

    result = slim.run(options_of(task, given.model, seed, given), place, on_progress=tell)
    write_report(place)
    if result.failures:
        first = result.failures[0]
        raise SystemExit(f"{place}: the step {first.cell} failed: {first.error}")
    return rows_of(result.records, task, seed)


def place_of(task: str, seed: int, given: argparse.Namespace) -> Path:
    """Where a run lies: in a folder of its own, or among records under a dated name."""
    if given.records is None:
        return Path(given.output_dir) / f"{task}-{seed}"
    found = sorted(given.records.glob(f"slim-{task}-seed-{seed}-*"))
    if len(found) != 1:
        raise SystemExit(f"{given.records} holds {len(found)} runs of {task} with seed {seed}")
    return Path(found[0])


def rows_of(records: list[Record], task: str, seed: int) -> list[dict[str, Any]]:
    """What a run came to, a line for each batch size."""
    found = {batch: summary_of(records, batch) for batch in (1, 8)}
    return [
        {"task": task, "seed": seed, "batch": batch, **row} for batch, row in found.items() if row
    ]


def main() -> None:
    """Do what is missing, then pool."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", default="", help="a pretrained encoder's folder")
    source.add_argument("--records", type=Path, help="a folder of finished runs, to pool alone")
    parser.add_argument("--tasks", default="sst2,mrpc,imdb", help="separated by commas")
    parser.add_argument("--seeds", default="0,1,2", help="separated by commas")
    parser.add_argument(
        "--speed", type=float, default=2.0, help="the speed to aim for, where a task has no own"
    )
    parser.add_argument("--output-dir", type=Path, default=Path("runs/slim-tasks"))
    given = parser.parse_args()
    tasks, seeds = given.tasks.split(","), [int(seed) for seed in given.seeds.split(",")]
    with Progress() as bar:
        rows = [row for task in tasks for seed in seeds for row in run_one(task, seed, given, bar)]
    folders = {task: [place_of(task, seed, given) for seed in seeds] for task in tasks}
    totals = {arm: total for arm in ARMS if (total := pooled(folders, arm)) is not None}
    show(rows, totals)
    named = {arm: asdict(total) for arm, total in totals.items()}
    content = json.dumps({"runs": rows, "pooled_accuracy": named}, indent=2)
    write_atomically(given.output_dir / "summary.json", content + "\n")


if __name__ == "__main__":
    main()
