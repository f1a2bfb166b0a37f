"""Open what may answer texts: a model's folder, a chain, an ONNX file, an OpenVINO file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sparing.agree.onnx_file import OnnxFile
from sparing.core.errors import Unsupported, UsageError
from sparing.core.paths import expanded
from sparing.experiment.inputs.fit import OTHER_HEADS, QUESTIONS, SEVERAL, token_limit
from sparing.export.engine import Chain
from sparing.export.folder import DESCRIPTION, open_chain
from sparing.export.openvino import held_precision
from sparing.export.saving import tokenizer_of
from sparing.foreign.pretrained import open_config
from sparing.tasks.texts.task import class_names, token_limit_of
from sparing.transfer.opening import open_model
from sparing.transfer.unwrapping import require_transformers, tokenizer_in

Array = NDArray[Any]
Inputs = Mapping[str, Array]
CONFIG = "config.json"


@dataclass(frozen=True, eq=False)
class Classifier:
    """A model that answers texts with one row of logits each.

    ``run`` takes arrays (batch, tokens) by name and returns the logits (batch, classes). ``engine``
    computes them. ``takes`` are the names of its inputs. ``labels`` are its classes in order, None
    where no configuration is beside it, and ``several`` is whether it gives several labels. At most
    ``limit`` tokens are read, of ``vocabulary`` different ones. Inputs are padded to ``width``
    tokens, and batches have ``batch`` texts, where the file fixes them.
    """

    name: str
    engine: str
    run: Callable[[Inputs], Array] = field(repr=False)
    takes: tuple[str, ...]
    labels: tuple[str, ...] | None = None
    several: bool | None = None
    tokenizer: Any = field(default=None, repr=False)
    limit: int | None = None
    vocabulary: int | None = None
    width: int | None = None
    batch: int | None = None


@dataclass(frozen=True)
class _Beside:
    """The files beside an exported model: its configuration and its tokenizer."""

    config: Any = None
    tokenizer: Any = None

    @property
    def facts(self) -> dict[str, Any]:
        """Classes, kind of answer, tokenizer and limit, as far as they are known."""
        if self.config is None:
            return {"tokenizer": self.tokenizer}
        return {
            "labels": class_names(self.config),
            "several": getattr(self.config, "problem_type", None) == SEVERAL,
            "tokenizer": self.tokenizer,
            "limit": token_limit_of(self.config, self.tokenizer),
            "vocabulary": getattr(self.config, "vocab_size", None),
        }


def open_classifier(model: Any, *, threads: int = 1) -> Classifier:
    """The classifier at a path or hub name, or a model; nothing in its files is executed.

    A path is a folder of transformers or sparing, a folder with ``chain.json``, a .onnx file or a
    .xml file of OpenVINO. Raises ``UsageError`` for anything else,
    ``Unsupported`` for a model that does not classify texts, and ``CheckpointError`` for a damaged
    one.
    """
    if not isinstance(model, str | Path):
        inner = require_transformers(model, "agree")
        name = inner.name_or_path or type(inner).__name__
        return _require_classes(_of_model(name, inner, tokenizer_in(model)))
    name, path = str(model), expanded(model)
    if path.suffix.lower() == ".onnx":
        opened = _of_onnx(name, path, threads)
    elif path.suffix.lower() == ".xml":
        opened = _of_chain(name, path.parent, _openvino(name, path, threads))
    elif (path / DESCRIPTION).is_file():
        opened = _of_chain(name, path, open_chain(path, thread_count=threads))
    else:
        opened = _of_model(name, open_model(name), tokenizer_of(name))
    return _require_classes(opened)


def _require_classes(opened: Classifier) -> Classifier:
    if opened.labels is not None and len(opened.labels) == 1 and not opened.several:
        raise Unsupported(f"{opened.name} answers with a number; agreement is of classes")
    return opened


def _of_onnx(name: str, path: Path, threads: int) -> Classifier:
    file = OnnxFile(path, threads)
    facts = _beside(path.parent).facts
    facts |= {"width": file.width, "batch": file.batch}
    if file.width is not None:
        facts["limit"] = min(file.width, facts.get("limit") or file.width)
    return Classifier(name, "onnxruntime", file.run, file.takes, **facts)


def _openvino(name: str, path: Path, threads: int) -> Chain:
    if not path.is_file():
        raise UsageError(f"there is no file {name}")
    return Chain([path], thread_count=threads, precision=held_precision(path))


def _of_chain(name: str, folder: Path, chain: Chain) -> Classifier:
    facts = _beside(folder).facts
    limits = [limit for limit in (chain.longest, facts.get("limit")) if limit is not None]
    facts["limit"] = min(limits, default=None)

    def run(inputs: Inputs) -> Array:
        logits: Array = chain(inputs)[0]
        return logits

    return Classifier(name, chain.back_end, run, chain.takes, **facts)


def _of_model(name: str, model: Any, tokenizer: Any) -> Classifier:
    """A model of transformers or sparing, in PyTorch."""
    kind = type(model).__name__
    other = next((words for end, words in OTHER_HEADS.items() if kind.endswith(end)), "")
    if model.main_input_name != "input_ids":
        raise Unsupported(f"{name} reads {model.main_input_name}; agreement is of text classifiers")
    if other or kind.endswith(QUESTIONS):
        raise Unsupported(f"{name} is {other or 'for questions'} ({kind}), not a text classifier")
    if model.training:
        raise UsageError(f"{name} is in training mode: call .eval() on it first")
    takes = tuple(inspect.signature(model.forward).parameters)

    def run(inputs: Inputs) -> Array:
        given = {key: torch.from_numpy(value).to(model.device) for key, value in inputs.items()}
        with torch.inference_mode():
            output = model(**given)
        if getattr(output, "logits", None) is None or output.logits.ndim != 2:
            raise Unsupported(f"{name} ({kind}) gives no row of logits a text: it is no classifier")
        logits: Array = output.logits.float().cpu().numpy()
        return logits

    facts = _Beside(model.config, tokenizer).facts
    limits = [limit for limit in (token_limit(model), facts["limit"]) if limit is not None]
    return Classifier(name, "eager", run, takes, **{**facts, "limit": min(limits, default=None)})


def _beside(folder: Path) -> _Beside:
    """The configuration and the tokenizer in a file's folder or the one above."""
    config, tokenizer = None, None
    for near in (folder, folder.resolve().parent):
        if config is None and (near / CONFIG).is_file():
            config = _configuration(near)
        if tokenizer is None:
            tokenizer = tokenizer_of(str(near))
    return _Beside(config, tokenizer)


def _configuration(folder: Path) -> Any:
    try:
        return open_config(folder)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UsageError(f"{folder / CONFIG} cannot be read: {reason}") from error


def as_whole_numbers(rows: list[list[int]], width: int, fill: int) -> Array:
    """Rows of numbers as one array, filled up on the right to ``width``."""
    array = np.full((len(rows), width), fill, dtype=np.int64)
    for number, row in enumerate(rows):
        array[number, : len(row)] = row
    return array
