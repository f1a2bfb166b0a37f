"""The time of a model's parts: replayed on their real inputs, in turns with the whole model.

One forward pass records every call of a part, with its inputs. Then the recorded calls of a part
are timed together, interleaved with the whole model, without hooks. Other than in profilers, each
share has an interval, from paired rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from sparing.advise.model import Inputs, Subject
from sparing.core.errors import Unsupported
from sparing.core.record import Label, Record
from sparing.experiment.cells.probe import model_call
from sparing.measure.gains import largest_gain
from sparing.measure.latency import PairedLatency, paired_latency
from sparing.measure.statistics import Ratio, as_record, median_ratio

Call = Callable[[], object]
CORE, PROJECTIONS, FEED_FORWARD, REST = "attention core", "projections", "feed-forward", "rest"
PARTS = (CORE, PROJECTIONS, FEED_FORWARD, REST)
# The groups of calls that are timed: cores of layers that can and cannot be swapped, and whole
# attention modules. The latter hold the projections, for attention that is not one fused call.
SERVED, LEFT, WHOLE, INSIDE = "served", "left", "whole attention", "projections inside"
_ATTENTION_WORDS = ("attn", "attention")
_IDLE = ("dropout", "droppath", "identity")


@dataclass(frozen=True)
class Part:
    """One part of the model's time: milliseconds of a forward pass and share of the whole."""

    name: str
    time_ms: float
    share: Ratio


@dataclass(frozen=True)
class Parts:
    """The parts, which sum to the whole, and the limits for attention.

    ``served`` is the share of the attention cores that can be swapped. ``gain`` is the speed-up
    with a core that costs nothing. ``accounted`` is the share of the whole in recorded calls, with
    norms, embeddings and head. ``fused`` is whether the dense attention is PyTorch's fused kernel.
    """

    model: PairedLatency
    parts: tuple[Part, ...]
    served: Ratio
    gain: Ratio
    accounted: Ratio
    fused: bool

    @property
    def core(self) -> Ratio:
        """The attention core's share of the whole."""
        return self.parts[0].share


@dataclass
class Trace:
    """The calls of one forward pass, by group, for replay."""

    calls: dict[str, list[Call]] = field(default_factory=dict)

    def note(self, group: str, call: Call) -> None:
        """Add one call to a group."""
        self.calls.setdefault(group, []).append(call)

    def replay(self, group: str) -> Call:
        """All calls of a group, one after the other, without gradients."""
        calls = self.calls[group]

        def run() -> None:
            with torch.inference_mode():
                for call in calls:
                    call()

        return run

    @property
    def fused(self) -> bool:
        """Whether any attention was PyTorch's fused call."""
        return SERVED in self.calls or LEFT in self.calls


def measure_parts(
    subject: Subject, inputs: Inputs, *, rounds: int, threads: int | None, budget_s: float
) -> Parts:
    """Time the parts of the model against the whole on given inputs.

    Raises ``Unsupported`` if the model's attention cannot be separated from the rest.
    """
    trace = capture(subject, inputs)
    calls = {"model": model_call(subject.model, inputs)}
    calls |= {group: trace.replay(group) for group in trace.calls}
    timed = paired_latency(
        calls, baseline="model", rounds=rounds, warmup=1, threads=threads, budget_s=budget_s
    )
    return _split(timed, trace.fused)


def capture(subject: Subject, inputs: Inputs) -> Trace:
    """Run the model once and record the calls of each part with their inputs."""
    trace, model = Trace(), subject.model
    groups = sort_modules(model)
    with ExitStack() as stack:
        for name, group in groups.items():
            module = model.get_submodule(name)
            stack.enter_context(_noted(module, group, trace))
        spy = stack.enter_context(_FusedAttention(trace))
        for layer in subject.served:
            stack.enter_context(_inside(layer.module, spy))
        stack.enter_context(torch.inference_mode())
        _run(subject, inputs)
    if trace.fused:
        trace.calls.pop(WHOLE, None)
        trace.calls.setdefault(PROJECTIONS, []).extend(trace.calls.pop(INSIDE, []))
    elif WHOLE not in trace.calls:
        raise Unsupported(
            f"the attention of {subject.kind} cannot be separated from its other parts"
        )
    return trace


def _run(subject: Subject, inputs: Inputs) -> None:
    try:
        subject.model(**inputs)
    except (ValueError, TypeError, RuntimeError, AttributeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise Unsupported(
            f"{subject.kind} cannot run on {subject.reads} alone: {reason}"
        ) from error


def sort_modules(model: nn.Module) -> dict[str, str]:
    """The modules to record, by name, with their groups; only ``WHOLE`` ones are nested.

    A module of a block belongs to attention if a part of its name is an attention word.
    Feed-forward is the largest module of a block with weights and without attention and norms:
    BERT's two linear layers, Llama's whole gated unit. Norms, embeddings, and modules outside of
    blocks are the rest.
    """
    groups: dict[str, str] = {}
    chosen: list[str] = []
    for name, module in model.named_modules():
        if not name or name.startswith(tuple(f"{parent}." for parent in chosen)):
            continue
        group = _group(name, module, model)
        if group:
            groups[name] = group
            if group != WHOLE:
                chosen.append(name)
    return groups


def _group(name: str, module: nn.Module, model: nn.Module) -> str:
    path = _path_in_block(name, model)
    if not list(module.children()):
        return _leaf_group(name, module, path, groups_inside=_owner_is_whole(name, model))
    if path is None or not path:
        return ""
    if _says_attention(path):
        return WHOLE if _owns_projections(module) else ""
    return FEED_FORWARD if _is_feed_forward(module) else ""


def _leaf_group(name: str, module: nn.Module, path: list[str] | None, groups_inside: bool) -> str:
    kind = type(module).__name__.lower()
    if any(word in kind for word in _IDLE):
        return ""
    if path is None or "norm" in kind or isinstance(module, nn.Embedding) or "rotary" in kind:
        return REST
    if _says_attention(path):
        if not _has_weight(module):
            return ""
        return INSIDE if groups_inside else PROJECTIONS
    return FEED_FORWARD


def _path_in_block(name: str, model: nn.Module) -> list[str] | None:
    """The names below the block that holds a module: empty for a block, None outside of any.

    A block is an entry of the outermost list of modules that has attention inside.
    """
    parts = name.split(".")
    for depth in range(1, len(parts)):
        if isinstance(model.get_submodule(".".join(parts[:depth])), nn.ModuleList):
            block = model.get_submodule(".".join(parts[: depth + 1]))
            inside = any(_says_attention(inner.split(".")) for inner, _ in block.named_modules())
            return parts[depth + 1 :] if inside else None
    return None


def _says_attention(path: Sequence[str]) -> bool:
    return any(word in part.lower() for part in path for word in _ATTENTION_WORDS)


def _has_weight(module: nn.Module) -> bool:
    return any(parameter.ndim >= 2 for parameter in module.parameters())


def _owns_projections(module: nn.Module) -> bool:
    """Whether two or more projections are a module's own children."""
    leaves = [child for child in module.children() if not list(child.children())]
    return sum(_has_weight(child) and not isinstance(child, nn.Embedding) for child in leaves) >= 2


def _owner_is_whole(name: str, model: nn.Module) -> bool:
    return _owns_projections(model.get_submodule(name.rpartition(".")[0]))


def _is_feed_forward(module: nn.Module) -> bool:
    inside = list(module.named_modules())
    named = any(_says_attention(name.split(".")) for name, _ in inside)
    norms = any("norm" in type(inner).__name__.lower() for _, inner in inside)
    lists = isinstance(module, nn.ModuleList)  # a list is never called, only its entries
    return _has_weight(module) and not (named or norms or lists)


@contextmanager
def _noted(module: nn.Module, group: str, trace: Trace) -> Iterator[None]:
    def note(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        trace.note(group, partial(module, *args, **kwargs))

    handle = module.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


class _FusedAttention(TorchFunctionMode):
    """Records every fused attention call: as served inside a layer that can be swapped."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace
        self.depth = 0

    def __torch_function__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if function is F.scaled_dot_product_attention:
            call = partial(function, *args, **(kwargs or {}))
            self.trace.note(SERVED if self.depth else LEFT, call)
        return function(*args, **(kwargs or {}))


@contextmanager
def _inside(module: nn.Module, spy: _FusedAttention) -> Iterator[None]:
    def enter(*_: object) -> None:
        spy.depth += 1

    def leave(*_: object) -> None:
        spy.depth -= 1

    handles = (module.register_forward_pre_hook(enter), module.register_forward_hook(leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _split(timed: dict[str, PairedLatency], fused: bool) -> Parts:
    """Shares from the rounds; scaled down if the parts alone took longer than the whole."""
    whole = np.array(timed["model"].samples_ms)
    silent = np.zeros_like(whole)
    samples = {name: np.array(latency.samples_ms) for name, latency in timed.items()}
    groups = {group: samples.get(group, silent) for group in (SERVED, LEFT, PROJECTIONS)}
    served, core = groups[SERVED], groups[SERVED] + groups[LEFT]
    projections, feed_forward = groups[PROJECTIONS], samples.get(FEED_FORWARD, silent)
    if not fused:
        inside = samples.get(INSIDE, silent)
        core = served = np.maximum(samples[WHOLE] - inside, 1e-9 * whole)
        projections = projections + inside
    shares = [_share(part, whole) for part in (core, projections, feed_forward)]
    known = sum(share.value for share in shares)
    scale = 1 / max(1.0, known)
    shares = [_scaled(share, scale) for share in shares]
    together = _scaled(_share(core + projections + feed_forward, whole), scale)
    low, high = together.interval or (together.value, together.value)
    rest_interval = (max(0.0, 1 - high), max(0.0, 1 - low))
    shares.append(Ratio(max(0.0, 1 - known * scale), rest_interval, len(whole)))
    total_ms = timed["model"].p50_ms
    parts = tuple(
        Part(name, share.value * total_ms, share) for name, share in zip(PARTS, shares, strict=True)
    )
    named = core + projections + feed_forward + samples.get(REST, silent)
    return Parts(
        model=timed["model"],
        parts=parts,
        served=_scaled(_share(served, whole), scale),
        gain=largest_gain(shares[0]),
        accounted=_share(named, whole),
        fused=fused,
    )


def _share(part: Any, whole: Any) -> Ratio:
    if not part.any():
        return Ratio(0.0, (0.0, 0.0), len(whole))
    return median_ratio(part, whole)


def _scaled(ratio: Ratio, scale: float) -> Ratio:
    interval = ratio.interval and (scale * ratio.interval[0], scale * ratio.interval[1])
    return Ratio(scale * ratio.value, interval, ratio.count)


def part_records(parts: Parts, tokens: int, batch: int) -> list[Record]:
    """The records: milliseconds and shares by part, and the largest gain."""
    labels: dict[str, Label] = {"tokens": tokens, "batch": batch, "threads": parts.model.threads}
    records = []
    for part in parts.parts:
        part_labels: dict[str, Label] = {**labels, "part": part.name}
        share = part.share
        records.append(
            Record("part_time_ms", part.time_ms, "ms", "measured", part_labels, None, share.count)
        )
        records.append(as_record("part_share", share, "share", part_labels))
    dense: dict[str, Label] = {**labels, "arm": "softmax"}
    records.append(as_record("attention_share", parts.core, "share", dense))
    records.append(as_record("largest_gain", parts.gain, "ratio", dense))
    records.append(as_record("accounted_share", parts.accounted, "share", labels))
    return records
