"""What a trained arm answers on a task's test split, and how good that is."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sparing.core.record import Label, Record
from sparing.slim.models import inputs_of
from sparing.tasks import Examples
from sparing.tasks.shared.scores import metric
from sparing.tasks.shared.spans import TEXT_METRICS
from sparing.train import evaluate
from sparing_papers.adaattention.arms import Work

Answers = Float[Tensor, "units outputs"]
# What Table I prints for every task but STS-B, whatever GLUE judges it by.
PRINTED_METRIC = "accuracy"


def answers_on_test(model: nn.Module, work: Work, *, batch: int = 64) -> Answers:
    """A row for each example: its outputs; where answers are stretches, a question's scores.

    Those stand in the order of the task's metrics. Computed where the model's weights are.
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
    """A model's outputs for a split, in its order, computed where its weights are."""
    model.eval()
    place = next((each.device for each in model.parameters()), torch.device("cpu"))
    found = torch.zeros(len(examples), work.task.classes)
    for indices, inputs in inputs_of(work.task, examples, batch):
        given = {name: value.to(place) for name, value in inputs.items()}
        found[indices] = model(**given).logits.float().cpu()
    return found


def score_of(
    work: Work, found: Answers, name: str = "", draw: Int[Tensor, " drawn"] | None = None
) -> float:
    """A metric of the answers, the task's own unless named; of these examples alone if drawn."""
    name = name or work.task.metric
    rows = found if draw is None else found[draw]
    if work.task.answer == "span":
        return float(rows[:, work.task.metrics.index(name)].double().mean())
    labels = work.task.test.labels
    return metric(name).score(rows, labels if draw is None else labels[draw])


def printed_metric(work: Work) -> str:
    """The metric that Table I prints: accuracy where there is one, else the task's own."""
    return PRINTED_METRIC if PRINTED_METRIC in work.task.metrics else work.task.metric


def scored(work: Work, arm: str, seed: int, found: Answers) -> list[Record]:
    """A record for each of the task's metrics."""
    labels: dict[str, Label] = {"arm": arm, "task": work.name, "seed": seed, "split": "test"}
    return [
        Record(
            "seed_score",
            score_of(work, found, name),
            "score",
            "measured",
            {**labels, "metric": name},
            count=len(found),
        )
        for name in work.task.metrics
    ]
