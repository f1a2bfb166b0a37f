"""Dense models of a shape, the plans that slim would choose for them, and both in every engine.

Weights are random: they decide nothing about speed. Exit rates are therefore stated, not measured.
Inputs that begin with the first word take the first exit, those with the second word the second,
and so on. The exit heads are set to look for these words.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

import sparing
from sparing.core.errors import SparingError
from sparing.core.record import Record
from sparing.export.dense import compiled_segment, dense_segment
from sparing.export.engine import Chain
from sparing.export.folder import export_chain
from sparing.export.onnx import export_onnx
from sparing.layers.plan import LayerSizes, Plan, full_plan, narrowed
from sparing.slim.engines import packed
from sparing.transfer.adaptive import AdaptiveClassifier
from sparing.transfer.freezing import freeze, segments

Inputs = dict[str, Tensor]
Call = Callable[[], object]

DENSE, FREE = "dense", "dense without attention"
VOCABULARY, WORDS = 1000, 10
POSITIONS, LONGEST = 512, 2048
THRESHOLD, REACH = 0.95, 1.0
STEER_TOKENS, STEER_ROWS = (16, 128), 16


@dataclass(frozen=True)
class Shape:
    """The sizes of a BERT; its vocabulary is small, since embeddings cost no FLOPs."""

    name: str
    layers: int
    heads: int
    width: int
    neurons: int

    @property
    def sizes(self) -> list[LayerSizes]:
        """What each layer has."""
        dim = self.width // self.heads
        return [LayerSizes(self.heads, dim, dim, self.neurons)] * self.layers

    def build(self) -> BertForSequenceClassification:
        """The dense model with random weights, its 512 positions interpolated to 2,048."""
        config = BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=self.width,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=self.neurons,
            max_position_embeddings=POSITIONS,
        )
        torch.manual_seed(0)
        return sparing.lengthen(BertForSequenceClassification(config).eval(), LONGEST)


MINILM = Shape("minilm", 6, 12, 384, 1536)
SHAPES = {shape.name: shape for shape in (MINILM, Shape("bert-base", 12, 12, 768, 3072))}


@dataclass(frozen=True)
class Ours:
    """A plan, and which share of inputs leaves after each of its exits and at its end."""

    name: str
    plan: Plan
    shares: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if len(self.shares) != len(self.plan.stops) + 1 or abs(sum(self.shares) - 1) > 1e-6:
            raise SparingError(f"{self.name}: the shares must be one for each exit and sum to 1")


def plans(shape: Shape, recorded: Sequence[Ours] = ()) -> list[Ours]:
    """What is measured at a shape: single reductions, two together, and recorded plans."""
    sizes = shape.sizes
    full, half, most = full_plan(sizes), narrowed(sizes, 1 / 2), narrowed(sizes, 2 / 3)
    static = {
        "layers 2/3": narrowed(sizes, 1.0, round(2 / 3 * shape.layers)),
        "width 2/3": most,
        "width 1/2": half,
        "tokens 0.7": replace(full, tokens_kept=0.7),
        "tokens 0.5": replace(full, tokens_kept=0.5),
        "width 2/3, tokens 0.5": replace(most, tokens_kept=0.5),
    }
    return [*(Ours(name, plan) for name, plan in static.items()), *recorded]


def recorded_plan(name: str, records: Sequence[Record], shape: Shape) -> Ours:
    """The plan that a run of slim on MiniLM chose, and its exit rates, carried over to a shape.

    Shares of heads and neurons stay, layers count in proportion: after layer 3 of 6 is after layer
    6 of 12. Raises ``SparingError`` where the records hold no plan.
    """
    bounds = [record for record in records if record.name == "disagreement_bound"]
    left = {
        int(str(record.labels["layer"])): float(record.value or 0.0)
        for record in records
        if record.name == "exit_rate"
    }
    if not bounds or not left:
        raise SparingError(f"the records of {name} hold no plan with exit rates")
    plan = Plan.from_dict(json.loads(str(bounds[-1].labels["plan"])))
    times = shape.layers // MINILM.layers
    heads = [round(count * shape.heads / MINILM.heads) for count in plan.heads]
    neurons = [round(count * shape.neurons / MINILM.neurons) for count in plan.neurons]
    carried = replace(
        plan,
        heads=tuple(count for count in heads for _ in range(times)),
        neurons=tuple(count for count in neurons for _ in range(times)),
        exits=tuple(times * stop for stop in plan.stops),
        threshold=THRESHOLD if plan.stops else 1.0,
        tokens_after=times * plan.tokens_after,
    )
    shares = [left[layer] for layer in sorted(left)]
    return Ours(f"as chosen on {name}", carried, tuple(share / sum(shares) for share in shares))


def counts(shares: Sequence[float], total: int) -> list[int]:
    """How many of ``total`` inputs leave at each place, by largest remainders."""
    exact = [share * total for share in shares]
    rounded = [math.floor(value + 1e-9) for value in exact]
    order = sorted(range(len(exact)), key=lambda index: rounded[index] - exact[index])
    for index in order[: total - sum(rounded)]:
        rounded[index] += 1
    return rounded


def inputs(leaves: Sequence[int], tokens: int, seed: int = 0) -> Inputs:
    """Random texts of one length; text i leaves at place ``leaves[i]`` of a steered model."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(WORDS, VOCABULARY, (len(leaves), tokens), generator=generator)
    ids[:, 0] = torch.tensor(leaves) + 1
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@torch.no_grad()
def steer(model: AdaptiveClassifier, plan: Plan) -> None:
    """Set a plan's exit heads so that the first word decides the exit of an input.

    Raises ``SparingError`` where the heads cannot separate the words.
    """
    for position, number in enumerate(plan.stops):
        leave = _features(model, plan, number, position)
        stay = torch.cat(
            [_features(model, plan, number, c) for c in range(position + 1, len(plan.stops) + 1)]
        )
        direction = leave.mean(0) - stay.mean(0)
        low, high = (stay @ direction).max(), (leave @ direction).min()
        if not bool(high > low):
            raise SparingError(f"the exit after layer {number} cannot separate the first words")
        scale = 2 * REACH / (high - low)
        classifier = model.encoder.head(number).classifier
        classifier.weight.zero_()
        classifier.weight[1] = scale * direction
        middle = math.log(THRESHOLD / (1 - THRESHOLD)) - scale * (low + high) / 2
        classifier.bias.copy_(torch.tensor([0.0, float(middle)]))


def _features(model: AdaptiveClassifier, plan: Plan, number: int, leave: int) -> Tensor:
    """What the classifier of an exit sees of texts that are to leave at a place."""
    seen: list[Tensor] = []
    classifier = model.encoder.head(number).classifier
    handle = classifier.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        for tokens in STEER_TOKENS:
            given = inputs([leave] * STEER_ROWS, tokens, seed=1)
            model.encoder.trace(*model.embed(**given), plan)
    finally:
        handle.remove()
    return torch.cat(seen)


class Forms:
    """All forms of a shape; exported files go to ``folder`` and are used again."""

    def __init__(self, shape: Shape, ours: Sequence[Ours], folder: Path, *, compiled: bool) -> None:
        self.shape, self.ours, self.folder, self.compiled = shape, list(ours), folder, compiled

    @cached_property
    def model(self) -> BertForSequenceClassification:
        """The dense model."""
        return self.shape.build()

    @cached_property
    def adaptive(self) -> AdaptiveClassifier:
        """Its adaptive form, with heads wherever a plan needs one."""
        places = {stop for ours in self.ours for stop in (*ours.plan.stops, ours.plan.layers)}
        return sparing.adapt(self.model, exits=sorted(places)).eval()

    def frozen(self, ours: Ours) -> AdaptiveClassifier:
        """A plan's own small model."""
        steer(self.adaptive, ours.plan)
        self.adaptive.plan = ours.plan
        return freeze(self.adaptive).eval()

    def exported(self, ours: Ours) -> list[Path]:
        """A plan's segments as files."""
        folder = self.folder / ours.name.replace("/", "-of-").replace(" ", "-")
        described, description = folder / "plan.json", json.dumps(ours.plan.to_dict())
        if not described.is_file() or described.read_text() != description:
            steer(self.adaptive, ours.plan)
            self.adaptive.plan = ours.plan
            example = inputs([0, 0], 16)
            export_chain(segments(self.adaptive), example, folder, threshold=ours.plan.threshold)
            described.write_text(description)
        return [folder / f"segment-{number}.onnx" for number in range(len(ours.shares))]

    def dense_exported(self) -> Path:
        """The dense model as a file."""
        path = self.folder / "dense.onnx"
        if not path.is_file():
            export_onnx(dense_segment(self.model), inputs([0, 0], 16), path)
        return path

    @cached_property
    def dense_runs(self) -> dict[str, Chain]:
        """The dense model in every engine."""
        segment = dense_segment(self.model)
        chains = {"eager": Chain([segment])}
        if self.compiled:
            chains["compiled"] = Chain([compiled_segment(segment, inputs([0, 0], 128))])
        return {**chains, "onnxruntime": Chain([self.dense_exported()])}

    @cached_property
    def free(self) -> Chain:
        """The dense model without attention: what is left when attention costs nothing."""
        model = self.shape.build()
        sparing.swap(model, "none")
        return Chain([dense_segment(model)])

    @cached_property
    def our_runs(self) -> dict[str, dict[str, Callable[[Inputs], object]]]:
        """Every plan in every engine."""
        by_name: dict[str, dict[str, Callable[[Inputs], object]]] = {}
        for ours in self.ours:
            frozen = self.frozen(ours)
            chain = Chain(self.exported(ours), ours.plan.threshold)
            self._check(ours, frozen, chain)
            by_name[ours.name] = {"eager": packed(frozen), "onnxruntime": chain}
        return by_name

    def _check(self, ours: Ours, frozen: AdaptiveClassifier, chain: Chain) -> None:
        """Raise ``SparingError`` where an input does not leave where it is said to."""
        places = list(range(len(ours.shares)))
        for tokens in (64, LONGEST):
            given = inputs(places, tokens)
            with torch.inference_mode():
                layers = frozen(**given).layers.tolist()
            expected = [*ours.plan.stops, ours.plan.layers]
            if layers != expected or chain(given)[1].tolist() != places:
                raise SparingError(f"{ours.name}: inputs left after {layers}, not {expected}")
