"""What the page of ``slim`` reads of a run: options, plans, the guarantee, timed forms.

A step that has not ended gives an empty value or None.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from sparing.core.errors import DataError, UsageError
from sparing.core.reading import parse_json
from sparing.core.record import Label, Record
from sparing.layers.plan import Plan
from sparing.report.run import Run

DENSE, OURS, STATIC = "dense", "slim", "static"


@dataclass(frozen=True)
class Point:
    """One plan on the inputs that plans were chosen on.

    ``kind`` is "exits", "depth" or "random"; ``cost_share`` is its FLOPs as a share of the dense
    model's, ``mean_layers`` the mean number of layers that an input runs.
    """

    kind: str
    width: float
    plan: Plan
    cost_share: float
    score: float
    mean_layers: float
    on_front: bool


@dataclass(frozen=True)
class Form:
    """One variant in one engine at one batch size, as it was timed and scored on test inputs."""

    arm: str
    engine: str
    batch: int

    @property
    def labels(self) -> dict[str, Label]:
        """As the labels that its records carry."""
        return {"arm": self.arm, "engine": self.engine, "batch": self.batch}

    @property
    def ours(self) -> bool:
        """Whether it is a form of the slim model, in whatever precision."""
        return self.arm.partition(" ")[0] == OURS


def options(run: Run) -> dict[str, Any]:
    """The options of the run."""
    identity = run.config.get("identity")
    return identity if isinstance(identity, dict) else {}


def option(run: Run, name: str, default: float) -> float:
    """An option that is a number."""
    value = options(run).get(name)
    return float(value) if isinstance(value, (int, float)) else default


def target(run: Run) -> float:
    """The target speed over the fastest dense form."""
    return option(run, "speed", 2.0)


def floor(run: Run) -> float:
    """The share of the dense score to keep."""
    return option(run, "floor", 0.995)


def batches(run: Run) -> list[int]:
    """The batch sizes; the goals are evaluated at the first one."""
    sizes = options(run).get("batches")
    return sizes if isinstance(sizes, list) and sizes else [1]


def split(run: Run) -> str:
    """The split that plans were chosen on, one half of it, and calibrated on, the other."""
    return str(options(run).get("choose_on") or "validation")


def chosen_on(run: Run) -> int | None:
    """How many inputs plans were chosen on, where the run says."""
    examples = run.config["task"].get("examples")
    count = examples.get(split(run)) if isinstance(examples, dict) else None
    return (count + 1) // 2 if isinstance(count, int) else None


def surveyed(run: Run) -> list[Point]:
    """Every plan that was surveyed, with the controls."""
    return [_point(record) for record in run.table.all("frontier_score")]


def fixed_width(run: Run) -> list[Point]:
    """Every threshold of the plan fine-tuned at fixed width; empty without fine-tuning."""
    return [_point(record) for record in run.table.all("fixed_width_score")]


def of_kind(points: list[Point], kind: str) -> list[Point]:
    """The plans of one kind."""
    return [point for point in points if point.kind == kind]


def trials(run: Run) -> list[Record]:
    """The speeds of the plans that were timed during the choice, the cheapest plan first."""
    return sorted(run.table.all("trial_speed"), key=cost_of)


def dense_score(run: Run) -> float | None:
    """The dense model's score on the inputs that plans were chosen on."""
    return run.table.value("dense_score")


def chosen(run: Run) -> Record | None:
    """The chosen plan: its share of the FLOPs, with plan and score as labels."""
    return run.table.find("chosen_plan")


def taken(run: Run) -> Record | None:
    """The surveyed plan that was built on: the chosen one, or its fallback."""
    trained = run.table.find("fixed_width_plan")
    if trained is not None and trained.labels.get("attempt") == "fallback":
        return run.table.find("fallback_plan") or chosen(run)
    return chosen(run)


def handed_on(run: Run) -> Record | None:
    """The chosen plan before calibration, with the threshold set after fine-tuning."""
    return run.table.find("fixed_width_plan") or chosen(run)


def disagreement(run: Run) -> Record | None:
    """The bound on answers that differ from the dense model's, with the final plan."""
    return run.table.find("disagreement_bound")


def final_plan(run: Run) -> Plan | None:
    """What the slim model runs: the chosen plan, its threshold as calibration left it."""
    record = disagreement(run) or handed_on(run)
    return plan_of(record) if record else None


def whole_plan(run: Run) -> Plan | None:
    """The dense model's layers as a plan, where a plan of full width was surveyed."""
    full = [point.plan for point in surveyed(run) if point.width == 1]
    return max(full, key=lambda plan: plan.layers, default=None)


def point_of(run: Run, plan: Plan) -> Point | None:
    """The surveyed point of a plan."""
    points = fixed_width(run) or surveyed(run)
    return next((p for p in points if p.kind != "random" and same(p.plan, plan)), None)


def forms(run: Run) -> list[Form]:
    """All forms that were timed: by batch size, dense before slim, the fastest first."""
    times = {form: latency(run, form, "mean") for form in _timed(run)}
    known = {form: time for form, time in times.items() if time is not None}
    return sorted(known, key=lambda form: (form.batch, form.ours, form.arm, known[form]))


def _timed(run: Run) -> Iterator[Form]:
    for record in run.table.all("latency_ms", of="mean"):
        arm, engine, batch = (record.labels.get(name) for name in ("arm", "engine", "batch"))
        if not (isinstance(arm, str) and isinstance(engine, str) and isinstance(batch, int)):
            raise DataError(f"record {record.name!r} needs the labels 'arm', 'engine' and 'batch'")
        yield Form(arm, engine, batch)


def latency(run: Run, form: Form, of: str) -> float | None:
    """Milliseconds of one call: "mean", "p50" or "p99" over the test inputs."""
    return run.table.value("latency_ms", of=of, **form.labels)


def speed_up(run: Run, form: Form) -> Record | None:
    """Its speed over the fastest dense form at its batch size; that form itself has none."""
    return run.table.find("speed_up", **form.labels)


def reference(run: Run, batch: int) -> Form | None:
    """The fastest dense form, with which the others at this batch size are compared."""
    dense = [form for form in forms(run) if form.arm == DENSE and form.batch == batch]
    return next((form for form in dense if speed_up(run, form) is None), None)


def apart(run: Run, form: Form) -> bool:
    """Whether it was timed in another step than the fastest dense form of its batch size."""
    baseline = reference(run, form.batch)
    if baseline is None:
        return False
    means = [run.table.find("latency_ms", of="mean", **timed.labels) for timed in (form, baseline)]
    return len({mean.cell for mean in means if mean is not None}) > 1


def fastest(run: Run) -> Record | None:
    """The speed of the slim model's fastest float32 form at the first batch size."""
    speeds = run.table.all("speed_up", arm=OURS, batch=batches(run)[0])
    return max(speeds, key=lambda record: record.value or 0.0, default=None)


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
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(f"record {record.name!r} has no number under {name!r}")
    return float(value)


def cost_of(record: Record) -> float:
    """The FLOPs of a record's plan as a share of the dense model's."""
    return number_of(record, "cost_share")


def same(one: Plan, other: Plan) -> bool:
    """Whether two plans run the same: exits that no input can take do not count."""
    return _acting(one) == _acting(other)


def _acting(plan: Plan) -> Plan:
    if plan.stops:
        return replace(plan, exits=plan.stops)
    return replace(plan, exits=(), threshold=1.0)


def _point(record: Record) -> Point:
    return Point(
        str(record.labels.get("kind")),
        number_of(record, "width"),
        plan_of(record),
        cost_of(record),
        float(record.value or 0.0),
        number_of(record, "mean_layers"),
        record.labels.get("on_front") is True,
    )
