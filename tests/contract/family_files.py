"""Exported files of every family: ONNX in float32 and INT8, and OpenVINO."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from sparing.export.engine import Chain
from sparing.export.folder import export_chain
from sparing.export.int8 import quantise
from sparing.export.openvino import convert
from sparing.layers.plan import narrowed
from sparing.testing.behaviour import unchecked_shapes
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.freezing import segments
from tests.contract.family_models import YES, answers, given, reads_texts
from tests.transfer.classifiers import dense

# float32 leaves this of weights as large as those of tiny models
WITHIN = 1e-3
HALF = 0.5


@lru_cache(maxsize=2)
def _exported(family: str) -> tuple[Path, list[Path], Any]:
    """The folder of a narrowed model in float32, its ONNX files, and the model."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    model = adapt(dense(family, dtype=torch.float32), exits=[2])
    plan = narrowed(model.encoder.sizes, HALF)
    model.plan = plan
    with unchecked_shapes():
        parts = segments(model)
        paths = export_chain(parts, _inputs(family, (9, 6)), folder, longest=20)
    return folder, paths, model


def _inputs(family: str, lengths: tuple[int, ...]) -> dict[str, Any]:
    inputs = given(family, lengths)
    return {name: x.float() if x.is_floating_point() else x for name, x in inputs.items()}


def _differences(family: str, chain: Chain, model: Any) -> float:
    """The largest difference at several batches and lengths, as a share of the largest answer."""
    shares = []
    for lengths in ((9, 6), (3,), (12, 1, 7, 5), (1, 2)) if reads_texts(family) else ((1,), (1, 1)):
        inputs = _inputs(family, lengths)
        theirs = answers(model, inputs)
        shares.append(float((chain(inputs)[0] - theirs).abs().max() / theirs.abs().max()))
    return max(shares)


def check_onnx(family: str) -> str:
    """A narrowed plan in ONNX Runtime, float32, at several lengths and batches."""
    _, paths, model = _exported(family)
    assert _differences(family, Chain(paths), model) < WITHIN
    return YES


def check_int8(family: str) -> str:
    """The same in INT8: it runs, and is another answer only by rounding."""
    folder, paths, model = _exported(family)
    made = quantise(paths, Path(folder) / "int8")
    assert WITHIN / 100 < _differences(family, Chain(made), model) < 1
    return YES


def check_openvino(family: str) -> str:
    """The same in OpenVINO, float32."""
    folder, paths, model = _exported(family)
    with unchecked_shapes():
        made = convert(paths, Path(folder) / "openvino", _inputs(family, (9, 6)))
    assert _differences(family, Chain(made), model) < WITHIN
    return YES
