"""What the HuggingGreen study declares before its first training, and what a page is told of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sparing.core.record import Record
from sparing.experiment.claims import Goal, GoalResult
from sparing.experiment.study import plain
from sparing.measure.pairs import FEWEST_FOR_A_CLAIM
from sparing.tasks import Task
from sparing_papers.hugginggreen.arms import DENSE, GAUSSIAN_HALF, selection_arms
from sparing_papers.hugginggreen.options import ATTENTION, PATCHES, STAGES, Options
from sparing_papers.hugginggreen.stages import MASKED, Longer

SAVED = 0.75


@dataclass(frozen=True)
class Declared:
    """A goal of a task, and the record that decides it.

    One that holds an arm against a dense model that has learned all it will is not met where the
    dense model has not (``plateau``); it can be missed there all the same.
    """

    question: str
    goal: Goal
    record: str
    labels: Mapping[str, Any] = field(default_factory=dict)
    plateau: bool = False


def judge(
    options: Options, tasks: Mapping[str, Task], records: Sequence[Record]
) -> list[GoalResult]:
    """Every task's goals; few pairs leave them undecided."""
    found = []
    for name, task in tasks.items():
        declared = [*_patch_goals(options, name, task), *_other_goals(options, name)]
        asked = options.asked_of(name)
        found += [_judged(each, name, records) for each in declared if each.question in asked]
    return found


def _judged(declared: Declared, task: str, records: Sequence[Record]) -> GoalResult:
    wanted = {"task": task, "question": declared.question, **declared.labels}.items()
    fitting = [r for r in records if r.name == declared.record and wanted <= r.labels.items()]
    if not fitting:
        return declared.goal.judge(None, None)
    last = fitting[-1]
    if _mostly_missed(last):
        return replace(declared.goal.judge(None, None), met=False)
    judged = declared.goal.judge(last.value, last.interval)
    learning = declared.plateau and judged.met is True and not _at_plateau(last, records)
    few = last.count < FEWEST_FOR_A_CLAIM
    return replace(judged, met="undecided") if few or learning else judged


def _at_plateau(record: Record, records: Sequence[Record]) -> bool:
    """Whether the dense arm beside a record had stopped gaining."""
    place = [record.labels[name] for name in ("question", "task", "depth")]
    return any(
        found.labels["at_plateau"]
        for found in records
        if found.name == "last_quarter_gain"
        and place == [found.labels[name] for name in ("question", "task", "depth")]
    )


def _mostly_missed(record: Record) -> bool:
    """Whether most of enough seeds never got where the goal is: then no cost is low enough."""
    if "reached" not in record.labels:
        return False
    seeds, reached = (int(record.labels[name] or 0) for name in ("of", "reached"))
    return seeds >= FEWEST_FOR_A_CLAIM and 2 * reached < seeds


def _patch_goals(options: Options, name: str, task: Task) -> list[Declared]:
    """RQ2's goals, of the first arm that selects at the first depth."""
    first = selection_arms(options, task, whole=False)[0].name
    own = {"depth": options.depths[0], "arm": first}

    def less(what: str) -> Goal:
        text = f"{name}: {first} needs {1 - SAVED:.0%} less {what} than the better dense arm"
        return Goal(text, SAVED, "ratio", at_most=True)

    kept = Goal(f"{name}: {first} loses at most {_points(options)}", -options.margin, "score")
    better = Goal(f"{name}: {first} is better than random patches", 0.0, "score")
    return [
        Declared(PATCHES, less("energy"), "target_energy_ratio", own, plateau=True),
        Declared(PATCHES, less("arithmetic"), "target_flops_ratio", own, plateau=True),
        Declared(PATCHES, kept, "accuracy_difference", {**own, "to": DENSE}, plateau=True),
        Declared(PATCHES, better, "rival_difference", {**own, "rival": "random"}),
    ]


def _other_goals(options: Options, name: str) -> list[Declared]:
    """RQ1's and RQ3's."""
    depth = options.attention_depth or options.depths[0]
    half = {"depth": depth, "arm": GAUSSIAN_HALF, "to": DENSE}
    text = f"{name}: {GAUSSIAN_HALF} lose at most {_points(options)}"
    kept = Goal(text, -options.margin, "score")
    less = Goal(f"{name}: {GAUSSIAN_HALF} take less energy", 1.0, "ratio", at_most=True)
    longer = Longer(MASKED, "energy").name
    staged = Goal(f"{name}: masked training first beats {longer}", 0.0, "score")
    labels = {"depth": options.depths[0], "arm": MASKED, "to": longer}
    return [
        Declared(ATTENTION, kept, "accuracy_difference", half, plateau=True),
        Declared(ATTENTION, less, "energy_ratio", half),
        Declared(STAGES, staged, "stage_difference", labels),
    ]


def _points(options: Options) -> str:
    return "1 point" if options.margin == 0.01 else f"{100 * options.margin:g} points"


def described(options: Options, tasks: Mapping[str, Task], name: str) -> dict[str, Any]:
    """What a reader of the page wants to know beside the numbers."""
    first = next(iter(tasks.values()))
    return {
        "name": name,
        "task": _task_facts(tasks),
        "tasks": list(tasks),
        "classes": {name: list(task.labels) for name, task in tasks.items()},
        "model": {
            "name": "vit",
            "width": options.width,
            "heads": options.heads,
            "layers": list(options.depths),
        },
        "recipes": {name: plain(asdict(options.recipe(name, 0))) for name in tasks},
        "patches": {name: [task.image_size, task.patch_size] for name, task in tasks.items()},
        "arms": [DENSE, *(arm.name for arm in selection_arms(options, first, whole=True))],
        "baseline": DENSE,
        "questions": list(options.questions),
        "seeds": list(range(options.pairs)),
        "pairs": {
            PATCHES: options.pairs,
            ATTENTION: options.attention_pairs,
            STAGES: options.stage_pairs,
        },
        "margin": options.margin,
        "intensity_g_per_kwh": options.intensity_g_per_kwh,
        "watts_per_core": options.watts_per_core,
        "threads": options.thread_count,
        "engine": "eager PyTorch, fused attention",
    }


def _task_facts(tasks: Mapping[str, Task]) -> dict[str, Any]:
    first = next(iter(tasks.values()))
    return {
        "name": ", ".join(tasks),
        "kind": "image",
        "metric": "accuracy",
        "subset": any(task.subset for task in tasks.values()),
        "notes": [f"{name}: {note}" for name, task in tasks.items() for note in task.notes],
        "licence": first.licence if len(tasks) == 1 else "each its own",
        "source": "; ".join(dict.fromkeys(task.source for task in tasks.values())),
        "examples": {
            name: {split: len(rows) for split, rows in task.splits.items()}
            for name, task in tasks.items()
        },
    }
