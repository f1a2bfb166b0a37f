"""The state of a run of ``slim`` after each step, in one file, and which form it serves.

A step reads the state, adds its result and writes it before its cell is marked as finished. A step
that was killed in between is done again and overwrites what it wrote.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from sparing.core.errors import DataError, UsageError
from sparing.core.reading import read_object
from sparing.core.writing import write_atomically
from sparing.layers.plan import Plan
from sparing.slim.evidence.candidates import Candidate, Point, Screened, Timed
from sparing.transfer.adaptive import FrontierPoint

FILE = "state.json"
# Fields that a file of an earlier version may lack.
LATER = {"ways", "second", "layers"}


@dataclass(frozen=True)
class Way:
    """One way to serve a plan: it changes at most a share ``epsilon`` of the choosing answers.

    ``plan_share`` are the mean FLOPs of the plan with its exits, as a share of the dense model's.
    ``deferred`` is the share of inputs that go on to the dense model.
    """

    epsilon: float
    plan_share: float
    deferred: float


@dataclass(frozen=True)
class Surveyed(FrontierPoint):
    """A plan of the adaptive model, as surveyed on the texts that plans are chosen on.

    ``divergence`` is the mean KL divergence of its answers from the dense model's, and ``changed``
    the share of answers with another class. ``fixed`` says that all inputs run all its layers, and
    ``on_front`` that no plan beats it in FLOPs and score. ``ways`` are those to serve it with
    exits.
    """

    divergence: float = 0.0
    changed: float = 0.0
    fixed: bool = False
    on_front: bool = False
    ways: tuple[Way, ...] = ()

    def to_frontier(self) -> FrontierPoint:
        """The point without the fields of the survey."""
        return FrontierPoint(self.plan, self.cost_share, self.score)


@dataclass(frozen=True)
class State:
    """The results of all steps so far; those of later steps are empty or None."""

    # survey: the front, and all plans without exits
    survey: tuple[Surveyed, ...] = ()
    # choose: the plan to cut out
    chosen: Surveyed | None = None
    # fixed-width: the folder of its training, and the thresholds that nothing beats
    folder: str = ""
    thresholds: tuple[FrontierPoint, ...] = ()
    # static: the folder of the control
    static: str = ""
    # forms: all that can be built here
    forms: tuple[Screened, ...] = ()
    # candidates: all forms that were timed
    candidates: tuple[Timed, ...] = ()
    # certify: the frontier, or the one point of `agree`
    points: tuple[Point, ...] = ()

    @property
    def front(self) -> list[Surveyed]:
        """The surveyed plans that nothing beats, cheapest first."""
        return sorted((p for p in self.survey if p.on_front), key=lambda point: point.cost_share)

    @property
    def whole(self) -> list[Screened]:
        """The forms of the dense model and of slim's whole plan, without exits."""
        forms = ((form, form.candidate) for form in self.forms)
        return [form for form, one in forms if one.layers is None and not one.exits]

    @property
    def competing(self) -> list[Candidate]:
        """The forms without exits that have answered the texts."""
        return [form.candidate for form in self.forms if form.competes]

    @property
    def fixed(self) -> list[Surveyed]:
        """The surveyed plans without exits, cheapest first."""
        return sorted((p for p in self.survey if p.fixed), key=lambda point: point.cost_share)


def served(state: State, epsilon: float) -> Candidate | None:
    """Which form is served: the one rule, which every step and the saved model follow.

    - It is the point of the certified frontier for ``epsilon``. That is the fastest form on the
      choosing texts of all that are certified to change at most that share of the dense answers.
      Dense forms in every engine and precision are among them.
    - If none is certified, or none is faster, the dense model in float32 is served, in its fastest
      engine. It needs no certificate.

    None before the frontier is certified.
    """
    point = next((point for point in state.points if point.epsilon == epsilon), None)
    if point is None:
        return None
    dense = max(
        (t for t in state.candidates if t.candidate.key == t.candidate and is_reference(t)),
        key=lambda timed: timed.speed,
    )
    if point.candidate is None or point.speed <= dense.speed:
        return dense.candidate
    return point.candidate


def is_reference(timed: Timed) -> bool:
    """Whether a form is the dense model in float32, whose answers are the reference."""
    return timed.candidate.model == "dense" and timed.candidate.precision == "float32"


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


def _decoded(kind: Any, value: Any) -> Any:
    """A JSON value as the annotated type; raises ``TypeError`` or ``UsageError`` for another."""
    if kind is Plan:
        return Plan.from_dict(value)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        if not isinstance(value, dict) or hints.keys() != value.keys() | (LATER & hints.keys()):
            raise TypeError(f"it does not hold the fields of a {kind.__name__}")
        return kind(**{name: _decoded(hints[name], one) for name, one in value.items()})
    if get_origin(kind) is UnionType:
        return None if value is None else _decoded(get_args(kind)[0], value)
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(_decoded(get_args(kind)[0], item) for item in value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"{value!r:.40} is not of type {getattr(kind, '__name__', kind)}")
    return value
