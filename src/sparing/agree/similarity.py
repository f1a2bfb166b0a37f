"""How well the vectors of an embedding model score pairs of texts: by their cosine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sparing.agree.model import TextModel, open_text_model
from sparing.agree.outputs import Encoder, outputs_of
from sparing.answers.vectors import Vectors
from sparing.core.errors import UsageError
from sparing.core.paths import expanded
from sparing.core.progress import Progress
from sparing.experiment.evaluation import Scores, score_intervals
from sparing.experiment.inputs.fit import is_classifier
from sparing.foreign.sentences import sentences_in
from sparing.tasks import Examples, Task
from sparing.tasks.shared.rankings import MEASURES, values_by_query
from sparing.tasks.shared.scores import scores
from sparing.tasks.texts import Texts
from sparing.train import Evaluation

BATCH = 32
TRY = "try sts, stsb or trec-qa"


def gives_vectors(model: Any) -> bool:
    """Whether a path, or an object, is an embedding model of sentence-transformers."""
    if not isinstance(model, str | Path):
        return type(model).__name__ == "SentenceTransformer"
    return sentences_in(expanded(model)) is not None and not is_classifier(str(model))


def require_pairs(task: object) -> None:
    """Raise ``UsageError`` without a task: no embedding model was trained for one."""
    if not task:
        raise UsageError(f"an embedding model is evaluated on a task of pairs: {TRY}")


def evaluate_vectors(
    model: Any, loaded: tuple[Task, dict[str, Any]], split: str, on_progress: Progress
) -> Scores:
    """The scores of an embedding model on pairs of texts: its answer is the cosine of both.

    ``model`` is what ``open_text_model`` opens, a served folder too; each text is read alone, as
    the model does. ``loaded`` is a task of pairs with a number, or of documents that are ranked,
    with its options. There is no loss. Raises ``UsageError`` for other tasks, and ``DataError`` for
    vectors of zeros or that are not finite.
    """
    task, options = loaded
    examples = task.split(split)
    task.require_labels(split)
    if task.answer != "number" or examples.pairs is None:
        raise UsageError(
            f"an embedding model scores pairs of texts by their cosine; task {task.name} has no "
            f"pairs with a number: {TRY}"
        )
    opened = open_text_model(model)
    outputs, seen = _cosines(opened, examples, on_progress)
    truth = task.truth(examples)
    ranked = [name for name in task.metrics if name in MEASURES]
    result = Evaluation(
        metric=task.metric,
        scores=scores(task.metrics, outputs, truth),
        loss=0.0,
        predictions=outputs[:, 0].tolist(),
        right=None,
        per_example={name: values_by_query(name, outputs[:, 0], truth) for name in ranked},
        outputs=outputs,
        truth=truth,
    )
    # what was cut in the task's own reading is read whole here
    notes = (*(note for note in task.notes if not note.endswith("were cut")), *seen)
    chance, intervals = task.chance_on(split), score_intervals(result)
    return Scores(opened.name, task.name, split, result, intervals, chance, notes, options)


def _cosines(
    model: TextModel, examples: Examples, on_progress: Progress
) -> tuple[Tensor, list[str]]:
    """The cosine of the two vectors of every example, as (examples, 1), and notes on its texts."""
    pairs = examples.pairs or ()
    listed = sorted({text for pair in pairs for text in pair}, key=lambda text: (len(text), text))
    texts = Texts(model.name, tuple((text,) for text in listed))
    encoder = Encoder(model, texts)
    encoded = [encoder.encode(index) for index in range(len(texts))]
    made = outputs_of(
        encoder, encoded, batch=model.batch or BATCH, on_progress=lambda part: on_progress(part, "")
    )
    directions = Vectors(np.stack(made), tuple(listed)).directions
    index_of = {text: index for index, text in enumerate(listed)}
    first, second = ([index_of[pair[side]] for pair in pairs] for side in (0, 1))
    cosines = (directions[first] * directions[second]).sum(1).clip(-1, 1)
    return torch.from_numpy(cosines)[:, None], encoder.notes(encoded)
