"""The speed of each mechanism for a model: its core by length, and the whole model once swapped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

import torch

from sparing.advise.model import Inputs, Subject, sharing_copy
from sparing.advise.parts import Parts
from sparing.compare.cells import latency_records
from sparing.core.catalogue import MECHANISMS, mechanism, mechanism_class
from sparing.core.errors import SparingError, Unsupported, UsageError
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.record import Label, Record
from sparing.core.workload import Workload
from sparing.experiment.cells.probe import Call, model_call
from sparing.experiment.cells.sweep import core_demand, usable_bytes
from sparing.measure.latency import PairedLatency, paired_latency
from sparing.measure.statistics import Ratio, as_record
from sparing.transfer.swap import swap

DENSE = "softmax"
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
SLOWER = 1.5
FAR = 64
TOO_LARGE = "it would need more than half of the free memory"
HOPELESS = "it was far slower before, and its FLOPs grow as fast as the dense one's"


@dataclass
class Candidate:
    """A mechanism beside the fused dense attention, for the heads of one model.

    ``obstacle`` is why it cannot be used in the model, empty if it can. ``exact`` mechanisms keep
    the outputs, so they need no training. ``curve`` is its core's time over the dense core's by
    length (below 1 is faster). ``skipped`` is why a length was not measured. ``disturbance`` is
    what kept the machine busy at a length: then no crossover is given.
    """

    name: str
    exact: bool = False
    obstacle: str = ""
    curve: dict[int, Ratio] = field(default_factory=dict)
    skipped: dict[int, str] = field(default_factory=dict)
    disturbance: str = ""

    @property
    def crossover(self) -> int | None:
        """The length from which on the core is faster, by its whole interval, as measured."""
        return self._from_which(lambda ratio: _bounds(ratio)[1] < 1)

    @property
    def earliest(self) -> int | None:
        """The length from which on the core may be faster: the interval's lower end."""
        return self._from_which(lambda ratio: _bounds(ratio)[0] < 1)

    @property
    def longest(self) -> int | None:
        """The longest length measured."""
        return max(self.curve, default=None)

    def _from_which(self, faster: Callable[[Ratio], bool]) -> int | None:
        shortest = None
        if self.disturbance:
            return None
        for tokens in sorted(self.curve, reverse=True):
            if not faster(self.curve[tokens]):
                break
            shortest = tokens
        return shortest


@dataclass(frozen=True)
class WholeModel:
    """The model with one mechanism over the model as it is: predicted and measured time ratios.

    ``predicted`` is from the core's share and ratio (Amdahl), None if the dense attention is not
    fused. ``measured`` is for the whole swapped model, timed in turns with the model unswapped.
    """

    mechanism: str
    exact: bool
    predicted: Ratio | None
    measured: Ratio
    timed: dict[str, PairedLatency]
    swapped_layers: int
    left_layers: int


def candidates(subject: Subject, names: Sequence[str]) -> list[Candidate]:
    """The named mechanisms with their obstacles; by default all that studies use.

    The dense one is the baseline; controls are left out by default.

    Raises ``UsageError`` for unknown names.
    """
    chosen = list(names) or [name for name in MECHANISMS.names() if _worth_trying(name)]
    if len(set(chosen)) != len(chosen):
        raise UsageError(f"mechanisms are named twice: {', '.join(chosen)}")
    listed = []
    for name in chosen:
        mechanism_class(name, allowed=(name,))
        if name == DENSE:
            continue
        try:
            built = mechanism(name, Heads(subject.heads, subject.dim, subject.width, 64))
        except SparingError as error:
            listed.append(Candidate(name, obstacle=str(error)))
            continue
        causal = subject.causal and not built.traits.causal
        reason = "a swap of this model cannot be measured" if subject.obstacle else ""
        reason = "the model is causal, and it cannot be" if causal else reason
        listed.append(Candidate(name, built.traits.exact, reason))
    return listed


def _worth_trying(name: str) -> bool:
    traits = mechanism_class(name).traits
    return traits.arm and traits.family != "control" and name != DENSE


def measure_length(
    subject: Subject,
    chosen: Sequence[Candidate],
    tokens: int,
    batch: int,
    *,
    rounds: int,
    threads: int | None,
    budget_s: float,
) -> list[Record]:
    """Time the cores of all candidates against the dense one at one length.

    Mechanisms that cannot be causal are left out of a causal model's curves. Fills the candidates'
    curves and returns the records.
    """
    dense = _build(DENSE, subject, tokens)
    if _too_large(dense, subject, tokens, batch):
        for candidate in chosen:
            candidate.skipped[tokens] = TOO_LARGE
        return []
    calls = {DENSE: core_call(dense, subject, tokens, batch)}
    for candidate in chosen:
        call = _call_or_reason(candidate, subject, tokens, batch)
        if call is not None:
            calls[candidate.name] = call
    timed = paired_latency(
        calls, baseline=DENSE, rounds=rounds, warmup=1, threads=threads, budget_s=budget_s
    )
    for candidate in chosen:
        if candidate.name in timed:
            candidate.curve[tokens] = timed[candidate.name].ratio
            candidate.disturbance = candidate.disturbance or timed[candidate.name].disturbance
    return latency_records(timed, "attention", tokens, batch, DENSE)


def _call_or_reason(candidate: Candidate, subject: Subject, tokens: int, batch: int) -> Call | None:
    try:
        built = _build(candidate.name, subject, tokens)
        if subject.causal and not built.traits.causal:
            return None
        if _too_large(built, subject, tokens, batch):
            candidate.skipped[tokens] = TOO_LARGE
            return None
        if _hopeless(candidate, built, subject, tokens):
            candidate.skipped[tokens] = HOPELESS
            return None
        call = core_call(built, subject, tokens, batch)
        call()
    except SparingError as error:
        candidate.skipped[tokens] = str(error)
        return None
    return call


def core_call(built: Mechanism, subject: Subject, tokens: int, batch: int) -> Call:
    """A forward call of a mechanism on normal random inputs of the model's dtype and device."""
    generator = torch.Generator().manual_seed(0)
    heads, model = built.heads, subject.model
    built = built.to(model.device, model.dtype).eval()
    streams = []
    for name in built.streams:
        width = subject.width if name == "x" else heads.count * heads.dim
        x = torch.randn((batch, tokens, width), generator=generator).to(model.device, model.dtype)
        # laid out as projections leave them: the heads of one token side by side
        streams.append(
            x if name == "x" else x.view(batch, tokens, heads.count, heads.dim).transpose(1, 2)
        )
    mask = Mask(causal=subject.causal)

    def call() -> object:
        with torch.inference_mode():
            return built(*streams, mask=mask)

    return call


def _build(name: str, subject: Subject, tokens: int) -> Mechanism:
    return mechanism(name, Heads(subject.heads, subject.dim, subject.width, tokens))


def _too_large(built: Mechanism, subject: Subject, tokens: int, batch: int) -> bool:
    """Whether a call would fill more than half of the memory that is free now."""
    model = subject.model
    work = Workload(batch, subject.heads, tokens, tokens, subject.dim, model.dtype, subject.causal)
    return core_demand(built, work).bytes > usable_bytes(model.device)


def _hopeless(candidate: Candidate, built: Mechanism, subject: Subject, tokens: int) -> bool:
    """Whether a core that was far slower at a shorter length cannot catch up.

    Measuring it would take most of the time of all curves.
    """
    before = candidate.longest
    if before is None or before >= tokens or _bounds(candidate.curve[before])[0] < SLOWER:
        return False
    return _growth(built, subject, tokens) >= _growth(
        _build(DENSE, subject, tokens), subject, tokens
    )


def _growth(built: Mechanism, subject: Subject, tokens: int) -> float:
    """The growth of the FLOPs to far longer texts, where parts of fixed size no longer count."""
    heads, dim = subject.heads, subject.dim
    near, far = (
        built.cost(Workload(1, heads, n, n, dim, causal=subject.causal)).matmul_flops
        for n in (tokens, FAR * tokens)
    )
    return far / near


def fastest(chosen: Sequence[Candidate], tokens: int) -> Candidate | None:
    """The candidate with the smallest ratio at a length among those usable in the model."""
    able = [
        candidate for candidate in chosen if not candidate.obstacle and tokens in candidate.curve
    ]
    return min(able, key=lambda candidate: candidate.curve[tokens].value, default=None)


def measure_whole(
    subject: Subject,
    candidate: Candidate,
    parts: Parts,
    inputs: Inputs,
    tokens: int,
    *,
    rounds: int,
    threads: int | None,
    budget_s: float,
) -> WholeModel:
    """Swap a mechanism into a copy and time the whole models in turns; predict the same."""
    changed = sharing_copy(subject.model)
    sliding = any(layer.window is not None for layer in subject.layers)
    indices = [layer.index for layer in subject.served if layer.index is not None]
    report = swap(
        changed, candidate.name, indices if sliding else None, tokens=subject.limit or tokens
    )
    calls = {DENSE: model_call(subject.model, inputs), candidate.name: model_call(changed, inputs)}
    timed = paired_latency(
        calls, baseline=DENSE, rounds=rounds, warmup=1, threads=threads, budget_s=budget_s
    )
    return WholeModel(
        mechanism=candidate.name,
        exact=candidate.exact,
        predicted=predict(parts.served, candidate.curve[tokens]) if parts.fused else None,
        measured=timed[candidate.name].ratio,
        timed=timed,
        swapped_layers=len(report.swapped),
        left_layers=len(report.left),
    )


def measure_as_given(
    subject: Subject, inputs: Inputs, *, rounds: int, threads: int | None, budget_s: float
) -> dict[str, PairedLatency]:
    """Time a model that was given swapped in turns with its dense form.

    Raises ``Unsupported`` if the model was not swapped.
    """
    if subject.as_given is None:
        raise Unsupported(f"{subject.name} is not swapped")
    calls = {
        DENSE: model_call(subject.model, inputs),
        "as given": model_call(subject.as_given, inputs),
    }
    return paired_latency(
        calls, baseline=DENSE, rounds=rounds, warmup=1, threads=threads, budget_s=budget_s
    )


def predict(share: Ratio, core: Ratio) -> Ratio:
    """The whole's time ratio when a part with this share takes this ratio of its time (Amdahl).

    The interval spans all corners of the two: wider than need be, never narrower.
    """
    corners = [1 - s * (1 - r) for s, r in product(_bounds(share), _bounds(core))]
    value = 1 - share.value * (1 - core.value)
    return Ratio(value, (min(corners), max(corners)), min(share.count, core.count))


def _bounds(ratio: Ratio) -> tuple[float, float]:
    return ratio.interval or (ratio.value, ratio.value)


def crossover_records(chosen: Sequence[Candidate], batch: int) -> list[Record]:
    """From which length on each core is faster, and the earliest possible one; null if none."""
    records = []
    for candidate in chosen:
        if not candidate.curve or candidate.disturbance:
            continue
        crossover, earliest = candidate.crossover, candidate.earliest
        value = None if crossover is None else float(crossover)
        interval = None if value is None or earliest is None else (float(earliest), value)
        labels: dict[str, Label] = {"arm": candidate.name, "batch": batch}
        labels["longest_tokens"] = candidate.longest
        count = min(ratio.count for ratio in candidate.curve.values())
        name = "crossover_tokens"
        records.append(Record(name, value, "tokens", "measured", labels, interval, count))
    return records


def whole_records(whole: WholeModel, tokens: int, batch: int) -> list[Record]:
    """The measured whole-model latencies and ratio, and the predicted ratio beside them."""
    records = latency_records(whole.timed, "model", tokens, batch, DENSE)
    if whole.predicted is not None:
        labels: dict[str, Label] = {"arm": whole.mechanism, "scope": "model"}
        labels |= {"tokens": tokens, "batch": batch}
        name = "predicted_latency_ratio"
        records.append(as_record(name, whole.predicted, "ratio", labels, "modelled"))
    return records
