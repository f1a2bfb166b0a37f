"""The result of ``slim`` on disk: the served model, its exported forms, and its card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sparing.core.errors import DataError, UsageError
from sparing.core.paths import expanded
from sparing.core.scratch import scratch_beside
from sparing.core.writing import write_atomically
from sparing.experiment.owned import drop_folder, require_own
from sparing.experiment.records import RecordTable
from sparing.experiment.run import Run
from sparing.foreign.pretrained import write_pretrained
from sparing.layers.plan import Plan
from sparing.slim.card import model_card
from sparing.slim.engines import first_layers
from sparing.slim.evidence.candidates import Candidate
from sparing.slim.options import ANY_BUDGET
from sparing.slim.promise import promise_of
from sparing.slim.search.exits import decide, dense_flops, outcomes, score
from sparing.slim.serving import write_beside, write_serving
from sparing.slim.state import State
from sparing.slim.steps import Steps
from sparing.transfer.adaptive import AdaptiveClassifier, FrontierPoint

FOLDER, SERVE, TORCH, FORMS = "model", "serve", "torch", "forms"


def refuse_model_folder(model: str, folder: Path) -> None:
    """Raise ``UsageError`` if the result would overwrite the user's model."""
    source = expanded(model)
    if source.is_dir() and source.resolve() == folder.resolve():
        raise UsageError(f"{folder} is the model itself: choose another folder for the result")


def save(steps: Steps, run: Run, source: str) -> Path:
    """Write ``model/`` beside the records, whole or not at all, and return it.

    ``torch`` holds the model that was cut out, ``serve`` the served form's files, and ``forms``
    those of the other points of the frontier, each a chain. ``any-budget`` holds the model of all
    widths, if the options want it.
    """
    target = run.folder / FOLDER
    with scratch_beside(target) as part:
        state, both, served, model = steps.state, steps.forms, steps.served(), steps.model()
        model.plan = _plan_of(model, served)
        _set_frontier(steps, model, [*state.thresholds, _point_of(steps, model)])
        write_pretrained(model, part / TORCH)
        write_beside(steps, part / TORCH, slim=True)
        if ANY_BUDGET in steps.options.keep:
            _save_any_budget(steps, state, part / ANY_BUDGET)
        _write_served(steps, run, served, part)
        for point in state.points:
            if point.candidate not in (None, served):
                both.write(point.candidate, part / FORMS / f"{100 * (1 - point.epsilon):g}")
        write_atomically(part / TORCH / "README.md", model_card(run, steps, source))
        require_own(run.folder, (FOLDER,))
        drop_folder(target)
        part.replace(target)
    return target


def _write_served(steps: Steps, run: Run, served: Candidate, part: Path) -> None:
    promise = promise_of(RecordTable(run.records()))
    if promise is None:
        raise DataError(f"{run.folder} has no certified form: an earlier step has failed")
    write_serving(steps, served, promise, part / SERVE)


def _plan_of(model: AdaptiveClassifier, served: Candidate) -> Plan:
    """The plan of the saved model: with the served threshold, or without exits."""
    if served.exits:
        return replace(model.plan, threshold=served.threshold)
    return first_layers(model.plan, served.layers or model.plan.layers)


def _point_of(steps: Steps, model: AdaptiveClassifier) -> FrontierPoint:
    """The cost and score of a model's plan on the choosing inputs, so that it has a budget."""
    plan = model.plan
    seen = outcomes(model, steps.task, steps.parts[0], plan)
    decision = decide(seen, plan.threshold, min(plan.stops, default=1), plan.layers)
    share = float(decision.flops.mean()) / steps.dense_flops
    return FrontierPoint(plan, share, score(steps.task, decision, seen.labels))


def _set_frontier(steps: Steps, model: AdaptiveClassifier, points: Sequence[FrontierPoint]) -> None:
    """Store the costs of a model's plans, as shares of the dense FLOPs."""
    whole = float(dense_flops(model, steps.parts[0]).mean()) / steps.dense_flops
    model.set_frontier(points, whole)


def _save_any_budget(steps: Steps, state: State, folder: Path) -> None:
    """The model with all widths, from which the chosen plan was cut."""
    model = steps.models.adaptive()
    points = [point.to_frontier() for point in state.front]
    if state.chosen is not None:
        points.append(state.chosen.to_frontier())
    _set_frontier(steps, model, points)
    if state.chosen is not None:
        model.plan = state.chosen.plan
    write_pretrained(model, folder)
