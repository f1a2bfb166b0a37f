"""A stack of elastic layers that drops tokens between layers and has early exits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sparing.core.errors import UsageError
from sparing.core.recording import is_logged, report
from sparing.layers.confidence import ConfidenceHead
from sparing.layers.elastic import ElasticLayer, LayerForm
from sparing.layers.gates import kept_tokens, new_gate, open_tokens
from sparing.layers.heads import ExitHead, HeadForm
from sparing.layers.packing import Packed
from sparing.layers.passes import Group, Results, Spent, Trace, joined
from sparing.layers.plan import LayerSizes, Plan
from sparing.layers.tokens import TokenForm, TokenHead
from sparing.layers.vectors import VectorForm, VectorHead

Form = HeadForm | VectorForm | TokenForm
"""What a head gives; all but ``HeadForm`` need all tokens of all inputs, to the plan's end."""
Head = ExitHead | VectorHead | TokenHead


class AdaptiveEncoder(nn.Module):
    """Elastic layers with an exit head after each of ``exits`` (counted from 1) and at the end.

    ``form`` is that of all layers, or a list has one for each.
    """

    def __init__(
        self,
        sizes: Sequence[LayerSizes],
        form: LayerForm | Sequence[LayerForm],
        head: Form,
        exits: Sequence[int] = (),
    ) -> None:
        super().__init__()
        forms = [form] * len(sizes) if isinstance(form, LayerForm) else form[: len(sizes)]
        layers = [ElasticLayer(*both) for both in zip(sizes, forms, strict=True)]
        self.layers = nn.ModuleList(layers)
        numbers = sorted({*exits, len(sizes)})
        if numbers[0] < 1 or numbers[-1] > len(sizes):
            raise UsageError(f"exits are layers from 1 to {len(sizes)}; got {list(exits)}")
        self.heads = nn.ModuleDict({str(number): head.build() for number in numbers})
        self.confidences = nn.ModuleDict()
        self.gates = nn.ModuleDict()
        self.gate_kind = ""

    @property
    def sizes(self) -> list[LayerSizes]:
        """The sizes of each layer."""
        return [self._at(number).sizes for number in range(1, len(self.layers) + 1)]

    def described(self) -> dict[str, Any]:
        """Its sizes and heads for JSON, which ``AdaptiveEncoder`` is built from again."""
        described: dict[str, Any] = {
            "sizes": [size.to_list() for size in self.sizes],
            "exits": list(self.exits),
            **self.head(len(self.layers)).form.entry,
        }
        if self.confidences:
            described["confidences"] = [int(number) for number in self.confidences]
        if self.gates:
            places = [int(number) for number in self.gates]
            described["gates"] = {"kind": self.gate_kind, "places": places}
        return described

    @property
    def exits(self) -> tuple[int, ...]:
        """The layers that have a head, the last one included."""
        return tuple(int(number) for number in self.heads)

    def forward(self, rows: Float[Tensor, "rows width"], layout: Packed, plan: Plan) -> Spent:
        """Run the plan on packed rows; inputs that left and dropped tokens cost no more.

        Inputs that go on narrower become a batch of their own, which runs its own slices.
        """
        batch, logged = len(layout.lengths), is_logged(self)
        results = Results(
            rows.new_zeros(batch, self.head(plan.layers).form.classes),
            torch.full((batch,), plan.layers, device=rows.device),
            torch.zeros(batch, dtype=torch.float64) if logged else None,
            torch.zeros(batch, dtype=torch.bool, device=rows.device),
        )
        everybody = Group(torch.arange(batch, device=rows.device), rows, layout)
        self._run(everybody, plan, 1, results)
        if results.flops is not None:
            report(self, "flops", results.flops)
            if plan.narrows:
                report(self, "narrow", results.narrow)
        return Spent(results.logits, results.layers)

    def _run(self, group: Group, plan: Plan, first: int, results: Results) -> None:
        """Run a group from layer ``first`` on; narrower inputs leave it and run separately."""
        for number in range(first, plan.layers + 1):
            if results.flops is not None:
                results.flops[group.index.cpu()] += self.flops(group.layout.lengths, plan, number)
            rows, chosen = self._layer(group.rows, group.layout, plan, number)
            all_tokens = group.layout  # an exit reads them all, as if the model ended there
            group = Group(group.index, *_go_on(rows, chosen, all_tokens))
            if number not in plan.computed_exits:
                continue
            pooled = self.head(number).pool(rows, all_tokens)
            logits = self.head(number)(pooled)
            if number == plan.layers:
                results.take(group.index, logits, number)
                return
            sure = self.confidence(number, pooled, logits, plan)
            if number in plan.stops:
                leaving = sure > plan.threshold
                if bool(leaving.any()):
                    results.take(group.index[leaving], logits[leaving], number)
                    group, sure = group.those(~leaving), sure[~leaving]
            if plan.narrows and number == plan.narrow_after:
                narrow = sure > plan.narrow_above
                if bool(narrow.any()):
                    results.narrow[group.index[narrow]] = True
                    self._run(group.those(narrow), plan.narrower, number + 1, results)
                    group = group.those(~narrow)
            if not len(group.index):
                return

    def add_confidences(self, places: Sequence[int]) -> None:
        """New confidence heads, still to be fitted, at exits before the end.

        Raises ``UsageError`` where there is no exit.
        """
        for number in places:
            width = self.head(number).form.width
            like = next(self.head(number).parameters())
            self.confidences[str(number)] = ConfidenceHead(width).to(like.device, like.dtype)

    def add_gates(self, kind: str, places: Sequence[int]) -> None:
        """Put new gates after layers before the last, replacing existing ones.

        Kinds are those of ``layers.gates``: "threshold" (LTP), "skim" (Transkimmer), "random". A
        plan uses them with ``gated=True``. Raises ``UsageError`` for other kinds and layers, and
        for heads that read the mean of all tokens, which gates would drop, and for layers that
        know the distances between tokens.
        """
        last = len(self.layers)
        if not places or any(not 1 <= number < last for number in places):
            raise UsageError(f"gates come after layers 1 to {last - 1}; got {list(places)}")
        head = self.head(last)
        if head.form.averages:
            raise UsageError("the model's head reads all tokens: gates need a class token")
        self._require_no_distances("gates")
        like = next(head.parameters())
        gates = {str(n): new_gate(kind, head.form.width, n) for n in sorted(set(places))}
        self.gates = nn.ModuleDict(gates).to(like.device, like.dtype)
        self.gate_kind = kind

    def gate(self, plan: Plan, number: int) -> Any:
        """The gate that a plan uses after a layer; None if it uses none."""
        used = plan.gated and number < plan.layers and str(number) in self.gates
        return self.gates[str(number)] if used else None

    def confidence_head(self, number: int) -> ConfidenceHead:
        """The confidence head after a layer; raises ``UsageError`` where there is none."""
        if str(number) not in self.confidences:
            raise UsageError(
                f"there is no learned confidence after layer {number}: "
                "sparing.fit_confidence(model, task) makes them"
            )
        return self.confidences[str(number)]  # type: ignore[return-value]

    def confidence(
        self,
        number: int,
        pooled: Float[Tensor, "batch width"],
        logits: Float[Tensor, "batch classes"],
        plan: Plan,
    ) -> Float[Tensor, " batch"]:
        """The confidence of each input at the exit after a layer, from 0 to 1.

        NaN is above nothing. In float32, so that a threshold means the same in every precision.
        """
        if plan.confidence == "softmax":
            return logits.detach().float().softmax(-1).amax(-1)
        learned: Tensor = self.confidence_head(number)(pooled, logits)
        return learned

    def trace(self, rows: Tensor, layout: Packed, plan: Plan, *, soft: bool = False) -> Trace:
        """Run a plan to its end for any threshold, and return the answers of every exit.

        In a ``soft`` pass gates drop nothing, so that they can learn: the degree to which a token
        is open weights the attention paid to it. Raises ``UsageError`` where inputs may go on
        narrower then.
        """
        if soft and plan.gated:
            return self._soft_trace(rows, layout, plan)
        return self._trace(rows, layout, plan, 1)

    def _soft_trace(self, rows: Tensor, layout: Packed, plan: Plan) -> Trace:
        if plan.narrows:
            raise UsageError("gates learn with one width for all: take plan.wider or plan.narrower")
        trace = Trace({}, {}, [rows], [])
        paid = rows.new_ones(len(rows))
        first = torch.zeros_like(paid, dtype=torch.bool)
        first[layout.starts] = True
        for number in range(1, plan.layers + 1):
            trace.lengths.append(layout.lengths)
            heads, neurons = plan.heads[number - 1], plan.neurons[number - 1]
            padded = layout.to_padded(paid[:, None]).squeeze(-1) * layout.keep
            layer = self._at(number)
            rows, received = layer.forward_scored(rows, layout, heads, neurons, padded)
            trace.states.append(rows)
            gate = self.gate(plan, number)
            if gate is not None:
                shares = (received * padded.sum(1, keepdim=True))[layout.keep]
                opened = gate.soft(gate(rows, shares)).to(paid.dtype)
                paid = paid * opened.masked_fill(first, 1.0)
                trace.open.append(paid)
            if str(number) in self.heads:
                trace.pooled[number] = self.head(number).pool(rows, layout)
                trace.answers[number] = self.head(number)(trace.pooled[number])
        return trace

    def _trace(self, rows: Tensor, layout: Packed, plan: Plan, start: int) -> Trace:
        """From layer ``start`` on."""
        trace = Trace({}, {}, [rows], [])
        for number in range(start, plan.layers + 1):
            trace.lengths.append(layout.lengths)
            rows, chosen = self._layer(rows, layout, plan, number)
            trace.states.append(rows)
            if str(number) in self.heads:
                trace.pooled[number] = self.head(number).pool(rows, layout)
                trace.answers[number] = self.head(number)(trace.pooled[number])
            rows, layout = _go_on(rows, chosen, layout)
            if plan.narrows and number == plan.narrow_after:
                sure = self.confidence(number, trace.pooled[number], trace.answers[number], plan)
                narrow = sure > plan.narrow_above
                ways = ((narrow, plan.narrower), (~narrow, plan.wider))
                parts = [self._trace(*layout.stay(rows, who), way, number + 1) for who, way in ways]
                return joined(trace, parts[0], parts[1], narrow)
        return trace

    def _at(self, number: int) -> ElasticLayer:
        layer: ElasticLayer = self.layers[number - 1]  # type: ignore[assignment]
        return layer

    def head(self, number: int) -> Head:
        """The head after a layer; raises ``UsageError`` where there is none."""
        if str(number) not in self.heads:
            have = ", ".join(self.heads)
            raise UsageError(f"there is no exit head after layer {number}; there are after {have}")
        return self.heads[str(number)]  # type: ignore[return-value]

    def check_runs(self, plan: Plan) -> None:
        """Raise ``UsageError`` when the plan needs more than the encoder has."""
        plan.check_fits(self.sizes)
        for number in (*plan.exits, *plan.computed_exits):
            self.head(number)
        if plan.confidence == "learned":
            for number in plan.computed_exits[:-1]:
                self.confidence_head(number)
        if plan.drops_tokens:
            self._require_no_distances("a plan that drops tokens")
        if plan.gated and not self.gates:
            raise UsageError("the plan is gated and the model has no gates: encoder.add_gates")
        self._check_confidence(plan)

    @property
    def relative(self) -> bool:
        """Whether its layers know the distances between tokens."""
        return any(self._at(number).distances.relative for number in range(1, len(self.layers) + 1))

    def _require_no_distances(self, what: str) -> None:
        """Raise ``UsageError`` where scores know distances, which dropped tokens would change."""
        if self.relative:
            raise UsageError(
                f"{what}: this model's layers read the distances between tokens, and between the "
                "remaining ones these would be others; choose fewer heads, neurons or layers"
            )

    def _check_confidence(self, plan: Plan) -> None:
        """Raise ``UsageError`` for exits of a model without confidence in its answers."""
        form, by_confidence = self.head(plan.layers).form, plan.stops or plan.narrows
        if not isinstance(form, HeadForm):
            if by_confidence or plan.gated or plan.drops_tokens:
                raise UsageError(
                    "a model of vectors, or of an answer for each token, runs all tokens of all "
                    "inputs to the plan's end: it has no exits, no narrower inputs and no dropped "
                    "tokens"
                )
        elif by_confidence and not form.one_class:
            raise UsageError(
                "a model of several labels or of a number has no exits and no narrower inputs: "
                "only one class an input says how sure it is"
            )

    def flops(
        self, lengths: Int[Tensor, " batch"], plan: Plan, number: int
    ) -> Float[Tensor, " batch"]:
        """FLOPs of a layer's matrix products for inputs of these tokens; a multiply-add is 2.

        The exit head after it, and its confidence head, count where the plan uses them.
        """
        layer = self._at(number)
        heads, neurons = plan.heads[number - 1], plan.neurons[number - 1]
        took = layer.flops(lengths.cpu().double(), heads, neurons)
        gate = self.gate(plan, number)
        if gate is not None:
            took = took + lengths.cpu().double() * gate.flops_per_token
        if number not in plan.computed_exits:
            return took
        if plan.confidence == "learned" and number < plan.layers:
            took = took + self.confidence_head(number).flops
        head = self.head(number)
        rows = lengths.cpu().double() if isinstance(head, TokenHead) else 1
        return took + head.flops * rows

    def _layer(
        self, rows: Tensor, layout: Packed, plan: Plan, number: int
    ) -> tuple[Tensor, Bool[Tensor, " rows"] | None]:
        """The rows after a layer, and which of them go on; None where all do."""
        layer = self._at(number)
        heads, neurons = plan.heads[number - 1], plan.neurons[number - 1]
        gate = self.gate(plan, number)
        by_share = plan.drops_tokens and number == plan.tokens_after
        if gate is None and not by_share:
            return layer(rows, layout, heads, neurons), None
        if gate is not None and not gate.asks_attention:
            rows = layer(rows, layout, heads, neurons)
            chosen = open_tokens(gate(rows, None), layout)
        else:
            rows, received = layer.forward_scored(rows, layout, heads, neurons)
            if gate is None:
                least = self.head(plan.layers).form.least_tokens
                chosen = kept_tokens(received, layout, plan, least)
            else:
                shares = (received * layout.lengths[:, None])[layout.keep]
                chosen = open_tokens(gate(rows, shares), layout)
            if is_logged(self):
                report(self, "received", received)
        if is_logged(self):
            report(self, "kept", chosen)
        return rows, chosen


def _go_on(
    rows: Tensor, chosen: Bool[Tensor, " rows"] | None, layout: Packed
) -> tuple[Tensor, Packed]:
    """The chosen rows, and their layout."""
    return (rows, layout) if chosen is None else (rows[chosen], layout.choose(chosen))
