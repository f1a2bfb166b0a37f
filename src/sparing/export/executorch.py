"""A segment as an ExecuTorch program for phones: its products by XNNPACK, checked before it counts.

The program answers one input at a time, of any length up to one that is fixed when it is written:
ExecuTorch plans its memory for the longest.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sparing.core.errors import Unsupported, UsageError, require_choice
from sparing.core.writing import open_existing, replacing
from sparing.export._extra import install, missing_packages, require
from sparing.export.onnx import OUTPUTS, TOLERANCE, refuse_difference
from sparing.export.outputs import answer_of, joined_answer

PhonePrecision = Literal["float32", "int8"]
PHONE_PRECISIONS: tuple[PhonePrecision, ...] = ("float32", "int8")
FEWEST_TOKENS = 2
FORWARD, PROGRAM = "forward", "model.pte"


@dataclass(frozen=True)
class Lowered:
    """A program on disk: its inputs and outputs in their order, its bytes, its operators.

    ``delegated`` counts the operators that XNNPACK computes, in ``parts`` graphs of its own, and
    ``others`` those that ExecuTorch's own kernels compute. ``tokens`` are the most that it reads,
    None for images.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tokens: int | None
    bytes: int
    parts: int
    delegated: Mapping[str, int]
    others: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)

    def words(self) -> str:
        """What XNNPACK computes and what it does not, as three lines for a person."""
        reads = "an image" if self.tokens is None else f"a text of 2 to {self.tokens:,} tokens"
        lines = [
            f"model.pte: {self.bytes / 1e6:.1f} MB; it reads {reads} at a time",
            f"XNNPACK computes {_total(self.delegated)} nodes in {self.parts} graphs: "
            f"{_described(self.delegated)}",
            f"not delegated, {_total(self.others)} calls: {_described(self.others)}",
        ]
        return "\n".join(lines)


def require_packages() -> None:
    """Raise ``UsageError``, with what installs it, unless ExecuTorch is installed."""
    missing = missing_packages("executorch", "torchao")
    if missing:
        raise UsageError(f"{', '.join(missing)} is not installed: {install(missing)}")


def export_executorch(
    segment: nn.Module,
    example_inputs: Mapping[str, Tensor],
    path: Path,
    *,
    tokens: int | None = None,
    precision: PhonePrecision = "float32",
    tolerance: float = TOLERANCE,
) -> Lowered:
    """Write a segment as an ExecuTorch program, with XNNPACK's operators where it has them.

    ``example_inputs`` are those of ``export_onnx``; their first row is used, as the program takes
    one. Texts may have from 2 to ``tokens`` tokens (those of the example unless given). In "int8",
    linear layers have a scale for each output and, at every run, for inputs: none is calibrated.

    The program runs in ExecuTorch's runtime here, at the longest, the shortest, and with pads. In
    float32 it must agree as in ``export_onnx``; in INT8 the answers must be finite. Raises
    ``Unsupported`` when the segment cannot be lowered or does not agree, and ``UsageError`` for a
    segment in training, an unknown precision or too few tokens. Nothing is written then.
    """
    _check(segment, example_inputs, tokens, precision)
    rows = {name: value[:1].contiguous() for name, value in example_inputs.items()}
    most = _longest(rows, tokens)
    trials = _trials(rows, most)
    with torch.no_grad():
        expected = segment(**trials[0])
    outputs = _names(segment, expected)
    with _quiet():
        lowered = _lowered(segment, trials[0], most, precision)
        program = _finished(lowered)
    delegated, parts = _delegated(lowered.exported_program().graph_module)
    with replacing(path) as temporary:
        with open_existing(temporary) as file:
            file.write(program.buffer)
        _compare(segment, Program(temporary, tuple(rows), outputs), trials, precision, tolerance)
    others = _called(program.executorch_program)
    size = path.stat().st_size
    return Lowered(tuple(rows), outputs, most, size, parts, delegated, others)


class Program:
    """A program of ``export_executorch``, run by ExecuTorch's own runtime on this machine.

    ``inputs`` and ``outputs`` are their names in the program's order, which it does not hold.
    Raises ``UsageError`` for a file that is missing or no such program.
    """

    def __init__(self, path: Path, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        if not path.is_file():
            raise UsageError(f"there is no exported program {path}")
        self.path, self.inputs, self.outputs = path, tuple(inputs), tuple(outputs)
        self.answer = answer_of(self.outputs, path.name)
        with _quiet():
            runtime = require("executorch.runtime").Runtime.get()
            try:
                self._program = runtime.load_program(path)
                self._method = self._program.load_method(FORWARD)
            except (RuntimeError, KeyError) as error:
                raise UsageError(f"{path} cannot be run: {_reason(error)}") from error

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
        """The outputs of one row by their names; ``Unsupported`` where the runtime fails."""
        given = [inputs[name].contiguous() for name in self.inputs]
        with _unheard():
            try:
                made = self._method.execute(given)
            except RuntimeError as error:
                shape = " x ".join(str(size) for size in given[0].shape)
                raise Unsupported(
                    f"lowered, the segment fails at {shape}: {_reason(error)}"
                ) from error
        return {name: held.numpy().copy() for name, held in zip(self.outputs, made, strict=True)}

    def __call__(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The answer to one row, and the number of its exit, as a ``Chain`` gives them."""
        return torch.from_numpy(joined_answer(self.run(inputs), self.answer)), torch.zeros(1)


def _check(
    segment: nn.Module, inputs: Mapping[str, Tensor], tokens: int | None, precision: str
) -> None:
    require_choice("an export", "precision", precision, PHONE_PRECISIONS)
    if segment.training:
        raise UsageError("a segment is exported in evaluation mode: call .eval() on it first")
    if not inputs:
        raise UsageError("an export needs example inputs")
    if tokens is not None and tokens <= FEWEST_TOKENS:
        raise UsageError(f"tokens must be more than {FEWEST_TOKENS}; got {tokens}")


def _longest(rows: Mapping[str, Tensor], tokens: int | None) -> int | None:
    lengths = [value.shape[1] for value in rows.values() if value.ndim == 2]
    return (tokens or max(lengths)) if lengths else None


def _trials(rows: Mapping[str, Tensor], most: int | None) -> list[dict[str, Tensor]]:
    """One row at the longest, at the shortest, and one that ends in pads; an image as it is."""
    if most is None:
        return [dict(rows)]
    padded = _at(rows, max(FEWEST_TOKENS, most // 2))
    if "attention_mask" in padded:
        padded["attention_mask"][:, max(1, most // 3) :] = 0
    return [_at(rows, most), _at(rows, FEWEST_TOKENS), padded]


def _at(rows: Mapping[str, Tensor], tokens: int) -> dict[str, Tensor]:
    """The row repeated and cut to so many tokens."""
    return {
        name: value[:, torch.arange(tokens) % value.shape[1]].contiguous()
        for name, value in rows.items()
    }


def _names(segment: nn.Module, made: Tensor | tuple[Tensor, ...]) -> tuple[str, ...]:
    """The names of a segment's outputs, as ``export_onnx`` gives them."""
    names = tuple(getattr(segment, "outputs", ()))
    return names or (("logits",) if isinstance(made, Tensor) else tuple(OUTPUTS[: len(made)]))


def _lowered(
    segment: nn.Module, example: dict[str, Tensor], most: int | None, precision: PhonePrecision
) -> Any:
    """The segment as an edge program, with XNNPACK's parts taken out of it."""
    exir = require("executorch.exir")
    partitioning = require("executorch.backends.xnnpack.partition.xnnpack_partitioner")
    partitioners = [partitioning.XnnpackPartitioner()]
    try:
        program = _traced(segment, example, most)
        if precision == "int8":
            program = _traced(_quantised(program, example), example, most)
            dynamic = partitioning.XnnpackDynamicallyQuantizedPartitioner()
            partitioners.insert(0, dynamic)
        return exir.to_edge_transform_and_lower(program, partitioner=partitioners)
    except Exception as error:  # a foreign forward may raise anything under tracing
        name = type(segment).__name__
        raise Unsupported(f"{name} cannot be lowered: {_reason(error)}") from error


def _traced(segment: nn.Module, example: dict[str, Tensor], most: int | None) -> Any:
    shapes = None
    if most is not None:
        tokens = torch.export.Dim("tokens", min=FEWEST_TOKENS, max=most)
        shapes = {name: {1: tokens} for name in example}
    with torch.no_grad():
        return torch.export.export(segment, (), example, dynamic_shapes=shapes, strict=False)


def _quantised(program: Any, example: dict[str, Tensor]) -> nn.Module:
    """The program with INT8 linear layers.

    Scales of activations are those of each run. Static ones, calibrated on texts, moved MiniLM's
    vectors to a cosine of 0.86 to its own; these keep it at 0.99.
    """
    quantising = require("executorch.backends.xnnpack.quantizer.xnnpack_quantizer")
    pt2e = require("torchao.quantization.pt2e.quantize_pt2e")
    quantiser = quantising.XNNPACKQuantizer()
    quantiser.set_global(
        quantising.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
    )
    # It would make float tensors of all scalars: of those in positions too, which are an index.
    quantiser.transform_for_annotation = lambda model: model
    prepared = pt2e.prepare_pt2e(program.module(), quantiser)
    with torch.no_grad():
        prepared(**example)
    quantised: nn.Module = pt2e.convert_pt2e(prepared)
    return quantised


def _finished(lowered: Any) -> Any:
    try:
        return lowered.to_executorch()
    except Exception as error:  # errors of its passes share no base class
        raise Unsupported(f"ExecuTorch cannot finish the program: {_reason(error)}") from error


def _delegated(graph_module: Any) -> tuple[dict[str, int], int]:
    """The operators that XNNPACK computes with their counts, and the number of its graphs."""
    inner = [
        getattr(graph_module, node.target).original_module.graph
        for node in graph_module.graph.nodes
        if node.op == "get_attr" and hasattr(getattr(graph_module, node.target), "original_module")
    ]
    nodes = [node for graph in inner for node in graph.nodes if node.op == "call_function"]
    return _counts(_operator(node.target) for node in nodes), len(inner)


def _called(program: Any) -> dict[str, int]:
    """The operators that the finished program calls itself: kernels that the phone must have."""
    plan = program.execution_plan[0]
    calls = [step.instr_args for chain in plan.chains for step in chain.instructions]
    numbers = [call.op_index for call in calls if hasattr(call, "op_index")]
    return _counts(plan.operators[number].name for number in numbers)


def _operator(target: Any) -> str:
    """``aten::softmax`` for every form of a graph's target; a plain function by its name."""
    schema = getattr(target, "_schema", None)
    return str(schema.name) if schema is not None else str(target.__name__)


def _counts(names: Any) -> dict[str, int]:
    """Names by how often they occur, most frequent first; those that only unpack are left out."""
    counted = Counter(name for name in names if name != "getitem")
    return dict(sorted(counted.items(), key=lambda pair: (-pair[1], pair[0])))


def _total(counts: Mapping[str, int]) -> int:
    return sum(counts.values())


def _described(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name.rpartition('::')[2]}" for name, count in counts.items())


def _compare(
    segment: nn.Module,
    program: Program,
    trials: Sequence[dict[str, Tensor]],
    precision: PhonePrecision,
    tolerance: float,
) -> None:
    for trial in trials:
        with torch.no_grad():
            made = segment(**trial)
        expected = (made,) if isinstance(made, Tensor) else made
        shape = " x ".join(str(size) for size in next(iter(trial.values())).shape)
        for ours, theirs in zip(program.run(trial).values(), expected, strict=True):
            if precision == "float32":
                refuse_difference(ours, theirs.numpy(), trial, shape, tolerance)
            elif ours.shape != tuple(theirs.shape) or not np.isfinite(ours).all():
                raise Unsupported(f"lowered to INT8, the segment gives no numbers at {shape}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide warnings of other packages' own deprecations, and notes on kernels that are not used."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), _unheard():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


@contextmanager
def _unheard() -> Iterator[None]:
    """Hide what the runtime writes on stderr, past Python: its errors are raised as well."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    held = os.dup(2)
    try:
        with tempfile.TemporaryFile() as unread:
            os.dup2(unread.fileno(), 2)
            yield
    finally:
        os.dup2(held, 2)
        os.close(held)


def _reason(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or repr(error)
