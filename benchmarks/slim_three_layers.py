"""A slimmed model beside the dense model's first three layers, distilled as long.

    python benchmarks/slim_three_layers.py RUN [--train] --output FILE

RUN is a finished run of ``sparing slim`` on a labelled task. Its dense model's first three layers
are distilled on the same texts, for as many epochs as slim's two trainings together; ``--train``
does that alone. Then all three models run in every engine and precision that is here, all in turns
on the run's timed test texts, one at a time, without the tokenizer. Of each model and precision the
fastest engine counts. Speeds are over dense of the same precision, with 95 % intervals over texts.
The labels of the whole test split score them. Two columns have 90 % intervals: the share of the
dense score in float32, and the gain over three layers of the same precision.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from slim_from_bert import steps_in
from sparing.core.errors import SparingError
from sparing.core.writing import write_atomically
from sparing.experiment.owned import ANSWERS
from sparing.experiment.run import read_tensors
from sparing.experiment.study import base_config
from sparing.measure.inputs import InputTimes, fastest, speed_up, time_inputs
from sparing.report.estimates import with_ends
from sparing.report.markdown import plain_table
from sparing.slim.evidence.candidates import DENSE, OURS, Candidate
from sparing.slim.evidence.verify import as_scored, truth_of
from sparing.slim.inputs import inputs_of
from sparing.slim.steps import Steps, gap_record, logits_one_by_one
from sparing.tasks.shared.scores import metric
from sts_forms import THREE, forms_of, three_layers

EXACT, ROUNDS, BLOCK = "float32", 3, 10
NAMES = {DENSE: "dense", OURS: "slim", THREE: THREE}
HEADS = (
    *("task", "model", "precision", "engine", "ms", "over dense, same precision", "score"),
    *("share of the dense score", "better than three layers by"),
)
Key = tuple[str, Candidate]
Chosen = dict[tuple[str, str], Key]


def timed(steps: Steps, runs: Mapping[Key, Any]) -> tuple[Chosen, dict[str, InputTimes[Any]]]:
    """All forms in turns; the fastest of each model and precision, and all times by name."""
    inputs = [given for _, given in inputs_of(steps.task, steps.timed, 1)]
    calls = {_name(key): run for key, run in runs.items()}
    threads = steps.engines.thread_count
    times = time_inputs(calls, inputs, rounds=ROUNDS, threads=threads, block=BLOCK)
    chosen: Chosen = {}
    for pair in dict.fromkeys((model, form.precision) for model, form in runs):
        named = {_name(key): key for key in runs if (key[0], key[1].precision) == pair}
        chosen[pair] = named[fastest(times, list(named))]
    return chosen, times


def _name(key: Key) -> str:
    return f"{key[0]}: {key[1]}"


def rows_of(steps: Steps, runs: Mapping[Key, Any]) -> list[dict[str, Any]]:
    """A row for each model and precision."""
    chosen, times = timed(steps, runs)
    models, task = steps.models, steps.task
    name = (*models.scored, task.metric)[0]
    truth = truth_of(models.given) if models.scored else task.test.labels
    answers = answers_of(steps, runs, chosen)
    rows = []
    for (model, precision), key in chosen.items():
        mine, exact = answers[model, precision], answers[DENSE, EXACT]
        facts = {"task": models.given.name, "model": NAMES[model], "precision": precision}
        facts |= {"engine": key[1].engine, "metric": name}
        used, exact = as_scored(steps, name, exact)
        mine = as_scored(steps, name, mine)[1]
        three = as_scored(steps, name, answers[THREE, precision])[1]
        score = float(metric(used).score(exact, truth))
        ratio = speed_up(times[_name(key)], times[_name(chosen[DENSE, precision])])
        rows.append(
            facts
            | {
                "ms": float(times[_name(key)].typical_ms.mean()),
                "speed": [ratio.value, *(ratio.interval or (None, None))],
                "score": float(metric(used).score(mine, truth)),
                "share": [1 + part / score for part in gap(used, mine, exact, truth)],
                "better": gap(used, mine, three, truth),
            }
        )
    return rows


def answers_of(
    steps: Steps, runs: Mapping[Key, Any], chosen: Chosen
) -> dict[tuple[str, str], Tensor]:
    """The answers of the chosen forms to the whole test split; slim's run has those of its own."""
    file = steps.models.folder / ANSWERS
    stored = read_tensors(file) if file.is_file() else {}
    answers = {}
    for pair, (model, form) in chosen.items():
        known = stored.get(str(form)) if model in (DENSE, OURS) else None
        if known is None:
            known = logits_one_by_one(steps, runs[model, form], steps.task.test)
        answers[pair] = known
    return answers


def gap(name: str, mine: Tensor, other: Tensor, truth: Tensor) -> list[float]:
    """By how much a form's score is above another's, with its interval."""
    record = gap_record("difference", name, (mine, other), truth, {})
    value = float(record.value or 0)
    return [value, *(record.interval or (value, value))]


def layers_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as Markdown."""
    return plain_table(HEADS, [_line(row) for row in rows])


def _line(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        *(row["task"], row["model"], row["precision"], row["engine"], f"{row['ms']:.2f}"),
        "–" if row["model"] == "dense" else _shown(row["speed"], 2),
        f"{row['score']:.3f}",
        _shown(row["share"], 3),
        "–" if row["model"] == THREE else _shown(row["better"], 3),
    )


def _shown(values: Sequence[float], digits: int) -> str:
    value, low, high = values
    return with_ends(value, (low, high), f"{{:.{digits}f}}".format)


def main() -> None:
    """Train what is missing, time and score all forms, and write the rows with the machine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--train", action="store_true", help="only distil the three layers")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    try:
        steps = steps_in(given.run)
        if given.train:
            three_layers(steps)
            return
        rows = rows_of(steps, forms_of(steps))
    except SparingError as error:
        raise SystemExit(str(error)) from error
    print(layers_table(rows))
    if given.output is not None:
        facts = base_config("three layers", {"run": given.run.name, "rounds": ROUNDS})
        write_atomically(given.output, json.dumps({**facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
