"""What the page of ``slim`` reads of a run: options, forms, plans.

A step that has not ended gives an empty value or None.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sparing.core.errors import DataError, UsageError
from sparing.core.reading import parse_json
from sparing.core.record import Record
from sparing.layers.plan import Plan
from sparing.report.run import Run
from sparing.slim.evidence.candidates import DENSE, OURS, Candidate
from sparing.slim.promise import form_of, promise_of

STATIC = "static"
ORDER = (DENSE, OURS, STATIC)
EXACT = "float32"


@dataclass(frozen=True)
class Point:
    """One plan on the inputs that plans are chosen on.

    ``kind`` is "exits", "depth" or "random"; ``cost_share`` is its FLOPs as a share of the dense
    model's, ``divergence`` that of its answers from the dense model's.
    """

    kind: str
    width: float
    plan: Plan
    cost_share: float
    divergence: float


def options(run: Run) -> dict[str, Any]:
    """The options of the run."""
    identity = run.config.get("identity")
    return identity if isinstance(identity, dict) else {}


def option(run: Run, name: str, default: float) -> float:
    """An option that is a number."""
    value = options(run).get(name)
    return float(value) if isinstance(value, int | float) else default


def batches(run: Run) -> list[int]:
    """The batch sizes; the first one decides."""
    sizes = options(run).get("batches")
    sizes = [size for size in sizes if type(size) is int] if isinstance(sizes, list) else []
    return sizes or [1]


def forms(run: Run) -> list[Candidate]:
    """All tested forms, the static pruned model too: dense before slim, the fastest first."""
    means: dict[Candidate, float] = {}
    for mean in run.table.all("latency_ms", of="mean"):
        means.setdefault(form_of(mean), mean.value or 0.0)
    known = {name: number for number, name in enumerate(ORDER)}
    return sorted(means, key=lambda form: (known.get(form.model, len(ORDER)), means[form]))


def speed_up(run: Run, form: Candidate, batch: int) -> Record | None:
    """A form's speed over the fastest dense form in float32; that form itself has none."""
    return run.table.find("speed_up", **form.labels, batch=batch)


def baseline(run: Run, batch: int) -> Candidate | None:
    """The fastest dense form in float32, with which the others at a batch size are compared."""
    timed = (form_of(r) for r in run.table.all("latency_ms", of="mean", batch=batch, arm=DENSE))
    return next(
        (f for f in timed if f.precision == EXACT and speed_up(run, f, batch) is None), None
    )


def certified(run: Run) -> dict[float, Candidate | None]:
    """The form of each point of the frontier by its share of changed answers, the smallest first.

    None is a point at which no form is certified.
    """
    points = run.table.matching("certified_speed", {})
    shares = {
        number_of(point, "epsilon"): None if point.value is None else form_of(point)
        for point in points
    }
    return dict(sorted(shares.items()))


def safe(run: Run) -> list[Candidate]:
    """The tested forms that keep what the served form keeps, as far as they are known to.

    These are the dense forms in float32, and those that change at most its share of the choosing
    answers and keep the floor there.
    """
    promise = promise_of(run.table)
    if promise is None:
        return []
    return [form for form in forms(run) if _keeps(run, form, promise.epsilon)]


def _keeps(run: Run, form: Candidate, epsilon: float) -> bool:
    if (form.model, form.precision) == (DENSE, EXACT):
        return True
    seen = run.table.find("candidate_speed", **form.labels)
    return (
        seen is not None
        and seen.labels.get("good") is True
        and (number_of(seen, "changed") <= epsilon)
    )


def surveyed(run: Run) -> list[Point]:
    """Every plan that was surveyed, with the controls."""
    return [_point(record) for record in run.table.all("frontier_score")]


def whole_plan(run: Run) -> Plan | None:
    """The dense model's layers as a plan, where a plan of full width was surveyed."""
    full = [point.plan for point in surveyed(run) if point.width == 1]
    return max(full, key=lambda plan: plan.layers, default=None)


def chosen(run: Run) -> Record | None:
    """The chosen plan: its share of the FLOPs, with plan and divergence as labels."""
    return run.table.find("chosen_plan")


def plan_of(record: Record) -> Plan:
    """The plan that a record carries; ``DataError`` where it carries none."""
    try:
        return _parsed(str(record.labels.get("plan")))
    except (ValueError, TypeError, AttributeError, UsageError) as error:
        raise DataError(f"record {record.name!r} carries no plan: {error}") from error


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Plan:
    return Plan.from_dict(parse_json(text))


def number_of(record: Record, name: str) -> float:
    """A number among a record's labels; ``DataError`` where there is none."""
    value = record.labels.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"record {record.name!r} has no number under {name!r}")
    return float(value)


def _point(record: Record) -> Point:
    return Point(
        str(record.labels.get("kind")),
        number_of(record, "width"),
        plan_of(record),
        number_of(record, "cost_share"),
        number_of(record, "divergence"),
    )
