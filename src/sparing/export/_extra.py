"""The optional packages of the extra ``onnx``: imported on use, named in an error when missing."""

from __future__ import annotations

import importlib
import logging
from types import ModuleType

from sparing.core.errors import UsageError


def require(name: str) -> ModuleType:
    """Import ``name``, such as "onnxruntime.quantization"; ``UsageError`` when it is missing."""
    root = logging.getLogger()
    # onnxruntime.quantization sets up the root logger, at level INFO, unless it has a handler.
    guard = logging.NullHandler()
    root.addHandler(guard)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise UsageError(
            f"{package} is not installed ({error}): pip install '.[onnx]' in a clone of sparing"
        ) from error
    finally:
        root.removeHandler(guard)
