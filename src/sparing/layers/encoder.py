"""A stack of elastic layers that drops tokens on the way and lets inputs leave early."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sparing.core.errors import UsageError
from sparing.core.recording import is_heard, report
from sparing.layers.elastic import ElasticLayer, LayerForm
from sparing.layers.packing import Packed
from sparing.layers.plan import LayerSizes, Plan

ROUNDING = 1e-9


@dataclass(frozen=True)
class HeadForm:
    """A classification head: perhaps a norm, perhaps a dense layer, then the classes.

    ``activation`` is that of the dense layer, "tanh" or "gelu"; empty leaves the layer out, and
    ``norm_epsilon`` None the norm.
    """

    width: int
    classes: int
    activation: str
    norm_epsilon: float | None
    dropout: float = 0.0


class ExitHead(nn.Module):
    """Class logits from the first token's row; every exit has one, and the end."""

    def __init__(self, form: HeadForm) -> None:
        super().__init__()
        epsilon = form.norm_epsilon
        self.norm = None if epsilon is None else nn.LayerNorm(form.width, eps=epsilon)
        self.dense = nn.Linear(form.width, form.width) if form.activation else None
        self.activation = getattr(torch.nn.functional, form.activation or "tanh")
        self.dropout = nn.Dropout(form.dropout)
        self.classifier = nn.Linear(form.width, form.classes)

    @property
    def flops(self) -> int:
        """What its matrix products take for one input; a multiply-add is 2."""
        weights = self.classifier.weight.numel()
        return 2 * (weights + (0 if self.dense is None else self.dense.weight.numel()))

    def forward(self, first: Float[Tensor, "batch width"]) -> Float[Tensor, "batch classes"]:
        """The logits."""
        if self.norm is not None:
            first = self.norm(first)
        if self.dense is not None:
            first = self.activation(self.dense(first))
        logits: Tensor = self.classifier(self.dropout(first))
        return logits


@dataclass(frozen=True)
class Spent:
    """The answers, and the layer after which each input left."""

    logits: Float[Tensor, "batch classes"]
    layers: Int[Tensor, " batch"]


@dataclass(frozen=True)
class Trace:
    """What a pass in which nobody leaves saw.

    ``answers`` are the logits at every exit, by layer; ``states`` the rows before the first layer
    and what each layer made of its rows, before tokens are dropped; ``lengths`` the tokens of each
    input in each layer.
    """

    answers: dict[int, Float[Tensor, "batch classes"]]
    states: list[Float[Tensor, "_ width"]]
    lengths: list[Int[Tensor, " batch"]]


class AdaptiveEncoder(nn.Module):
    """Elastic layers with an exit head after each of ``exits`` (counted from 1) and at the end."""

    def __init__(
        self,
        sizes: Sequence[LayerSizes],
        form: LayerForm,
        head: HeadForm,
        exits: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ElasticLayer(size, form) for size in sizes)
        places = sorted({*exits, len(sizes)})
        if places[0] < 1 or places[-1] > len(sizes):
            raise UsageError(f"exits are layers from 1 to {len(sizes)}, got {list(exits)}")
        self.heads = nn.ModuleDict({str(place): ExitHead(head) for place in places})

    @property
    def sizes(self) -> list[LayerSizes]:
        """What each layer has."""
        return [self._at(number).sizes for number in range(1, len(self.layers) + 1)]

    @property
    def exits(self) -> tuple[int, ...]:
        """The layers that have a head, the last one included."""
        return tuple(int(place) for place in self.heads)

    def forward(self, rows: Float[Tensor, "rows width"], layout: Packed, plan: Plan) -> Spent:
        """Run the plan on packed rows; an input that leaves, or a token dropped, costs no more."""
        batch = len(layout.lengths)
        classes = self.head(plan.layers).classifier.out_features
        logits = rows.new_zeros(batch, classes)
        depths = torch.full((batch,), plan.layers, device=rows.device)
        going = torch.arange(batch, device=rows.device)
        flops = torch.zeros(batch, dtype=torch.float64) if is_heard(self) else None
        for number in range(1, plan.layers + 1):
            if flops is not None:
                flops[going.cpu()] += self.flops(layout.lengths, plan, number)
            rows, layout = _go_on(*self._layer(rows, layout, plan, number), layout)
            if number not in plan.stops:
                continue
            answers = self.head(number)(layout.first(rows))
            # in float32, so that a threshold means the same in every precision; never true of NaN
            leaving = answers.detach().float().softmax(-1).amax(-1) > plan.threshold
            if not bool(leaving.any()):
                continue
            left = going[leaving]
            logits[left] = answers[leaving].to(logits.dtype)
            depths[left] = number
            going = going[~leaving]
            rows, layout = layout.stay(rows, ~leaving)
            if not len(going):
                break
        if len(going):
            answers = self.head(plan.layers)(layout.first(rows))
            logits[going] = answers.to(logits.dtype)
        if flops is not None:
            report(self, "flops", flops)
        return Spent(logits, depths)

    def trace(self, rows: Tensor, layout: Packed, plan: Plan) -> Trace:
        """Run a plan to its end, whatever its threshold, and tell what every exit would answer."""
        answers, states, lengths = {}, [rows], []
        for number in range(1, plan.layers + 1):
            lengths.append(layout.lengths)
            rows, kept = self._layer(rows, layout, plan, number)
            states.append(rows)
            rows, layout = _go_on(rows, kept, layout)
            if str(number) in self.heads:
                answers[number] = self.head(number)(layout.first(rows))
        return Trace(answers, states, lengths)

    def _at(self, number: int) -> ElasticLayer:
        layer: ElasticLayer = self.layers[number - 1]  # type: ignore[assignment]
        return layer

    def head(self, number: int) -> ExitHead:
        """The head after a layer; raises ``UsageError`` where there is none."""
        if str(number) not in self.heads:
            have = ", ".join(self.heads)
            raise UsageError(f"there is no exit head after layer {number}; there are after {have}")
        return self.heads[str(number)]  # type: ignore[return-value]

    def check_runs(self, plan: Plan) -> None:
        """Raise ``UsageError`` when the plan asks for more than there is, exit heads included."""
        plan.check_fits(self.sizes)
        for number in (*plan.exits, plan.layers):
            self.head(number)

    def flops(
        self, lengths: Int[Tensor, " batch"], plan: Plan, number: int
    ) -> Float[Tensor, " batch"]:
        """What a layer's matrix products take for inputs of these tokens; a multiply-add is 2.

        The exit head after it counts where the plan asks it.
        """
        layer = self._at(number)
        heads, neurons = plan.heads[number - 1], plan.neurons[number - 1]
        took = layer.flops(lengths.cpu().double(), heads, neurons)
        asked = number in plan.stops or number == plan.layers
        return took + self.head(number).flops if asked else took

    def _layer(
        self, rows: Tensor, layout: Packed, plan: Plan, number: int
    ) -> tuple[Tensor, Bool[Tensor, " rows"] | None]:
        """The rows after a layer, and which of them go on; None where all do."""
        layer = self._at(number)
        heads, neurons = plan.heads[number - 1], plan.neurons[number - 1]
        if not (plan.drops_tokens and number == plan.tokens_after):
            return layer(rows, layout, heads, neurons), None
        rows, received = layer.forward_scored(rows, layout, heads, neurons)
        kept = kept_tokens(received, layout, plan)
        if is_heard(self):
            report(self, "received", received)
            report(self, "kept", kept)
        return rows, kept


def _go_on(
    rows: Tensor, kept: Bool[Tensor, " rows"] | None, layout: Packed
) -> tuple[Tensor, Packed]:
    """The rows that are kept, and their layout."""
    return (rows, layout) if kept is None else (rows[kept], layout.choose(kept))


def kept_tokens(
    received: Float[Tensor, "batch tokens"], layout: Packed, plan: Plan
) -> Bool[Tensor, " rows"]:
    """Which rows go on: each sequence's most attended tokens, its first always; ties go to the
    earlier token.
    """
    real = layout.keep
    # a sequence that is not a number stays one: it keeps its first tokens
    order = received.nan_to_num(nan=0.0).masked_fill(~real, -1.0)
    order[:, :1] = torch.inf
    # 0.55 times 100 is a little above 55, which must not round up to 56
    counts = (layout.lengths.double() * plan.tokens_kept - ROUNDING).ceil().clamp(min=1)
    places = order.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    kept = places < counts[:, None]
    if plan.tokens_above > 0:
        enough = received * layout.lengths[:, None] >= plan.tokens_above
        enough[:, :1] = True
        kept = kept & enough
    return kept[real]
