"""A folder of sentence-transformers: an encoder and what makes its outputs into a vector."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxtyping import Float, Int
from safetensors.torch import save_file
from torch import Tensor

from sparing.core.errors import CheckpointError, Unsupported, UsageError, quoted
from sparing.core.reading import read_json, read_object
from sparing.core.writing import write_atomically

FILE, SIZES, SETTINGS = (
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)
PACKAGE, ENCODER, VECTOR = "sentence_transformers", "Transformer", "sentence_embedding"
LATER = ("Pooling", "Dense", "Normalize")
MIX = "slim_Dense"  # the folder of the linear layer that slim adds


@dataclass(frozen=True)
class Sentences:
    """What a folder holds besides the encoder: its later modules by class and path.

    ``limit`` is the most tokens that it reads, ``prompt`` what goes before every text.
    """

    folder: Path
    later: tuple[tuple[str, str], ...]
    limit: int | None = None
    prompt: str = ""

    def open(self) -> list[Any]:
        """The later modules, in their order. Raises ``Unsupported`` for weights in pickle files."""
        classes, opened = _classes(), []
        for kind, path in self.later:
            folder = self.folder / path
            if kind == "Dense" and not (folder / "model.safetensors").is_file():
                raise Unsupported(f"{folder} has no model.safetensors: save the model anew")
            opened.append(getattr(classes, kind).load(str(folder)).eval())
        return opened

    def dimensions(self, width: int) -> int:
        """How many numbers a vector has that is made of tokens of ``width``.

        Raises ``CheckpointError`` for a linear layer that does not say.
        """
        for _, path in (module for module in self.later if module[0] == "Dense"):
            file = self.folder / path / "config.json"
            stated = read_object(file, CheckpointError).get("out_features")
            if type(stated) is not int or stated < 1:
                raise CheckpointError(f"{file} is damaged: out_features is {quoted(stated)}")
            width = stated
        return width

    def copy(self, folder: Path, mix: Any = None) -> None:
        """Copy the descriptions and the later modules into another folder.

        A module without a folder of its own has no files: those beside it are the encoder's.
        ``mix`` is a linear layer (``torch.nn.Linear``) for the pooled vectors, which becomes a
        module after the pooling.
        """
        for name in (FILE, SIZES, SETTINGS):
            if (self.folder / name).is_file():
                shutil.copyfile(self.folder / name, folder / name)
        for path in (path for _, path in self.later if Path(path).parts):
            for file in (self.folder / path).glob("*"):
                if file.suffix in (".json", ".safetensors"):
                    (folder / path).mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, folder / path / file.name)
        if mix is not None:
            self._add_linear(folder, mix)

    def _add_linear(self, folder: Path, mix: Any) -> None:
        """Write a linear layer as a module after the pooling, as sentence-transformers would."""
        inside = folder / MIX
        inside.mkdir()
        sizes = {"in_features": mix.in_features, "out_features": mix.out_features, "bias": True}
        content = {**sizes, "activation_function": "torch.nn.modules.linear.Identity"}
        write_atomically(inside / "config.json", json.dumps(content, indent=2) + "\n")
        weights = {f"linear.{name}": held.contiguous() for name, held in mix.state_dict().items()}
        save_file(weights, inside / "model.safetensors")
        listed = list(read_json(folder / FILE, CheckpointError))
        places = [_kind(str(one["type"]), folder / FILE) for one in listed]
        one = {"path": MIX, "type": f"{PACKAGE}.models.Dense"}
        listed.insert(places.index("Pooling") + 1, one)
        numbered = [{**one, "idx": n, "name": str(n)} for n, one in enumerate(listed)]
        write_atomically(folder / FILE, json.dumps(numbered, indent=2) + "\n")


def vectors(
    later: Sequence[Any],
    tokens: Float[Tensor, "batch tokens width"],
    mask: Int[Tensor, "batch tokens"],
) -> Float[Tensor, "batch dimensions"]:
    """The vectors that the later modules make of an encoder's outputs, in float32.

    Raises ``Unsupported`` where they make none: no pooling is among them.
    """
    return vector_of([module.float() for module in later], tokens.float(), mask)


def vector_of(
    later: Iterable[Any],
    tokens: Float[Tensor, "batch tokens width"],
    mask: Int[Tensor, "batch tokens"],
) -> Float[Tensor, "batch dimensions"]:
    """The same in the precision of the modules and the outputs."""
    features: dict[str, Any] = {"token_embeddings": tokens, "attention_mask": mask}
    kinds = []
    for module in later:
        features = module(features)
        kinds.append(type(module).__name__)
    if VECTOR not in features:
        raise Unsupported(f"{kinds} make no {VECTOR}")
    vector: Tensor = features[VECTOR]
    return vector


def prompt_of(prompts: object, name: object, source: str) -> str:
    """The prompt of that name, which goes before every text; empty without a name.

    Raises ``CheckpointError`` for a name without a prompt.
    """
    if name is None:
        return ""
    prompt = prompts.get(name) if isinstance(prompts, dict) else None
    if not isinstance(prompt, str):
        raise CheckpointError(f"{source} is damaged: it has no prompt {quoted(name)}")
    return prompt


def sentences_in(folder: Path) -> Sentences | None:
    """What a folder of sentence-transformers holds; None where it is not one.

    Raises ``CheckpointError`` for a damaged description. Raises ``Unsupported`` for a module of
    another package, which would be code of the folder's choice, for one of another kind, and for an
    encoder without pooling.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    listed = read_json(path, CheckpointError)
    try:
        modules = [(_kind(str(one["type"]), path), str(one["path"])) for one in listed]
    except (TypeError, KeyError) as error:
        raise CheckpointError(f"{path} is damaged: it lists no modules") from error
    for _, inside in modules:
        if Path(inside).is_absolute() or ".." in Path(inside).parts:
            raise CheckpointError(f"{path} is damaged: {quoted(inside)} is outside of its folder")
    kinds = [kind for kind, _ in modules]
    if kinds[:1] != [ENCODER] or ENCODER in kinds[1:] or "Pooling" not in kinds:
        raise Unsupported(f"{path}: an encoder and its pooling are needed; it lists {kinds}")
    settings = _described(folder, SETTINGS)
    named = (settings.get("prompts"), settings.get("default_prompt_name"))
    prompt = prompt_of(*named, str(folder / SETTINGS))
    return Sentences(folder, tuple(modules[1:]), _limit(folder), prompt)


def _kind(name: str, path: Path) -> str:
    package, kind = name.partition(".")[0], name.rpartition(".")[2]
    if package != PACKAGE or kind not in (ENCODER, *LATER):
        known = ", ".join((ENCODER, *LATER))
        raise Unsupported(
            f"{path} names the module {quoted(name)}: only {known} of {PACKAGE} are read"
        )
    return kind


def _described(folder: Path, name: str) -> Mapping[str, Any]:
    path = folder / name
    return read_object(path, CheckpointError) if path.is_file() else {}


def _limit(folder: Path) -> int | None:
    limit = _described(folder, SIZES).get("max_seq_length")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise CheckpointError(f"{folder / SIZES} is damaged: max_seq_length is {quoted(limit)}")
    return limit


def _classes() -> Any:
    """The package's module classes, which moved in version 6."""
    try:
        from sentence_transformers.sentence_transformer import modules
    except ImportError:
        try:
            from sentence_transformers import models as modules  # type: ignore[attr-defined,no-redef]
        except ImportError as error:
            raise UsageError(
                f"embedding models need sentence-transformers ({error}): pip install "
                "'.[embeddings]' in a clone of sparing"
            ) from error
    return modules
