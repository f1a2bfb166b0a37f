"""``sparing export MODEL --to ENGINE --precision P``: a dense model for another engine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from sparing.cli._shared import Json, emit, progress_bar, verb
from sparing.core.errors import Unsupported, UsageError, require_choice

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

    from sparing.advise.model import Subject
    from sparing.answers.kinds import Kind
    from sparing.export.drift import Answers, Drift
    from sparing.export.forms import Form
    from sparing.export.openvino import FloatPrecision
    from sparing.foreign.sentences import Sentences
    from sparing.tasks.texts import Texts

EXAMPLE = "sparing export models/digits --to openvino --output-dir models/digits-openvino"
ENGINES = {"onnx": "onnxruntime", "openvino": "openvino"}
PRECISIONS = ("float32", "bfloat16", "int8")
MOST_COMPARED = 200
RANDOM_LENGTHS = range(4, 68, 4)
LONGEST = 512  # tokens of a text where the model has no limit


@verb
def run(
    model: Annotated[str, typer.Argument(help="The folder of a dense model, or a hub name.")],
    output_dir: Annotated[Path, typer.Option(help="A new folder for the exported model.")],
    to: Annotated[str, typer.Option(help="The engine: onnx or openvino.")] = "onnx",
    precision: Annotated[
        str, typer.Option(help="float32, int8, or with openvino also bfloat16.")
    ] = "float32",
    texts: Annotated[
        str | None,
        typer.Option(help="Your texts: INT8 for openvino is calibrated on some; answers compared."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a dense model for ONNX Runtime or OpenVINO.

    Its answers are compared with those of the dense model in PyTorch. The folder holds the
    model, its tokenizer, and a README.md with the lines that open it without sparing. Models
    of slim are exported already.
    """
    from sparing.export.saving import require_new

    _require_possible(to, precision, texts)
    require_new(output_dir)
    with progress_bar(quiet=as_json) as show:
        show(0.0, f"opening {model}")
        calibrated = (to, precision) == ("openvino", "int8")
        source = _opened(model, texts, calibrated=calibrated)
        facts = _export(source, ENGINES[to], precision, output_dir, show)
    if as_json:
        emit(facts)
        return
    _print(facts)


def _require_possible(to: str, precision: str, texts: str | None) -> None:
    """Raise ``UsageError`` for what no model can be exported to, before it is opened."""
    require_choice("export", "--to", to, ENGINES)
    require_choice("export", "--precision", precision, PRECISIONS)
    if (to, precision) == ("onnx", "bfloat16"):
        raise UsageError(
            "ONNX Runtime has no products in bfloat16 on a CPU: use --to openvino, or "
            "--precision int8"
        )
    if (to, precision) == ("openvino", "int8") and texts is None:
        from sparing.export.static_int8 import FEWEST_INPUTS

        raise UsageError(
            f"--precision int8 --to openvino is calibrated on texts: give --texts FILE, at least "
            f"{FEWEST_INPUTS}; --to onnx needs none"
        )


@dataclass(frozen=True)
class _Source:
    """A model, its input names, and inputs of one text or image each.

    ``segment`` is the whole model as the one segment of a chain. ``sentences`` is what makes
    vectors of its hidden states, if it is of sentence-transformers.
    """

    name: str
    model: PreTrainedModel
    segment: nn.Module
    sentences: Sentences | None
    subject: Subject
    names: tuple[str, ...]
    calibration: Sequence[Mapping[str, Any]]
    compared: Sequence[Mapping[str, Any]]
    words: str

    @property
    def longest(self) -> int | None:
        """The most tokens that the model reads."""
        return _limit(self.subject, self.sentences) if self.subject.reads == "tokens" else None

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs that hold its answer."""
        from sparing.export.outputs import answer_of

        outputs: Any = self.segment.outputs
        return answer_of(outputs, self.name)


def _opened(name: str, texts: str | None, *, calibrated: bool) -> _Source:
    """The model and its inputs: texts to calibrate INT8 on, and others to compare answers on."""
    from sparing.core.paths import expanded
    from sparing.export.dense import dense_segment
    from sparing.export.saving import tokenizer_of
    from sparing.export.static_int8 import FEWEST_INPUTS, MOST_INPUTS
    from sparing.foreign.sentences import sentences_in
    from sparing.transfer.folding.fold import fold_if_possible
    from sparing.transfer.opening import open_model

    given = None if texts is None else _texts(texts, FEWEST_INPUTS if calibrated else 1)
    model, inside = open_model(name), sentences_in(expanded(name))
    subject = _subject(name, model)
    fold_if_possible(model)
    segment = dense_segment(model, inside.open() if inside else ()).eval()
    pixels = ("pixel_values",)
    opened = _Source(name, model, segment, inside, subject, pixels, (), (), "random images")
    if subject.reads == "images":
        if given is not None:
            raise UsageError(f"--texts is for models of tokens; {name} reads images")
        return replace(opened, compared=_images(subject))
    tokenizer = tokenizer_of(name)
    opened = replace(opened, names=_input_names(model, tokenizer), words="random inputs")
    if given is None:
        return replace(opened, compared=_random(opened))
    if tokenizer is None:
        raise UsageError(f"--texts needs a tokenizer, and there is none at {name!r}")
    encoded = _encoded(opened, tokenizer, given)
    used = min(MOST_INPUTS, len(encoded) // 2) if calibrated else 0
    compared = encoded[used:][:MOST_COMPARED]
    words = f"{len(compared):,} of your texts"
    return replace(opened, calibration=encoded[:used], compared=compared, words=words)


def _subject(name: str, model: Any) -> Subject:
    """The model with its sizes; raises ``Unsupported`` for models that are not exported."""
    from sparing.advise.model import open_subject

    if model.config.model_type.startswith("sparing"):
        raise Unsupported(f"{name} is a model of slim: its folder has the exported forms already")
    subject = open_subject(model)
    if model.config.is_encoder_decoder or subject.causal:
        raise Unsupported(f"{name} generates text, and only encoders are exported")
    return subject


def _limit(subject: Subject, sentences: Sentences | None) -> int | None:
    """The most tokens that a model reads: that of its positions, or of its folder if less."""
    limits = [subject.limit, sentences.limit if sentences else None]
    return min((limit for limit in limits if limit is not None), default=None)


def _texts(texts: str, fewest: int) -> Texts:
    """The texts or pairs; raises ``DataError`` for fewer distinct ones."""
    from sparing.tasks.texts import read_texts

    given = read_texts(texts)
    given.require_distinct(fewest, "INT8 for OpenVINO")
    return given


def _input_names(model: Any, tokenizer: Any) -> tuple[str, ...]:
    """The inputs of the exported file: token types only where the model has several."""
    names = ["input_ids", "attention_mask"]
    kinds = getattr(model.config.get_text_config(), "type_vocab_size", 0) or 0
    listed = tokenizer is None or "token_type_ids" in tokenizer.model_input_names
    return (*names, *(["token_type_ids"] if kinds > 1 and listed else []))


def _encoded(source: _Source, tokenizer: Any, texts: Texts) -> list[dict[str, Any]]:
    """Each distinct text alone, without pads.

    Raises ``UsageError`` for a tokenizer of another model, and ``DataError`` for rows that its kind
    of answer is not given to, such as pairs for a vector.
    """
    from sparing.answers.kinds import KINDS
    from sparing.models.shared.quiet import quiet

    kind = _kind(source) or KINDS["class"]
    rows = {index: texts.rows[index] for index in texts.distinct}
    kind.require_rows(list(rows.values()), str(texts.source))
    prompt = source.sentences.prompt if source.sentences else ""
    limit, options = source.longest or LONGEST, {"return_tensors": "pt", "padding": False}
    with quiet():
        given = [
            kind.encode(
                tokenizer,
                (prompt + first, *rest),
                limit,
                f"{texts.source}: row {index + 1}",
                **options,
            )
            for index, (first, *rest) in rows.items()
        ]
    largest = max(int(inputs["input_ids"].max()) for inputs in given)
    vocabulary = source.model.config.get_text_config().vocab_size
    if largest >= vocabulary:
        raise UsageError(
            f"the tokenizer gives token {largest}, and the model knows {vocabulary} tokens: it is "
            "another model's"
        )
    return [{name: inputs[name] for name in source.names} for inputs in given]


def _kind(source: _Source) -> Kind | None:
    """The model's kind of answer; None for images and hidden states."""
    from sparing.answers.kinds import KINDS, kind_of_model

    if source.sentences:
        return KINDS["vector"]
    return kind_of_model(type(source.model).__name__, source.model.config)


def _random(source: _Source) -> list[dict[str, Any]]:
    import torch

    from sparing.advise.model import random_inputs

    most = source.longest or LONGEST
    made = [random_inputs(source.subject, 1, min(length, most)) for length in RANDOM_LENGTHS]
    for inputs in made:
        inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    return [{name: inputs[name] for name in source.names} for inputs in made]


def _images(subject: Subject) -> list[dict[str, Any]]:
    from sparing.advise.model import random_inputs

    pixels = random_inputs(subject, len(RANDOM_LENGTHS), 0)["pixel_values"]
    return [{"pixel_values": pixels[row : row + 1]} for row in range(len(pixels))]


def _export(
    source: _Source, engine: str, precision: str, folder: Path, show: Callable[[float, str], None]
) -> dict[str, Any]:
    from sparing.core.scratch import scratch_inside
    from sparing.export.drift import measure_drift
    from sparing.export.forms import Forms
    from sparing.export.saving import save_beside, writing_folder
    from sparing.foreign.pretrained import write_pretrained

    with scratch_inside(Path(tempfile.gettempdir()), "sparing-export") as scratch:
        forms = Forms(
            [source.segment],
            _example(source),
            scratch,
            longest=source.longest,
            calibration=source.calibration,
        )
        form = forms.find(engine, precision)
        show(0.1, f"exporting to {form}")
        chain = forms[form]
        show(0.7, f"comparing answers on {source.words}")
        dense = forms[forms.find("eager", "float32")]
        drift = measure_drift(dense, chain, source.compared, _answers(source))
        with writing_folder(folder) as part:
            paths = forms.write(form, part)
            size = sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
            names = [path.relative_to(part).as_posix() for path in paths]
            save_beside(source.name, part)
            write_pretrained(source.model.config, part)
            if source.sentences:
                source.sentences.copy(part)
            _write_card(source, form, chain.rest or "float32", drift, part)
    show(1.0, f"saved in {folder}")
    rest = chain.rest if precision == "int8" else None
    facts = _facts(source, folder, drift, size, names)
    return {**facts, "engine": engine, "precision": precision, "rest": rest}


def _facts(
    source: _Source, folder: Path, drift: Drift, size: int, segments: Sequence[str]
) -> dict[str, Any]:
    """What ``--json`` prints of any form; sizes are in bytes."""
    return {
        "model": source.name,
        "folder": str(folder),
        "segments": list(segments),
        "bytes": size,
        "dense_bytes": sum(held.nbytes for held in source.model.parameters()),
        "inputs": list(source.names),
        "compared": source.words,
        "drift": drift.to_dict(),
    }


def _example(source: _Source) -> dict[str, Any]:
    """Two inputs of a few tokens; the exported file takes any batch and length."""
    import torch

    from sparing.advise.model import random_inputs

    most = min(source.subject.limit or 16, 16)
    inputs = random_inputs(source.subject, 2, most)
    if "input_ids" in inputs:
        inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    return {name: inputs[name] for name in source.names}


def _answers(source: _Source) -> Answers:
    from sparing.export.drift import Answers

    if source.subject.kind.endswith("ForImageClassification"):
        return "class"
    kind = _kind(source)
    return next((name for name in get_args(Answers) if kind and name == kind.name), "none")


def _write_card(
    source: _Source, form: Form, floats: FloatPrecision, drift: Drift, folder: Path
) -> None:
    from sparing.core.writing import write_atomically
    from sparing.export.card import export_card

    named = type(source.model).__name__.endswith("Classification")
    card = export_card(
        name=Path(source.name).name,
        engine=form.engine,
        precision=form.precision,
        floats=floats,
        inputs=source.names,
        outputs=source.outputs,
        prompt=source.sentences.prompt if source.sentences else "",
        fast_tokenizer=(folder / "tokenizer.json").is_file(),
        longest=source.longest,
        labels=source.model.config.id2label if named else {},
        drift=drift,
        compared=source.words,
    )
    write_atomically(folder / "README.md", card)


def _print(facts: Mapping[str, Any]) -> None:
    from sparing.export.drift import Drift

    rest = f", the rest in {facts['rest']}" if facts["rest"] else ""
    size, dense = (facts[name] / 1e6 for name in ("bytes", "dense_bytes"))
    print(f"{facts['engine']}, {facts['precision']}{rest}: {size:.1f} MB; {dense:.1f} MB before")
    print(f"{facts['compared']}, against the dense model in PyTorch: {Drift(**facts['drift'])}")
    print(f"saved in {facts['folder']}; its README.md has the lines that open it")
