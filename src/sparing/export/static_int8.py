"""INT8 for OpenVINO: scales of activations are calibrated on inputs beforehand (static)."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparing.core.errors import Unsupported, UsageError
from sparing.core.processor import int8_sums_overflow
from sparing.core.scratch import scratch_inside
from sparing.export._extra import require
from sparing.export.openvino import put, read, save
from sparing.export.segment import OpenVinoSegment

FEWEST_INPUTS, MOST_INPUTS = 20, 300  # texts: fewer than 20 do not show the largest activations
Arrays = dict[str, NDArray[Any]]


def quantise_static(
    segments: Sequence[Path], folder: Path, inputs: Sequence[Mapping[str, Any]]
) -> list[Path]:
    """Write OpenVINO segments in INT8 by NNCF, under the same names in another folder.

    ``inputs`` are those of the first segment, such as one text each, without pads: pads would count
    as activations. At most 300 are used, spread evenly. SmoothQuant moves the outliers of
    activations into weights. Later segments are calibrated on the float32 hidden states of all
    inputs: early exits are not considered. On x86 processors without VNNI, weights have 7 bits.

    Raises ``UsageError`` for no inputs, missing or damaged files, and the segments' own folder,
    and ``Unsupported`` where NNCF cannot quantise a segment. Nothing is written then.
    """
    if not inputs:
        raise UsageError("INT8 in OpenVINO is calibrated on inputs: give at least one text")
    if any(path.resolve().parent == folder.resolve() for path in segments):
        raise UsageError(f"{folder} holds the segments themselves: give another folder")
    positions = np.linspace(0, len(inputs) - 1, min(len(inputs), MOST_INPUTS)).round().astype(int)
    chosen = [inputs[position] for position in positions]
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with scratch_inside(folder, "int8") as part:
        earlier: list[OpenVinoSegment] = []
        for path in segments:
            model = _quantised(path, chosen, earlier)
            written.append(part / path.name)
            save(model, written[-1])
            earlier.append(OpenVinoSegment(path, 1, "float32"))
        return put(written, folder)


def _quantised(
    path: Path, inputs: Sequence[Mapping[str, Any]], earlier: Sequence[OpenVinoSegment]
) -> Any:
    nncf = require("nncf")
    model = read(path)
    takes = [given.get_any_name() for given in model.inputs]
    overflow = nncf.quantization.advanced_parameters.OverflowFix
    fix = overflow.ENABLE if int8_sums_overflow() else overflow.DISABLE
    try:
        with _quiet():
            return nncf.quantize(
                model,
                nncf.Dataset(inputs, lambda given: _arrays(given, takes, earlier)),
                subset_size=len(inputs),
                model_type=nncf.ModelType.TRANSFORMER,
                advanced_parameters=nncf.AdvancedQuantizationParameters(overflow_fix=fix),
            )
    except (RuntimeError, ValueError, nncf.InternalError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise Unsupported(f"NNCF cannot quantise {path.name}: {reason}") from error


def _arrays(
    inputs: Mapping[str, Any], takes: Sequence[str], earlier: Sequence[OpenVinoSegment]
) -> Arrays:
    """One input in the form of a segment: through the segments before it, in float32."""
    values: Arrays = {name: np.asarray(value) for name, value in inputs.items()}
    for segment in earlier:
        hidden, _, _ = segment.run(values)
        values["hidden"] = hidden.copy()
    return {name: values[name] for name in takes}


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide NNCF's notes and its progress bars, which go to stdout."""
    log = logging.getLogger("nncf")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        log.setLevel(level)
