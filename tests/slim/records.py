"""A run of ``slim`` without an engine: its records come from the study's own functions."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace

import torch

from sparing.core.record import Label, Record
from sparing.layers.plan import LayerSizes, Plan, narrowed
from sparing.measure.calibration import calibrate, upper_bound
from sparing.slim.search.exits import Outcomes
from sparing.slim.search.frontier import Point, Variant, best, points_of, random_control
from sparing.tasks import Examples, Task
from tests.compare.records import TIME, config

SIZES = [LayerSizes(12, 32, 32, 1536)] * 6
CELLS = (
    "dense",
    "distil",
    "baseline",
    "survey",
    "choose",
    "calibrate",
    "verify/batch-1",
    "verify/batch-8",
    "int8",
)


@dataclass(frozen=True)
class Story:
    """What the run found: speed of the slim model, its lost points, and their intervals."""

    speed: float = 2.12
    lost: float = 0.004
    wide: float = 0.003
    epsilon: float = 0.0
    exits: bool = True
    until: str = "verify/batch-8"


def slim_config(**changes: object) -> dict[str, object]:
    """The configuration of a run on SST-2 with a six-layer encoder."""
    identity = {
        "model": "minilm",
        "task": "sst2",
        "speed": 2.0,
        "floor": 0.99,
        "epsilon": 0.0,
        "delta": 0.05,
        "widths": [1.0, 2 / 3, 0.5],
        "tokens": [1.0],
        "batches": [1, 8],
        "timed_examples": 2000,
        "seed": 0,
    }
    task = {
        "name": "sst2",
        "kind": "tokens",
        "metric": "accuracy",
        "chance": 0.499,
        "classes": 2,
        "licence": "CC0",
        "source": "Stanford Sentiment Treebank (Socher et al. 2013)",
        "subset": True,
        "notes": [],
        "tokens": 64,
        "examples": {"train": 20000, "validation": 872, "test": 1821},
    }
    made = {
        **config(("dense", "slim"), 1),
        "study": "slim",
        "name": "slim-sst2",
        "identity": identity,
        "task": task,
        "model": {"name": "minilm"},
        "baseline": "dense",
        "threads": 1,
        "onnxruntime": True,
        "command": "sparing slim minilm --task sst2",
    }
    return {name: value for name, value in {**made, **changes}.items() if name != "seeds"}


def goals(story: Story | None = None) -> list[dict[str, object]]:
    """The goals as the study decides them."""
    story = story or Story()
    return [
        _goal("speed over the fastest dense form, batch 1", 2.0, "ratio", _speeds(story)),
        _goal("share of the dense score kept", 0.99, "share", _score_share(story)),
    ]


def slim_records(story: Story | None = None) -> list[Record]:
    """Everything such a run records, up to a cell."""
    story = story or Story()
    points, fronts = _surveyed()
    plan = fronts[-3].plan
    parts = [_dense(), _distilled(), [], _survey(points, fronts), _choice(fronts)]
    parts += [_calibrated(plan, story), _verified(1, 1821, story), _verified(8, 228, story)]
    parts.append(_quantised(story))
    made = []
    for cell, records in zip(CELLS, parts, strict=True):
        marked = [*records, Record("cell", None, "", "measured")]
        made += [replace(r, cell=cell, machine="m", commit="0123", time=TIME) for r in marked]
        if cell == story.until:
            break
    return made


def _goal(
    name: str, target: float, unit: str, measured: tuple[float, tuple[float, float]]
) -> dict[str, object]:
    value, (low, high) = measured
    met: bool | str = True if low >= target else False if high < target else "undecided"
    return {
        "name": name,
        "target": target,
        "unit": unit,
        "value": value,
        "interval": [low, high],
        "met": met,
        "required": False,
    }


def _speeds(story: Story) -> tuple[float, tuple[float, float]]:
    return story.speed, (0.96 * story.speed, 1.04 * story.speed)


def _score_share(story: Story) -> tuple[float, tuple[float, float]]:
    value = 1 - story.lost / 0.92
    return value, (value - story.wide / 0.92, value + story.wide / 0.92)


def small_task() -> Task:
    """What the study's functions ask of a task: a metric."""
    examples = Examples("input_ids", [torch.zeros(4, dtype=torch.long)], torch.tensor([0]))
    names = {"name": "sst2", "kind": "tokens", "licence": "", "source": ""}
    splits = {"train": examples, "validation": examples, "test": examples}
    return Task(**names, **splits, labels=("negative", "positive"), tokens=64, vocabulary=9)


def _outcomes(width: float, count: int = 436) -> Outcomes:
    """Answers that get better and surer with depth and width."""
    chance = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (count,), generator=chance)
    ease = torch.randn(count, generator=chance) * 2.0 + 2.7
    lengths = torch.randint(6, 40, (count,), generator=chance).double()
    exits = (2, 3, 4, 5, 6)
    noise = torch.randn(len(exits), count, generator=chance)
    depth = torch.tensor([0.35, 0.62, 0.88, 0.97, 1.0])[:, None]
    margin = 1.7 * (depth * ease + (1.3 - depth + 0.3 * (1 - width)) * noise)
    signs = (2.0 * labels - 1) * margin
    plan = narrowed(SIZES, width)
    shares = torch.tensor(plan.heads) / 24 + torch.tensor(plan.neurons) / 3072
    flops = shares[:, None].double() * lengths * 3.6e6
    return Outcomes(plan, exits, torch.stack([-signs / 2, signs / 2], -1), flops, 9_000, labels)


@functools.cache
def _surveyed() -> tuple[list[Point], list[Point]]:
    task, every, controls = small_task(), [], []
    whole = float(_outcomes(1.0).layer_flops.sum(0).mean())
    for width in (1.0, 2 / 3, 0.5):
        outcomes = _outcomes(width)
        points = points_of(task, Variant(width), outcomes, whole)
        every += points
        leaving = [point for point in best(points) if point.kind == "exits"]
        controls += [random_control(task, outcomes, point, whole) for point in leaving]
    front = best([point for point in every if point.cost_share < 1])
    return [*every, *controls], front


def _record(name: str, value: float, unit: str, interval: object = None, **labels: Label) -> Record:
    count = int(labels.pop("count", 1) or 1)
    return Record(name, value, unit, "measured", labels, interval, count)  # type: ignore[arg-type]


def _dense() -> list[Record]:
    return [
        _record("train_time_s", 543.0, "s", arm="dense"),
        _record("train_examples", 40_000, "examples", arm="dense"),
        _record("score", 0.92, "score", arm="dense", split="test", metric="accuracy", count=1821),
    ]


def _distilled() -> list[Record]:
    return [
        _record("train_time_s", 3120.0, "s", arm="slim"),
        _record("train_examples", 100_000, "examples", arm="slim"),
    ]


def _survey(points: list[Point], front: list[Point]) -> list[Record]:
    best_of_all = max(point.score for point in points)
    dense = _record("dense_score", best_of_all - 0.001, "score", split="choosing")
    return [*(point.record(on_front=point in front) for point in points), dense]


def _choice(front: list[Point]) -> list[Record]:
    made = []
    for index in sorted({0, len(front) // 2, len(front) - 5, len(front) - 3, len(front) - 1}):
        point = front[index]
        speed = 0.92 / point.cost_share
        made.append(
            _record(
                "trial_speed", speed, "ratio", (0.93 * speed, 1.07 * speed), **_plan_labels(point)
            )
        )
    labels: dict[str, Label] = {**_plan_labels(front[-3]), "reached": True, "good_plans": 4}
    return [*made, _record("chosen_plan", front[-3].cost_share, "share", None, **labels)]


def _plan_labels(point: Point) -> dict[str, Label]:
    plan = json.dumps(point.plan.to_dict())
    return {"plan": plan, "cost_share": point.cost_share, "score": point.score}


def _calibrated(plan: Plan, story: Story) -> list[Record]:
    labels: dict[str, Label] = {"delta": 0.05, "epsilon": story.epsilon, "disagreements": 7}
    if story.epsilon:
        losses = torch.zeros(436, 2, dtype=torch.long)
        losses[:7] = 1
        promise = calibrate(losses.numpy(), epsilon=story.epsilon, delta=0.05)
        labels |= {"promise": str(promise), "kept": promise.setting is not None}
    labels |= {"plan": json.dumps(plan.to_dict()), "count": 436}
    made = [
        _record("disagreement", 7 / 436, "share", None, **labels),
        _record("disagreement_bound", upper_bound(7, 436), "share", None, **labels),
    ]
    if story.exits:
        stops = [*plan.stops, plan.layers]
        for layer in stops:
            exit_labels: dict[str, Label] = {"layer": layer, "split": "test", "count": 1821}
            right = 0.98 - 0.04 * layer
            made.append(
                _record("exit_rate", 1 / len(stops), "share", None, **exit_labels, accuracy=right)
            )
    return made


def _verified(batch: int, count: int, story: Story) -> list[Record]:
    dense = 9.4 * batch**0.8
    forms = {("dense", "eager"): 0.77, ("dense", "onnxruntime"): 1.0}
    forms |= {("slim", "eager"): 0.71 * story.speed, ("slim", "onnxruntime"): story.speed}
    return _timed(forms, batch, dense, count, story)


def _timed(
    forms: dict[tuple[str, str], float], batch: int, dense: float, count: int, story: Story
) -> list[Record]:
    made = []
    for (arm, engine), speed in forms.items():
        labels: dict[str, Label] = {"arm": arm, "engine": engine, "batch": batch}
        for of, factor in (("mean", 1.0), ("p50", 0.93), ("p99", 2.1)):
            time_ms = factor * dense / speed
            made.append(_record("latency_ms", time_ms, "ms", None, **labels, of=of, count=count))
        if (arm, engine) != ("dense", "onnxruntime"):
            near = (0.96 * speed, 1.04 * speed)
            made.append(_record("speed_up", speed, "ratio", near, **labels, count=count))
        made += _scored(arm, labels, story)
    return made


def _quantised(story: Story) -> list[Record]:
    """INT8, timed later on a calmer machine than the rest."""
    forms = {("dense int8", "onnxruntime"): 1.8, ("slim int8", "onnxruntime"): 3.6}
    both = _record("int8_speed_up", 2.0, "ratio", (1.9, 2.1), arm="slim int8", batch=1)
    made = [both, *_timed(forms, 1, 7.0, 1821, story)]
    for arm in ("dense int8", "slim int8"):
        for settings in ("scales per tensor", "scales per channel; float32: 0.layers.0.rise"):
            labels: dict[str, Label] = {"arm": arm, "settings": settings}
            labels |= {"score": 0.91, "float32_score": 0.92, "count": 60}
            made.append(_record("int8_trial", 1.7, "ratio", (1.5, 1.9), **labels))
    return made


def _scored(arm: str, labels: dict[str, Label], story: Story) -> list[Record]:
    lost = 0.0 if arm == "dense" else story.lost + (0.004 if "int8" in arm else 0.0)
    wide = 0.0 if arm == "dense" else story.wide
    score_labels: dict[str, Label] = {
        **labels,
        "metric": "accuracy",
        "split": "test",
        "count": 1821,
    }
    near = (-lost - wide, -lost + wide)
    return [
        _record("score", 0.92 - lost, "score", None, **score_labels),
        _record("score_difference", -lost, "score", near, **score_labels),
    ]
