"""A chain on disk: numbered segments and a small description."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sparing.core.errors import CheckpointError, UsageError
from sparing.core.reading import read_object
from sparing.core.writing import write_atomically
from sparing.export.engine import Chain
from sparing.export.onnx import TOLERANCE, export_onnx

VERSION = 1
DESCRIPTION = "chain.json"


def export_chain(
    segments: Sequence[nn.Module],
    example_inputs: Mapping[str, Tensor],
    folder: Path,
    *,
    threshold: float = 1.0,
    longest: int | None = None,
    tolerance: float = TOLERANCE,
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
        paths.append(export_onnx(segment, values, path, tolerance=tolerance))
        if number + 1 < len(segments):
            with torch.no_grad():
                hidden = segment(**values)[0]
            mask = {name: value for name, value in values.items() if name == "attention_mask"}
            values = {"hidden": hidden, **mask}
    describe_chain(folder, paths, threshold=threshold, longest=longest)
    return paths


def describe_chain(
    folder: Path, segments: Sequence[Path], *, threshold: float, longest: int | None = None
) -> None:
    """Write ``chain.json`` beside segments that are already in ``folder``.

    They may be quantised, for example. Raises ``UsageError`` for segments that are not there.
    """
    for path in segments:
        if path.parent.resolve() != folder.resolve() or not path.is_file():
            raise UsageError(f"{path} is not in {folder}")
    content: dict[str, Any] = {
        "version": VERSION,
        "segments": [path.name for path in segments],
        "threshold": threshold,
        "longest": longest,
    }
    write_atomically(folder / DESCRIPTION, json.dumps(content, indent=2) + "\n")


def open_chain(folder: Path, *, thread_count: int = 1) -> Chain:
    """A chain written by ``export_chain``, in ONNX Runtime.

    Raises ``CheckpointError`` when the folder holds none, or one that is newer or damaged.
    """
    path = folder / DESCRIPTION
    if not path.is_file():
        raise CheckpointError(f"{folder} holds no exported chain: there is no {DESCRIPTION}")
    try:
        content = read_object(path, CheckpointError)
        version = int(content["version"])
        segments = [folder / str(name) for name in content["segments"]]
        threshold, longest = float(content["threshold"]), content["longest"]
        if longest is not None and (type(longest) is not int or longest < 1):
            raise ValueError(f"longest is {longest!r}")
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged: {error!r}") from error
    if version > VERSION:
        raise CheckpointError(f"{path} is of version {version}; this sparing reads {VERSION}")
    try:
        return Chain(segments, threshold, thread_count=thread_count, longest=longest)
    except UsageError as error:
        raise CheckpointError(f"{folder}: {error}") from error
