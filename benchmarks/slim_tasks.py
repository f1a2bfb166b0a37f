"""Slim one encoder on several tasks and seeds, and on your own texts without labels.

    python benchmarks/slim_tasks.py --model PATH --tasks sst2,mrpc,imdb --seeds 0,1,2
    python benchmarks/slim_tasks.py --model CLASSIFIER --texts FILE --sizes 500,2000,8000,20000
    python benchmarks/slim_tasks.py --model CLASSIFIER --texts sst2 --sizes 8000

Each (task, seed) is a run of ``sparing slim`` in its own folder, as is each (number of texts,
seed). Forms are chosen on the dev set where there is one. Accuracy is measured input by input on
the whole labelled test set, of film reviews on 2,000 of it. SST-2 is also distilled on training
texts that the dense model was not trained on, without their labels. What is finished is read back,
so the whole may be run in parts, also by several processes. Data comes from SPARING_DATA.

``cr`` and ``mpqa`` (Hu and Liu, 2004; Wiebe et al., 2005) have no published split. Three fifths of
their texts, each once, are for training, a fifth for choosing, a fifth for testing, in every run
the same. Texts without labels are sampled from a file, the smaller samples from the larger ones;
their model is a fine-tuned classifier. Instead of a file, a task's name means its training texts
that its runs leave out.

With ``--until fixed-width`` only the trainings are done, which may run side by side; a call without
it measures all forms afterwards, on a machine that does nothing else. On one thread expect an hour
or two for each run. It ends with the tables of ``slim_pool.py``.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.progress import Progress

import slim_pool
from sparing.cli.shared.settings import apply
from sparing.core.errors import SparingError
from sparing.experiment.inputs.task import load_for
from sparing.experiment.plan import Plan
from sparing.experiment.registry import find_study
from sparing.experiment.run import write_atomically
from sparing.report.page import write_report
from sparing.slim import study as slim
from sparing.slim.inputs import texts_of
from sparing.tasks.shared import table as tables
from sparing.tasks.shared.files import find, given_folder
from sparing.tasks.texts import read_texts

TASKS: dict[str, dict[str, Any]] = {
    "sst2": {
        "task_options": {"test": "labelled", "examples": 20000},
        "choose_on": "dev",
        "dense_epochs": 2,
        "epochs": 1,
        "fixed_width_epochs": 1,
        "unlabelled_examples": 20000,
    },
    "mrpc": {
        "task_options": {"test": "labelled"},
        "choose_on": "dev",
        "dense_epochs": 4,
    },
    "imdb": {
        "task_options": {"max_tokens": 256, "examples": 4000, "held_out": 4000},
        "dense_epochs": 2,
        "epochs": 2,
        "fixed_width_epochs": 2,
        "held_out_examples": 2000,
        "batch_size": 16,
        # around the half of the FLOPs that 1.8 times the speed needs
        "widths": (1.0, 5 / 6, 2 / 3),
        "width_chances": (0.2, 0.4, 0.4),
        "tokens": (1.0, 0.7),
        "timed_examples": 200,
        "rounds": 2,
        "attention_dropout": False,
    },
    "cr": {"dense_epochs": 4},
    "mpqa": {"dense_epochs": 3},
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


def unseen_file(task: str, given: argparse.Namespace) -> Path:
    """Where ``unseen_texts`` writes."""
    folder: Path = given.output_dir / "texts"
    return folder / f"unseen-{task}.jsonl"


def unseen_texts(task: str, given: argparse.Namespace) -> Path:
    """A file with the training texts of a task that are in no split of its runs."""
    path = unseen_file(task, given)
    if not path.is_file():
        options = TASKS[task]["task_options"]
        used, _ = load_for(task, options, given.model, None)
        every, _ = load_for(task, {**options, "examples": None}, given.model, None)
        seen = {tuple(row.tolist()) for split in used.splits.values() for row in split.inputs}
        rows = range(len(every.train))
        new = (row for row in rows if tuple(every.train.inputs[row].tolist()) not in seen)
        lines = [json.dumps({"text": texts_of(every, every.train, row)[0]}) for row in new]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, "\n".join(lines) + "\n")
    return path


def sample_texts(source: Path, count: int, folder: Path) -> Path:
    """A file with so many texts, or pairs, of another, sampled and without their labels."""
    path = folder / f"{count}.jsonl"
    if not path.is_file():
        texts = read_texts(source)
        rows = [texts.rows[index] for index in texts.distinct]
        if len(rows) < count:
            raise SystemExit(f"{source} has {len(rows):,} distinct texts, fewer than {count:,}")
        random.Random(0).shuffle(rows)
        names = ("sentence1", "sentence2") if texts.are_pairs else ("text",)
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows[:count]]
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, "\n".join(lines) + "\n")
    return path


def options_of(name: str, seed: int, given: argparse.Namespace) -> slim.Options:
    """The settings of one run; ``name`` is a task, or ``texts-`` and their number."""
    common = slim.Options(model=given.model, speed=given.speed, seed=seed, timed_examples=500)
    if name.startswith("texts-"):
        folder = given.output_dir / "texts"
        source = Path(given.texts)
        if given.texts in TASKS:
            source = unseen_texts(given.texts, given)
        path = sample_texts(source, int(name.removeprefix("texts-")), folder)
        return _changed(common, {"task": "", "texts": str(path)}, given)
    changes = {"task": name, **TASKS[name]}
    if "unlabelled_examples" in changes:
        changes["unlabelled"] = (str(unseen_file(name, given)),)
    if name in SENTENCES:
        folder = given.output_dir / "sentences" / name
        split_sentences(name, folder)
        changes |= {"task": "text", "task_options": {"source": str(folder)}}
    return _changed(common, changes, given)


def _changed(options: slim.Options, changes: Mapping[str, Any], given: Any) -> slim.Options:
    """The options with changes, those of the command line last."""
    changed: slim.Options = apply(replace(options, **changes), given.set)
    return changed


def run_one(name: str, seed: int, given: argparse.Namespace, bar: Progress) -> None:
    """Do what is missing of a run; raises ``SystemExit`` where a step fails."""
    run_dir = given.output_dir / f"{name}-{seed}"
    line = bar.add_task(run_dir.name, total=1.0)

    def show(share: float, text: str) -> None:
        bar.update(line, completed=share, description=f"{run_dir.name}: {text}")

    try:
        if "unlabelled_examples" in TASKS.get(name, {}):
            unseen_texts(name, given)
        study, options = find_study("slim"), options_of(name, seed, given)
        # each call reads the data anew, so that all steps are done in one where it is possible
        steps = ["*"]
        if given.until:
            steps = steps_until(given.until, study.plan(options, run_dir))
        for step in steps:
            result = study.run(options, run_dir, on_progress=show, cells=step)
            if result.failures:
                raise SystemExit(f"{run_dir}: a step failed: {result.failures[0].error}")
    except SparingError as error:
        raise SystemExit(f"{run_dir}: {error}") from error
    if not given.until:
        write_report(run_dir)


def steps_until(last: str, plan: Plan) -> list[str]:
    """The steps that are to be done, up to this one."""
    keys = [cell.key for cell in plan.cells]
    if last not in keys:
        raise SystemExit(f"no step is called {last!r}; there are: {', '.join(keys)}")
    return [cell.key for cell in plan.cells[: keys.index(last) + 1] if not cell.done]


def names_of(given: argparse.Namespace) -> list[str]:
    """The tasks, or the samples of texts."""
    if given.texts is not None:
        return [f"texts-{int(size)}" for size in given.sizes.split(",")]
    names: list[str] = given.tasks.split(",")
    for name in names:
        if name not in TASKS:
            raise SystemExit(f"no task is called {name!r} here; there are: {', '.join(TASKS)}")
    return names


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="an encoder's folder")
    parser.add_argument("--tasks", default="sst2,mrpc,imdb", help="separated by commas")
    parser.add_argument("--texts", help="a file of texts instead of tasks, or a task's name")
    parser.add_argument("--sizes", default="500,2000,8000,20000", help="samples of these texts")
    parser.add_argument("--seeds", default="0,1,2", help="separated by commas")
    parser.add_argument("--speed", type=float, default=2.0, help="the speed to aim for")
    parser.add_argument("--set", action="append", default=[], help="NAME=VALUE, as of slim")
    parser.add_argument("--until", default="", help="the last step to do, such as fixed-width")
    parser.add_argument("--output-dir", type=Path, default=Path("runs/slim-tasks"))
    return parser.parse_args()


def main() -> None:
    """Do what is missing, then pool."""
    given = arguments()
    with Progress() as bar:
        for name in names_of(given):
            for seed in given.seeds.split(","):
                run_one(name, int(seed), given, bar)
    if not given.until:
        slim_pool.pool(given.output_dir, given.output_dir / "summary.json")


if __name__ == "__main__":
    main()
