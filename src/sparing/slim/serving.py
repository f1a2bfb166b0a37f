"""The folder that a server opens: the served form, its tokenizer, its labels, and no PyTorch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from sparing.core.paths import expanded
from sparing.core.writing import write_atomically
from sparing.export.card import chain_program
from sparing.export.openvino import FloatPrecision, float_precision
from sparing.export.saving import PROCESSOR
from sparing.foreign.pretrained import write_pretrained
from sparing.foreign.sentences import Sentences, sentences_in
from sparing.slim.evidence.candidates import OURS, Candidate
from sparing.slim.inputs import texts_of
from sparing.slim.promise import Promise, form_words, guarantee, prose
from sparing.slim.steps import Steps
from sparing.transfer.embedding.adaptive import AdaptiveEmbedder


def write_serving(steps: Steps, served: Candidate, promise: Promise, folder: Path) -> None:
    """Write the served form's files, and what is needed to use them; nothing for PyTorch.

    The configuration is the dense model's, of an ordinary type: labels are in it, and transformers
    finds no weights beside it. An embedding model keeps the modules behind its encoder.
    """
    paths = steps.forms.write(served, folder)
    if not paths:
        return
    write_pretrained(steps.models.baseline().config, folder)
    write_beside(steps, folder, slim=served.model == OURS)
    write_atomically(folder / "README.md", _card(steps, served, promise))


def write_beside(steps: Steps, folder: Path, *, slim: bool) -> None:
    """Write what goes with a model: tokenizer or processor, and the modules that make vectors.

    The vectors of the ``slim`` model also go through a linear layer, which is one of its modules.
    """
    source = expanded(steps.models.source)
    if steps.task.tokenizer is not None:
        write_pretrained(steps.task.tokenizer, folder)
    if (source / PROCESSOR).is_file():
        shutil.copyfile(source / PROCESSOR, folder / PROCESSOR)
    inside = _sentences(steps)
    if inside is not None:
        model = steps.model()
        assert isinstance(model, AdaptiveEmbedder)
        inside.copy(folder, model.head.mix if slim else None)


def _sentences(steps: Steps) -> Sentences | None:
    return sentences_in(expanded(steps.models.source)) if steps.models.embeds else None


def _example(steps: Steps, prompt: str) -> tuple[str, ...]:
    """A text, or two for a task of pairs; none where no tokenizer makes the inputs."""
    if steps.task.tokenizer is None:
        return ()
    pairs = len(texts_of(steps.task, steps.task.validation, 0)) == 2
    return (f"{prompt}a text", "another text") if pairs else (f"{prompt}a text",)


def _windows(steps: Steps) -> tuple[int, int]:
    """The most tokens of a window of a passage, and how many neighbours share, as certified.

    Where every passage is read at once, a window is as long as the model's limit.
    """
    task = steps.task
    held = (windows for part in task.splits.values() for windows in part.windows or ())
    several = any(len(windows) > 1 for windows in held)
    return task.tokens if several else steps.forms.longest or task.tokens, task.stride


def _card(steps: Steps, served: Candidate, promise: Promise) -> str:
    inside = _sentences(steps)
    lead, meaning = guarantee(promise)
    floats: FloatPrecision = "float32"
    if served.engine == "openvino":
        floats = float_precision(served.precision, None)  # type: ignore[arg-type]
    named = steps.task.answer in ("class", "labels", "entities")
    labels = dict(enumerate(steps.task.labels)) if named else {}
    prompt = inside.prompt if inside else ""
    inputs = list(steps.engines.example())
    lines = [
        f"# {Path(steps.models.source).name}, served",
        f"**{lead}.** {meaning}",
        prose("served", form=form_words(served)),
        *([f"Labels: {json.dumps(labels, ensure_ascii=False)}."] if labels else []),
        *([f"Every text begins with the prompt {prompt!r}."] if prompt else []),
        prose("without-torch"),
        chain_program(
            *(served.engine, floats, inputs, _example(steps, prompt)),
            exits=served.threshold < 1,
            second=served.second < 1,
            exact=served.cascade and served.precision == "int8",
            kind=steps.task.answer,
            windows=_windows(steps),
        ),
    ]
    return "\n\n".join(lines) + "\n"
