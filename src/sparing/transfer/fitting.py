"""The largest budget that keeps latency and memory limits on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.foreign.pretrained import write_pretrained
from sparing.layers.plan import Plan
from sparing.measure.latency import paired_latency
from sparing.measure.memory import peak_memory
from sparing.models.shared.shape import image_config
from sparing.transfer.adaptive import AdaptiveClassifier, FrontierPoint

MIB = 2**20
ROUNDS = 10


@dataclass(frozen=True)
class Fit:
    """The budget that was set, and its measured cost: None where no limit needs it.

    ``latency_ms`` is the median of a call, ``peak_mb`` the memory (MiB) that one call adds to the
    loaded model. ``disturbance`` names the work that kept the machine busy during timing, in which
    case a larger budget may hold on a quiet machine; it is empty if it was quiet.
    """

    budget: float
    plan: Plan
    latency_ms: float | None
    peak_mb: float | None
    disturbance: str = ""


def fit_budget(
    model: AdaptiveClassifier,
    *,
    max_latency_ms: float | None = None,
    max_memory_mb: float | None = None,
    tokens: int = 128,
    batch: int = 1,
    inputs: Sequence[Mapping[str, Tensor]] = (),
    threads: int | None = None,
) -> Fit:
    """Set the best plan of the model's frontier that keeps the limits here, and return its cost.

    Without ``inputs`` a batch of random tokens (or images) is used, without early exits or narrower
    parts, so the limits hold for every input of that size. With ``inputs`` (batches as the model
    takes them) the latency is the mean over them, with their own choices; memory is still that of
    the longest without a choice. ``threads`` pins PyTorch's count (its own unless given). Raises
    ``UsageError`` without limits, without a frontier, and if even the cheapest plan exceeds the
    limits; the plan then does not change.

    Source: the limits are L_max and M_max of the AdaAttention paper, section III. There they are
    part of a loss, here they are measured.
    """
    _check(model, max_latency_ms, max_memory_mb)
    given = list(inputs) or [random_batch(model, batch, tokens)]
    before = model.plan
    disturbance = ""
    try:
        # best first: the first that holds is the answer
        for point in model.best_first():
            fit = _measure(model, point, given, bool(inputs), max_memory_mb is not None, threads)
            disturbance = disturbance or fit.disturbance
            if _holds(fit, max_latency_ms, max_memory_mb):
                before = point.plan
                return replace(fit, disturbance=disturbance)
    finally:
        model.plan = before
    raise _too_dear(fit, disturbance if max_latency_ms is not None else "")


def _too_dear(cheapest: Fit, disturbance: str) -> UsageError:
    if disturbance:
        return UsageError(
            f"the machine was busy ({disturbance}), and then even the cheapest plan takes "
            f"{cheapest.latency_ms:.3g} ms; fit the budget again when it is quiet"
        )
    peak = "" if cheapest.peak_mb is None else f" and {cheapest.peak_mb:.3g} MiB"
    return UsageError(
        f"even the cheapest plan takes {cheapest.latency_ms:.3g} ms{peak} here; allow more, or "
        "slim the model further"
    )


def _check(
    model: AdaptiveClassifier, max_latency_ms: float | None, max_memory_mb: float | None
) -> None:
    if not hasattr(model, "frontier"):
        raise UsageError(
            f"a {type(model).__name__} has no budget: sparing.adapt makes an adaptive form of it"
        )
    if max_latency_ms is None and max_memory_mb is None:
        raise UsageError("fit_budget needs max_latency_ms or max_memory_mb")
    for name, value in (("max_latency_ms", max_latency_ms), ("max_memory_mb", max_memory_mb)):
        if value is not None and not value > 0:
            raise UsageError(f"{name} must be above 0; got {value}")
    if not model.frontier:
        raise UsageError(
            "the model has no frontier: sparing slim makes one, set_frontier stores it"
        )


def random_batch(model: AdaptiveClassifier, batch: int, tokens: int) -> dict[str, Tensor]:
    """Random inputs of the size that the model reads, the same at every call."""
    generator = torch.Generator().manual_seed(0)
    config: Any = model.config
    if model.main_input_name == "pixel_values":
        sizes = image_config(config)
        size = (batch, sizes.num_channels, sizes.image_size, sizes.image_size)
        return {"pixel_values": torch.randn(size, generator=generator).to(model.device)}
    if not 0 < tokens <= model.longest:
        raise UsageError(f"{tokens} tokens: the model reads 1 to {model.longest}")
    ids = torch.randint(1, config.vocab_size, (batch, tokens), generator=generator)
    ids = ids.to(model.device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _holds(fit: Fit, max_latency_ms: float | None, max_memory_mb: float | None) -> bool:
    slow = max_latency_ms is not None and (fit.latency_ms or 0.0) > max_latency_ms
    large = max_memory_mb is not None and (fit.peak_mb or 0.0) > max_memory_mb
    return not slow and not large


def _without_chance(plan: Plan) -> Plan:
    """The plan at its highest cost: no early exits, and no tokens dropped by input."""
    return replace(plan.without_choice, tokens_above=0.0, gated=False)


def _measure(
    model: AdaptiveClassifier,
    point: FrontierPoint,
    inputs: Sequence[Mapping[str, Tensor]],
    leave: bool,
    weigh: bool,
    threads: int | None,
) -> Fit:
    model.plan = point.plan if leave else _without_chance(point.plan)

    def call() -> None:
        with torch.inference_mode():
            for batch in inputs:
                model(**batch)

    times = paired_latency({"plan": call}, baseline="plan", rounds=ROUNDS, threads=threads)
    latency_ms = times["plan"].p50_ms / len(inputs)
    peak_mb = _peak_mb(model, point.plan, inputs, threads) if weigh else None
    disturbance = times["plan"].disturbance
    return Fit(point.cost_share, point.plan, latency_ms, peak_mb, disturbance)


def _peak_mb(
    model: AdaptiveClassifier,
    plan: Plan,
    inputs: Sequence[Mapping[str, Tensor]],
    threads: int | None,
) -> float:
    """In a process of its own, so that this process's memory does not hide it."""
    longest = max(inputs, key=lambda batch: next(iter(batch.values())).numel())
    shape = next(iter(longest.values())).shape
    model.plan = _without_chance(plan)
    with tempfile.TemporaryDirectory() as folder:
        write_pretrained(model, folder)
        arguments = {"folder": folder, "batch": shape[0], "tokens": shape[-1]}
        peak = peak_memory(f"{__name__}:saved_call", arguments, threads=threads or 1)
    return peak.bytes / MIB


def saved_call(folder: str, batch: int, tokens: int) -> Callable[[], object]:
    """For a separate process: a call of a saved adaptive model on random inputs."""
    from sparing.transfer.checkpoint import load

    model = load(Path(folder))
    assert isinstance(model, AdaptiveClassifier)
    inputs = random_batch(model, batch, tokens)

    def call() -> object:
        with torch.inference_mode():
            return model(**inputs)

    return call
