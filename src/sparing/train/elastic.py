"""Training one model for every budget: each batch trains a random part of it."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from sparing.core.errors import UsageError
from sparing.core.ranks import mean_of, over_ranks
from sparing.layers.plan import Plan, narrowed, narrowing
from sparing.mechanisms.shared.arithmetic import wide
from sparing.train.answers import label_loss
from sparing.train.distillation import labels_divergence, output_divergence
from sparing.train.recipe import Distillation


@dataclass(frozen=True)
class Draw:
    """The plans that a training step may choose at random.

    ``widths`` are shares of heads and neurons, with the probabilities ``width_chances``; ``tokens``
    are shares kept after layer ``tokens_after``, with equal probabilities. Depth is not random: all
    exits are trained in every step. ``narrow`` are shares of the width for the rest of the model,
    with equal probabilities. They apply to inputs with a confidence above ``narrow_above`` after
    layer ``narrow_after``; 1 keeps the width for all. ``gated`` trains the model's token gates;
    their open share counts in the loss with ``gate_weight``. After ``soft_steps`` (None: never)
    gates no longer change and tokens are really dropped, so the weights adapt to it.
    """

    widths: tuple[float, ...] = (1.0, 2 / 3, 1 / 2)
    width_chances: tuple[float, ...] = (0.3, 0.5, 0.2)
    tokens: tuple[float, ...] = (1.0,)
    tokens_after: int = 2
    narrow: tuple[float, ...] = (1.0,)
    narrow_after: int = 2
    narrow_above: float = 0.9
    gated: bool = False
    gate_weight: float = 0.5
    soft_steps: int | None = None

    def __post_init__(self) -> None:
        if not self.widths or len(self.widths) != len(self.width_chances):
            raise UsageError("draw.widths and draw.width_chances must be of one length, not empty")
        if min(self.width_chances) < 0 or sum(self.width_chances) <= 0:
            raise UsageError("draw.width_chances must not be negative, and not all 0")
        shares = (*self.widths, *self.tokens, *self.narrow)
        if not self.tokens or not self.narrow or any(not 0 < share <= 1 for share in shares):
            raise UsageError("draw.widths, draw.tokens and draw.narrow are shares in (0, 1]")
        if self.gated and (self.tokens != (1.0,) or self.narrow != (1.0,)):
            raise UsageError("draw.gated goes with neither draw.tokens nor draw.narrow")

    def describe(self) -> dict[str, Any]:
        """For JSON; fields without effect are left out."""
        idle = {"gated", "gate_weight", "soft_steps"} if not self.gated else set()
        if self.narrow == (1.0,):
            idle |= {"narrow", "narrow_after", "narrow_above"}
        return {name: value for name, value in asdict(self).items() if name not in idle}

    def soft(self, step: int) -> bool:
        """Whether gates still learn in a step."""
        return self.gated and (self.soft_steps is None or step < self.soft_steps)

    def typical(self, model: Any) -> Plan:
        """The most frequent width, for validations between epochs."""
        share = self.widths[self.width_chances.index(max(self.width_chances))]
        return narrowed(model.encoder.sizes, share)

    def plan(self, model: Any, seed: int, step: int) -> Plan:
        """The plan of a step: a function of seed and step, so a resumed run has the same."""
        chance = random.Random(f"{seed}:{step}")
        share = chance.choices(self.widths, self.width_chances)[0]
        plan = narrowed(model.encoder.sizes, share)
        token_share = chance.choice(self.tokens)
        if self.gated:
            return replace(plan, gated=True)
        plan = replace(plan, tokens_kept=token_share, tokens_after=self.tokens_after)
        narrow = chance.choice(self.narrow)
        if narrow == 1:
            return plan
        return narrowing(plan, narrow, after=self.narrow_after, above=self.narrow_above)


class ElasticLoss:
    """The mean loss of all exits of a random plan, with a dense teacher.

    Formula: mean over exits e of [a CE(z_e, y) + b T^2 KL(softmax(t / T) || softmax(z_e / T))]
    + c mean_l MSE(h_l, g_l).

    Symbols: z_e are the logits at exit e, t the teacher's; h_l and g_l the hidden states after
    layer l at real tokens; a, b, c and T as in ``Distillation``. Hidden states are compared up to
    the layer after which tokens are dropped. Gates add their weight times the share of tokens that
    pass them, a mean over gates.

    Source: Hou et al., 2020 (DynaBERT), arXiv 2004.04037, section 2.2, for widths; Lee et al.,
    2015, arXiv 1409.5185, for loss at every depth. What differs: one plan a step instead of all.
    """

    splits = True

    def __init__(
        self, teacher: nn.Module, weights: Distillation, draw: Draw | None = None, seed: int = 0
    ) -> None:
        self.teacher: nn.Module | None = teacher
        self.weights, self.draw, self.seed = weights, draw or Draw(), seed

    def describe(self) -> dict[str, Any]:
        """The random plans."""
        return {"elastic": self.draw.describe(), "elastic_seed": self.seed}

    def __call__(self, model: Any, batch: dict[str, Tensor], step: int) -> Float[Tensor, ""]:
        """The loss of a batch with ``labels``."""
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        plan = self.draw.plan(model, self.seed, step)
        rows, layout = model.embed(**inputs)
        trace = model.encoder.trace(rows, layout, plan, soft=self.draw.soft(step))
        follow = self.weights.hidden_states > 0
        assert self.teacher is not None
        with torch.no_grad():
            goal = self.teacher(**inputs, output_hidden_states=follow)
        outputs = next(iter(trace.answers.values())).shape[-1]
        answers = wide(self.goal(goal, inputs))
        if answers.shape[-1] != outputs:
            raise UsageError(
                f"the teacher has {answers.shape[-1]} classes, the model with {outputs}"
            )
        losses = [self.of_answer(wide(z), answers, batch) for z in trace.answers.values()]
        loss = torch.stack(losses).mean()
        if trace.open:
            share = torch.stack([mean_of(wide(gates)) for gates in trace.open]).mean()
            loss = loss + self.draw.gate_weight * share
        if follow:
            last = plan.tokens_after if plan.drops_tokens else plan.layers
            if plan.gated:
                last = min(int(number) for number in model.encoder.gates)
            keep = inputs.get("attention_mask")
            states = model.like_dense(trace.states[: last + 1])
            distance = packed_distance(states, goal.hidden_states, keep)
            loss = loss + self.weights.hidden_states * distance
        return loss

    def goal(self, output: Any, inputs: dict[str, Tensor]) -> Tensor:
        """The teacher's answers, of the form that the model's have."""
        logits: Tensor = output.logits
        return logits

    def of_answer(self, logits: Tensor, goal: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """The loss of one exit's answers, without hidden states."""
        weights = self.weights
        right = label_loss(logits, batch["labels"])
        close = output_divergence(logits, goal, weights.temperature)
        return weights.labels * right + weights.outputs * close


class VectorLoss(ElasticLoss):
    """The same for vectors: at every depth b times the mean of 1 - cosine with the teacher's.

    Labels do not count. Source: Reimers and Gurevych, 2020, arXiv 2004.09813, section 2, where the
    loss is the squared distance from a teacher's vectors. What differs: only directions are
    followed, as cosines compare them.
    """

    def of_answer(self, logits: Tensor, goal: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """How far the vectors of one depth point from the teacher's."""
        far = 1 - torch.cosine_similarity(logits, goal, dim=-1)
        return self.weights.outputs * mean_of(far)


class LabelsLoss(ElasticLoss):
    """The same for several labels: the divergence from the teacher is a sum over labels.

    Formula: b T^2 mean over texts of sum over labels l of KL(Ber(s(t_l / T)) || Ber(s(z_l / T))).
    Symbols: s is the logistic function, Ber(p) a label that holds with probability p; the others as
    in ``ElasticLoss``. Labels of the data do not count.
    """

    def of_answer(self, logits: Tensor, goal: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """How far the probabilities of one depth are from the teacher's."""
        heat = self.weights.temperature
        far = labels_divergence(logits / heat, goal / heat).sum(-1)
        return self.weights.outputs * heat**2 * mean_of(far)


class NumberLoss(ElasticLoss):
    """The same for a number: b times the mean squared difference from the teacher's.

    Differences are divided by ``scale``, such as the deviation of the teacher's numbers, so that
    the loss has no unit.
    """

    scale = 1.0

    def of_answer(self, logits: Tensor, goal: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """How far the numbers of one depth are from the teacher's."""
        return self.weights.outputs * mean_of(((logits - goal) / self.scale).square())

    def describe(self) -> dict[str, Any]:
        """The random plans, and the scale."""
        return {**super().describe(), "scale": self.scale}


class EntityLoss(ElasticLoss):
    """The same for a label of each token: the mean over tokens of the divergence of each.

    Labels do not count; pads have no loss. Every token is a row of its own here.
    """

    def goal(self, output: Any, inputs: dict[str, Tensor]) -> Tensor:
        """The teacher's logits of all real tokens."""
        logits: Tensor = output.logits
        return logits[inputs["attention_mask"].bool()]

    def of_answer(self, logits: Tensor, goal: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """How far the probabilities of one depth are from the teacher's."""
        weights = self.weights
        return weights.outputs * output_divergence(logits, goal, weights.temperature)


class SpanLoss(ElasticLoss):
    """The same for a first and a last token: b T^2 times the divergence of each end, over two.

    The probabilities of an end are over all tokens of a text. Labels do not count.
    """

    def goal(self, output: Any, inputs: dict[str, Tensor]) -> Tensor:
        """The teacher's logits of both ends for all real tokens."""
        ends = torch.stack((output.start_logits, output.end_logits), -1)
        return ends[inputs["attention_mask"].bool()]

    def of_answer(self, logits: Tensor, goal: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """How far the probabilities of one depth are from the teacher's."""
        keep = batch["attention_mask"].bool()
        lowest = torch.finfo(logits.dtype).min

        def by_text(rows: Tensor) -> Tensor:
            padded = rows.new_full((*keep.shape, 2), lowest)
            padded[keep] = rows
            return padded.transpose(1, 2).flatten(0, 1)

        heat = self.weights.temperature
        ours, theirs = by_text(logits / heat), by_text(goal / heat)
        far = functional.kl_div(
            ours.log_softmax(-1), theirs.log_softmax(-1), reduction="batchmean", log_target=True
        )
        return self.weights.outputs * heat**2 * over_ranks(far, 2 * len(keep))


def packed_distance(
    states: list[Float[Tensor, "rows width"]],
    goals: tuple[Float[Tensor, "batch tokens teacher_width"], ...],
    keep: Int[Tensor, "batch tokens"] | None,
) -> Float[Tensor, ""]:
    """The mean squared distance from a teacher's padded hidden states at the same layers.

    Both begin with the embeddings, which are left out; ``keep`` is 1 at real tokens. Raises
    ``UsageError`` where the teacher has too few layers or another width.
    """
    if len(goals) < len(states) or goals[-1].shape[-1] != states[-1].shape[-1]:
        raise UsageError(
            f"the teacher has {len(goals) - 1} layers of width {goals[-1].shape[-1]}, the model "
            f"{len(states) - 1} or more of {states[-1].shape[-1]}: set distillation.hidden_states "
            "to 0"
        )
    distances = []
    for state, goal in zip(states[1:], goals[1:], strict=False):
        real = goal.flatten(0, 1) if keep is None else goal[keep.bool()]
        distances.append((wide(state) - wide(real)).square().mean())
    return over_ranks(torch.stack(distances).mean(), len(states[0]))
