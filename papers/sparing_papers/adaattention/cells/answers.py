"""A trained variant's answers on a task's test split, their scores, and how they are stored.

Differences example by example need the answers. They are in the run's folder and in its records.
A run of which only the records are left resumes its other tasks and gives the same differences.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file
from torch import Tensor, nn

from sparing.core.errors import DataError, UsageError
from sparing.core.record import Label, Record
from sparing.experiment.run import save_tensors
from sparing.slim.inputs import inputs_of
from sparing.tasks import Examples
from sparing.tasks.shared.scores import metric
from sparing.tasks.shared.spans import TEXT_METRICS
from sparing.train import evaluate
from sparing_papers.adaattention.arms import Work

Answers = Float[Tensor, "units outputs"]
# The metric of Table I for every task but STS-B, whatever metric GLUE uses.
PRINTED_METRIC = "accuracy"
ANSWERS = "answers"
# How a record stores answers: the predicted class of each example, or all numbers of an answer.
CLASSES, NUMBERS = "classes", "numbers"
_TYPES: dict[str, np.dtype[Any]] = {CLASSES: np.dtype("<u2"), NUMBERS: np.dtype("<f4")}


def answers_on_test(model: nn.Module, work: Work, *, batch: int = 64) -> Answers:
    """A row for each example: its outputs; where answers are spans, a question's scores.

    Scores are in the order of the task's metrics. Computed on the device of the model's weights.
    """
    if work.task.answer != "span":
        return answers(model, work, work.task.test, batch)
    passages = work.task.test.passages
    assert passages is not None
    texts = evaluate(model, work.task, "test", batch_size=batch).predictions
    rows = [
        [TEXT_METRICS[name](str(text), question.answers) for name in work.task.metrics]
        for text, question in zip(texts, passages.questions, strict=True)
    ]
    return torch.tensor(rows, dtype=torch.float32)


@torch.inference_mode()
def answers(
    model: nn.Module, work: Work, examples: Examples, batch: int = 64
) -> Float[Tensor, "examples classes"]:
    """A model's outputs for a split, in its order, computed on the device of its weights."""
    model.eval()
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    outputs = torch.zeros(len(examples), work.task.classes)
    for indices, inputs in inputs_of(work.task, examples, batch):
        given = {name: value.to(device) for name, value in inputs.items()}
        outputs[indices] = model(**given).logits.float().cpu()
    return outputs


def score_of(
    work: Work, outputs: Answers, name: str = "", draw: Int[Tensor, " sampled"] | None = None
) -> float:
    """A metric of the answers, the task's main one unless named; with ``draw`` on those rows."""
    name = name or work.task.metric
    rows = outputs if draw is None else outputs[draw]
    if work.task.answer == "span":
        return float(rows[:, work.task.metrics.index(name)].double().mean())
    labels = work.task.test.labels
    return metric(name).score(rows, labels if draw is None else labels[draw])


def printed_metric(work: Work) -> str:
    """The metric that Table I prints: accuracy if the task has it, else its main metric."""
    return PRINTED_METRIC if PRINTED_METRIC in work.task.metrics else work.task.metric


def scored(work: Work, arm: str, seed: int, outputs: Answers) -> list[Record]:
    """A record for each of the task's metrics."""
    labels: dict[str, Label] = {"arm": arm, "task": work.name, "seed": seed, "split": "test"}
    records = []
    for name in work.task.metrics:
        about, value = {**labels, "metric": name}, score_of(work, outputs, name)
        records.append(Record("seed_score", value, "score", "measured", about, count=len(outputs)))
    return records


def keep(work: Work, arm: str, seed: int, outputs: Answers) -> Record:
    """Write the answers to the run's folder, and return the record of them.

    Of classes the record stores the likeliest alone, which is enough for differences.
    """
    save_tensors(_answers_path(work, arm, seed), {"logits": outputs})
    kind = CLASSES if work.task.answer == "class" else NUMBERS
    compact = outputs.argmax(-1) if kind == CLASSES else outputs
    packed = base64.b64encode(compact.numpy().astype(_TYPES[kind]).tobytes()).decode()
    labels: dict[str, Label] = {"arm": arm, "task": work.name, "seed": seed, "kind": kind}
    labels |= {"columns": outputs.shape[-1], "packed": packed}
    return Record(ANSWERS, None, "", "measured", labels, count=len(outputs))


def kept_answers(work: Work, arm: str, seed: int) -> Tensor | None:
    """The test answers of a trained variant; None if its cell has not finished."""
    path = _answers_path(work, arm, seed)
    return load_file(path)["logits"] if path.is_file() else None


def answers_of(record: Record) -> Answers:
    """The answers of a record; classes as one-hot rows.

    Raises ``DataError`` for a record without answers.
    """
    try:
        kind, columns = str(record.labels["kind"]), int(record.labels["columns"] or 0)
        raw = base64.b64decode(str(record.labels["packed"]), validate=True)
        values = torch.from_numpy(np.frombuffer(raw, _TYPES[kind]).astype(np.float32))
        if kind == CLASSES:
            outputs = torch.nn.functional.one_hot(values.long(), columns).float()
        else:
            outputs = values.reshape(record.count, columns)
    except (KeyError, TypeError, ValueError, RuntimeError, binascii.Error) as error:
        raise DataError(f"a record of {ANSWERS} holds no readable answers") from error
    if len(outputs) != record.count:
        raise DataError(
            f"a record of {ANSWERS} has answers for {len(outputs)} of {record.count} examples"
        )
    return outputs


def restore(works: Sequence[Work], records: Iterable[Record], finished: set[str]) -> None:
    """Write the answers of the records to the run's folder, where they are missing.

    Raises ``UsageError`` if those of a finished training are in neither: the run's results could
    not be computed again.
    """
    by_name = {work.name: work for work in works}
    for record in records:
        work = by_name.get(str(record.labels.get("task")))
        if record.name != ANSWERS or work is None:
            continue
        path = _answers_path(work, str(record.labels["arm"]), int(record.labels["seed"] or 0))
        if not path.is_file():
            save_tensors(path, {"logits": answers_of(record)})
    for key in sorted(finished):
        task, *rest = key.rsplit("/", 3)
        work = by_name.get(task)
        if work is None or rest[:1] != ["train"]:
            continue
        if kept_answers(work, rest[1], int(rest[2])) is None:
            raise UsageError(
                f"{work.folder} has the records of {key} without its answers, as older versions "
                "wrote them: sparing report shows it, but it cannot resume; use another folder"
            )


def _answers_path(work: Work, arm: str, seed: int) -> Path:
    name = f"{work.name.replace('/', '-')}-{arm.replace(' ', '-')}-{seed}"
    return work.folder / ANSWERS / f"{name}.safetensors"
