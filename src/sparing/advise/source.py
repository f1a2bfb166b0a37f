"""The model that ``sparing export`` opens, and inputs of it to calibrate on and to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sparing.core.errors import Unsupported, UsageError, listed

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

    from sparing.advise.model import Subject
    from sparing.answers.kinds import Kind
    from sparing.foreign.sentences import Sentences
    from sparing.tasks.texts import Texts

MOST_COMPARED = 200
RANDOM_LENGTHS = range(4, 68, 4)
LONGEST = 512  # tokens of a text where the model has no limit


@dataclass(frozen=True)
class Source:
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
    tokens: int | None = None

    @property
    def longest(self) -> int | None:
        """The most tokens that the model reads, or the fewer that were chosen."""
        if self.subject.reads != "tokens":
            return None
        return self.tokens or _limit(self.subject, self.sentences)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs that hold its answer."""
        from sparing.answers.kinds import LOGITS
        from sparing.export.outputs import answer_of

        outputs: Any = getattr(self.segment, "outputs", LOGITS)  # a classifier of slim has none
        return answer_of(outputs, self.name)


def open_source(
    name: str,
    texts: str | None,
    *,
    calibrated: bool,
    phone: bool = False,
    tokens: int | None = None,
) -> Source:
    """The model and its inputs: texts to calibrate INT8 on, and others to compare answers on."""
    from sparing.core.paths import expanded
    from sparing.export.saving import tokenizer_of
    from sparing.export.static_int8 import FEWEST_INPUTS, MOST_INPUTS
    from sparing.foreign.sentences import sentences_in
    from sparing.transfer.opening import open_model

    given = None if texts is None else _texts(texts, FEWEST_INPUTS if calibrated else 1)
    model, inside = open_model(name), sentences_in(expanded(name))
    subject = _subject(name, model, phone=phone)
    most = (tokens or _limit(subject, inside) or LONGEST) if phone else None
    segment = _segment(name, model, inside, most)
    _require_readable(name, subject, tokens)
    pixels = ("pixel_values",)
    opened = Source(name, model, segment, inside, subject, pixels, (), (), "random images", tokens)
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


def _segment(name: str, model: Any, inside: Sentences | None, most: int | None) -> nn.Module:
    """The whole model as one segment; of a model of slim, its plan, which has no exits then.

    ``most`` are the tokens that a phone's program reads.
    """
    from sparing.export.dense import dense_segment
    from sparing.transfer.folding.fold import fold_for_phone, fold_if_possible

    if _is_slim(model):
        return planned_segment(model, name)
    if most is None:
        fold_if_possible(model)
    else:
        fold_for_phone(model, most)
    return dense_segment(model, inside.open() if inside else ()).eval()


def planned_segment(model: Any, name: str) -> nn.Module:
    """A model of slim as one segment: its plan's layers, heads and neurons.

    Raises ``Unsupported`` for a plan with exits or a choice, saying what to do instead.
    """
    from sparing.transfer.freezing import segments

    if model.plan.stops or model.plan.narrows:
        ends = listed([str(layer) for layer in model.plan.stops]) or "none"
        raise Unsupported(
            f"one program has one plan, and {name} has exits (after layers: {ends}): set "
            "model.plan = model.plan.without_choice in Python, and save it with save_pretrained"
        )
    (segment,) = segments(model)
    return segment


def _is_slim(model: Any) -> bool:
    return bool(model.config.model_type.startswith("sparing"))


def _require_readable(name: str, subject: Subject, tokens: int | None) -> None:
    """Raise ``UsageError`` for ``--tokens`` that the model does not read."""
    from sparing.advise.model import resolve_tokens
    from sparing.export.executorch import FEWEST_TOKENS

    if tokens is None:
        return
    if subject.reads == "images":
        raise UsageError(f"--tokens is for models of tokens; {name} reads images")
    if tokens <= FEWEST_TOKENS:
        raise UsageError(f"--tokens must be more than {FEWEST_TOKENS}; got {tokens}")
    resolve_tokens(subject, tokens)


def _subject(name: str, model: Any, *, phone: bool) -> Subject:
    """The model with its sizes; raises ``Unsupported`` for models that are not exported."""
    from sparing.advise.model import open_subject

    if _is_slim(model) and not phone:
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


def _encoded(source: Source, tokenizer: Any, texts: Texts) -> list[dict[str, Any]]:
    """Each distinct text alone, without pads.

    Raises ``UsageError`` for a tokenizer of another model, and ``DataError`` for rows that its kind
    of answer is not given to, such as pairs for a vector.
    """
    from sparing.answers.kinds import KINDS
    from sparing.models.shared.quiet import quiet

    kind = kind_of(source) or KINDS["class"]
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


def kind_of(source: Source) -> Kind | None:
    """The model's kind of answer; None for images and hidden states."""
    from sparing.answers.kinds import KINDS, kind_of_model

    if source.sentences:
        return KINDS["vector"]
    return kind_of_model(type(source.model).__name__, source.model.config)


def _random(source: Source) -> list[dict[str, Any]]:
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
