"""The result of ``slim`` on disk: the served model, its exported forms, and its card."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from sparing.core.errors import UsageError
from sparing.core.paths import expanded
from sparing.core.scratch import scratch_beside
from sparing.core.writing import write_atomically
from sparing.experiment.owned import drop_folder, require_own
from sparing.experiment.run import Run
from sparing.export.folder import DESCRIPTION
from sparing.foreign.pretrained import write_pretrained
from sparing.slim.card import model_card
from sparing.slim.engines import has_onnx
from sparing.slim.int8 import int8_folder
from sparing.slim.search.exits import dense_flops
from sparing.slim.state import State
from sparing.slim.steps import Steps
from sparing.transfer.adaptive import AdaptiveClassifier, FrontierPoint

ANY_BUDGET, INT8 = "any-budget", "onnx-int8"


def refuse_model_folder(model: str, folder: Path) -> None:
    """Raise ``UsageError`` if the result would overwrite the user's model."""
    source = expanded(model)
    if source.is_dir() and source.resolve() == folder.resolve():
        raise UsageError(f"{folder} is the model itself: choose another folder for the result")


def save(steps: Steps, run: Run, source: str) -> Path:
    """Write ``model/`` beside the records, whole or not at all, and return it."""
    target = run.folder / "model"
    with scratch_beside(target) as part:
        state, plan, model = steps.state, steps.served().plan, steps.model()
        _set_frontier(steps, model, state.thresholds if state.fine_tunes else _front(state))
        if has_onnx():
            steps.engines.exported(model, plan, str(part.resolve() / "onnx"))
        _keep_int8(int8_folder(steps) or target / INT8, part / INT8)
        model.plan = plan
        write_pretrained(model, part)
        if state.fine_tunes:
            _save_any_budget(steps, state, part / ANY_BUDGET)
        if steps.task.tokenizer is not None:
            write_pretrained(steps.task.tokenizer, part)
        write_atomically(part / "README.md", model_card(run, steps, source))
        require_own(run.folder, ("model",))
        drop_folder(target)
        part.replace(target)
    return target


def _front(state: State) -> list[FrontierPoint]:
    return [point.to_frontier() for point in state.front]


def _set_frontier(steps: Steps, model: AdaptiveClassifier, points: Sequence[FrontierPoint]) -> None:
    """Store the costs of a model's plans, as shares of the dense FLOPs."""
    whole = float(dense_flops(model, steps.parts[0]).mean()) / steps.dense_flops
    model.set_frontier(points, whole)


def _save_any_budget(steps: Steps, state: State, folder: Path) -> None:
    """The model with all widths, from which the chosen plan was cut."""
    model = steps.models.adaptive()
    _set_frontier(steps, model, _front(state))
    if state.chosen is not None:
        model.plan = state.chosen.plan
    write_pretrained(model, folder)


def _keep_int8(source: Path, target: Path) -> None:
    """The chosen INT8 form, if there is one: segments and ``chain.json``."""
    if (source / DESCRIPTION).is_file():
        shutil.copytree(source, target)
