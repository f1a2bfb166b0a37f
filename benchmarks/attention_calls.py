"""Calls to be timed, or run in a process of their own, built from plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn

import sparing
from sparing.core.catalogue import mechanism
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.workload import Workload

Call = Callable[[], object]

SHARES = (1.0, 0.75, 0.5, 0.25)
"""What part of each padded row is real: a batch of four, filled up on the right."""


@dataclass(frozen=True)
class Job:
    """One call of a mechanism's core.

    ``mode`` is forward, causal, padded (a batch of four with mixed lengths) or training (forward
    and backward, gradients for the inputs and all parameters).
    """

    arm: str
    tokens: int
    mode: str = "forward"
    heads: int = 12
    dim: int = 64
    compiled: bool = False
    device: str = "cpu"
    dtype: str = "float32"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def batch(self) -> int:
        """How many sequences the call takes."""
        return len(SHARES) if self.mode == "padded" else 1

    def work(self) -> Workload:
        """The call as a mechanism's cost model takes it."""
        causal = self.mode == "causal"
        kind = getattr(torch, self.dtype)
        return Workload(
            self.batch, self.heads, self.tokens, self.tokens, self.dim, kind, causal=causal
        )

    def arguments(self) -> dict[str, Any]:
        """As a fresh process takes it."""
        return asdict(self)


def build(**arguments: Any) -> Call:
    """For a process of its own: the call of the job with these fields."""
    return call_of(Job(**arguments))


def make(job: Job) -> Mechanism:
    """The job's mechanism with its defaults, or the job's options."""
    heads = Heads(job.heads, job.dim, width=job.heads * job.dim, tokens=job.tokens)
    made = mechanism(job.arm, heads, **job.options)
    return made.to(job.device, getattr(torch, job.dtype)).train(job.mode == "training")


def prepare(made: nn.Module, *, compiled: bool) -> nn.Module:
    """The module as it is called: plain, or through the library's one door to the compiler."""
    return sparing.compiled(made) if compiled else made


def call_of(job: Job) -> Call:
    """A call of the job's mechanism on normal random inputs."""
    made = make(job)
    generator = torch.Generator().manual_seed(0)
    inside = (job.batch, job.heads, job.tokens, job.dim)
    around = (job.batch, job.tokens, job.heads * job.dim)
    streams = [
        torch.randn(around if name == "x" else inside, generator=generator).to(
            job.device, getattr(torch, job.dtype)
        )
        for name in made.streams
    ]
    mask = _mask(job)
    module = prepare(made, compiled=job.compiled)
    if job.mode == "training":
        return _training(module, streams, mask)

    def call() -> object:
        with torch.inference_mode():
            return module(*streams, mask=mask)

    return call


def _mask(job: Job) -> Mask:
    """One mask for all calls, as all layers of a model share one."""
    if job.mode != "padded":
        return Mask(causal=job.mode == "causal")
    lengths = torch.tensor([max(1, int(share * job.tokens)) for share in SHARES])
    keep = torch.arange(job.tokens)[None] < lengths[:, None]
    return Mask(keep.to(job.device))


def _training(module: nn.Module, streams: list[torch.Tensor], mask: Mask) -> Call:
    inputs = [stream.requires_grad_() for stream in streams]
    inputs += [parameter for parameter in module.parameters() if parameter.requires_grad]
    ones = torch.ones_like(module(*streams, mask=mask))

    def call() -> object:
        mixed = module(*streams, mask=mask)
        return torch.autograd.grad(mixed, inputs, ones, allow_unused=True)

    return call


def traffic_bytes(job: Job, made: Mechanism) -> int:
    """What a call must move at least: its inputs and its own numbers once in, its output out."""
    work = job.work()
    stream = work.batch * work.heads * work.queries * work.dim
    weights = sum(tensor.numel() for tensor in (*made.parameters(), *made.buffers()))
    return (stream * (len(made.streams) + 1) + weights) * work.element_bytes
