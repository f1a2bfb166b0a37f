"""INT8 weights and activations: of exported segments, and of a PyTorch module as a baseline.

Scales of activations are computed from each batch (dynamic). With one scale for the whole batch an
input's answer depends a little on its neighbours and on its pads; scales per block avoid this.
"""

from __future__ import annotations

import copy
import fnmatch
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.errors import Unsupported, UsageError, nearest
from sparing.core.processor import int8_sums_overflow
from sparing.core.scratch import scratch_inside
from sparing.core.writing import replacing
from sparing.export._extra import require
from sparing.export.engine import Chain
from sparing.export.tables import narrow_tables

Scales = Literal["tensor", "channel", "blocks"]
Outcome = TypeVar("Outcome")
BLOCK = 32
MARK = "onnx.quant.pre_process"


@dataclass(frozen=True)
class Int8Settings:
    """INT8 settings: which values share a scale, and which layers stay in float32.

    ``scales`` is one of three. "tensor": one for each weight and one for all activations of a
    layer. "channel": one for each output of a weight, one for all activations. "blocks": one for
    every 32 inputs of each output and of each token's activations. It is closest to float32 and
    independent of the batch, but slower, and classification heads stay float32. ``reduce_range``
    limits weights to 7 bits: unless given, on x86 processors without VNNI, where 16-bit sums
    overflow. ``float32_layers`` are patterns such as ``"0.layers.0.*"``: the segment's number from
    0, a dot, the layer's name.
    """

    scales: Scales = "channel"
    reduce_range: bool | None = None
    float32_layers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.scales not in ("tensor", "channel", "blocks"):
            hint = nearest(self.scales, ("tensor", "channel", "blocks"))
            raise UsageError(f"unknown scales {self.scales!r}{hint}")
        if self.reduce_range and self.scales == "blocks":
            raise UsageError("reduce_range is for scales 'tensor' and 'channel'")

    @property
    def seven_bits(self) -> bool:
        """Whether weights are limited to 7 bits here."""
        if self.reduce_range is not None or self.scales == "blocks":
            return bool(self.reduce_range)
        return int8_sums_overflow()

    def __str__(self) -> str:
        parts = [f"scales per {'block' if self.scales == 'blocks' else self.scales}"]
        parts += ["7-bit weights"] if self.seven_bits else []
        parts += [f"float32: {', '.join(self.float32_layers)}"] if self.float32_layers else []
        return "; ".join(parts)


@dataclass(frozen=True)
class LogitShift:
    """The difference of one model's logits from another's on the same inputs.

    ``largest`` is the largest difference of a logit. ``relative`` is the root mean square
    difference over the root mean square distance of the reference's logits from each input's mean.
    ``changed`` counts the inputs with another answer.
    """

    examples: int
    largest: float
    relative: float
    changed: int

    def __str__(self) -> str:
        return (
            f"logits move by {100 * self.relative:.2g} % of their spread (at most "
            f"{self.largest:.2g}); {self.changed} of {self.examples} answers change"
        )


@dataclass(frozen=True)
class Int8Trial(Generic[Outcome]):
    """One candidate: its files, their bytes, and the result of the evaluation."""

    settings: Int8Settings
    segments: tuple[Path, ...]
    bytes: int
    outcome: Outcome


def logit_shift(
    reference: Float[Tensor, "examples classes"], other: Float[Tensor, "examples classes"]
) -> LogitShift:
    """Compare two models' logits on the same inputs; both must hold at least one input."""
    ours, theirs = other.detach().double(), reference.detach().double()
    spread = (theirs - theirs.mean(1, keepdim=True)).square().mean().sqrt()
    difference = ours - theirs
    return LogitShift(
        examples=len(theirs),
        largest=float(difference.abs().max()),
        relative=float(difference.square().mean().sqrt() / spread.clamp_min(1e-12)),
        changed=int((ours.argmax(1) != theirs.argmax(1)).sum()),
    )


def quantisable_layers(segments: Sequence[Path]) -> list[str]:
    """The layers of exported segments that INT8 can quantise, in the form of ``float32_layers``."""
    return [
        f"{number}.{node.name}"
        for number, path in enumerate(segments)
        for node in _products(_loaded(path))
    ]


def quantise(
    segments: Sequence[Path], folder: Path, settings: Int8Settings | None = None
) -> list[Path]:
    """Write exported segments in INT8, under the same names in another folder.

    Products with a weight become 8-bit in weights and activations; their outputs stay float32. So
    do the rows of large embedding tables, each with a scale of its own: they are most of the file.
    Everything else (norms, softmax) does not change. Raises ``UsageError`` for a
    pattern that fits no layer, a folder that is the segments' own, or missing files, and
    ``Unsupported`` where there is nothing to quantise.
    """
    settings = settings or Int8Settings()
    layers = quantisable_layers(segments)
    if not layers:
        raise Unsupported(
            "these segments have no product with a stored weight, so INT8 changes nothing"
        )
    for pattern in settings.float32_layers:
        if not fnmatch.filter(layers, pattern):
            raise UsageError(f"no layer is named {pattern!r}{nearest(pattern, layers)}")
    if any(path.resolve().parent == folder.resolve() for path in segments):
        raise UsageError(f"{folder} holds the segments themselves: give another folder")
    names = [path.name for path in segments]
    if len(set(names)) < len(names):
        raise UsageError(f"two segments are named {max(names, key=names.count)}: rename one")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, path in enumerate(segments):
        excluded = [
            layer.partition(".")[2]
            for layer in layers
            if layer.startswith(f"{number}.")
            and any(fnmatch.fnmatchcase(layer, pattern) for pattern in settings.float32_layers)
        ]
        written.append(_quantised(path, folder / path.name, settings, excluded))
    return written


def try_settings(
    segments: Sequence[Path],
    candidates: Sequence[Int8Settings],
    evaluate: Callable[[list[Path]], Outcome],
    folder: Path,
) -> Iterator[Int8Trial[Outcome]]:
    """Quantise with each candidate in turn and evaluate it; the caller chooses.

    ``evaluate`` gets the quantised segments' paths. Results come one by one, so a later failure
    does not lose them. Each candidate has its own folder, named by its number.
    """
    for number, settings in enumerate(candidates):
        paths = quantise(segments, folder / str(number), settings)
        size = sum(path.stat().st_size for path in paths)
        yield Int8Trial(settings, tuple(paths), size, evaluate(paths))


def sensitivities(
    segments: Sequence[Path],
    inputs: Mapping[str, Tensor],
    folder: Path,
    settings: Int8Settings | None = None,
    *,
    thread_count: int = 1,
) -> list[tuple[str, LogitShift]]:
    """The change of the final logits when a single layer is quantised, most sensitive first.

    ``inputs`` is one batch of held-out inputs. The first names are candidates for
    ``float32_layers``. Files are written to ``folder`` and removed again.
    """
    settings = settings or Int8Settings()
    layers = quantisable_layers(segments)
    folder.mkdir(parents=True, exist_ok=True)
    reference = Chain(segments, thread_count=thread_count)(inputs)[0]
    shifts = []
    for layer in layers:
        number, name = layer.split(".", 1)
        path = segments[int(number)]
        others = [node.name for node in _products(_loaded(path)) if node.name != name]
        with scratch_inside(folder, "one-layer") as part:
            replaced = list(segments)
            replaced[int(number)] = _quantised(path, part / path.name, settings, others)
            logits = Chain(replaced, thread_count=thread_count)(inputs)[0]
        shifts.append((layer, logit_shift(reference, logits)))
    return sorted(shifts, key=lambda pair: -pair[1].relative)


def quantise_module(module: nn.Module) -> nn.Module:
    """A module with the same weights and dynamic INT8 linear layers, one scale a tensor.

    This is ``torch.ao.quantization``: PyTorch calls it deprecated, but 2.13 still has it. It is the
    INT8 form that most users know, so it is a baseline. Its successor, the package torchao, has no
    fast integer kernels for x86 in eager mode. Raises ``Unsupported`` when this PyTorch has neither
    the function nor an engine for it.
    """
    quantisation: Any = getattr(torch.ao, "quantization", None)
    if not hasattr(quantisation, "quantize_dynamic"):
        raise Unsupported("this PyTorch has no torch.ao.quantization any more")
    if torch.backends.quantized.engine == "none":
        raise Unsupported("this PyTorch has no engine for INT8 on this processor")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations: see above
        quantised: nn.Module = quantisation.quantize_dynamic(
            copy.deepcopy(module), {nn.Linear}, dtype=torch.qint8
        )
    return quantised


def _loaded(path: Path) -> Any:
    onnx = require("onnx")
    if not path.is_file():
        raise UsageError(f"there is no exported segment {path}")
    return onnx.load(path)


def _products(model: Any) -> list[Any]:
    """The nodes that multiply by a stored matrix."""
    weights = {held.name for held in model.graph.initializer if len(held.dims) == 2}
    return [
        node
        for node in model.graph.node
        if node.op_type in ("MatMul", "Gemm") and node.input[1] in weights
    ]


def _quantised(source: Path, target: Path, settings: Int8Settings, excluded: list[str]) -> Path:
    """Quantise one file, all layers but the ``excluded`` ones.

    The file appears whole or not at all.
    """
    model = _loaded(source)
    # The exporter's shapes contradict those that the quantiser infers.
    model.graph.ClearField("value_info")
    narrow_tables(model)
    with replacing(target) as temporary:
        if settings.scales == "blocks":
            _quantise_blocks(model, temporary, excluded)
        else:
            _quantise_whole(model, temporary, settings, excluded)
    return target


def _quantise_whole(model: Any, target: Path, settings: Int8Settings, excluded: list[str]) -> None:
    quantisation = require("onnxruntime.quantization")
    # Products with a bias in one node are split, and renamed, before exclusions are looked up.
    nodes = [name + ending for name in excluded for ending in ("", "_MatMul")]
    # Without this mark the quantiser advises a preparation that torch.onnx has already done.
    model.metadata_props.add(key=MARK, value="onnxruntime.quant")
    quantisation.quantize_dynamic(
        model,
        os.fspath(target),
        op_types_to_quantize=["MatMul", "Gemm"],
        per_channel=settings.scales == "channel",
        reduce_range=settings.seven_bits,
        weight_type=quantisation.QuantType.QInt8,
        nodes_to_exclude=nodes,
    )


def _quantise_blocks(model: Any, target: Path, excluded: list[str]) -> None:
    onnx = require("onnx")
    blocks = require("onnxruntime.quantization.matmul_nbits_quantizer")
    quantiser = blocks.MatMulNBitsQuantizer(
        model,
        bits=8,
        block_size=BLOCK,
        is_symmetric=True,
        accuracy_level=4,  # activations in INT8 too
        nodes_to_exclude=excluded,
    )
    quantiser.process()
    onnx.save_model(quantiser.model.model, target)
