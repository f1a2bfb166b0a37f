"""A chain on disk: numbered segments and a small description."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor, nn

from sparing.core.errors import CheckpointError, Unsupported, UsageError, quoted
from sparing.core.reading import read_object
from sparing.core.writing import write_atomically
from sparing.export.engine import Chain, back_end_of
from sparing.export.joined import join
from sparing.export.onnx import TOLERANCE, export_onnx
from sparing.export.openvino import FloatPrecision, Precision, float_precision

# A second threshold came with 2; without one a description is written as before.
VERSION = 2
DESCRIPTION = "chain.json"
# A model of one segment, as optimum names it.
WHOLE = {"onnxruntime": "onnx/model.onnx", "openvino": "openvino/openvino_model.xml"}


def export_chain(
    segments: Sequence[nn.Module],
    example_inputs: Mapping[str, Tensor],
    folder: Path,
    *,
    threshold: float = 1.0,
    longest: int | None = None,
    tolerance: float = TOLERANCE,
    skips_pads: bool = False,
) -> list[Path]:
    """Export each segment, passing the example's hidden states from one to the next.

    Writes ``segment-0.onnx``, ... and ``chain.json``, which comes last: a folder without it is not
    a chain. Raises the errors of ``export_onnx``.
    """
    if not segments:
        raise UsageError("a chain needs at least one segment")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DESCRIPTION).unlink(missing_ok=True)
    values = dict(example_inputs)
    paths = []
    for number, segment in enumerate(segments):
        path = folder / f"segment-{number}.onnx"
        options: dict[str, Any] = {"tolerance": tolerance, "skips_pads": skips_pads}
        paths.append(export_onnx(segment, values, path, **options))
        if number + 1 < len(segments):
            with torch.no_grad():
                hidden = segment(**values)[0]
            mask = {name: value for name, value in values.items() if name == "attention_mask"}
            values = {"hidden": hidden, **mask}
    describe_chain(folder, paths, threshold=threshold, longest=longest)
    return paths


def describe_chain(
    folder: Path,
    segments: Sequence[Path],
    *,
    threshold: float,
    second: float = 1.0,
    longest: int | None = None,
    precision: Precision = "float32",
    rest: FloatPrecision | None = None,
) -> None:
    """Write ``chain.json`` beside segments that are already in ``folder``.

    The settings are those that ``Chain`` opens the segments with. ``rest`` is for
    INT8 files of OpenVINO: None leaves the choice to the processor that opens them. Raises
    ``UsageError`` for segments that are not there.
    """
    for path in segments:
        if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
            raise UsageError(f"{path} is not in {folder}")
    content: dict[str, Any] = {
        "version": 1 if second == 1 else VERSION,
        "engine": back_end_of(segments[0]),
        "precision": precision,
        "rest": rest,
        "segments": [_inside(path, folder) for path in segments],
        "threshold": threshold,
        "longest": longest,
    }
    if second < 1:
        content["second_threshold"] = second
    write_atomically(folder / DESCRIPTION, json.dumps(content, indent=2) + "\n")


def copy_chain(
    segments: Sequence[Path],
    folder: Path,
    *,
    threshold: float = 1.0,
    second: float = 1.0,
    longest: int | None = None,
    precision: Precision = "float32",
) -> list[Path]:
    """Copy exported segments, with their weights, into ``folder`` as one chain.

    Those of ONNX Runtime are joined to one file. Those of OpenVINO are named by their position, so
    they may come from several folders. A file alone has the name that optimum and
    sentence-transformers look for. Everything but INT8 products of OpenVINO has the precision that
    it has on this processor.
    """
    engine = back_end_of(segments[0])
    names = [f"segment-{number}{path.suffix}" for number, path in enumerate(segments)]
    if len(names) == 1 or engine == "onnxruntime":
        names = [WHOLE[engine]]
    paths = [folder / name for name in names]
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    if len(segments) > len(paths):
        join(segments, paths[0], threshold=threshold, second=second)
    else:
        for source, target in zip(segments, paths, strict=True):
            _copy(source, target)
    static = (back_end_of(paths[0]), precision) == ("openvino", "int8")
    describe_chain(
        folder,
        paths,
        threshold=threshold,
        second=second,
        longest=longest,
        precision=precision,
        rest=float_precision("int8", None) if static else None,
    )
    return paths


def _copy(source: Path, target: Path) -> None:
    """Copy a segment with the files beside it that hold its weights."""
    for file in source.parent.glob(f"{source.stem}.*"):
        shutil.copyfile(file, target.parent / file.name.replace(source.stem, target.stem, 1))


def open_chain(folder: Path, *, thread_count: int = 1) -> Chain:
    """A chain of ``export_chain`` or ``describe_chain``, in its engine and precision.

    Raises ``CheckpointError`` when the folder holds none, or one that is newer or damaged, and
    ``Unsupported`` for bfloat16 on a processor that would emulate it.
    """
    path = folder / DESCRIPTION
    if not path.is_file():
        raise CheckpointError(f"{folder} holds no exported chain: there is no {DESCRIPTION}")
    content = read_object(path, CheckpointError)
    try:
        version = int(content["version"])
        if version > VERSION:
            raise CheckpointError(f"{path} is of version {version}; this sparing reads {VERSION}")
        segments = _segments(folder, content)
        threshold, second = float(content["threshold"]), float(content.get("second_threshold", 1))
        longest = content["longest"]
        if longest is not None and (type(longest) is not int or longest < 1):
            raise ValueError(f"longest is {quoted(longest)}")
        precision, rest = content["precision"], content["rest"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged: {error!r}") from error
    try:
        return Chain(
            segments,
            threshold,
            second=second,
            thread_count=thread_count,
            longest=longest,
            precision=precision,
            rest=rest,
        )
    except Unsupported as error:
        raise Unsupported(f"{path}: {error}") from error
    except UsageError as error:
        raise CheckpointError(f"{folder}: {error}") from error


def _segments(folder: Path, content: Mapping[str, Any]) -> list[Path]:
    """The paths of the segments; ``ValueError`` unless all are names of one engine's files."""
    names = content["segments"]
    if not isinstance(names, list):
        raise ValueError(f"segments are {quoted(names)}")
    for name in names:
        if not isinstance(name, str) or not _is_inside(name):
            raise ValueError(f"a segment is named {quoted(name)}, which is no file of the folder")
    segments = [folder / name for name in names]
    for path in segments:
        if path.suffix not in (".onnx", ".xml") or back_end_of(path) != content["engine"]:
            raise ValueError(f"{quoted(path.name)} is no file of {quoted(content['engine'])}")
    return segments


def _inside(path: Path, folder: Path) -> str:
    """The path of a segment from its folder on, with slashes."""
    return path.resolve().relative_to(folder.resolve()).as_posix()


def _is_inside(name: str) -> bool:
    """Whether a description's name can only be a file of its folder."""
    parts = PurePosixPath(name).parts
    odd = {"\0", "\\", ":"} & set(name)
    return bool(parts) and not odd and parts[0] != "/" and ".." not in parts
