"""The folder that a server opens: the served form, its tokenizer, its labels, and no PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from sparing.core.paths import expanded
from sparing.core.writing import write_atomically
from sparing.export.card import chain_program
from sparing.export.openvino import FloatPrecision, float_precision
from sparing.foreign.pretrained import write_pretrained
from sparing.foreign.sentences import Sentences, sentences_in
from sparing.slim.evidence.candidates import OURS, Candidate
from sparing.slim.promise import Promise, form_words, guarantee, prose
from sparing.slim.steps import Steps
from sparing.transfer.embedding import AdaptiveEmbedder


def write_serving(steps: Steps, served: Candidate, promise: Promise, folder: Path) -> None:
    """Write the served form's files, and what is needed to use them; nothing for PyTorch.

    The configuration is the dense model's, of an ordinary type: labels are in it, and transformers
    finds no weights beside it. An embedding model keeps the modules behind its encoder.
    """
    paths = steps.forms.write(served, folder)
    if not paths:
        return
    write_pretrained(steps.models.baseline().config, folder)
    if steps.task.tokenizer is not None:
        write_pretrained(steps.task.tokenizer, folder)
    inside = sentences(steps)
    if inside is not None:
        inside.copy(folder, mix_of(steps) if served.model == OURS else None)
    write_atomically(folder / "README.md", _card(steps, served, promise, inside))


def sentences(steps: Steps) -> Sentences | None:
    """What makes vectors of the source's tokens, if it is an embedding model."""
    return sentences_in(expanded(steps.models.source)) if steps.models.embeds else None


def mix_of(steps: Steps) -> nn.Linear:
    """The linear layer that the slim model's vectors also go through."""
    model = steps.model()
    assert isinstance(model, AdaptiveEmbedder)
    return model.head.mix


def _card(steps: Steps, served: Candidate, promise: Promise, inside: Sentences | None) -> str:
    lead, meaning = guarantee(promise)
    floats: FloatPrecision = "float32"
    if served.engine == "openvino":
        floats = float_precision(served.precision, None)  # type: ignore[arg-type]
    labels: Any = steps.models.baseline().config.id2label if inside is None else None
    example = f"{inside.prompt if inside else ''}a text"
    lines = [
        f"# {Path(steps.models.source).name}, served",
        f"**{lead}.** {meaning}",
        prose("served", form=form_words(served)),
        *([f"Labels: {json.dumps(labels, ensure_ascii=False)}."] if labels else []),
        *(
            [f"Every text begins with the prompt {inside.prompt!r}."]
            if inside and inside.prompt
            else []
        ),
        prose("without-torch"),
        chain_program(served.engine, floats, example if steps.task.tokenizer else ""),
    ]
    return "\n\n".join(lines) + "\n"
