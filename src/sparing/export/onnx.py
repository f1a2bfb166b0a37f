"""A segment as an ONNX file for any batch and length, accepted only if its answers agree."""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sparing.core.errors import Unsupported, UsageError, nearest
from sparing.core.writing import replacing
from sparing.export._extra import require
from sparing.export.pads import skip_pads

# The first operator set with an Attention operator: one kernel instead of products, a softmax and
# a guard against rows without keys. It was faster at every length than sets 18 to 21.
OPERATOR_SET = 23
TOLERANCE = 1e-4
MOST_ELEMENTS = 2**31
# Of one file, less what is not weights.
MOST_BYTES = 2**31 - 2**24
OUTPUTS = ["next_hidden", "logits", "confidence"]


def export_onnx(
    segment: nn.Module,
    example_inputs: Mapping[str, Tensor],
    path: Path,
    *,
    tolerance: float = TOLERANCE,
    skips_pads: bool = False,
) -> Path:
    """Write a segment as an ONNX file with free batch and tokens, and return its path.

    ``example_inputs`` go to the segment's ``forward`` by name: token numbers, masks and hidden
    states (batch, tokens, ...) with free tokens, images (batch, channels, height, width) with a
    fixed size. The segment returns (hidden, logits), or logits alone at the end of a chain, or
    (hidden, logits, confidence), on the CPU in float32. A segment with names in ``outputs`` returns
    these, as a whole model does. Products with a weight carry the name of
    their layer, so ``export.int8`` can exclude layers by name. With ``skips_pads`` layers work on
    real tokens alone: see ``export.pads``.

    The file must agree with the segment at the example and at two other batches and lengths, pads
    included. Every difference may be at most ``tolerance`` times the largest value there (or times
    1, if that is more). Raises ``Unsupported`` when it cannot be exported or does not agree. Raises
    ``UsageError`` for a segment in training, inputs that ``forward`` does not take or an example of
    one token, and ``Unsupported`` for weights that one file cannot hold. Nothing is written then.
    """
    _check(segment, example_inputs)
    _require_fitting(segment)
    example = _at(example_inputs, max(2, len(next(iter(example_inputs.values())))), None)
    onnx = require("onnx")
    model = _traced(segment, example)
    _name_products(onnx, model, segment)
    _widen_masks(onnx, model)
    _widen_rotations(onnx, model)
    if skips_pads:
        skip_pads(onnx, model)
    with replacing(path) as temporary:
        onnx.save_model(model, temporary)
        _compare(segment, temporary, example, tolerance)
    return path


def open_session(path: Path, thread_count: int = 1) -> Any:
    """An ``onnxruntime.InferenceSession`` that computes with ``thread_count`` threads, in order.

    All graph optimisations run but one, the fused sum and layer norm. On a CPU it is slower than
    the two separately: 2.6 ms against 0.6 ms of 19 at 128 tokens of MiniLM. All sessions of a
    process share one memory arena. Segments run one after another, so a chain needs the memory of
    its largest segment, not the sum of all. Raises ``UsageError`` for a file that is missing or not
    an ONNX model.
    """
    runtime = require("onnxruntime")
    if thread_count < 1:
        raise UsageError(f"thread_count must be at least 1; got {thread_count}")
    if not path.is_file():
        raise UsageError(f"there is no exported segment {path}")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = thread_count
    options.inter_op_num_threads = 1
    options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    _share_arena(runtime)
    options.add_session_config_entry("session.use_env_allocators", "1")
    try:
        return runtime.InferenceSession(
            os.fspath(path),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=["SkipLayerNormFusion"],
        )
    except Exception as error:  # onnxruntime's own errors share no public base class
        raise UsageError(f"{path} cannot be run: {str(error).splitlines()[0]}") from error


@cache
def _share_arena(runtime: Any) -> None:
    """Register one arena for all sessions of this process that use it."""
    kind, memory = runtime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, runtime.OrtMemType.DEFAULT
    runtime.create_and_register_allocator(runtime.OrtMemoryInfo("Cpu", kind, 0, memory), None)


def _check(segment: nn.Module, inputs: Mapping[str, Tensor]) -> None:
    if segment.training:
        raise UsageError("a segment is exported in evaluation mode: call .eval() on it first")
    known = inspect.signature(segment.forward).parameters
    for name in inputs:
        if name not in known:
            raise UsageError(f"the segment takes no input {name!r}{nearest(name, known)}")
    if not inputs:
        raise UsageError("an export needs example inputs")
    for name, value in inputs.items():
        if not value.shape[0] or (value.ndim in (2, 3) and value.shape[1] < 2):
            raise UsageError(
                f"the example must hold at least one input of two tokens; {name} is "
                f"{tuple(value.shape)}"
            )


def _require_fitting(segment: nn.Module) -> None:
    """Raise ``Unsupported`` for more weights than an ONNX file holds: tracing takes minutes."""
    held = {id(w): w for w in (*segment.parameters(), *segment.buffers())}.values()
    size = sum(weight.numel() * weight.element_size() for weight in held)
    if size > MOST_BYTES:
        raise Unsupported(
            f"an ONNX file holds {MOST_BYTES / 1e9:.1f} GB, and the weights take {size / 1e9:.1f} "
            "GB: export a smaller model, or a part of it"
        )


def _at(inputs: Mapping[str, Tensor], batch: int, tokens: int | None) -> dict[str, Tensor]:
    """The inputs repeated or cut to ``batch`` rows and, where they have them, cut to ``tokens``."""
    resized = {}
    for name, value in inputs.items():
        rows = torch.arange(batch) % len(value)
        chosen = value[rows]
        resized[name] = chosen[:, :tokens].contiguous() if value.ndim in (2, 3) else chosen
    return resized


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the exporter's warnings of its own deprecations and of packages that are not used."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _traced(segment: nn.Module, example: dict[str, Tensor]) -> Any:
    """The segment as an ONNX ``ModelProto``, every weight in the layout of its product."""
    require("onnxscript")
    batch, tokens = torch.export.Dim.DYNAMIC, torch.export.Dim.DYNAMIC
    shapes = {
        name: {0: batch, 1: tokens} if value.ndim in (2, 3) else {0: batch}
        for name, value in example.items()
    }
    with torch.no_grad():
        given = segment(**example)
    names = list(getattr(segment, "outputs", ()))
    names = names or (["logits"] if isinstance(given, Tensor) else OUTPUTS[: len(given)])
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                segment,
                kwargs=example,
                dynamo=True,
                dynamic_shapes=shapes,
                output_names=names,
                opset_version=OPERATOR_SET,
                verbose=False,
            )
    except Exception as error:  # a foreign forward may raise anything under tracing
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise Unsupported(f"{type(segment).__name__} cannot be exported: {reason}") from error
    assert program is not None
    # The exporter leaves large sliced weights to be transposed at run time, unseen by INT8.
    optimizer = require("onnxscript.optimizer")
    optimizer.fold_constants(
        program.model, input_size_limit=MOST_ELEMENTS, output_size_limit=MOST_ELEMENTS
    )
    optimizer.remove_unused_nodes(program.model)
    return program.model_proto


def _name_products(onnx: Any, model: Any, segment: nn.Module) -> None:
    """Name each product after the layer that owns its weight.

    The exporter stores weights transposed under names of its own, so they are identified by
    content.
    """
    owners: dict[str, str] = {}
    for name, weight in segment.named_parameters():
        if weight.ndim == 2:
            array = weight.detach().cpu().numpy()
            owners.setdefault(_digest(array), name.removesuffix(".weight"))
            owners.setdefault(_digest(array.T), name.removesuffix(".weight"))
    weights = {held.name: held for held in model.graph.initializer}
    taken: set[str] = set()
    for node in model.graph.node:
        if node.op_type not in ("MatMul", "Gemm") or node.input[1] not in weights:
            continue
        array = onnx.numpy_helper.to_array(weights[node.input[1]])
        name = owners.get(_digest(array), node.name)
        while name in taken:
            name += "'"
        taken.add(name)
        node.name = name


def _widen_masks(onnx: Any, model: Any) -> None:
    """Repeat attention masks that are one row for all queries, which ONNX Runtime does not itself.

    Each mask is widened once, beside the first attention that uses it, and shared.
    """
    helper, graph = onnx.helper, model.graph
    wide: dict[str, str] = {}
    nodes = []
    for node in graph.node:
        if node.op_type == "Attention" and len(node.input) > 3 and node.input[3]:
            mask = node.input[3]
            if mask not in wide:
                wide[mask] = f"{mask}_wide"
                names = [f"{mask}_queries", f"{mask}_shape"]
                nodes += [
                    helper.make_node("Shape", [node.input[0]], names[:1], start=2, end=3),
                    helper.make_node("Concat", ["one", names[0], "one"], names[1:], axis=0),
                    helper.make_node("Expand", [mask, names[1]], [wide[mask]]),
                ]
            node.input[3] = wide[mask]
        nodes.append(node)
    if wide:
        _replace_nodes(onnx, graph, nodes, "one")


def _widen_rotations(onnx: Any, model: Any) -> None:
    """Repeat cosines and sines of one row for all inputs, which ONNX Runtime does not itself."""
    helper, graph = onnx.helper, model.graph
    wide: dict[str, str] = {}
    nodes = []
    for node in graph.node:
        if node.op_type == "RotaryEmbedding" and len(node.input) == 3:
            for number in (1, 2):
                angles = node.input[number]
                if angles not in wide:
                    wide[angles] = f"{angles}_wide"
                    names = [f"{angles}_inputs", f"{angles}_shape"]
                    nodes += [
                        helper.make_node("Shape", [node.input[0]], names[:1], start=0, end=1),
                        helper.make_node("Concat", [names[0], "lone", "lone"], names[1:], axis=0),
                        helper.make_node("Expand", [angles, names[1]], [wide[angles]]),
                    ]
                node.input[number] = wide[angles]
        nodes.append(node)
    if wide:
        _replace_nodes(onnx, graph, nodes, "lone")


def _replace_nodes(onnx: Any, graph: Any, nodes: list[Any], one: str) -> None:
    """Let a graph have these nodes, and a constant 1 of this name."""
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    graph.initializer.append(onnx.helper.make_tensor(one, onnx.TensorProto.INT64, [1], [1]))


def _digest(array: NDArray[Any]) -> str:
    content = np.ascontiguousarray(array)
    return f"{content.shape}{content.dtype}{hashlib.sha256(content.tobytes()).hexdigest()}"


def trials(example: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """The example, one short input, and three of which the last ends in pads."""
    tokens = min((value.shape[1] for value in example.values() if value.ndim in (2, 3)), default=0)
    if not tokens:
        return [example, _at(example, 1, None), _at(example, 3, None)]
    padded = _at(example, 3, tokens - 1 if tokens > 2 else tokens)
    if "attention_mask" in padded:
        padded["attention_mask"][-1, max(1, tokens // 3) :] = 0
    return [example, _at(example, 1, max(1, tokens // 2)), padded]


def _compare(segment: nn.Module, path: Path, example: dict[str, Tensor], tolerance: float) -> None:
    session = open_session(path)
    takes = {given.name for given in session.get_inputs()}
    for trial in trials(example):
        with torch.no_grad():
            expected = segment(**trial)
        expected = (expected,) if isinstance(expected, Tensor) else expected
        shape = " x ".join(str(size) for size in next(iter(trial.values())).shape)
        feed = {name: value.numpy() for name, value in trial.items() if name in takes}
        try:
            outputs = session.run(None, feed)
        except Exception as error:  # onnxruntime's own errors share no public base class
            reason = str(error).splitlines()[0]
            raise Unsupported(f"exported, the segment fails at {shape}: {reason}") from error
        for ours, theirs in zip(outputs, expected, strict=True):
            refuse_difference(ours, theirs.numpy(), trial, shape, tolerance)


def refuse_difference(
    ours: NDArray[Any],
    theirs: NDArray[Any],
    trial: dict[str, Tensor],
    shape: str,
    tolerance: float,
) -> None:
    """Raise ``Unsupported`` where real tokens differ; pads are ignored."""
    if ours.shape != theirs.shape:
        raise Unsupported(f"exported, the segment gives {ours.shape} at {shape}: {theirs.shape}")
    if "attention_mask" in trial:
        keep = trial["attention_mask"].numpy() != 0
        if ours.shape[:2] == keep.shape:
            # one answer for each token; as many classes as tokens look the same, in one trial
            ours, theirs = ours[keep], theirs[keep]
        elif ours.ndim == 3:  # where a segment drops tokens, only the first is known to be real
            ours, theirs = ours[:, 0], theirs[:, 0]
    difference = float(np.abs(ours - theirs).max())
    allowed = tolerance * max(1.0, float(np.abs(theirs).max()))
    if not difference <= allowed:
        raise Unsupported(
            f"exported, the segment answers differently at {shape}: by {difference:.2g}, and "
            f"{allowed:.2g} is allowed"
        )
