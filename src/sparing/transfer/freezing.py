"""An adaptive model with fixed decisions: smaller weights, segments that can be exported."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sparing.answers.kinds import KINDS
from sparing.core.errors import Unsupported
from sparing.layers.capacity import Capacity, drop_padded
from sparing.layers.confidence import ConfidenceHead
from sparing.layers.elastic import ElasticLayer
from sparing.layers.encoder import Head
from sparing.layers.packing import Padded, pack, spread, worth_packing
from sparing.layers.plan import LayerSizes, Plan, full_plan
from sparing.layers.tokens import TokenHead
from sparing.layers.vectors import VectorHead
from sparing.transfer.adaptive import ENTRY_VERSION, AdaptiveClassifier, FrontierPoint
from sparing.transfer.registry import NAME


@torch.no_grad()
def freeze(model: AdaptiveClassifier, plan: Plan | None = None) -> AdaptiveClassifier:
    """A smaller model that holds only the parts that a plan (the model's own unless given) uses.

    Its whole plan is that plan, with the same exits and thresholds: it answers the same and does
    not store the rest. Exits that no input can take are left out, with their heads. Inputs that go
    on narrower still take the first part of the remaining heads and neurons. The plan's cost, if
    the frontier knows it, is kept. Raises ``UsageError`` for a plan that the model cannot run.
    """
    plan = model.plan if plan is None else plan
    known = [point for point in model.frontier if point.plan == plan]
    model.encoder.check_runs(plan)
    gated = any(model.encoder.gate(plan, int(n)) is not None for n in model.encoder.gates)
    plan = replace(plan, exits=plan.stops, gated=gated)  # a plan may end before its first gate
    sizes = [
        LayerSizes(heads, size.query_dim, size.value_dim, neurons)
        for heads, neurons, size in zip(plan.heads, plan.neurons, model.encoder.sizes, strict=False)
    ]
    exits = list(plan.computed_exits)
    config = copy.deepcopy(model.config)
    entry = {"sizes": [size.to_list() for size in sizes], "exits": exits, "plan": plan.to_dict()}
    entry |= model.encoder.head(plan.layers).form.entry
    if plan.confidence == "learned":
        entry["confidences"] = exits[:-1]
    places = [int(n) for n in model.encoder.gates if model.encoder.gate(plan, int(n)) is not None]
    if places:
        entry["gates"] = {"kind": model.encoder.gate_kind, "places": places}
    carried = getattr(config, NAME)
    setattr(config, NAME, {**carried, "version": ENTRY_VERSION, "adaptive": entry})
    with torch.random.fork_rng(devices=[]):  # initial values are overwritten
        smaller = type(model)(config)
    smaller.to(device=model.device, dtype=model.dtype)
    smaller.embeddings.load_state_dict(model.embeddings.state_dict())
    for ours, theirs in zip(smaller.encoder.layers, model.encoder.layers, strict=False):
        _narrow(ours, theirs)  # type: ignore[arg-type]
    for kind in ("heads", "gates", "confidences"):
        for number, part in getattr(smaller.encoder, kind).items():
            part.load_state_dict(getattr(model.encoder, kind)[number].state_dict())
    _keep_costs(smaller, known)
    smaller.train(model.training)
    return smaller


def _keep_costs(smaller: AdaptiveClassifier, known: list[FrontierPoint]) -> None:
    """The frozen plan's cost and score; of a plan without exits it is the whole model's."""
    points = [replace(point, plan=smaller.plan) for point in known]
    whole = [point.cost_share for point in points if point.plan == full_plan(smaller.encoder.sizes)]
    smaller.set_frontier(points, min([1.0, *whole]))


def _narrow(ours: ElasticLayer, theirs: ElasticLayer) -> None:
    """Copy the first heads and neurons across."""
    pairs = [
        (ours.projection.weight, theirs.projection.weight),
        (ours.projection.bias, theirs.projection.bias),
        (ours.output.weight, theirs.output.weight),
        (ours.output.bias, theirs.output.bias),
        (ours.rise.weight, theirs.rise.weight),
        (ours.rise.bias, theirs.rise.bias),
        (ours.fall.weight, theirs.fall.weight),
        (ours.fall.bias, theirs.fall.bias),
        *zip(ours.distances.parameters(), theirs.distances.parameters(), strict=True),
    ]
    if ours.gate is not None and theirs.gate is not None:
        pairs += [(ours.gate.weight, theirs.gate.weight), (ours.gate.bias, theirs.gate.bias)]
    for small, large in pairs:
        small.copy_(large[tuple(slice(size) for size in small.shape)])
    ours.attention_norm.load_state_dict(theirs.attention_norm.state_dict())
    ours.feed_forward_norm.load_state_dict(theirs.feed_forward_norm.state_dict())


Rows = Float[Tensor, "batch left_tokens hidden_width"]
Logits = Float[Tensor, "batch classes"] | Float[Tensor, "batch tokens classes"]
Answered = tuple[Rows, Logits] | tuple[Rows, Logits, Float[Tensor, " batch"]]


class _Stack(nn.Module):
    """Some consecutive layers and the exit head after them, on padded rows.

    A batch with many pads is packed for the layers, unless they drop tokens or it is traced.

    ``drop_after`` counts the layers of this stack after which tokens are dropped (0: not here);
    ``dropped`` says that they were dropped in an earlier one. ``confidence`` is the head of the
    answer's confidence, where that is not the largest probability.
    """

    def __init__(
        self,
        layers: list[ElasticLayer],
        head: Head,
        capacity: Capacity | None = None,
        drop_after: int = 0,
        dropped: bool = False,
        confidence: ConfidenceHead | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.exit = head
        self.capacity, self.drop_after, self.dropped = capacity, drop_after, dropped
        self.confidence = confidence

    def run(
        self,
        hidden: Float[Tensor, "batch given_tokens width"],
        keep: Bool[Tensor, "batch tokens"] | None,
    ) -> Answered:
        """The rows after the layers, the logits and, where it is learned, the confidence.

        ``keep`` is that of the model's inputs: the remaining part after dropped tokens follows from
        it, so no segment needs to pass it on.
        """
        if self.dropped and self.capacity is not None and keep is not None:
            # a slice's length is unknown to older exporters: it may end past the rows' end
            hidden = hidden.narrow(1, 0, self.capacity.of_count(keep.shape[1]))
            keep = self.capacity.keep_after(keep)
        drops = self.capacity is not None and self.drop_after > 0
        if keep is not None and not drops and worth_packing(keep):
            hidden = self._without_pads(hidden, keep)
            return self._answer(hidden, self.exit.pool(hidden, Padded(keep)))
        layout = Padded(keep)
        for number, layer in enumerate(self.layers, start=1):
            assert isinstance(layer, ElasticLayer)
            heads, neurons = layer.sizes.heads, layer.sizes.neurons
            if self.capacity is None or number != self.drop_after:
                hidden = layer(hidden, layout, heads, neurons)
                continue
            hidden, received = layer.forward_scored(hidden, layout, heads, neurons)
            pooled = self.exit.pool(hidden, layout)  # an exit here reads all tokens
            hidden = drop_padded(hidden, received, keep, self.capacity)
            layout = Padded(None if keep is None else self.capacity.keep_after(keep))
        if self.capacity is None or self.drop_after != len(self.layers):
            pooled = self.exit.pool(hidden, layout)
        return self._answer(hidden, pooled)

    def _without_pads(self, hidden: Tensor, keep: Tensor) -> Tensor:
        """The rows after the layers, which compute real tokens alone."""
        rows, layout = pack(hidden, keep)
        for layer in self.layers:
            assert isinstance(layer, ElasticLayer)
            rows = layer(rows, layout, layer.sizes.heads, layer.sizes.neurons)
        return spread(rows, keep)

    def _answer(self, hidden: Tensor, pooled: Tensor) -> Answered:
        logits = self.exit(pooled)
        if self.confidence is None:
            return hidden, logits
        return hidden, logits, self.confidence(pooled, logits)


class TextSegment(_Stack):
    """The first segment of a text model: from token numbers on."""

    def __init__(self, embeddings: nn.Module, *stack: Any) -> None:
        super().__init__(*stack)
        self.embeddings = embeddings

    def forward(
        self,
        input_ids: Int[Tensor, "batch tokens"],
        attention_mask: Int[Tensor, "batch tokens"],
        token_type_ids: Int[Tensor, "batch tokens"] | None = None,
    ) -> Answered:
        """See ``run``; the mask is 1 at real tokens."""
        hidden = self.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)
        return self.run(hidden, attention_mask.bool())


class VectorSegment(TextSegment):
    """A whole text model that gives a vector, and the tokens that it is made of."""

    outputs = (*KINDS["vector"].outputs, "last_hidden_state")

    def forward(
        self,
        input_ids: Int[Tensor, "batch tokens"],
        attention_mask: Int[Tensor, "batch tokens"],
        token_type_ids: Int[Tensor, "batch tokens"] | None = None,
    ) -> tuple[Logits, Rows]:
        """The vectors and the tokens."""
        hidden, vector = super().forward(input_ids, attention_mask, token_type_ids)[:2]
        assert isinstance(self.exit, VectorHead)
        return vector, self.exit.normed(hidden)


class EntitySegment(TextSegment):
    """A whole text model that gives each token the logits of its labels."""

    outputs = KINDS["entities"].outputs

    def forward(  # type: ignore[override]
        self,
        input_ids: Int[Tensor, "batch tokens"],
        attention_mask: Int[Tensor, "batch tokens"],
        token_type_ids: Int[Tensor, "batch tokens"] | None = None,
    ) -> Float[Tensor, "batch tokens labels"]:
        """The logits of each token."""
        logits: Tensor = super().forward(input_ids, attention_mask, token_type_ids)[1]
        return logits


class SpanSegment(TextSegment):
    """A whole text model that gives each token the logits of being first and last."""

    outputs = KINDS["span"].outputs

    def forward(
        self,
        input_ids: Int[Tensor, "batch tokens"],
        attention_mask: Int[Tensor, "batch tokens"],
        token_type_ids: Int[Tensor, "batch tokens"] | None = None,
    ) -> tuple[Float[Tensor, "batch tokens"], Float[Tensor, "batch tokens"]]:
        """The logits of both ends."""
        logits = super().forward(input_ids, attention_mask, token_type_ids)[1]
        return logits[..., 0], logits[..., 1]


def _text_segment(head: Head) -> type[TextSegment]:
    """The kind of a text model's first segment."""
    if isinstance(head, VectorHead):
        return VectorSegment
    if isinstance(head, TokenHead):
        return SpanSegment if head.form.answer == "span" else EntitySegment
    return TextSegment


class ImageSegment(_Stack):
    """The first segment of an image model: from pixels on."""

    def __init__(self, embeddings: nn.Module, *stack: Any) -> None:
        super().__init__(*stack)
        self.embeddings = embeddings

    def forward(self, pixel_values: Float[Tensor, "batch channels height width"]) -> Answered:
        """See ``run``."""
        return self.run(self.embeddings(pixel_values), None)


class LaterSegment(_Stack):
    """A segment that continues from the rows of the one before."""

    def forward(
        self,
        hidden: Float[Tensor, "batch given_tokens width"],
        attention_mask: Int[Tensor, "batch tokens"] | None = None,
    ) -> Answered:
        """See ``run``."""
        return self.run(hidden, None if attention_mask is None else attention_mask.bool())


def segments(model: AdaptiveClassifier) -> list[nn.Module]:
    """The frozen form of the model's plan, cut after each of its exits.

    Each segment returns (rows, logits) and the next continues from the rows of the inputs that did
    not leave. With a learned confidence, all but the last return it too. Sizes depend on sizes
    alone, so each can be exported; tokens are dropped by their share. Raises ``Unsupported`` for a
    plan with ``tokens_above`` or gates, which keep an input-dependent number of tokens, and for one
    in which inputs go on narrower.
    """
    if model.plan.narrows:
        raise Unsupported(
            "a chain of segments has one width: set model.plan to its plan.wider or plan.narrower, "
            "or freeze the model, which keeps both"
        )
    if model.plan.gated:
        raise Unsupported("gates keep an input-dependent number of tokens: set gated=False")
    if model.plan.tokens_above > 0:
        raise Unsupported("tokens_above keeps an input-dependent number of tokens: set it to 0")
    frozen = freeze(model).eval()
    plan = frozen.plan
    least = frozen.encoder.head(plan.layers).form.least_tokens
    capacity = Capacity.from_share(plan.tokens_kept, least) if plan.drops_tokens else None
    places = [*frozen.plan.stops, frozen.plan.layers]
    layers: list[Any] = list(frozen.encoder.layers)
    parts: list[nn.Module] = []
    for start, end in zip([0, *places], places, strict=False):
        here = plan.tokens_after - start if start < plan.tokens_after <= end else 0
        earlier = plan.tokens_after <= start
        learned = plan.confidence == "learned" and end < plan.layers
        sure = frozen.encoder.confidence_head(end) if learned else None
        stack = (layers[start:end], frozen.encoder.head(end), capacity, here, earlier, sure)
        if parts:
            parts.append(LaterSegment(*stack))
        elif frozen.main_input_name == "input_ids":
            parts.append(_text_segment(stack[1])(frozen.embeddings, *stack))
        else:
            parts.append(ImageSegment(frozen.embeddings, *stack))
    return [segment.eval() for segment in parts]
