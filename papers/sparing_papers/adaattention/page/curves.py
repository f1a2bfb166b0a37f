"""More tables of the AdaAttention page: by task, in batches, rotated and fewer heads, epochs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from sparing.core.reading import parse_json
from sparing.core.record import Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing_papers.adaattention.page.results import (
    ADAPTIVE,
    FULL,
    AdaResults,
    name_of_arm,
    number,
)

_NOTHING = "\N{EN DASH}"
_FOLLOWED = (FULL, ADAPTIVE, "literal-loss")
_EPOCH_NAMES = ("epoch_score", "epoch_latency", "epoch_head_score")


def task_block(results: AdaResults) -> Block:
    """Every arm on every task: the score less full's, and the speed. Empty with one task."""
    tasks = [task for task in results.tasks if results.all.find("score", arm=FULL, task=task)]
    scores = {task: _own_score(results, FULL, task) for task in tasks}
    heads = ["Arm", *tasks]
    rows = [("full: score", *(_share(scores[task]) for task in tasks))]
    for arm in results.arms_anywhere:
        cells = [_task_cell(results, arm, task) for task in tasks]
        if arm != FULL and any(cell != _NOTHING for cell in cells):
            rows.append((name_of_arm(arm), *cells))
    over = "its test examples" + (" and trainings" if results.seeds > 1 else "")
    explain = (
        f"Points to full in each task's own metric, with 95 % intervals over {over}, then the "
        "speed of the whole model on its inputs one by one. Tasks that are no classification have "
        "no form that drops tokens or layers."
    )
    return Block(
        "tasks", "Task by task", explain, tuple(heads), tuple(rows if len(tasks) > 1 else ())
    )


def _own_score(results: AdaResults, arm: str, task: str) -> Record | None:
    return results.all.find("score", arm=arm, task=task, main=True)


def _share(record: Record | None) -> str:
    if record is None or record.value is None:
        return _NOTHING
    return f"{wording.share(record.value)} ({record.labels.get('metric')})"


def _task_cell(results: AdaResults, arm: str, task: str) -> str:
    gap, speed = results.difference(arm, task), results.speed_on(arm, task)
    parts = []
    if gap is not None and gap.value is not None:
        parts.append(_points(gap))
    if speed is not None and speed.value is not None:
        parts.append(f"{speed.value:.2f}{wording.TIMES}")
    return ", ".join(parts) or _NOTHING


def _points(record: Record) -> str:
    value = record.value or 0.0
    ends = f" ({wording.points_interval(value, record.interval)})" if record.interval else ""
    return f"{wording.points(value, *(record.interval or ()))}{ends}"


def throughput_block(results: AdaResults) -> Block:
    """Inputs a second in batches of 32."""
    rows = []
    for record in results.all.all("throughput"):
        task, arm = record.labels["task"], record.labels["arm"]
        speed = results.all.find("batch_speed_up", task=task, arm=arm)
        against = "baseline" if arm == FULL else _NOTHING
        if speed is not None and speed.value is not None:
            ends = speed.interval or (speed.value, speed.value)
            against = f"{speed.value:.2f}{wording.TIMES} ({ends[0]:.2f}{wording.DASH}{ends[1]:.2f})"
        rows.append((str(task), name_of_arm(arm), f"{record.value or 0.0:,.0f}", against))
    explain = (
        "The timed inputs in batches of 32 of like length, one thread, all arms in turn; the "
        "interval is over rounds."
    )
    heads = ("Task", "Arm", "Inputs a second", "Against full")
    return Block("throughput", "Throughput", explain, heads, tuple(rows))


def rotation_block(results: AdaResults) -> Block:
    """What turning heads first is worth: untrained at several widths, then trained."""
    places: dict[float, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in results.all.all("width_difference"):
        basis = str(record.labels.get("basis"))
        places[number(record.labels, "kept_share")][basis].append(record)
    rows = [
        (f"{wording.share(share, 0)} of each head, untrained", *_both(places[share]))
        for share in sorted(places, reverse=True)
    ]
    for plain, turned in (("uniform", "uniform-rotated"), ("adaptive", "adaptive-rotated")):
        found = [results.difference(arm) for arm in (plain, turned)]
        if any(record is not None for record in found):
            first, second = (_NOTHING if record is None else _points(record) for record in found)
            rows.append((f"{name_of_arm(plain)}, trained on", first, second))
    explain = (
        "Queries and keys cut to the first coordinates of each head: as the model has them, and "
        "after its heads were turned so that the first ones say most on training inputs (folded "
        "into the weights; nothing is computed that was not before). Points to the full model."
    )
    heads = ("Width", "First coordinates", "Rotated")
    return Block(
        "rotation", "What rotation is worth", explain, heads, tuple(rows if places else ())
    )


def _both(found: dict[str, list[Record]]) -> tuple[str, str]:
    first, turned = (_of_tasks(found.get(basis, [])) for basis in ("first", "rotated"))
    return first, turned


def _of_tasks(records: Iterable[Record]) -> str:
    """One task's difference with its interval; of several the mean."""
    kept = list(records)
    if len(kept) == 1:
        return _points(kept[0])
    return wording.points(fmean(r.value or 0.0 for r in kept)) if kept else _NOTHING


def heads_block(results: AdaResults) -> Block:
    """The validation score against heads left, without training and with training between."""
    rows = []
    for task in results.tasks:
        curve = results.all.all("heads_score", task=task)
        trained = _stages(results, task)
        known = {number(r.labels, "heads_left"): r.value or 0.0 for r in curve}
        for left in sorted({*known, *trained}, reverse=True):
            none = wording.share(known[left]) if left in known else _NOTHING
            rows.append((task, wording.share(left, 0), none, *trained.get(left, (_NOTHING,) * 2)))
    explain = (
        "The least important heads first, judged anew after each tenth. Michel et al. (2019) "
        "remove them and train nothing; training a little after each stage is what others do. "
        "Validation scores; with training, those of the first seed."
    )
    heads = (
        "Task",
        "Heads left",
        "No training",
        "Trained between: on removal",
        "after training",
    )
    return Block("heads", "Fewer heads", explain, heads, tuple(rows))


def _stages(results: AdaResults, task: str) -> dict[float, tuple[str, str]]:
    """By the share of heads left: the score on removal and after training."""
    for record in results.run.records:
        if record.name != "arm" or record.labels.get("arm") != "prune-gradual":
            continue
        if record.labels.get("task") != task:
            continue
        try:
            told = parse_json(str(record.labels.get("told")))
            total = int(told["heads"])
            return {
                round(stage["left"] / total, 4): (
                    wording.share(float(stage["before"])),
                    wording.share(float(stage["after"])),
                )
                for stage in told["stages"]["stages"]
            }
        except (KeyError, ValueError, TypeError):
            return {}
    return {}


def epoch_block(results: AdaResults) -> Block:
    """Score, time and head scores after each epoch of training, means over seeds."""
    rows = []
    several = len(results.ablations) > 1
    for task in results.ablations:
        for arm in _FOLLOWED:
            scores, times, means = (_by_epoch(results, name, task, arm) for name in _EPOCH_NAMES)
            for epoch in sorted({*scores, *times, *means}):
                cells = (
                    _mean(scores.get(epoch), wording.share),
                    _mean(times.get(epoch), wording.latency),
                    _mean(means.get(epoch), _two_digits),
                )
                counts = [len(found.get(epoch, ())) for found in (scores, times, means)]
                own = (*((task,) if several else ()), name_of_arm(arm), f"{epoch:g}")
                rows.append((*own, *cells, str(max(counts))))
    explain = (
        "What each epoch of training on leaves: the validation score, the time of one input, and "
        "what the scorer gives heads on average. Means over seeds; a training that ended "
        "early is in no later row."
    )
    titles = ("Arm", "Epoch", "Validation", "One input", "Mean head score", "Trainings")
    heads = (*(("Task",) if several else ()), *titles)
    return Block("epochs", "Epoch by epoch", explain, heads, tuple(rows))


def _by_epoch(results: AdaResults, name: str, task: str, arm: str) -> dict[float, list[float]]:
    """The values of all seeds at each epoch."""
    found: dict[float, list[float]] = defaultdict(list)
    for record in results.all.all(name, task=task, arm=arm):
        found[number(record.labels, "epoch")].append(record.value or 0.0)
    return found


def _mean(values: Sequence[float] | None, write: Callable[[float], str]) -> str:
    return write(fmean(values)) if values else _NOTHING


def _two_digits(value: float) -> str:
    return wording.number(value, 2)


def blocks(results: AdaResults) -> list[Block]:
    """Those that have rows."""
    found = (task_block, throughput_block, rotation_block, heads_block, epoch_block)
    return [block for block in (make(results) for make in found) if block.rows]
