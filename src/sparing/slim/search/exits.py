"""The outcome of every exit threshold, from one pass over a split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
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
    """A plan's answers at each of its exits, and each layer's FLOPs, example by example.

    ``logits[i]`` belong to the exit after layer ``exits[i]``; ``layer_flops`` are those of
    single layers without heads; ``head_flops`` those of one head. ``narrower`` is the same for the
    plan's narrower form, if it has one. ``learned`` are the learned confidences of a model with
    confidence heads (NaN at exits without one), and ``learned_flops`` the FLOPs of one head.
    """

    plan: Plan
    exits: tuple[int, ...]
    logits: Float[Tensor, "exits examples classes"]
    layer_flops: Float[Tensor, "layers examples"]
    head_flops: int
    labels: Shaped[Tensor, "examples ..."]
    narrower: Outcomes | None = None
    learned: Float[Tensor, "exits examples"] | None = None
    learned_flops: int = 0

    def exit_index(self, number: int) -> int:
        """The index of the exit after a layer; raises ``UsageError`` if there is none."""
        if number not in self.exits:
            have = ", ".join(map(str, self.exits))
            raise UsageError(f"there is no exit head after layer {number}; there are after {have}")
        return self.exits.index(number)

    def confidences(self, number: int, plan: Plan) -> Float[Tensor, " examples"]:
        """The confidence of each example at the exit after a layer, of the plan's kind."""
        if plan.confidence == "learned":
            if self.learned is None:
                raise UsageError("the model has no learned confidence; fit it with fit_confidence")
            return self.learned[self.exit_index(number)]
        return self.logits[self.exit_index(number)].softmax(-1).amax(-1)

    def narrow(self, plan: Plan) -> Bool[Tensor, " examples"]:
        """Which examples continue in the plan's narrower form."""
        if not plan.narrows:
            return torch.zeros(len(self.labels), dtype=torch.bool)
        return self.confidences(plan.narrow_after, plan) > plan.narrow_above

    def mixed(self, plan: Plan, narrow: Bool[Tensor, " examples"]) -> Outcomes:
        """The outcomes if only these examples continue in the narrower form."""
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
    """Where each example exits under a threshold: its layer, answer and FLOPs.

    ``narrow`` are those sure enough for the narrower form, even if they exit before it.
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
    """Run a plan to its end on a split and keep the answers of all exits.

    A plan with a narrower form is run in both forms, so that any choice can be evaluated.
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
    """The outcomes of a plan with one form for all examples."""
    encoder = model.encoder
    exits = tuple(layer for layer in encoder.exits if layer <= plan.layers)
    count = len(examples)
    logits = torch.zeros(len(exits), count, task.width)
    flops = torch.zeros(plan.layers, count, dtype=torch.float64)
    learned = torch.full((len(exits), count), torch.nan)
    by_head = replace(plan, confidence="learned")
    # that of a token head grows with the text: it counts in the last layer's
    head = 0 if task.by_token else encoder.head(plan.layers).flops
    with evaluating(model):
        for indices in batches_by_length(examples, batch_size):
            batch = task.collate([examples[index] for index in indices])
            batch.pop("labels")
            given = {name: value.to(model.device) for name, value in batch.items()}
            rows, layout = model.embed(**given)
            trace = encoder.trace(rows, layout, plan)
            for index, number in enumerate(exits):
                answer = trace.answers[number]
                made = layout.to_padded(answer) if task.by_token else answer
                logits[index, indices] = task.read(made.float().cpu(), examples, indices)
                if str(number) in encoder.confidences:
                    sure = encoder.confidence(number, trace.pooled[number], answer, by_head)
                    learned[index, indices] = sure.cpu()
            for number, lengths in enumerate(trace.lengths, start=1):
                spent = encoder.flops(lengths, plan, number) - (
                    head if number == plan.layers else 0
                )
                flops[number - 1, indices] = _sums(spent, examples, indices)
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
    """Let every example exit at the first head from layer ``first`` on that is sure enough.

    The others exit after layer ``layers``; at a threshold of 1 all do. ``narrow_above`` is the
    plan's by default. Raises ``UsageError`` if there is no head after that layer.
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
    """The answers and the FLOPs if each example exits after the layer chosen for it.

    ``narrow`` are those that continue in the narrower form, by default by their confidence. Raises
    ``UsageError`` if there is no head after that layer.
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
    """The control: the decision with its examples permuted at random.

    Exit rates and the share of narrower examples are those of the decision.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(decision.layers), generator=generator)
    return leave_at(seen, decision.plan, decision.layers[order], decision.narrow[order])


def dense_flops(model: AdaptiveClassifier, examples: Examples) -> Float[Tensor, " examples"]:
    """The FLOPs of the whole model for each example, without padding."""
    plan = full_plan(model.encoder.sizes)
    lengths = token_counts(model, examples)
    layers = [model.encoder.flops(lengths, plan, n) for n in range(1, plan.layers + 1)]
    return _sums(torch.stack(layers).sum(0), examples, range(len(examples)))


def _sums(
    values: Float[Tensor, " rows"], examples: Examples, indices: Sequence[int]
) -> Float[Tensor, " batch"]:
    """The sums of these examples' windows; one without windows is a single row."""
    parts = torch.split(values, [len(examples.rows[index]) for index in indices])
    return torch.stack([part.sum() for part in parts])


def token_counts(model: AdaptiveClassifier, examples: Examples) -> Int[Tensor, " rows"]:
    """Tokens of each row of all examples; of images the patches and what the model adds."""
    if examples.input_name == "input_ids":
        return torch.tensor([tokens for sizes in examples.rows for tokens in sizes])
    return torch.full((len(examples),), tokens_left(model, model.longest))


def score(task: Task, decision: Decision, labels: Shaped[Tensor, "examples ..."]) -> float:
    """The task's metric of the decision's answers."""
    return metric(task.metric).score(decision.logits, labels)
