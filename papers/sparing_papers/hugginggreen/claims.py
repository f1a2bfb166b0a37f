"""The claims of the HuggingGreen study, declared before its first training, and page facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sparing.core.record import Labels, Record
from sparing.experiment.claims import Claim, Condition, GoalResult, Guard, decide, recorded
from sparing.experiment.records import RecordTable
from sparing.experiment.study import plain
from sparing.measure.pairs import FEWEST_FOR_A_CLAIM
from sparing.tasks import Task
from sparing_papers.hugginggreen.arms import Arm, selection_arms
from sparing_papers.hugginggreen.names import (
    ATTENTION,
    BOXES,
    DENSE,
    GAUSSIAN_HALF,
    MASKED,
    MEDIAN_BOX,
    PATCHES,
    STAGES,
    WEIGHTLESS,
    Longer,
    selected_name,
)
from sparing_papers.hugginggreen.options import Options

SAVED = 0.75


def decide_goals(
    options: Options, tasks: Mapping[str, Task], records: Sequence[Record]
) -> list[GoalResult]:
    """Every task's claims; few pairs leave them undecided."""
    table = RecordTable(records)
    declared = [
        claim
        for name, task in tasks.items()
        for claim in (*_patch_claims(options, name, task), *_other_claims(options, name))
        if claim.labels["question"] in options.questions_for(name)
    ]
    if options.median_box and BOXES in options.questions:
        declared += [claim for name in options.box_tasks for claim in _box_claims(options, name)]
    results = decide([claim.claim for claim in declared], table)
    return [
        replace(result, value=None, interval=None, met=False)
        if _mostly_missed(table, claim)
        else result
        for result, claim in zip(results, declared, strict=True)
    ]


@dataclass(frozen=True)
class Declared:
    """A claim, and the name and labels of the record that it is evaluated on."""

    claim: Claim
    record: str
    labels: Labels


def _claim(
    text: str,
    bound: float,
    unit: str,
    record: str,
    labels: Labels,
    *,
    at_most: bool = False,
    plateau: bool = False,
    beside: str = "",
) -> Declared:
    """A claim on the newest record of a name with these labels.

    With ``plateau`` the claim is met only if the dense model has stopped gaining; it can be missed
    without that. ``beside`` is a control: only where it clearly misses the bound does the claim
    decide.
    """
    guards = [_at_plateau(labels)] if plateau else []
    guards += [_fails(beside, labels, bound)] if beside else []
    measure = recorded(record, **labels)
    family = str(labels["question"])
    claim = Claim(text, measure, bound, unit, at_most, FEWEST_FOR_A_CLAIM, guards, family)
    return Declared(claim, record, labels)


def _at_plateau(labels: Labels) -> Guard:
    """Whether the dense variant beside a record had stopped gaining, or the claim is missed."""
    group = {key: labels[key] for key in ("question", "task", "depth")}

    def guard(records: RecordTable, result: GoalResult) -> bool:
        gains = records.all("last_quarter_gain", **group)
        return result.met is not True or any(gain.labels["at_plateau"] for gain in gains)

    return Condition(guard, "longer training: the dense model still gains")


def _fails(control: str, labels: Labels, bound: float) -> Guard:
    """Whether a control is below the bound beside dense: what it passes too shows nothing."""
    group = {key: labels[key] for key in ("question", "task", "depth")}
    name = "map50_difference" if labels["question"] == BOXES else "accuracy_difference"

    def guard(records: RecordTable, result: GoalResult) -> bool:
        worse = records.find(name, **group, arm=control, to=DENSE)
        return worse is not None and worse.interval is not None and worse.interval[1] < bound

    return guard


def _mostly_missed(records: RecordTable, declared: Declared) -> bool:
    """Whether most of enough seeds never reached the target: then the claim is missed."""
    newest = records.matching(declared.record, declared.labels)[-1:]
    if not newest or "reached" not in newest[0].labels:
        return False
    record = newest[0]
    seeds, reached = (int(record.labels[name] or 0) for name in ("of", "reached"))
    return seeds >= FEWEST_FOR_A_CLAIM and 2 * reached < seeds


def _patch_claims(options: Options, name: str, task: Task) -> list[Declared]:
    """The claims of RQ2, on the first variant that selects at the first depth.

    With ``every_score`` each other score loses little, and is better than random patches.
    """
    selecting = selection_arms(options, task, whole=False)
    first = selecting[0].name
    labels: Labels = {"task": name, "question": PATCHES, "depth": options.depths[0], "arm": first}
    points = _points(options)

    def less(what: str, record: str) -> Declared:
        text = f"{name}: {first} needs {1 - SAVED:.0%} less {what} than the better dense arm"
        return _claim(text, SAVED, "ratio", record, labels, at_most=True, plateau=True)

    text = f"{name}: {first} loses at most {points}"
    dense = {**labels, "to": DENSE}
    better = f"{name}: {first} is better than random patches"
    random = {**labels, "baseline_kind": "random"}
    others = [arm for arm in selecting[1:] if _is_chosen(arm)] if options.every_score else []
    return [
        less("energy", "target_energy_ratio"),
        less("arithmetic", "target_flops_ratio"),
        _claim(text, -options.margin, "score", "accuracy_difference", dense, plateau=True),
        _claim(better, 0.0, "score", "baseline_difference", random),
        *_of_other_scores(options, name, [arm.name for arm in others], dense, random),
    ]


def _of_other_scores(
    options: Options, name: str, others: Sequence[str], dense: Labels, random: Labels
) -> list[Declared]:
    """The claims of further scores: each loses little, and each is better than random patches."""
    little, none = "loses at most " + _points(options), "is better than random patches"
    least, difference = -options.margin, "accuracy_difference"
    losing = [
        _claim(
            f"{name}: {arm} {little}",
            least,
            "score",
            difference,
            {**dense, "arm": arm},
            plateau=True,
        )
        for arm in others
    ]
    choosing = [
        _claim(f"{name}: {arm} {none}", 0.0, "score", "baseline_difference", {**random, "arm": arm})
        for arm in others
    ]
    return [*losing, *choosing]


def _is_chosen(arm: Arm) -> bool:
    return arm.selection is not None and arm.selection.score != "random"


def _attention_claims(options: Options, name: str) -> list[Declared]:
    """The claims of RQ1 on the attentions that are named: as accurate as dense, and cheaper.

    Dense is trained as long, with the same options, as in the paper. Where plain means do as well
    as attention the accuracy decides nothing.
    """
    depth = options.attention_depth or options.depths[0]
    group: Labels = {"task": name, "question": ATTENTION, "depth": depth, "to": DENSE}
    tried = [arm for arm in options.attentions if arm != WEIGHTLESS]
    accurate = [
        _claim(
            f"{name}: {arm}: at most {_points(options)} less than softmax",
            -options.margin,
            "score",
            "accuracy_difference",
            {**group, "arm": arm},
            beside=WEIGHTLESS,
        )
        for arm in tried
    ]
    cheaper = [
        _claim(
            f"{name}: {arm}: fewer FLOPs than softmax",
            1.0,
            "ratio",
            "flops_ratio",
            {**group, "arm": arm},
            at_most=True,
        )
        for arm in tried
    ]
    return [*accurate, *cheaper]


def _box_claims(options: Options, name: str) -> list[Declared]:
    """The claims of detection: dense beats a guess, and selecting loses little beside dense."""
    group: Labels = {"task": name, "question": BOXES, "depth": options.depths[0]}
    arm = selected_name(options.scores[0], options.ways[0], options.keeps[0])
    difference, chosen = "map50_difference", {**group, "arm": arm}
    guess = {**group, "arm": MEDIAN_BOX, "to": DENSE}
    little = f"{name}: boxes by {arm}: at most {_points(options)} less than dense"
    better = f"{name}: boxes by {arm}: better than by random patches"
    dense, random = {**chosen, "to": DENSE}, {**chosen, "baseline_kind": "random"}
    return [
        _claim(f"{name}: boxes are guessed worse", 0.0, "score", difference, guess, at_most=True),
        _claim(little, -options.margin, "score", difference, dense, beside=MEDIAN_BOX),
        _claim(better, 0.0, "score", "baseline_difference", random, beside=MEDIAN_BOX),
    ]


def _other_claims(options: Options, name: str) -> list[Declared]:
    """The claims of RQ1 and RQ3."""
    depth = options.attention_depth or options.depths[0]
    half: Labels = {"task": name, "question": ATTENTION, "depth": depth, "arm": GAUSSIAN_HALF}
    half["to"] = DENSE
    accurate = f"{name}: {GAUSSIAN_HALF} lose at most {_points(options)}"
    less = f"{name}: {GAUSSIAN_HALF} take less energy"
    longer = Longer(MASKED, "energy").name
    staged = f"{name}: masked training first beats {longer}"
    labels: Labels = {"task": name, "question": STAGES, "depth": options.depths[0], "arm": MASKED}
    labels["to"] = longer
    halved = [
        _claim(accurate, -options.margin, "score", "accuracy_difference", half, plateau=True),
        _claim(less, 1.0, "ratio", "energy_ratio", half, at_most=True),
    ]
    return [
        *(_attention_claims(options, name) if options.attentions else halved),
        _claim(staged, 0.0, "score", "stage_difference", labels),
    ]


def _points(options: Options) -> str:
    return "1 point" if options.margin == 0.01 else f"{100 * options.margin:g} points"


def described(options: Options, tasks: Mapping[str, Task], name: str) -> dict[str, Any]:
    """Facts on tasks, models and recipes for the page."""
    first = next(iter(tasks.values()))
    return {
        "name": name,
        "task": _task_facts(tasks),
        "tasks": list(tasks),
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
        "seeds": list(range(options.pairs)),
        "margin": options.margin,
        "intensity_g_per_kwh": options.intensity_g_per_kwh,
        "watts_per_core": options.watts_per_core,
        "meter": options.meter,
        "at_inference": options.at_inference,
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
