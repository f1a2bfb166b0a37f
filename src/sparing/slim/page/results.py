"""The records of ``slim`` by question: plans, trials, the guarantee, the forms that were timed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sparing.core.errors import DataError, UsageError
from sparing.core.reading import parse_json
from sparing.core.record import Label, Record
from sparing.experiment.records import RecordTable
from sparing.layers.plan import Plan
from sparing.report.run import Run

DENSE, OURS, STATIC = "dense", "slim", "static"
ENGINES = {"onnxruntime": "ONNX Runtime", "eager": "eager PyTorch", "compiled": "torch.compile"}
Interval = tuple[float, float] | None


@dataclass(frozen=True)
class Point:
    """One plan on the inputs that plans were chosen on.

    ``kind`` is "exits", "depth" or "random"; ``cost_share`` is its arithmetic as a share of the
    dense model's, ``mean_layers`` how many layers an input runs on average.
    """

    kind: str
    width: float
    plan: Plan
    cost_share: float
    score: float
    mean_layers: float
    on_front: bool


@dataclass(frozen=True)
class Trial:
    """A plan of the front that was timed while choosing, against the fastest dense form."""

    plan: Plan
    cost_share: float
    score: float
    speed: float
    interval: Interval
    disturbance: str = ""


@dataclass(frozen=True)
class Form:
    """One arm in one engine at one batch size, as it was timed and scored on test inputs."""

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


class SlimResults:
    """One run's records, read once; what a run has not reached yet is empty or None."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.all = RecordTable(run.records, run.config["arms"])
        identity = run.config.get("identity")
        self.identity: dict[str, Any] = identity if isinstance(identity, dict) else {}

    def option(self, name: str, default: float) -> float:
        """A number that was asked for."""
        value = self.identity.get(name)
        return float(value) if isinstance(value, (int, float)) else default

    @property
    def speed(self) -> float:
        """The factor over the fastest dense form that was asked for."""
        return self.option("speed", 2.0)

    @property
    def floor(self) -> float:
        """The share of the dense score to keep."""
        return self.option("floor", 0.995)

    @property
    def batches(self) -> list[int]:
        """The batch sizes asked for; the first one decides."""
        batches = self.identity.get("batches")
        return batches if isinstance(batches, list) and batches else [1]

    @property
    def split(self) -> str:
        """The split that plans were chosen on, one half of it, and calibrated on, the other."""
        return str(self.identity.get("choose_on") or "validation")

    @property
    def chosen_on(self) -> int | None:
        """How many inputs plans were chosen on, where the run says."""
        examples = self.run.config["task"].get("examples")
        count = examples.get(self.split) if isinstance(examples, dict) else None
        return (count + 1) // 2 if isinstance(count, int) else None

    @cached_property
    def points(self) -> list[Point]:
        """Every plan that was surveyed, with the controls."""
        return [_point(record) for record in self.all.all("frontier_score")]

    @cached_property
    def polished(self) -> list[Point]:
        """Every threshold of the chosen plan after it was trained on; empty where it was not."""
        return [_point(record) for record in self.all.all("polished_score")]

    def of_kind(self, kind: str) -> list[Point]:
        """The plans of one kind."""
        return [point for point in self.points if point.kind == kind]

    @cached_property
    def trials(self) -> list[Trial]:
        """The plans that were timed while choosing, cheapest first."""
        found = [
            Trial(
                plan_of(record),
                number_of(record, "cost_share"),
                number_of(record, "score"),
                float(record.value or 0.0),
                record.interval,
                self.all.disturbance(record),
            )
            for record in self.all.all("trial_speed")
        ]
        return sorted(found, key=lambda trial: trial.cost_share)

    @property
    def dense_score(self) -> float | None:
        """The dense model's score on the inputs that plans were chosen on."""
        return self.all.value("dense_score")

    @property
    def chosen(self) -> Record | None:
        """What was chosen: its share of the arithmetic, with plan and score as labels."""
        return self.all.find("chosen_plan")

    @property
    def taken(self) -> Record | None:
        """The surveyed plan that was built on: the chosen one, or what stood in for it."""
        served = self.all.find("polished_plan")
        if served is not None and served.labels.get("attempt") == "fallback":
            return self.all.find("fallback_plan") or self.chosen
        return self.chosen

    @property
    def served(self) -> Record | None:
        """The chosen plan as it was handed on to calibration: with polishing's threshold."""
        return self.all.find("polished_plan") or self.chosen

    @property
    def disagreement(self) -> Record | None:
        """The bound on answers that differ from the dense model's, with the final plan."""
        return self.all.find("disagreement_bound")

    @property
    def final_plan(self) -> Plan | None:
        """What the slim model runs: the chosen plan, its threshold as calibration left it."""
        found = self.disagreement or self.served
        return plan_of(found) if found else None

    @property
    def whole(self) -> Plan | None:
        """The dense model's layers as a plan, where a plan of full width was surveyed."""
        full = [point.plan for point in self.points if point.width == 1]
        return max(full, key=lambda plan: plan.layers, default=None)

    def point_of(self, plan: Plan) -> Point | None:
        """The surveyed point of a plan."""
        points = self.polished or self.points
        found = (p for p in points if p.kind != "random" and same(p.plan, plan))
        return next(found, None)

    @cached_property
    def forms(self) -> list[Form]:
        """All forms that were timed: by batch size, dense before slim, the fastest first."""
        found = {form: self.latency(form, "mean") for form in self._timed()}
        known = {form: time for form, time in found.items() if time is not None}
        return sorted(known, key=lambda form: (form.batch, form.ours, form.arm, known[form]))

    def _timed(self) -> Iterator[Form]:
        for record in self.all.all("latency_ms", of="mean"):
            arm, engine, batch = (record.labels.get(name) for name in ("arm", "engine", "batch"))
            if not (isinstance(arm, str) and isinstance(engine, str) and isinstance(batch, int)):
                raise DataError(f"record {record.name!r} must name its arm, engine and batch")
            yield Form(arm, engine, batch)

    def latency(self, form: Form, of: str) -> float | None:
        """Milliseconds of one call: "mean", "p50" or "p99" over the test inputs."""
        return self.all.value("latency_ms", of=of, **form.labels)

    def speed_up(self, form: Form) -> Record | None:
        """Its speed over the fastest dense form at its batch size; that form itself has none."""
        return self.all.find("speed_up", **form.labels)

    def reference(self, batch: int) -> Form | None:
        """The fastest dense form, against which the others at this batch size stand."""
        rivals = [form for form in self.forms if form.arm == DENSE and form.batch == batch]
        return next((form for form in rivals if self.speed_up(form) is None), None)

    def apart(self, form: Form) -> bool:
        """Whether it was timed in another step than the fastest dense form of its batch size."""
        reference = self.reference(form.batch)
        if reference is None:
            return False
        cells = [self.all.find("latency_ms", of="mean", **f.labels) for f in (form, reference)]
        return len({cell.cell for cell in cells if cell is not None}) > 1

    def fastest(self) -> Form | None:
        """The fastest form of the slim model at the batch size that decides, in full precision."""
        mine = [f for f in self.forms if f.arm == OURS and f.batch == self.batches[0]]
        return max(mine, key=lambda form: self._factor(form), default=None)

    def _factor(self, form: Form) -> float:
        found = self.speed_up(form)
        return found.value or 0.0 if found else 0.0


def plan_of(record: Record) -> Plan:
    """The plan that a record carries; ``DataError`` where it carries none."""
    try:
        content = parse_json(str(record.labels.get("plan")))
        return Plan.from_dict(content)
    except (ValueError, TypeError, AttributeError, UsageError) as error:
        raise DataError(f"record {record.name!r} carries no plan: {error}") from error


def number_of(record: Record, name: str) -> float:
    """A number among a record's labels; ``DataError`` where there is none."""
    value = record.labels.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(f"record {record.name!r} has no number under {name!r}")
    return float(value)


def same(one: Plan, other: Plan) -> bool:
    """Whether two plans run the same: exits at which nobody can leave do not count."""
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
        number_of(record, "cost_share"),
        float(record.value or 0.0),
        number_of(record, "mean_layers"),
        record.labels.get("on_front") is True,
    )
