"""Attention that spends only what the input needs: swap it in, measure it, decide.

Every name is loaded on first use, so ``import sparing`` costs nothing and the command line answers
at once.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sparing.core.version import __version__ as __version__
from sparing.registration import install as _install

if TYPE_CHECKING:
    from sparing.agree.study import agree as agree
    from sparing.api import advise as advise
    from sparing.api import compare as compare
    from sparing.api import evaluate as evaluate
    from sparing.api import prune as prune
    from sparing.api import slim as slim
    from sparing.core.catalogue import mechanism as mechanism
    from sparing.core.errors import SparingError as SparingError
    from sparing.core.errors import Unsupported as Unsupported
    from sparing.core.errors import UsageError as UsageError
    from sparing.core.execution.compiling import compiled as compiled
    from sparing.core.heads import Heads as Heads
    from sparing.core.mask import Mask as Mask
    from sparing.core.mechanism import Mechanism as Mechanism
    from sparing.core.recording import record as record
    from sparing.core.traits import Traits as Traits
    from sparing.core.workload import Cost as Cost
    from sparing.core.workload import Workload as Workload
    from sparing.layers.attention import Attention as Attention
    from sparing.predict.study import predict as predict
    from sparing.testing.paths import on_path as on_path
    from sparing.transfer.adapting.adapt import adapt as adapt
    from sparing.transfer.checkpoint import load as load
    from sparing.transfer.confidence import fit_confidence as fit_confidence
    from sparing.transfer.fitting import fit_budget as fit_budget
    from sparing.transfer.folding.fold import fold as fold
    from sparing.transfer.folding.fold import unfold as unfold
    from sparing.transfer.patching import keep_all_patches as keep_all_patches
    from sparing.transfer.patching import select_patches as select_patches
    from sparing.transfer.positions import lengthen as lengthen
    from sparing.transfer.swap import swap as swap
    from sparing.transfer.swap import unswap as unswap

    def mechanisms() -> list[str]:
        """The names of all mechanisms, sorted."""


_HOMES = {
    "Attention": "sparing.layers.attention",
    "Cost": "sparing.core.workload",
    "Heads": "sparing.core.heads",
    "Mask": "sparing.core.mask",
    "Mechanism": "sparing.core.mechanism",
    "SparingError": "sparing.core.errors",
    "Traits": "sparing.core.traits",
    "Unsupported": "sparing.core.errors",
    "UsageError": "sparing.core.errors",
    "Workload": "sparing.core.workload",
    "adapt": "sparing.transfer.adapting.adapt",
    "advise": "sparing.api",
    "agree": "sparing.agree.study",
    "compare": "sparing.api",
    "compiled": "sparing.core.execution.compiling",
    "evaluate": "sparing.api",
    "fit_budget": "sparing.transfer.fitting",
    "fit_confidence": "sparing.transfer.confidence",
    "fold": "sparing.transfer.folding.fold",
    "keep_all_patches": "sparing.transfer.patching",
    "lengthen": "sparing.transfer.positions",
    "load": "sparing.transfer.checkpoint",
    "mechanism": "sparing.core.catalogue",
    "on_path": "sparing.testing.paths",
    "predict": "sparing.predict.study",
    "prune": "sparing.api",
    "record": "sparing.core.recording",
    "select_patches": "sparing.transfer.patching",
    "slim": "sparing.api",
    "swap": "sparing.transfer.swap",
    "unfold": "sparing.transfer.folding.fold",
    "unswap": "sparing.transfer.swap",
}
_PACKAGES = ("mechanisms", "testing")
__all__ = ["__version__", *sorted((*_HOMES, *_PACKAGES))]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _PACKAGES:
        value = importlib.import_module(f"sparing.{name}")
    else:
        raise AttributeError(f"module 'sparing' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


class _Verbs(ModuleType):
    """A verb keeps its name: importing the package ``sparing.slim`` does not hide ``slim``."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Verbs
_install()
