"""The state of a run of ``slim`` after each step, in one file, and which model it serves.

A step reads the state, adds its result and writes it before its cell is marked as finished. A step
that was killed in between is done again and overwrites what it wrote.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from sparing.core.errors import DataError, UsageError
from sparing.core.reading import read_object
from sparing.core.writing import write_atomically
from sparing.layers.plan import Plan
from sparing.transfer.adaptive import FrontierPoint

FILE = "state.json"
ADAPTIVE, SHALLOW, CHOSEN, FALLBACK, ALONE = "adaptive", "shallow", "chosen", "fallback", "alone"


@dataclass(frozen=True)
class Surveyed(FrontierPoint):
    """A plan of the adaptive model, as surveyed on the inputs that plans are chosen on.

    ``fixed`` says that all inputs run all its layers. ``on_front`` and ``contender`` are those of
    ``best`` and ``contenders``; ``good`` says that a contender keeps the floor.
    """

    fixed: bool = False
    on_front: bool = False
    contender: bool = False
    good: bool = False

    def to_frontier(self) -> FrontierPoint:
        """The point without the fields of the survey."""
        return FrontierPoint(self.plan, self.cost_share, self.score)


@dataclass(frozen=True)
class Form:
    """A model with the plan that it runs: a candidate for what is served.

    ``kind`` is "adaptive" for the chosen plan of the adaptive model. It is "shallow", "chosen" or
    "fallback" for a plan that was fine-tuned at fixed width, and "alone" for a fixed plan distilled
    by itself. ``folder`` is that of its weights below ``models/``. Costs are shares of the dense
    model's FLOPs: ``allowed_share`` is the limit that the plan had to keep. ``good`` says that it
    keeps the floor on the inputs that plans are chosen on.
    """

    kind: str
    folder: str
    plan: Plan
    allowed_share: float
    cost_share: float
    score: float
    good: bool


@dataclass(frozen=True)
class Int8Form:
    """The INT8 form that was chosen for "dense" or "slim"; ``folder`` is below ``engines/``."""

    arm: str
    folder: str


@dataclass(frozen=True)
class State:
    """The results of all steps so far; those of later steps are empty or None."""

    # survey: contenders (the front among them) and all fixed plans
    survey: tuple[Surveyed, ...] = ()
    # choose: the plan to build on, the fallback, and whether fine-tuning follows
    chosen: Surveyed | None = None
    fallback: Surveyed | None = None
    fine_tunes: bool = False
    # the cell `fixed-width`: plans fine-tuned at fixed width and fixed plans distilled alone, in
    # order, and the thresholds of the served one that nothing beats
    fine_tuned: tuple[Form, ...] = ()
    alone: tuple[Form, ...] = ()
    thresholds: tuple[FrontierPoint, ...] = ()
    # calibrate: the served plan's threshold
    threshold: float | None = None
    # static: the folder of the control that the served form is timed beside
    static: str = ""
    # int8
    int8: tuple[Int8Form, ...] = ()

    @property
    def front(self) -> list[Surveyed]:
        """The surveyed plans that nothing beats, cheapest first."""
        return _by_cost([point for point in self.survey if point.on_front])

    @property
    def contenders(self) -> list[Surveyed]:
        """The surveyed plans that no plan of nearly the same cost beats, cheapest first."""
        return _by_cost([point for point in self.survey if point.contender])

    @property
    def fixed(self) -> list[Surveyed]:
        """The surveyed plans without exits."""
        return [point for point in self.survey if point.fixed]


def served(state: State) -> Form | None:
    """Which form is served: the one rule, which every step and the saved model follow.

    - If no surveyed plan is cheaper than the dense model, nothing is chosen. Then no form of slim
      is served, and the dense model is kept.
    - Without fine-tuning, the adaptive model serves the chosen plan.
    - With fine-tuning, two forms compete: the last plan that was fine-tuned at fixed width, and the
      last fixed plan that was distilled alone, if there is one. Earlier ones were not good enough.
      The form that keeps the floor wins. If both or neither keep it, the one with the better score
      wins, then the cheaper one, then the fine-tuned one. Both keep the limit of their FLOPs, so
      speed does not decide.
    - If neither keeps the floor, that form is still saved and measured, but ``good`` is False:
      nothing qualifies, and page and card say to keep the dense model.
    - Once calibrated, the form has the calibrated threshold.

    Also None before the steps that decide have ended.
    """
    chosen = state.chosen
    if chosen is None or (state.fine_tunes and not state.fine_tuned):
        return None
    if state.fine_tunes:
        last = [*state.fine_tuned[-1:], *state.alone[-1:]]
        form = max(last, key=lambda form: (form.good, form.score, -form.cost_share))
    else:
        cost, score = chosen.cost_share, chosen.score or 0.0
        form = Form(ADAPTIVE, ADAPTIVE, chosen.plan, cost, cost, score, chosen.good)
    if state.threshold is None:
        return form
    return replace(form, plan=replace(form.plan, threshold=state.threshold))


def read_state(folder: Path) -> State:
    """The state of the run in a folder, empty before its first step.

    Raises ``DataError`` where the file is damaged.
    """
    path = folder / FILE
    if not path.exists():
        return State()
    content = read_object(path)
    try:
        state = _decoded(State, content)
    except (TypeError, ValueError, UsageError) as error:
        raise DataError(
            f"{path} is damaged ({error}): begin the run anew with --overwrite"
        ) from error
    assert isinstance(state, State)
    return state


def write_state(folder: Path, state: State) -> None:
    """Replace the state of the run in a folder, in one step."""
    write_atomically(folder / FILE, json.dumps(asdict(state), allow_nan=False) + "\n")


def _by_cost(points: Sequence[Surveyed]) -> list[Surveyed]:
    return sorted(points, key=lambda point: point.cost_share)


def _decoded(kind: Any, value: Any) -> Any:
    """A JSON value as the annotated type; raises ``TypeError`` or ``UsageError`` for another."""
    if kind is Plan:
        return Plan.from_dict(value)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        if not isinstance(value, dict) or value.keys() != hints.keys():
            raise TypeError(f"it does not hold the fields of a {kind.__name__}")
        return kind(**{name: _decoded(hint, value[name]) for name, hint in hints.items()})
    if get_origin(kind) is UnionType:
        return None if value is None else _decoded(get_args(kind)[0], value)
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(_decoded(get_args(kind)[0], item) for item in value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"{value!r:.40} is not of type {getattr(kind, '__name__', kind)}")
    return value
