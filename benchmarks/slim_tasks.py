"""Slim one pretrained encoder on several tasks and seeds, and pool what was gained and lost.

    python benchmarks/slim_tasks.py --model PATH --tasks sst2,mrpc,imdb --seeds 0,1,2

Each (task, seed) is a run of ``sparing slim`` in its own folder, with the dense baseline trained on
as long as slim distils. Plans are chosen on the dev set where there is one, and accuracy is
measured on the whole labelled test set, example by example. What is finished is read back, so the
whole may be run in parts, also by several processes. Data comes from SPARING_DATA; ``cr`` and
``mpqa`` (Hu and Liu, 2004; Wiebe et al., 2005) have no published split. Three fifths of their
texts, each once, are for training, a fifth for choosing, a fifth for testing, in every run the
same. Training is in bfloat16 where the processor multiplies in it (AVX512-BF16, AMX). On one thread
of such a server expect an hour for each run of sst2 or mrpc, less for cr and mpqa, four hours for
imdb. On another server expect about twice that. What it ends with is of ``slim_pool.py``.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.progress import Progress

from slim_pool import rows_of, show, write_summary
from sparing.experiment.registry import find_study
from sparing.experiment.run import write_atomically
from sparing.report.page import write_report
from sparing.slim import study as slim
from sparing.tasks.shared import table as tables
from sparing.tasks.shared.files import find, given_folder

TASKS: dict[str, dict[str, Any]] = {
    "sst2": {
        "task_options": {"test": "labelled", "examples": 20000},
        "choose_on": "dev",
        "dense_epochs": 2,
        "epochs": 2,
        "fixed_width_epochs": 3,
    },
    "mrpc": {
        "task_options": {"test": "labelled"},
        "choose_on": "dev",
        "dense_epochs": 4,
        "epochs": 4,
        "fixed_width_epochs": 5,
    },
    "imdb": {
        "task_options": {"max_tokens": 512, "examples": 6000, "held_out": 4000},
        "dense_epochs": 2,
        "epochs": 2,
        "fixed_width_epochs": 2,
        "batch_size": 16,
        # around the half of the FLOPs that 1.8 times the speed needs
        "widths": (1.0, 5 / 6, 2 / 3),
        "width_chances": (0.2, 0.4, 0.4),
        "tokens": (1.0, 0.7),
        "timed_examples": 200,
        "rounds": 2,
        "attention_dropout": False,
    },
    "cr": {"dense_epochs": 4, "epochs": 8, "fixed_width_epochs": 8},
    "mpqa": {"dense_epochs": 3, "epochs": 4, "fixed_width_epochs": 4},
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
    path = find(task, root / "sent-conv", (SENTENCES[task],))
    rows_read, _ = tables.read_table(path, LINES, tables.classes(("0", "1")), skip_broken=True)
    rows = [(row.texts[0], row.label) for row in rows_read]
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
    changes = dict(TASKS[task])
    if task in SENTENCES:
        folder = given.output_dir / "sentences" / task
        split_sentences(task, folder)
        changes |= {"task": "text", "task_options": {"source": str(folder)}}
    common = slim.Options(
        model=model,
        task=task,
        speed=given.speed,
        seed=seed,
        continue_dense=True,
        static_control=True,
        compiled=True,
        precision="fast",
    )
    return replace(common, **changes)


def run_one(task: str, seed: int, given: argparse.Namespace, bar: Progress) -> list[dict[str, Any]]:
    """Do what is missing of a run, and sum it up by form and batch size."""
    run_dir = given.output_dir / f"{task}-{seed}"
    line = bar.add_task(run_dir.name, total=1.0)

    def tell(share: float, text: str) -> None:
        bar.update(line, completed=share, description=f"{run_dir.name}: {text}")

    result = find_study("slim").run(
        options_of(task, given.model, seed, given), run_dir, on_progress=tell
    )
    write_report(run_dir)
    if result.failures:
        first = result.failures[0]
        raise SystemExit(f"{run_dir}: the step {first.cell} failed: {first.error}")
    return rows_of(result.records, task, seed)


def main() -> None:
    """Do what is missing, then pool."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a pretrained encoder's folder")
    parser.add_argument("--tasks", default="sst2,mrpc,imdb", help="separated by commas")
    parser.add_argument("--seeds", default="0,1,2", help="separated by commas")
    parser.add_argument(
        "--speed",
        type=float,
        default=1.8,
        help="the speed to aim for; fine-tuning at fixed width goes beyond it",
    )
    parser.add_argument("--output-dir", type=Path, default=Path("runs/slim-tasks"))
    given = parser.parse_args()
    tasks, seeds = given.tasks.split(","), [int(seed) for seed in given.seeds.split(",")]
    with Progress() as bar:
        rows = [row for task in tasks for seed in seeds for row in run_one(task, seed, given, bar)]
    folders = {task: [given.output_dir / f"{task}-{seed}" for seed in seeds] for task in tasks}
    print(show(rows, folders))
    write_summary(given.output_dir / "summary.json", rows, folders)


if __name__ == "__main__":
    main()
