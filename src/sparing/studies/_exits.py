"""What every threshold would do, from one pass over a split: nobody need be run twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.layers.plan import Plan, full_plan
from sparing.tasks import Examples, Task
from sparing.tasks._scores import metric
from sparing.train.evaluation import batches_by_length
from sparing.transfer.adaptive import AdaptiveClassifier

THRESHOLDS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999)


@dataclass(frozen=True, eq=False)
class Outcomes:
    """A plan's answers at each of its exits, and what each layer took, example by example.

    ``logits[place]`` belong to the exit after layer ``exits[place]``; ``layer_flops`` are those of
    single layers without heads; ``head_flops`` those of one head.
    """

    plan: Plan
    exits: tuple[int, ...]
    logits: Float[Tensor, "exits examples classes"]
    layer_flops: Float[Tensor, "layers examples"]
    head_flops: int
    labels: Int[Tensor, " examples"]

    def subset(self, chosen: Sequence[int]) -> Outcomes:
        """The same for some of the examples."""
        index = torch.tensor(chosen, dtype=torch.long)
        return replace(
            self,
            logits=self.logits[:, index],
            layer_flops=self.layer_flops[:, index],
            labels=self.labels[index],
        )


@dataclass(frozen=True, eq=False)
class Decision:
    """Who leaves where under a threshold: each example's layer, answer and arithmetic."""

    plan: Plan
    layers: Int[Tensor, " examples"]
    logits: Float[Tensor, "examples classes"]
    flops: Float[Tensor, " examples"]

    @property
    def answers(self) -> Int[Tensor, " examples"]:
        """The classes answered."""
        return self.logits.argmax(-1)


@torch.no_grad()
def outcomes(
    model: AdaptiveClassifier, task: Task, examples: Examples, plan: Plan, batch_size: int = 64
) -> Outcomes:
    """Run a plan to its end on a split and keep what every exit answers."""
    plan = replace(plan, exits=(), threshold=1.0)
    encoder = model.encoder
    encoder.check_runs(plan)
    exits = tuple(place for place in encoder.exits if place <= plan.layers)
    count, classes = len(examples), model.config.num_labels
    logits = torch.zeros(len(exits), count, classes)
    flops = torch.zeros(plan.layers, count, dtype=torch.float64)
    head = encoder.head(plan.layers).flops
    was_training = model.training
    model.eval()
    for indices in batches_by_length(examples, batch_size):
        batch = task.collate([examples[index] for index in indices])
        batch.pop("labels")
        given = {name: value.to(model.device) for name, value in batch.items()}
        trace = encoder.trace(*model.embed(**given), plan)
        for place, number in enumerate(exits):
            logits[place, indices] = trace.answers[number].float().cpu()
        for number, lengths in enumerate(trace.lengths, start=1):
            took = encoder.flops(lengths, plan, number)
            flops[number - 1, indices] = took - (head if number == plan.layers else 0)
    model.train(was_training)
    return Outcomes(plan, exits, logits, flops, head, examples.labels)


def decide(
    found: Outcomes, threshold: float = 1.0, first: int = 1, layers: int | None = None
) -> Decision:
    """Let every example leave at the first exit from layer ``first`` on that is sure enough.

    ``layers`` ends the network there for those that are left; a threshold of 1 lets nobody leave
    before. Raises ``UsageError`` where there is no head after that layer.
    """
    end = found.plan.layers if layers is None else layers
    stops = tuple(n for n in found.exits if first <= n < end) if threshold < 1 else ()
    chosen = torch.full((len(found.labels),), end)
    for number in reversed(stops):
        sure = found.logits[found.exits.index(number)].softmax(-1).amax(-1) > threshold
        chosen[sure] = number
    plan = replace(
        found.plan,
        heads=found.plan.heads[:end],
        neurons=found.plan.neurons[:end],
        exits=stops,
        threshold=threshold,
    )
    return leave_at(found, plan, chosen)


def leave_at(found: Outcomes, plan: Plan, chosen: Int[Tensor, " examples"]) -> Decision:
    """The answers and the arithmetic when each example leaves after the layer chosen for it.

    Raises ``UsageError`` where there is no head after that layer.
    """
    for number in {plan.layers, *chosen.tolist()}.difference(found.exits):
        have = ", ".join(map(str, found.exits))
        raise UsageError(f"there is no exit head after layer {number}; there are after {have}")
    order = [found.exits.index(number) for number in chosen.tolist()]
    places = torch.tensor(order, dtype=torch.long)
    answers = found.logits[places, torch.arange(len(chosen))]
    layers = torch.arange(1, found.plan.layers + 1)
    run: Bool[Tensor, "layers examples"] = layers[:, None] <= chosen
    asked = torch.tensor([*plan.stops, plan.layers])
    heads = (asked[:, None] <= chosen).sum(0) * found.head_flops
    flops = (found.layer_flops * run).sum(0) + heads
    return Decision(plan, chosen, answers, flops)


def left_at_random(found: Outcomes, decision: Decision, seed: int) -> Decision:
    """The control: as many leave after each layer as in the decision, but others."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(decision.layers), generator=generator)
    return leave_at(found, decision.plan, decision.layers[order])


def dense_flops(model: AdaptiveClassifier, examples: Examples) -> Float[Tensor, " examples"]:
    """What the whole model takes for each example without its pads."""
    plan = full_plan(model.encoder.sizes)
    lengths = token_counts(model, examples)
    layers = [model.encoder.flops(lengths, plan, n) for n in range(1, plan.layers + 1)]
    return torch.stack(layers).sum(0)


def token_counts(model: AdaptiveClassifier, examples: Examples) -> Int[Tensor, " examples"]:
    """Tokens of each example; for images the patches and the tokens that the model adds."""
    if examples.input_name == "input_ids":
        return torch.tensor(examples.lengths)
    return torch.full((len(examples),), model.longest)


def score(task: Task, decision: Decision, labels: Int[Tensor, " examples"]) -> float:
    """The task's metric of the decision's answers."""
    return metric(task.metric).score(decision.logits, labels)
