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
from sparing.tasks.shared.scores import metric
from sparing.train.evaluation import batches_by_length, evaluating
from sparing.transfer.adaptive import AdaptiveClassifier
from sparing.transfer.patching import tokens_left

THRESHOLDS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999)


@dataclass(frozen=True, eq=False)
class Outcomes:
    """A plan's answers at each of its exits, and what each layer took, example by example.

    ``logits[i]`` belong to the exit after layer ``exits[i]``; ``layer_flops`` are those of
    single layers without heads; ``head_flops`` those of one head. ``narrower`` is the same for the
    plan's narrower form, where inputs may go on so. ``learned`` are the learned confidences, where
    the model has them (NaN where it has none), and ``learned_flops`` what one of them takes.
    """

    plan: Plan
    exits: tuple[int, ...]
    logits: Float[Tensor, "exits examples classes"]
    layer_flops: Float[Tensor, "layers examples"]
    head_flops: int
    labels: Int[Tensor, " examples"]
    narrower: Outcomes | None = None
    learned: Float[Tensor, "exits examples"] | None = None
    learned_flops: int = 0

    def exit_index(self, number: int) -> int:
        """The index of the exit after a layer; raises ``UsageError`` where there is none."""
        if number not in self.exits:
            have = ", ".join(map(str, self.exits))
            raise UsageError(f"there is no exit head after layer {number}; there are after {have}")
        return self.exits.index(number)

    def confidences(self, number: int, plan: Plan) -> Float[Tensor, " examples"]:
        """How sure each example is at the exit after a layer, in the plan's sense."""
        if plan.confidence == "learned":
            if self.learned is None:
                raise UsageError("the model has no learned confidence; fit_confidence makes it")
            return self.learned[self.exit_index(number)]
        return self.logits[self.exit_index(number)].softmax(-1).amax(-1)

    def narrow(self, plan: Plan) -> Bool[Tensor, " examples"]:
        """Which examples are sure enough to go on narrower under a plan."""
        if not plan.narrows:
            return torch.zeros(len(self.labels), dtype=torch.bool)
        return self.confidences(plan.narrow_after, plan) > plan.narrow_above

    def mixed(self, plan: Plan, narrow: Bool[Tensor, " examples"]) -> Outcomes:
        """What is seen when these examples, and no others, go on narrower."""
        few = self.narrower
        if few is None or not bool(narrow.any()):
            return self
        later = torch.tensor(self.exits)[:, None] > plan.narrow_after
        layers = torch.arange(1, self.plan.layers + 1)[:, None] > plan.narrow_after
        return replace(
            self,
            logits=few.logits.where((later & narrow)[:, :, None], self.logits),
            layer_flops=few.layer_flops.where(layers & narrow, self.layer_flops),
            learned=_where(later & narrow, few.learned, self.learned),
        )

    def subset(self, chosen: Sequence[int]) -> Outcomes:
        """The same for some of the examples."""
        index = torch.tensor(chosen, dtype=torch.long)
        return replace(
            self,
            logits=self.logits[:, index],
            layer_flops=self.layer_flops[:, index],
            labels=self.labels[index],
            narrower=None if self.narrower is None else self.narrower.subset(chosen),
            learned=None if self.learned is None else self.learned[:, index],
        )


def _where(chosen: Tensor, few: Tensor | None, many: Tensor | None) -> Tensor | None:
    return None if few is None or many is None else few.where(chosen, many)


@dataclass(frozen=True, eq=False)
class Decision:
    """Who leaves where under a threshold: each example's layer, answer and arithmetic.

    ``narrow`` tells which were sure enough to go on narrower, had they not left before.
    """

    plan: Plan
    layers: Int[Tensor, " examples"]
    logits: Float[Tensor, "examples classes"]
    flops: Float[Tensor, " examples"]
    narrow: Bool[Tensor, " examples"]

    @property
    def answers(self) -> Int[Tensor, " examples"]:
        """The classes answered."""
        return self.logits.argmax(-1)


def outcomes(
    model: AdaptiveClassifier, task: Task, examples: Examples, plan: Plan, batch_size: int = 64
) -> Outcomes:
    """Run a plan to its end on a split and keep what every exit answers.

    A plan in which inputs go on narrower is run twice, so that any choice of them can be judged.
    """
    plan = replace(plan, exits=(), threshold=1.0)
    model.encoder.check_runs(plan)
    seen = _outcomes(model, task, examples, plan.wider, batch_size)
    if not plan.narrow_after:
        return seen
    narrower = _outcomes(model, task, examples, plan.narrower, batch_size)
    return replace(seen, plan=plan, narrower=narrower)


@torch.no_grad()
def _outcomes(
    model: AdaptiveClassifier, task: Task, examples: Examples, plan: Plan, batch_size: int
) -> Outcomes:
    """For a plan that is the same for all."""
    encoder = model.encoder
    exits = tuple(layer for layer in encoder.exits if layer <= plan.layers)
    count, classes = len(examples), model.config.num_labels
    logits = torch.zeros(len(exits), count, classes)
    flops = torch.zeros(plan.layers, count, dtype=torch.float64)
    learned = torch.full((len(exits), count), torch.nan)
    by_head = replace(plan, confidence="learned")
    head = encoder.head(plan.layers).flops
    with evaluating(model):
        for indices in batches_by_length(examples, batch_size):
            batch = task.collate([examples[index] for index in indices])
            batch.pop("labels")
            given = {name: value.to(model.device) for name, value in batch.items()}
            trace = encoder.trace(*model.embed(**given), plan)
            for index, number in enumerate(exits):
                answer = trace.answers[number]
                logits[index, indices] = answer.float().cpu()
                if str(number) in encoder.confidences:
                    sure = encoder.confidence(number, trace.pooled[number], answer, by_head)
                    learned[index, indices] = sure.cpu()
            for number, lengths in enumerate(trace.lengths, start=1):
                took = encoder.flops(lengths, plan, number)
                flops[number - 1, indices] = took - (head if number == plan.layers else 0)
    result = Outcomes(plan, exits, logits, flops, head, examples.labels)
    if not encoder.confidences:
        return result
    one = encoder.confidence_head(int(next(iter(encoder.confidences))))
    return replace(result, learned=learned, learned_flops=one.flops)


def decide(
    seen: Outcomes,
    threshold: float = 1.0,
    first: int = 1,
    layers: int | None = None,
    narrow_above: float | None = None,
) -> Decision:
    """Let every example leave at the first exit from layer ``first`` on that is sure enough.

    ``layers`` ends the network there for those that are left; a threshold of 1 lets nobody leave
    before. ``narrow_above`` is the plan's own unless given. Raises ``UsageError`` where there is no
    head after that layer.
    """
    end = seen.plan.layers if layers is None else layers
    seen.exit_index(end)
    plan = seen.plan.shortened(end)
    stops = tuple(n for n in seen.exits if first <= n < end) if threshold < 1 else ()
    plan = replace(plan, exits=stops, threshold=threshold)
    if narrow_above is not None and plan.narrow_after:
        plan = replace(plan, narrow_above=narrow_above)
    narrow = seen.narrow(plan)
    mixed = seen.mixed(plan, narrow)
    chosen = torch.full((len(seen.labels),), end)
    for number in reversed(stops):
        chosen[mixed.confidences(number, plan) > threshold] = number
    return leave_at(seen, plan, chosen, narrow)


def leave_at(
    seen: Outcomes,
    plan: Plan,
    chosen: Int[Tensor, " examples"],
    narrow: Bool[Tensor, " examples"] | None = None,
) -> Decision:
    """The answers and the arithmetic when each example leaves after the layer chosen for it.

    ``narrow`` are those that go on narrower, by their confidence unless given. Raises
    ``UsageError`` where there is no head after that layer.
    """
    indices = {number: seen.exit_index(number) for number in {plan.layers, *chosen.tolist()}}
    narrow = seen.narrow(plan) if narrow is None else narrow
    mixed = seen.mixed(plan, narrow)
    order = torch.tensor([indices[number] for number in chosen.tolist()], dtype=torch.long)
    answers = mixed.logits[order, torch.arange(len(chosen))]
    layers = torch.arange(1, seen.plan.layers + 1)
    run: Bool[Tensor, "layers examples"] = layers[:, None] <= chosen
    computed = torch.tensor(plan.computed_exits)
    heads = (computed[:, None] <= chosen).sum(0) * seen.head_flops
    if plan.confidence == "learned":
        heads = heads + (computed[:-1, None] <= chosen).sum(0) * seen.learned_flops
    flops = (mixed.layer_flops * run).sum(0) + heads
    return Decision(plan, chosen, answers, flops, narrow)


def left_at_random(seen: Outcomes, decision: Decision, seed: int) -> Decision:
    """The control: as many leave after each layer, and as many of those go on narrower, as in the
    decision, but others.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(decision.layers), generator=generator)
    return leave_at(seen, decision.plan, decision.layers[order], decision.narrow[order])


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
    return torch.full((len(examples),), tokens_left(model, model.longest))


def score(task: Task, decision: Decision, labels: Int[Tensor, " examples"]) -> float:
    """The task's metric of the decision's answers."""
    return metric(task.metric).score(decision.logits, labels)
