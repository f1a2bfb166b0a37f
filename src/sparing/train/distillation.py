"""Distillation from a dense model: its answers, and its hidden states layer by layer."""

from __future__ import annotations

import inspect

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from sparing.core.errors import Unsupported, UsageError
from sparing.core.ranks import mean_of, over_ranks
from sparing.mechanisms.shared.arithmetic import wide
from sparing.train.answers import label_loss, outputs_of, rows_of
from sparing.train.recipe import Distillation


def distillation_loss(
    student: nn.Module,
    teacher: nn.Module,
    batch: dict[str, Tensor],
    weights: Distillation,
    answer: str = "",
) -> Float[Tensor, ""]:
    """The loss of one batch: labels, the teacher's softened answers, and its hidden states.

    Formula: a CE(z, y) + b T^2 KL(softmax(t / T) || softmax(z / T)) + c mean_l MSE(h_l, g_m(l)).

    Symbols: z and t are the student's and the teacher's logits, h and g their hidden states at
    real tokens, T the temperature; student layer l of S is matched with teacher layer
    round(l M / S) of M, the embeddings with the embeddings. ``answer`` is the task's: divergences
    of several labels are summed; for entities the mean is over real tokens.

    Source: Hinton et al., 2015, arXiv 1503.02531, section 2 (the factor T^2 keeps the gradients'
    size); Jiao et al., 2020, arXiv 1909.10351, equation 8, for hidden states. What differs: widths
    are not projected; another width raises ``UsageError`` unless the hidden states' weight is 0.
    """
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    follow = weights.hidden_states > 0
    extra = {"output_hidden_states": True} if follow else {}
    if follow:
        _require_hidden_states(student, "model")
        _require_hidden_states(teacher, "teacher")
    made = student(**inputs, **extra)
    with torch.no_grad():
        goal = teacher(**inputs, **extra)
    logits, goal_logits = outputs_of(made), outputs_of(goal)
    _require_alike(logits, goal_logits)
    loss = weights.labels * label_loss(logits, batch["labels"], answer=answer)
    loss = loss + weights.outputs * _answer_divergence(
        wide(logits), wide(goal_logits), batch, weights.temperature, answer
    )
    if follow:
        keep = batch.get("attention_mask")
        distance = hidden_distance(made.hidden_states, goal.hidden_states, keep)
        loss = loss + weights.hidden_states * distance
    return loss


def _require_alike(student: Tensor, teacher: Tensor) -> None:
    if student.shape != teacher.shape:
        raise UsageError(
            f"the teacher has {teacher.shape[-1]} classes, the model {student.shape[-1]}"
        )


def _answer_divergence(
    student: Float[Tensor, "batch ..."],
    teacher: Float[Tensor, "batch ..."],
    batch: dict[str, Tensor],
    temperature: float,
    answer: str,
) -> Float[Tensor, ""]:
    """The divergence of one batch of answers of a task."""
    if answer == "labels":
        far = labels_divergence(student / temperature, teacher / temperature)
        return mean_of(far.sum(-1)) * temperature**2
    if answer == "entities":
        keep = batch["attention_mask"].bool()
        return output_divergence(student[keep], teacher[keep], temperature)
    return output_divergence(rows_of(student), rows_of(teacher), temperature)


def labels_divergence(
    logits: Float[Tensor, "texts labels"], goal: Float[Tensor, "texts labels"]
) -> Float[Tensor, "texts labels"]:
    """KL(goal || logits) of each label alone, in nats: it holds or it does not."""
    holds = goal.sigmoid()
    yes = F.logsigmoid(goal) - F.logsigmoid(logits)
    no = F.logsigmoid(-goal) - F.logsigmoid(-logits)
    return holds * yes + (1 - holds) * no


def _require_hidden_states(model: nn.Module, name: str) -> None:
    """Raise ``Unsupported`` for a model without hidden states, such as one that drops tokens."""
    known = inspect.signature(model.forward).parameters
    if not getattr(model, "gives_hidden_states", True) or (
        "output_hidden_states" not in known
        and not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known.values())
    ):
        raise Unsupported(
            f"the {name} gives no hidden states of all tokens: set "
            "recipe.distillation.hidden_states to 0"
        )


def output_divergence(
    student: Float[Tensor, "batch classes"],
    teacher: Float[Tensor, "batch classes"],
    temperature: float,
) -> Float[Tensor, ""]:
    """T^2 times the mean divergence of the student's softened answers from the teacher's.

    For one output, a number, the mean squared distance: softened, one output is always 1.
    """
    if student.shape[-1] == 1:
        return over_ranks(F.mse_loss(student, teacher), len(student))
    divergence = F.kl_div(
        F.log_softmax(student / temperature, -1),
        F.log_softmax(teacher / temperature, -1),
        reduction="batchmean",
        log_target=True,
    )
    return over_ranks(divergence * temperature**2, len(student))


def hidden_distance(
    student: tuple[Float[Tensor, "batch tokens width"], ...],
    teacher: tuple[Float[Tensor, "batch tokens teacher_width"], ...],
    keep: Int[Tensor, "batch tokens"] | None,
) -> Float[Tensor, ""]:
    """The mean over matched layers of the mean squared distance at real tokens.

    Both tuples begin with the embeddings; ``keep`` is 1 at real tokens. Raises ``UsageError`` when
    the shapes differ.
    """
    last, teacher_last = len(student) - 1, len(teacher) - 1
    distances = []
    for layer, hidden in enumerate(student):
        goal = teacher[round(layer * teacher_last / last)]
        if hidden.shape != goal.shape:
            raise UsageError(
                f"the teacher's hidden states are {tuple(goal.shape[1:])}, the model's "
                f"{tuple(hidden.shape[1:])}: set distillation.hidden_states to 0"
            )
        squares = (wide(hidden) - wide(goal)).square().mean(-1)
        distances.append(squares.mean() if keep is None else squares[keep.bool()].mean())
    tokens = len(squares.flatten()) if keep is None else keep.sum()
    return over_ranks(torch.stack(distances).mean(), tokens)
