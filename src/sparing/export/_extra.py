"""Optional packages: imported on use, named in an error with their extra when missing."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from sparing.core.errors import UsageError

EXTRAS = {"onnxruntime": "onnx", "onnxscript": "onnx", "openvino": "openvino", "nncf": "openvino"}
EXTRAS |= {"executorch": "edge", "torchao": "edge"}
TELEMETRY = "openvino_telemetry"


def require(name: str) -> ModuleType:
    """Import ``name``, such as "onnxruntime.quantization"; ``UsageError`` when it is missing."""
    package = name.partition(".")[0]
    if EXTRAS.get(package) == "openvino":
        _stop_telemetry()
    root = logging.getLogger()
    # onnxruntime.quantization sets up the root logger, at level INFO, unless it has a handler.
    guard = logging.NullHandler()
    root.addHandler(guard)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"{package} is not installed ({error}): {install([package])}") from error
    finally:
        root.removeHandler(guard)


def install(packages: Sequence[str]) -> str:
    """The command that installs packages, as a hint for an error."""
    extras = sorted({EXTRAS.get(package, "onnx") for package in packages})
    return f"pip install '.[{','.join(extras)}]' in a clone of sparing"


def missing_packages(*names: str) -> list[str]:
    """Those of the packages that are not installed; none is imported."""
    return [name for name in names if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    if name in sys.modules:
        return sys.modules[name] is not None
    return importlib.util.find_spec(name) is not None


def _stop_telemetry() -> None:
    """Keep openvino and nncf from sending usage data, which they do on import unless refused.

    Both work without the package that sends. Where it is imported already, it sends nothing more.
    """
    modules: dict[str, Any] = {**sys.modules}
    telemetry = modules.get(TELEMETRY)
    if telemetry is None:
        # an import of None raises ImportError, which both packages expect
        sys.modules[TELEMETRY] = None  # type: ignore[assignment]
        return
    for method in ("send_event", "send_error", "send_stack_trace", "start_session", "end_session"):
        setattr(telemetry.Telemetry, method, _send_nothing)


def _send_nothing(*_: object, **__: object) -> None:
    """In the place of the methods that send."""
