"""How many answers are correct that forms made without labels give to a labelled test set.

    python benchmarks/slim_labels.py runs/slim-tasks --task sst2 --output FILE

Each run of slim on texts without labels that reached its end counts (``slim_tasks.py --texts``).
Its served form and the dense model that it was made from answer the labelled test set of the task,
one text at a time. The difference in accuracy has a 90 % interval over texts. Texts of the test set
may be of another kind than those that the agreement was certified on: both shares are shown.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from slim_from_bert import steps_in
from slim_pool import SlimRun, finished
from slim_tasks import TASKS
from sparing.core.errors import SparingError
from sparing.core.writing import write_atomically
from sparing.experiment.inputs.task import load_for
from sparing.experiment.study import base_config
from sparing.export.folder import open_chain
from sparing.report.estimates import with_ends
from sparing.report.markdown import plain_table
from sparing.slim.inputs import answers_to
from sparing.slim.promise import promise_of
from sparing.slim.search.resampling import score_difference
from sparing.slim.steps import Steps, logits_one_by_one
from sparing.tasks import Task

HEADS = ("run", "served form", "dense", "served", "difference, points", "equal answers")


def served_answers(steps: Steps, run: SlimRun, task: Task) -> Tensor:
    """The served form's logits of the labelled test rows."""
    promise = promise_of(run.run.table)
    assert promise is not None  # ``finished`` has seen it
    if promise.form.engine == "eager":
        return logits_one_by_one(steps, steps.forms.run(promise.form), task.test)
    chain = open_chain(steps.models.folder / "model" / "serve")
    return logits_one_by_one(steps, lambda inputs: chain(inputs)[0], task.test)


def row_of(run: SlimRun, name: str) -> dict[str, Any]:
    """Accuracy of both, their difference and the share of equal answers."""
    assert run.run.folder is not None
    steps = steps_in(run.run.folder)
    task, _ = load_for(name, TASKS[name]["task_options"], steps.options.model, None)
    served, dense = (
        served_answers(steps, run, task),
        answers_to(task, task.test, steps.models.dense()),
    )
    truth = task.test.labels
    gap = score_difference("accuracy", served, dense, truth)
    correct = {
        key: float((x.argmax(-1) == truth).double().mean())
        for key, x in (("served_accuracy", served), ("dense_accuracy", dense))
    }
    same = float((served.argmax(-1) == dense.argmax(-1)).double().mean())
    facts = {"run": f"{run.task}-{run.seed}", "form": run.served, "texts": len(truth), **correct}
    return {**facts, "difference": gap.value, "interval": gap.interval, "equal": same}


def show(rows: list[Mapping[str, Any]]) -> str:
    """The rows as a table."""
    lines = []
    for row in rows:
        gap = with_ends(row["difference"], row["interval"], lambda gap: f"{100 * gap:+.2f}")
        shares = (f"{100 * row[name]:.1f} %" for name in ("dense_accuracy", "served_accuracy"))
        lines.append((row["run"], row["form"], *shares, gap, f"{100 * row['equal']:.1f} %"))
    return plain_table(HEADS, lines)


def main() -> None:
    """Answer, print the table and write the rows with the machine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="the folder of the runs")
    parser.add_argument("--task", default="sst2", choices=sorted(TASKS))
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    try:
        runs = [run for run in finished(given.runs) if run.labelless]
        if not runs:
            raise SystemExit(f"{given.runs} holds no finished run without labels")
        rows = [row_of(run, given.task) for run in runs]
    except SparingError as error:
        raise SystemExit(str(error)) from error
    print(show(rows))
    if given.output is not None:
        facts = base_config("slim-labels", {"task": given.task})
        write_atomically(given.output, json.dumps({**facts, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
