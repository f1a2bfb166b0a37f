"""One door to ``torch.compile``: what a mechanism does to a few heads at a time, fused."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sparing.core.errors import Unsupported, UsageError
from sparing.core.mechanism import Mechanism


def compiled(module: nn.Module) -> nn.Module:
    """Compile the inner work of every mechanism in ``module`` that gains by it; returns ``module``.

    ``module`` is a mechanism, a ``sparing.Attention`` or a swapped model. Mechanisms that sum over
    features (``gains_by_compiling``) then run elementwise work and sums in one pass, by the code
    that inductor writes for this machine: C++ on a CPU, Triton on a GPU. The answers are the plain
    form's up to rounding; the first call at a new kind of shape takes some seconds. The others
    spend their time in products and fused kernels already and stay as they are.

    Raises ``UsageError`` when there is no mechanism in ``module``, and ``Unsupported`` when none of
    them gains or when nothing can be compiled here (no C++ compiler, for instance).
    """
    mechanisms = [part for part in module.modules() if isinstance(part, Mechanism)]
    if not mechanisms:
        raise UsageError(f"compiled: no mechanism in {type(module).__name__}")
    gaining = [part for part in mechanisms if part.gains_by_compiling]
    if not gaining:
        names = ", ".join(sorted({type(part).__name__ for part in mechanisms}))
        raise Unsupported(f"compiled: {names} would gain nothing; leave it as it is")
    _try_compiler(next(module.parameters(), torch.empty(0)).device)
    for part in gaining:
        part.compiled = True
    return module


def _try_compiler(device: torch.device) -> None:
    """Compile something small now: a missing compiler should not surface in the first call."""
    build: Any = torch.compile
    try:
        build(lambda x: x + x)(torch.ones(2, device=device))
    except Exception as error:
        raise Unsupported(f"compiled: torch.compile does not work here: {error}") from error
