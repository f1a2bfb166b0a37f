"""``torch.compile`` for mechanisms: the work on a few heads at a time, fused."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sparing.core.errors import Unsupported, UsageError
from sparing.core.mechanism import Mechanism


def compiled(module: nn.Module) -> nn.Module:
    """Compile the inner work of every mechanism in ``module`` that gains by it; returns ``module``.

    ``module`` is a mechanism, a ``sparing.Attention`` or a swapped model. Mechanisms that sum over
    features (``gains_by_compiling``) then run elementwise work and sums in one pass. Inductor
    writes its code for this machine: C++ on a CPU, Triton on a GPU. The answers are the plain
    form's up to rounding; the first call at a new kind of shape takes some seconds. The other
    mechanisms already spend their time in products and fused kernels and do not change.

    Raises ``UsageError`` when there is no mechanism in ``module``, and ``Unsupported`` when none of
    them gains or when nothing can be compiled here (for example without a C++ compiler).
    """
    mechanisms = [part for part in module.modules() if isinstance(part, Mechanism)]
    if not mechanisms:
        raise UsageError(f"compiled: no mechanism in {type(module).__name__}")
    gaining = [part for part in mechanisms if part.gains_by_compiling]
    if not gaining:
        names = ", ".join(sorted({type(part).__name__ for part in mechanisms}))
        raise Unsupported(f"compiled: {names} would gain nothing; use the plain form")
    _try_compiler(next(module.parameters(), torch.empty(0)).device)
    for part in gaining:
        part.compiled = True
    return module


def _try_compiler(device: torch.device) -> None:
    """Compile something small now, so that a missing compiler does not fail in the first call."""
    build: Any = torch.compile
    try:
        build(lambda x: x + x)(torch.ones(2, device=device))
    except Exception as error:
        raise Unsupported(f"compiled: torch.compile does not work here: {error}") from error
