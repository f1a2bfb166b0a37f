"""Fitting the learned confidence: the probability that an early answer is the whole model's."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.layers.confidence import ConfidenceHead, confidence_inputs
from sparing.layers.plan import Plan, full_plan
from sparing.tasks import Examples, Task
from sparing.train.evaluation import batches_by_length, evaluating
from sparing.transfer.adaptive import AdaptiveClassifier

STRENGTHS = (1e-3, 1e-2, 1e-1)
FOLDS = 3
LEAST = 10


@dataclass(frozen=True)
class ConfidenceFit:
    """One exit's fitted head.

    ``examples`` it was fitted to, ``agreed`` of them with the whole model's answer, and the inverse
    penalty that cross-validation chose (None: there was nothing to learn).
    """

    layer: int
    examples: int
    agreed: int
    strength: float | None


def fit_confidence(
    model: AdaptiveClassifier,
    task: Task,
    *,
    plan: Plan | None = None,
    split: str = "train",
    examples: int = 4000,
    seed: int = 0,
) -> list[ConfidenceFit]:
    """Give every exit before the end a learned confidence.

    A plan uses it with ``confidence="learned"``. The head at an exit is a logistic regression
    (scikit-learn; squared penalty chosen by cross-validation). Its label is whether the exit's
    answer under ``plan`` (the model's own unless given) is that of the whole model. It sees
    ``examples`` of a split, sampled with ``seed``; the model itself does not change. Fit it after
    distillation: other weights make it stale. Existing heads are replaced. Raises ``UsageError``
    for a model without an exit before the end, and for fewer than ten examples.
    """
    plan = (model.plan if plan is None else plan).without_choice
    model.encoder.check_runs(plan)
    exit_layers = [exit_layer for exit_layer in model.encoder.exits if exit_layer < plan.layers]
    if not exit_layers:
        raise UsageError("the model has no exit before the last layer: a confidence has no use")
    model.encoder.check_runs(replace(plan, exits=tuple(exit_layers), threshold=0.5))
    chosen = _drawn(task.split(split), examples, seed)
    seen, agree = _look(model, task, chosen, plan, exit_layers)
    model.encoder.add_confidences(exit_layers)
    fits = []
    for number in exit_layers:
        weights, strength = _logistic(seen[number].double().numpy(), agree[number].numpy())
        _write(model.encoder.confidence_head(number), weights)
        fits.append(ConfidenceFit(number, len(chosen), int(agree[number].sum()), strength))
    return fits


def _drawn(examples: Examples, count: int, seed: int) -> Examples:
    """Some of a split's examples."""
    if min(count, len(examples)) < LEAST:
        raise UsageError(f"a confidence needs {LEAST} examples or more to learn from")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(examples), generator=generator)[:count]
    return examples.subset(order.tolist())


@torch.no_grad()
def _look(
    model: AdaptiveClassifier, task: Task, examples: Examples, plan: Plan, places: list[int]
) -> tuple[dict[int, Float[Tensor, "examples _"]], dict[int, Bool[Tensor, " examples"]]]:
    """The inputs of the head at each exit, and whether the exit's answer is the whole model's."""
    encoder, whole = model.encoder, full_plan(model.encoder.sizes)
    seen: dict[int, list[Tensor]] = {number: [] for number in places}
    agree: dict[int, list[Tensor]] = {number: [] for number in places}
    with evaluating(model):
        for indices in batches_by_length(examples, 64):
            batch = task.collate([examples[index] for index in indices])
            batch.pop("labels")
            given = {name: value.to(model.device) for name, value in batch.items()}
            embedded = model.embed(**given)
            trace = encoder.trace(*embedded, plan)
            last = trace.answers if plan == whole else encoder.trace(*embedded, whole).answers
            answer = last[whole.layers].argmax(-1)
            for number in places:
                logits = trace.answers[number]
                seen[number].append(confidence_inputs(trace.pooled[number], logits).cpu())
                agree[number].append((logits.argmax(-1) == answer).cpu())
    return (
        {number: torch.cat(parts) for number, parts in seen.items()},
        {number: torch.cat(parts) for number, parts in agree.items()},
    )


def _logistic(
    seen: NDArray[np.float64], agree: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], float | None]:
    """Weights, the bias last, and the chosen strength.

    Where too few examples are of one kind the head is constant: (agreed + 1) / (examples + 2), so
    no answer has confidence 1.
    """
    from sklearn.linear_model import LogisticRegressionCV

    rarer = min(int(agree.sum()), int((~agree).sum()))
    if rarer < FOLDS:
        likely = (agree.sum() + 1) / (len(agree) + 2)
        constant = np.zeros(seen.shape[1] + 1)
        constant[-1] = np.log(likely / (1 - likely))
        return constant, None
    middle, spread = seen.mean(0), seen.std(0)
    spread[spread == 0] = 1.0
    search = LogisticRegressionCV(
        Cs=list(STRENGTHS), cv=FOLDS, scoring="neg_log_loss", max_iter=500
    )
    with warnings.catch_warnings():
        # renamed parameters of scikit-learn's next versions; results do not depend on them
        warnings.simplefilter("ignore", FutureWarning)
        search.fit((seen - middle) / spread, agree)
    weights = search.coef_[0] / spread
    bias = search.intercept_[0] - float(weights @ middle)
    return np.append(weights, bias), float(np.ravel(search.C_)[0])


@torch.no_grad()
def _write(head: ConfidenceHead, weights: NDArray[np.float64]) -> None:
    values = torch.from_numpy(weights)
    head.linear.weight.copy_(values[None, :-1])
    head.linear.bias.copy_(values[-1:])
