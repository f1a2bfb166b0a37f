"""A run of ``slim`` without an engine: its records as the study writes them."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from sparing.core.record import Label, Record
from sparing.layers.plan import LayerSizes, narrowed
from sparing.measure.calibration import upper_bound
from sparing.report.run import Run
from sparing.slim.evidence.candidates import Candidate
from sparing.slim.evidence.changed import Changed
from sparing.slim.search.exits import Outcomes
from sparing.slim.search.frontier import Point, Variant, best, points_of, random_control
from sparing.tasks import Examples, Task
from tests.compare.records import TIME, config

SIZES = [LayerSizes(12, 32, 32, 1536)] * 6
CELLS = (
    *("dense", "distil", "baseline", "survey", "choose", "fixed-width", "forms", "candidates"),
    *("certify", "static", "verify/batch-1", "verify/batch-8", "exits", "answers", "memory"),
)
CALIBRATED, TESTED = 436, 1821
DENSE_SCORE = 0.92
# Every form without exits: its speed, and the share of answers that it changes.
FORMS = {
    Candidate("dense", "eager", "float32"): (0.77, 0.0),
    Candidate("dense", "onnxruntime", "float32"): (1.0, 0.0),
    Candidate("dense", "openvino", "bfloat16"): (1.8, 0.004),
    Candidate("dense", "onnxruntime", "int8", "scales per channel"): (1.6, 0.016),
    Candidate("slim", "eager", "float32"): (1.5, 0.024),
    Candidate("slim", "onnxruntime", "float32"): (2.1, 0.024),
    Candidate("slim", "openvino", "bfloat16"): (3.4, 0.027),
    Candidate("slim", "onnxruntime", "int8", "scales per channel"): (3.6, 0.07),
}
REFERENCE = Candidate("dense", "onnxruntime", "float32")
BFLOAT16 = Candidate("dense", "openvino", "bfloat16")
BOLD = replace([*FORMS][-1], threshold=0.9, cascade=True)
PLAIN = Candidate("slim", "openvino", "bfloat16")
STATIC = replace(BOLD.key, model="static", threshold=1.0)
POINTS = {0.01: BFLOAT16, 0.02: BFLOAT16, 0.03: PLAIN, 0.05: BOLD, 0.08: BOLD}


@dataclass(frozen=True)
class Story:
    """How the run went.

    ``points`` are the certified forms by their share of changed answers. ``served`` is the form
    that is served, for ``epsilon``. ``runner_up`` is the speed of the dense model in bfloat16.
    ``until`` is the last cell that ended.
    """

    served: Candidate = BOLD
    epsilon: float = 0.05
    points: tuple[tuple[float, Candidate | None], ...] = tuple(POINTS.items())
    speed: float = 4.2
    runner_up: float = 1.8
    labels: bool = True
    until: str = CELLS[-1]


DENSE = Story(
    served=BFLOAT16,
    points=tuple((epsilon, BFLOAT16) for epsilon in POINTS),
)
NOTHING = Story(served=REFERENCE, points=tuple((epsilon, None) for epsilon in POINTS))
ONE = Story(points=((0.05, BOLD),))
UNLABELLED = Story(labels=False)
FIRST_LAYERS = replace(BOLD, layers=2, second=0.8)
CUT = Story(served=FIRST_LAYERS, points=((0.05, FIRST_LAYERS), (0.08, BOLD)))


def slim_config(story: Story | None = None, **changes: object) -> dict[str, object]:
    """The configuration of a run on SST-2 with a six-layer encoder, or on texts without labels."""
    labels = (story or Story()).labels
    identity = {
        "model": "minilm",
        "task": "sst2",
        "texts": "" if labels else "mine.txt",
        "agree": 0.0,
        "speed": 2.0,
        "floor": 0.99,
        "delta": 0.05,
        "widths": [1.0, 2 / 3, 0.5],
        "tokens": [1.0],
        "choose_on": "validation",
        "batches": [1, 8],
        "timed_examples": 2000,
        "seed": 0,
    }
    halves = {"train": 20000, "validation": 872, "test": TESTED}
    parts = {"train": 3000, "validation": 436, "test": TESTED, "calibrate": CALIBRATED}
    task = {
        "name": "sst2" if labels else "mine",
        "kind": "tokens",
        "metric": "accuracy" if labels else "agreement",
        "chance": 0.499 if labels else None,
        "classes": 2,
        "licence": "CC0",
        "source": "Stanford Sentiment Treebank (Socher et al. 2013)" if labels else "mine.txt",
        "subset": labels,
        "notes": [] if labels else ["12 texts occur more than once and count once"],
        "tokens": 64,
        "examples": halves if labels else parts,
    }
    forms = {
        "measured": [
            "eager float32",
            "onnxruntime float32",
            "onnxruntime int8, scales per channel",
        ],
        "missing": ["openvino int8: openvino is not installed (pip install 'sparing[openvino]')"],
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
        "forms": forms,
        "cells": list(CELLS),
        "command": "sparing slim minilm --task sst2",
    }
    return {name: value for name, value in {**made, **changes}.items() if name != "seeds"}


def goals(story: Story | None = None) -> list[dict[str, object]]:
    """The goals as the study decides them."""
    story = story or Story()
    ends = (0.96 * story.speed, 1.04 * story.speed)
    return [
        _goal("speed over the best dense form, batch 1", 2.0, story.speed / story.runner_up, ends),
        _goal("answers of the dense model kept", 0.95, 0.979, (0.95, 1.0)),
    ]


def run_of(story: Story | None = None, **changes: object) -> Run:
    """A run as the page reads it, without a folder."""
    story = story or Story()
    decided = goals(story) if story.until == CELLS[-1] else []
    return Run({"machines": {}, **slim_config(story, **changes)}, slim_records(story), decided, [])


def slim_records(story: Story | None = None) -> list[Record]:
    """Everything such a run records, up to a cell."""
    story = story or Story()
    parts = {
        "dense": _trained("dense", 543.0, 40_000),
        "distil": _trained("slim", 3120.0, 100_000),
        "baseline": [],
        "survey": _survey(),
        "choose": _choice(),
        "fixed-width": [*_trained("slim at fixed width", 400.0, 60_000), *_tuned()],
        "forms": [*_screened(), *(_segments(form) for form in FORMS)],
        "candidates": _candidates(story),
        "certify": _certified(story),
        "static": _static(story),
        "verify/batch-1": _verified(1, TESTED, story),
        "verify/batch-8": _verified(8, 228, story),
        "exits": _exits(story),
        "answers": _answers(story),
        "memory": _memory(story),
    }
    made = []
    for cell in CELLS:
        marked = [*parts[cell], Record("cell", None, "", "measured")]
        made += [replace(r, cell=cell, machine="m", commit="0123", time=TIME) for r in marked]
        if cell == story.until:
            break
    return made


def changed(count: int = 30) -> list[Changed]:
    """Changed answers, the most confident ones first."""
    return [
        Changed(7 * n, (f"text {n}, a film",), "negative", "positive", 0.6, 0.99 - 0.01 * n)
        for n in range(count)
    ]


def tested(story: Story) -> list[Candidate]:
    """The forms that are measured on the test split."""
    certified = [form for _, form in story.points if form is not None]
    return list(dict.fromkeys([*FORMS, *certified, story.served]))


def numbers(form: Candidate, story: Story) -> tuple[float, float]:
    """The speed of a form and the share of answers that it changes."""
    if form == BFLOAT16:
        return story.runner_up, FORMS[form][1]
    if form.threshold < 1:
        return story.speed, 0.021
    return FORMS.get(form) or FORMS[replace(form, model="slim")]


def _goal(
    name: str, target: float, value: float, interval: tuple[float, float]
) -> dict[str, object]:
    low, high = interval
    met: bool | str = True if low >= target else False if high < target else "undecided"
    numbers = {"target": target, "value": value, "interval": [low, high]}
    return {"name": name, **numbers, "unit": "ratio", "met": met, "required": False}


def small_task() -> Task:
    """What the study's functions need of a task: a metric."""
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
def surveyed() -> tuple[list[Point], list[Point]]:
    """Every plan of the survey with the controls, and the fixed ones, cheapest first."""
    task, every, controls = small_task(), [], []
    dense = _outcomes(1.0)
    whole, reference = float(dense.layer_flops.sum(0).mean()), 1.2 * dense.logits[-1]
    for width in (1.0, 2 / 3, 0.5):
        seen = _outcomes(width)
        points = points_of(task, Variant(width), seen, (whole, reference))
        every += points
        leaving = [point for point in best(points) if point.kind == "exits"]
        controls += [random_control(task, seen, point, whole, reference) for point in leaving]
    fixed = [point for point in every if point.kind == "depth" and point.cost_share < 1]
    return [*every, *controls], sorted(fixed, key=lambda point: point.cost_share)


def _record(
    name: str,
    value: float | None,
    unit: str,
    interval: Sequence[float] | None = None,
    count: int = 1,
    **labels: Label,
) -> Record:
    ends = None if interval is None else (interval[0], interval[1])
    return Record(name, value, unit, "measured", labels, ends, count)


def _segments(form: Candidate) -> Record:
    return _record("form_segments", 1, "segments", **form.labels)


def _screened() -> list[Record]:
    """All forms that were tested competed; one in PyTorch was too slow to."""
    speeds = {form: speed for form, (speed, _) in FORMS.items()}
    speeds[Candidate("slim", "eager", "bfloat16")] = 0.5
    return [
        _record(
            "screened_speed", speed, "ratio", None, 24, **form.labels, batch=1, competes=speed > 0.6
        )
        for form, speed in speeds.items()
    ]


def _trained(arm: str, seconds: float, examples: int) -> list[Record]:
    return [
        _record("train_time_s", seconds, "s", arm=arm),
        _record("train_examples", examples, "examples", arm=arm),
    ]


def _survey() -> list[Record]:
    points, fixed = surveyed()
    dense = _record("dense_score", DENSE_SCORE, "score", split="choosing")
    return [*(point.record(on_front=point in fixed[:3]) for point in points), dense]


def _plan_labels(point: Point) -> dict[str, Label]:
    numbers = {name: getattr(point, name) for name in ("cost_share", "score", "divergence")}
    return {"plan": json.dumps(point.plan.to_dict()), **numbers}


def _choice() -> list[Record]:
    _, fixed = surveyed()
    made = []
    for point in (fixed[1], fixed[4], fixed[8]):
        speed = 0.92 / point.cost_share
        ends = (0.93 * speed, 1.07 * speed)
        made.append(_record("trial_speed", speed, "ratio", ends, **_plan_labels(point)))
    share = fixed[4].cost_share
    return [*made, _record("chosen_plan", share, "share", **_plan_labels(fixed[4]), reached=True)]


def _tuned() -> list[Record]:
    _, fixed = surveyed()
    tuned = replace(fixed[4], divergence=0.0123)
    return [replace(tuned.record(on_front=True), name="fixed_width_score")]


def _candidates(story: Story) -> list[Record]:
    made = []
    for form in tested(story):
        speed, share = numbers(form, story)
        rest: dict[str, Label] = {"changed": share, "divergence": share / 3, "good": True}
        made.append(_record("candidate_speed", speed, "ratio", count=436, **form.labels, **rest))
    return made


def _certified(story: Story) -> list[Record]:
    made = []
    for epsilon, form in story.points:
        labels: dict[str, Label] = {"epsilon": epsilon, "delta": 0.05, "points": len(story.points)}
        if form is None:
            made.append(
                _record("certified_speed", None, "ratio", count=CALIBRATED, **labels, changed=0)
            )
            continue
        speed, share = numbers(form, story)
        labels |= {**form.labels, "changed": round(share * CALIBRATED)}
        made.append(_record("certified_speed", speed, "ratio", count=CALIBRATED, **labels))
    seen = 0 if story.served == REFERENCE else round(numbers(story.served, story)[1] * CALIBRATED)
    labels = {**story.served.labels, "epsilon": story.epsilon, "delta": 0.05}
    labels |= {"disagreements": seen, "reference": story.served == REFERENCE}
    labels["bound_alone"] = upper_bound(seen, CALIBRATED)
    share = seen / CALIBRATED
    return [*made, _record("disagreement", share, "share", count=CALIBRATED, **labels)]


def _static(story: Story) -> list[Record]:
    if not story.served.exits:
        return []
    point = surveyed()[1][2]
    plan = json.dumps(point.plan.to_dict())
    share = point.cost_share
    control = _record("static_plan", share, "share", arm="static", plan=plan, against=share)
    return [control, *_trained("static", 3500.0, 160_000)]


def _verified(batch: int, count: int, story: Story) -> list[Record]:
    dense = 9.4 * batch**0.8
    timed = {form: numbers(form, story)[0] for form in tested(story)}
    if story.served.exits:
        timed[STATIC] = 0.8 * story.speed
    made = []
    for form, speed in timed.items():
        labels: dict[str, Label] = {**form.labels, "batch": batch}
        for of, factor in (("mean", 1.0), ("p50", 0.93), ("p99", 2.1)):
            time_ms = factor * dense / speed
            made.append(_record("latency_ms", time_ms, "ms", count=count, **labels, of=of))
        if form != REFERENCE:
            made.append(_speed("speed_up", speed, count, **labels))
    for precision in ("float32", "bfloat16", "int8"):
        ours, dense_form = (
            max((f for f in timed if (f.model, f.precision) == (model, precision)), key=timed.get)  # type: ignore[arg-type]
            for model in ("slim", "dense")
        )
        labels = {"precision": precision, "form": str(ours), "against": str(dense_form)}
        ratio = timed[ours] / timed[dense_form]
        made.append(_speed("class_speed_up", ratio, count, arm="slim", batch=batch, **labels))
    against = max((REFERENCE, BFLOAT16), key=lambda form: timed[form])
    if story.served == against:
        ends: tuple[float, float] = (1.0, 1.0)
        same = str(against)
        made.append(
            _record(
                "served_speed_up", 1.0, "ratio", ends, count, form=same, against=same, batch=batch
            )
        )
    else:
        ratio = timed[story.served] / timed[against]
        named: dict[str, Label] = {"form": str(story.served), "against": str(against)}
        made.append(_speed("served_speed_up", ratio, count, batch=batch, **named))
        made.append(_speed("text_speed_up", (ratio + 0.1) / 1.1, count, batch=batch, **named))
    made.append(_record("tokenizer_ms", 0.16 * batch, "ms", count=count, batch=batch, of="mean"))
    if STATIC in timed:
        labels = {"arm": "slim", "batch": batch, "metric": "accuracy"}
        made.append(_speed("static_speed_up", 1.25, count, **labels))
        made.append(_record("static_difference", 0.002, "score", (-0.004, 0.008), count, **labels))
    return made


def _speed(name: str, value: float, count: int, **labels: Label) -> Record:
    return _record(name, value, "ratio", (0.96 * value, 1.04 * value), count, **labels)


def _exits(story: Story) -> list[Record]:
    if story.served.model == "dense" or story.served.layers:
        return []
    layers = (2, 3, 4) if story.served.exits else (4,)
    return [
        _record(
            "exit_rate",
            1 / len(layers),
            "share",
            count=TESTED,
            layer=layer,
            split="test",
            accuracy=0.98 - 0.04 * layer,
        )
        for layer in layers
    ]


def _answers(story: Story) -> list[Record]:
    metric, made = "accuracy" if story.labels else "agreement", []
    for form in [*tested(story), *([STATIC] if story.served.exits else [])]:
        share = numbers(form, story)[1]
        score = DENSE_SCORE - share / 4 if story.labels else 1 - share
        wide = 0.003 if share else 0.0
        names: dict[str, Label] = {**form.labels, "metric": metric, "split": "test"}
        names["primary"] = True
        gap = -share / 4 if story.labels else -share
        ends = (gap - wide, gap + wide)
        made += [
            _record("whole_score", score, "score", count=TESTED, **names),
            _record("whole_difference", gap, "score", ends, TESTED, **names),
            _record(
                "agreement",
                1 - share,
                "share",
                count=TESTED,
                **form.labels,
                split="test",
                divergence=share / 3,
            ),
        ]
    return made


def _memory(story: Story) -> list[Record]:
    made = []
    for form in tested(story):
        labels: dict[str, Label] = {**form.labels, "batch": 8, "tokens": 60}
        made.append(_record("peak_bytes", 40 * 2**20, "bytes", **labels))
        made.append(_record("weight_bytes", 90 * 2**20, "bytes", **labels))
    return made
