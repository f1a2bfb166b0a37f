"""Open what may answer texts: a model's folder, a chain, an ONNX file, an OpenVINO file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sparing.agree.onnx_file import OnnxFile
from sparing.answers.kinds import KINDS, Kind, joined, kind_of_model, kind_of_outputs
from sparing.core.errors import Unsupported, UsageError
from sparing.core.paths import expanded
from sparing.experiment.inputs.fit import OTHER_HEADS, token_limit
from sparing.export.engine import Chain
from sparing.export.folder import DESCRIPTION, open_chain
from sparing.export.openvino import held_precision
from sparing.export.outputs import HIDDEN
from sparing.export.saving import tokenizer_of
from sparing.foreign.pretrained import open_config
from sparing.foreign.sentences import Sentences, prompt_of, sentences_in, vectors
from sparing.tasks.texts.task import class_names, token_limit_of
from sparing.transfer.opening import open_model
from sparing.transfer.unwrapping import require_transformers, tokenizer_in

Array = NDArray[Any]
Inputs = Mapping[str, Array]
CONFIG = "config.json"


@dataclass(frozen=True, eq=False)
class TextModel:
    """A model that answers texts.

    ``run`` takes arrays (batch, tokens) by name and returns one output (batch, ...) of ``kind``.
    ``engine`` computes it. ``takes`` are the names of its inputs. ``labels`` are its classes in
    order. ``kind`` and ``labels`` are None where no configuration says so. At most ``limit`` tokens
    are read, of ``vocabulary`` different ones. ``prompt`` goes before every text. Inputs are padded
    to ``width`` tokens, and batches have ``batch`` texts, where the file fixes them.
    """

    name: str
    engine: str
    run: Callable[[Inputs], Array] = field(repr=False)
    takes: tuple[str, ...]
    kind: Kind | None = None
    labels: tuple[str, ...] | None = None
    tokenizer: Any = field(default=None, repr=False)
    limit: int | None = None
    vocabulary: int | None = None
    width: int | None = None
    batch: int | None = None
    prompt: str = ""

    @property
    def answer(self) -> Kind:
        """Its kind of answer; one class where nothing says what it is."""
        return self.kind or KINDS["class"]


@dataclass(frozen=True)
class _Beside:
    """The files beside an exported model: its configuration and its tokenizer."""

    config: Any = None
    tokenizer: Any = None
    sentences: Sentences | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """Kind of answer, classes, tokenizer and limit, as far as they are known."""
        if self.config is None:
            return {"tokenizer": self.tokenizer}
        named = (getattr(self.config, "architectures", None) or [""])[0]
        kind = KINDS["vector"] if self.sentences else kind_of_model(str(named), self.config)
        return {
            "kind": kind,
            "labels": class_names(self.config) if kind is None or kind.labelled else None,
            "tokenizer": self.tokenizer,
            "limit": self._limit,
            "prompt": self.sentences.prompt if self.sentences else "",
            "vocabulary": getattr(self.config, "vocab_size", None),
        }

    @property
    def _limit(self) -> int | None:
        limits = [token_limit_of(self.config, self.tokenizer)]
        limits += [self.sentences.limit] if self.sentences and self.sentences.limit else []
        return min(limits)


def open_text_model(model: Any, *, threads: int = 1) -> TextModel:
    """The model at a path or hub name, or an object; nothing in its files is executed.

    A path is a folder of transformers, sentence-transformers or sparing, a folder with
    ``chain.json``, a .onnx file or a .xml file of OpenVINO. Raises ``UsageError`` for anything
    else, ``Unsupported`` for a model with answers of no kind here, and ``CheckpointError`` for
    a damaged one.
    """
    if not isinstance(model, str | Path):
        return _of_object(model)
    name, path = str(model), expanded(model)
    if path.suffix.lower() == ".onnx":
        return _of_onnx(name, path, threads)
    if path.suffix.lower() == ".xml":
        return _of_chain(name, path.parent, _openvino(name, path, threads))
    if (path / DESCRIPTION).is_file():
        return _of_chain(name, path, open_chain(path, thread_count=threads))
    inside = sentences_in(path)
    return _of_model(name, open_model(name), tokenizer_of(name), inside)


def _of_object(model: Any) -> TextModel:
    """A model of transformers or sparing, or of sentence-transformers with its modules."""
    inner = require_transformers(model, "agree")
    name = inner.name_or_path or type(inner).__name__
    tokenizer = tokenizer_in(model)
    opened = _of_model(name, inner, tokenizer, later=later_modules(model))
    limit = getattr(model, "max_seq_length", None)
    limits = [one for one in (opened.limit, limit) if one is not None]
    named = (getattr(model, "prompts", None), getattr(model, "default_prompt_name", None))
    return replace(opened, limit=min(limits, default=None), prompt=prompt_of(*named, name))


def _of_onnx(name: str, path: Path, threads: int) -> TextModel:
    file, beside = OnnxFile(path, threads), _beside(path.parent)
    facts = beside.facts
    kind = facts.get("kind") or file.kind
    facts |= {"kind": kind, "width": file.width, "batch": file.batch}
    if file.width is not None:
        facts["limit"] = min(file.width, facts.get("limit") or file.width)
    run = file.answering(kind or KINDS["class"], beside.sentences)
    return TextModel(name, "onnxruntime", run, file.takes, **facts)


def _openvino(name: str, path: Path, threads: int) -> Chain:
    if not path.is_file():
        raise UsageError(f"there is no file {name}")
    return Chain([path], thread_count=threads, precision=held_precision(path))


def _of_chain(name: str, folder: Path, chain: Chain) -> TextModel:
    beside = _beside(folder)
    facts = beside.facts
    kind = facts.get("kind") or kind_of_outputs(dict.fromkeys(chain.answer, 0))
    later = _pooling(name, kind, chain, beside.sentences)
    limits = [limit for limit in (chain.longest, facts.get("limit")) if limit is not None]
    facts |= {"kind": kind, "limit": min(limits, default=None)}

    def run(inputs: Inputs) -> Array:
        made: Array = chain(inputs)[0]
        if not later:
            return made
        hidden, mask = map(torch.from_numpy, (made, inputs["attention_mask"][:, : made.shape[1]]))
        return vectors(later, hidden, mask).detach().numpy()

    return TextModel(name, chain.back_end, run, chain.takes, **facts)


def _pooling(name: str, kind: Kind | None, chain: Chain, sentences: Sentences | None) -> list[Any]:
    """The modules that make vectors of a chain's hidden states; none where it gives the answer.

    Raises ``Unsupported`` for a chain with outputs of another kind.
    """
    needed = (kind or KINDS["class"]).outputs
    if chain.answer == needed:
        return []
    if chain.answer == HIDDEN and sentences is not None and "attention_mask" in chain.takes:
        return sentences.open()
    raise Unsupported(f"{name} gives {' and '.join(chain.answer)}, not {' and '.join(needed)}")


def _of_model(
    name: str,
    model: Any,
    tokenizer: Any,
    inside: Sentences | None = None,
    later: Sequence[Any] = (),
) -> TextModel:
    """A model of transformers or sparing, in PyTorch."""
    named = type(model).__name__
    if model.main_input_name != "input_ids":
        raise Unsupported(f"{name} reads {model.main_input_name}; agreement is of answers to texts")
    if model.training:
        raise UsageError(f"{name} is in training mode: call .eval() on it first")
    later = inside.open() if inside else later
    kind = KINDS["vector"] if later else kind_of_model(named, model.config)
    if kind is None:
        other = next((words for end, words in OTHER_HEADS.items() if named.endswith(end)), "")
        reason = other or "an encoder without a head, and nothing says how its tokens are pooled"
        raise Unsupported(f"{name} is {reason} ({named}): it gives no answers to compare")
    takes = tuple(inspect.signature(model.forward).parameters)
    if later and "attention_mask" not in takes:
        raise Unsupported(f"{name} takes no attention_mask: pads would be pooled too")

    def run(inputs: Inputs) -> Array:
        given = {key: torch.from_numpy(value).to(model.device) for key, value in inputs.items()}
        with torch.inference_mode():
            made = model(**given)
            if later:
                outputs = [vectors(later, made.last_hidden_state, given["attention_mask"])]
            else:
                outputs = [getattr(made, output) for output in kind.outputs]
            return joined([one.float().cpu().numpy() for one in outputs])

    facts = _Beside(model.config, tokenizer, inside).facts | {"kind": kind}
    limits = [limit for limit in (token_limit(model), facts["limit"]) if limit is not None]
    return TextModel(name, "eager", run, takes, **{**facts, "limit": min(limits, default=None)})


def later_modules(model: Any) -> list[Any]:
    """The modules behind the encoder in a SentenceTransformer object; none in others."""
    if tokenizer_in(model) is None or not isinstance(model, torch.nn.Sequential):
        return []
    return list(model)[1:]


def _beside(folder: Path) -> _Beside:
    """What a file's folder holds besides it, or else the one above."""
    config, tokenizer, sentences = None, None, None
    for near in (folder, folder.resolve().parent):
        if config is None and (near / CONFIG).is_file():
            config = _configuration(near)
        if tokenizer is None:
            tokenizer = tokenizer_of(str(near))
        sentences = sentences or sentences_in(near)
    return _Beside(config, tokenizer, sentences)


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
