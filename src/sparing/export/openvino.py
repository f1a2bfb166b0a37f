"""Exported segments in OpenVINO: converted from ONNX, and compiled with one precision."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from sparing.core.errors import Unsupported, UsageError, require_choice
from sparing.core.processor import instruction_sets, multiplies_bfloat16
from sparing.core.scratch import scratch_inside
from sparing.core.writing import sync
from sparing.export._extra import require
from sparing.export.onnx import TOLERANCE, open_session, refuse_difference, trials

Precision = Literal["float32", "bfloat16", "int8"]
FloatPrecision = Literal["float32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16", "int8")
HINTS = {"float32": "f32", "bfloat16": "bf16"}
INSTEAD = {
    "bfloat16": "use precision 'float32' or 'int8'",
    "int8": "use rest 'float32', which rounds otherwise: compare its answers again",
}
ENDING, WEIGHTS = ".xml", ".bin"


@dataclass(frozen=True)
class Compiled:
    """A compiled segment: the model, and the limits of its inputs that OpenVINO does not check.

    ``vocabularies`` are the rows of the embedding table that an input indexes, ``tokens`` the most
    tokens that have a position; None where the graph shows no limit. OpenVINO answers with the
    embedding 0 beyond them, where ONNX Runtime fails. ``quantised`` says whether the file is INT8.
    """

    model: Any
    quantised: bool
    vocabularies: Mapping[str, int]
    tokens: int | None


def has_bfloat16() -> bool:
    """Whether OpenVINO computes in bfloat16 here by instructions of the processor.

    Its list of capabilities also holds bfloat16 where it is emulated, so the processor's
    instruction sets count too. On ARM it lists none.
    """
    return multiplies_bfloat16() and "BF16" in _core().get_property(
        "CPU", "OPTIMIZATION_CAPABILITIES"
    )


def emulated() -> str:
    """That bfloat16 would be emulated here, and the instruction sets that show it."""
    sets = ", ".join(instruction_sets()) or "no vector instructions"
    return (
        f"this processor does not multiply in bfloat16 (it has {sets}), so it would be emulated "
        "slowly"
    )


def float_precision(precision: Precision, rest: FloatPrecision | None) -> FloatPrecision:
    """The precision of everything that is not in INT8.

    ``rest`` is for "int8": None means bfloat16 where the processor has it, else float32. Raises
    ``Unsupported`` for bfloat16 on other processors, and ``UsageError`` for unknown values.
    """
    require_choice("a chain", "precision", precision, PRECISIONS)
    if precision != "int8":
        if rest not in (None, precision):
            raise UsageError(f"rest is for precision 'int8'; got {rest!r} with {precision!r}")
        rest = precision
    if rest is None:
        return "bfloat16" if has_bfloat16() else "float32"
    require_choice("a chain", "rest", rest, HINTS)
    if rest == "bfloat16" and not has_bfloat16():
        raise Unsupported(f"{emulated()}: {INSTEAD[precision]}")
    return rest


def open_compiled(path: Path, thread_count: int, floats: FloatPrecision) -> Compiled:
    """An OpenVINO segment for the CPU, made for single calls that follow one another.

    Nothing is cached on disk, and threads are not pinned to cores: several processes would be
    pinned to the same one. Raises ``UsageError`` for files that are missing, damaged or no segment.
    """
    model = read(path)
    settings = {
        "INFERENCE_PRECISION_HINT": HINTS[floats],
        "INFERENCE_NUM_THREADS": thread_count,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,
        "CACHE_DIR": "",
    }
    vocabularies, tokens = _limits(model)
    quantised = _is_quantised(model)
    try:
        compiled = _core().compile_model(model, "CPU", settings)
    except RuntimeError as error:
        raise UsageError(f"{path} cannot be run: {reason_of(error)}") from error
    return Compiled(compiled, quantised, vocabularies, tokens)


def read(path: Path) -> Any:
    """The ``openvino.Model`` of a segment; ``UsageError`` where it is missing or damaged."""
    weights = path.with_suffix(WEIGHTS)
    for file in (path, weights):
        if not file.is_file():
            raise UsageError(f"there is no exported segment {file}")
    with path.open("rb") as opened:
        start = opened.read(100).lstrip()
    # All of OpenVINO's readers try other files, and some of them print.
    if not start.startswith((b"<?xml", b"<net")):
        raise UsageError(f"{path} cannot be run: it is no OpenVINO model")
    try:
        return _core().read_model(os.fspath(path), os.fspath(weights))
    except RuntimeError as error:
        raise UsageError(f"{path} cannot be run: {reason_of(error)}") from error


def held_precision(path: Path) -> Precision:
    """The precision to open a file with: "int8" where activations are quantised, else "float32"."""
    return "int8" if _is_quantised(read(path)) else "float32"


def reason_of(error: Exception) -> str:
    """The last line of OpenVINO's error that is not a check of its source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    plain = [line for line in lines if not line.startswith(("Exception from", "Check '"))]
    return (plain or lines or [type(error).__name__])[-1]


def convert(
    segments: Sequence[Path],
    folder: Path,
    example_inputs: Mapping[str, Tensor],
    *,
    tolerance: float = TOLERANCE,
) -> list[Path]:
    """Write segments of ``export_onnx`` as OpenVINO files into ``folder``, in float32.

    ``segment-0.onnx`` becomes ``segment-0.xml`` with its weights in ``segment-0.bin``.
    ``example_inputs`` are those of the first segment. The answers in float32 must agree with ONNX
    Runtime's as in ``export_onnx``. Raises ``Unsupported`` where a segment cannot be converted or
    does not agree, and ``UsageError`` for missing files. Nothing is written then.
    """
    require("openvino")
    folder.mkdir(parents=True, exist_ok=True)
    values = dict(example_inputs)
    written = []
    with scratch_inside(folder, "openvino") as part:
        for segment in segments:
            session = open_session(segment)
            try:
                model = _core().read_model(os.fspath(segment))
            except RuntimeError as error:
                raise Unsupported(f"OpenVINO cannot read {segment}: {reason_of(error)}") from error
            path = part / f"{segment.stem}{ENDING}"
            save(model, path)
            written.append(path)
            _compare(session, path, values, tolerance)
            values = _next_values(session, values)
        return put(written, folder)


def save(model: Any, path: Path) -> None:
    """Write a model and its weights in the precision that they have; on disk before it returns.

    Raises ``OSError`` where they cannot be written.
    """
    try:
        require("openvino").save_model(model, os.fspath(path), compress_to_fp16=False)
    except RuntimeError as error:
        reason = f"{reason_of(error)}; is the disk full?"
        raise OSError(0, f"it cannot be written: {reason}", os.fspath(path)) from error
    for file in (path, path.with_suffix(WEIGHTS)):
        sync(file)


def put(written: Sequence[Path], folder: Path) -> list[Path]:
    """Move written segments into ``folder``, the description of each after its weights."""
    targets = [folder / path.name for path in written]
    for path, target in zip(written, targets, strict=True):
        target.unlink(missing_ok=True)  # it would describe other weights
        path.with_suffix(WEIGHTS).replace(target.with_suffix(WEIGHTS))
        path.replace(target)
    return targets


@cache
def _core() -> Any:
    return require("openvino").Core()


def _compare(session: Any, path: Path, example: Mapping[str, Tensor], tolerance: float) -> None:
    """Raise ``Unsupported`` unless a converted segment agrees with ONNX Runtime's."""
    takes = {given.name for given in session.get_inputs()}
    names = [made.name for made in session.get_outputs()]
    request = open_compiled(path, 1, "float32").model.create_infer_request()
    for trial in trials({**example}):
        feed = {name: value.numpy() for name, value in trial.items() if name in takes}
        shape = " x ".join(str(size) for size in next(iter(trial.values())).shape)
        try:
            made = request.infer(feed, share_inputs=True)
        except RuntimeError as error:
            raise Unsupported(
                f"in OpenVINO, the segment fails at {shape}: {reason_of(error)}"
            ) from error
        for name, expected in zip(names, session.run(names, feed), strict=True):
            refuse_difference(made[name], expected, trial, shape, tolerance)


def _next_values(session: Any, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inputs of the segment that follows."""
    names = [made.name for made in session.get_outputs()]
    takes = {given.name for given in session.get_inputs()}
    if "next_hidden" not in names:
        return {}
    feed = {name: value.numpy() for name, value in values.items() if name in takes}
    (hidden,) = session.run(["next_hidden"], feed)
    mask = {name: value for name, value in values.items() if name == "attention_mask"}
    return {"hidden": torch.from_numpy(hidden), **mask}


def _is_quantised(model: Any) -> bool:
    return any(node.get_type_name() == "FakeQuantize" for node in model.get_ops())


def _limits(model: Any) -> tuple[dict[str, int], int | None]:
    """The vocabulary of each input that is looked up, and the most tokens with a position."""
    vocabularies: dict[str, int] = {}
    positions = []
    for table in _tables(model):
        rows = table.input_value(0).get_partial_shape()[0].get_length()
        source = table.input_value(1).get_node()
        while source.get_type_name() == "Convert":
            source = source.input_value(0).get_node()
        if source.get_type_name() == "Parameter":
            name = source.output(0).get_any_name()
            vocabularies[name] = min(rows, vocabularies.get(name, rows))
        else:
            positions.append((table.input_value(1), rows))
    limits = [_most_tokens(model, indices, rows) for indices, rows in positions]
    return vocabularies, min((limit for limit in limits if limit is not None), default=None)


def _tables(model: Any) -> list[Any]:
    """The look-ups of rows in a table of fixed size by numbers that depend on the inputs."""
    lookups = [node for node in model.get_ops() if node.get_type_name() == "Gather"]
    return [
        node
        for node in lookups
        if node.input_value(0).get_partial_shape().rank == 2
        and _axis(node) == 0
        and node.input_value(0).get_partial_shape()[0].is_static
        and node.input_value(1).get_node().get_type_name() != "Constant"
    ]


def _axis(lookup: Any) -> int | None:
    """The axis of a look-up; None where it is computed."""
    node = lookup.input_value(2).get_node()
    return int(node.get_data().item()) if node.get_type_name() == "Constant" else None


def _most_tokens(model: Any, indices: Any, rows: int) -> int | None:
    """The most tokens with positions in a table of ``rows``; None where any number has some.

    That part of the graph is computed for two lengths, and for the length that then should be too
    long: positions may be clipped, or grow ever more slowly. Some models start after the number of
    the pad token, and pass over tokens that are pads, so two tokens are tried.
    """
    parameters = [given.get_node() for given in model.inputs]
    if any(len(given.get_partial_shape()) != 2 for given in model.inputs):
        return None
    ov = require("openvino")
    part = _core().compile_model(ov.Model([indices], parameters), "CPU", {"CACHE_DIR": ""})

    def positions(tokens: int) -> Any:
        rows_of_tokens = np.stack([np.zeros(tokens), np.ones(tokens)])
        types = {made.get_any_name(): made.get_element_type().to_dtype() for made in part.inputs}
        return part({name: rows_of_tokens.astype(kind) for name, kind in types.items()})[0]

    first, second = (int(positions(tokens).max()) for tokens in (2, 3))
    if second <= first:
        return None
    most = 2 + (rows - 1 - first) // (second - first)
    beyond = positions(most + 1)
    is_limit = int(beyond.max()) >= rows or beyond.shape[-1] <= most
    return most if is_limit else None
