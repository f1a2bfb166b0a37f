"""Register adaptive models with transformers' Auto classes, without importing transformers.

``import sparing`` must stay quick, and transformers has no entry points for plug-ins. So the model
type is registered at once if transformers' table of configurations is loaded already, and else
right after it is loaded. The model class follows when the first such configuration is read.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

TABLE = "transformers.models.auto.configuration_auto"


def install() -> None:
    """Register the model type of adaptive models now, or when transformers' table is loaded."""
    if TABLE in sys.modules:
        _register()
    elif not any(isinstance(finder, _AfterTable) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterTable())


def _register() -> None:
    from sparing.transfer.adapting.config import register

    register()


class _AfterTable(MetaPathFinder):
    """Finds nothing itself: lets the table be loaded as usual, and registers afterwards."""

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The table's own spec, with a registration after its loading; None for all else."""
        if fullname != TABLE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            _register()

        # the loader belongs to this one module, and keeps its other methods
        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
