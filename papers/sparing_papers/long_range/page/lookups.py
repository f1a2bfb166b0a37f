"""What the pages of long-range studies look up: means over seeds, variants, tasks, seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from sparing.core.errors import DataError
from sparing.core.record import Label, Record
from sparing.report import wording
from sparing.report.figures.palette import LIGHT, marker
from sparing.report.run import Run
from sparing_papers.long_range import DENSE, NOTHING, UNIFORM
from sparing_papers.long_range.page import prose

CONTROLS = (UNIFORM, NOTHING)
COUNTED = ("tokens", "factor", "slots")  # labels that tables are ordered by
LEFT_OUT = "left_out"


def require_counts(run: Run) -> None:
    """Raise ``DataError`` where a length, a factor or a number of slots is no whole number."""
    for record in run.records:
        for name in COUNTED:
            if name in record.labels and not isinstance(record.labels[name], int):
                raise DataError(
                    f"records.jsonl: a {record.name} has {name} {record.labels[name]!r}, which is "
                    "no whole number: it is damaged or of another program"
                )


def asks(run: Run, *questions: str) -> bool:
    """Whether the run has any of these questions; one that does not say which has all."""
    known = run.config.get("questions")
    return not isinstance(known, list) or any(question in known for question in questions)


def mean(run: Run, name: str, **labels: Label) -> Record | None:
    """The mean over seeds of what has exactly these labels beside the seed."""
    return run.table.exact(f"mean_{name}", over="seeds", **labels)


def difference(run: Run, name: str, **labels: Label) -> Record | None:
    """The paired difference over seeds of what has exactly these labels from dense attention."""
    return run.table.exact(f"{name}_difference", over="seeds", less=DENSE, **labels)


def line(run: Run, name: str, along: str, **labels: Label) -> list[tuple[float, Record]]:
    """Means over seeds along one label that is a number, such as tokens; the others as given."""
    points = [
        (float(x), record)
        for record in run.table.all(f"mean_{name}", over="seeds", **labels)
        if isinstance(x := record.labels.get(along), int | float)
        and len(record.labels) == len(labels) + 2
    ]
    return sorted(points, key=lambda point: point[0])


def numbers(run: Run, name: str, label: str, **labels: Label) -> list[int]:
    """The values of a label that counts something, such as tokens, from the smallest up."""
    return sorted(int(value or 0) for value in run.table.values_of(name, label, **labels))


def named(run: Run, name: str, label: str, **labels: Label) -> list[str]:
    """The values of a label that is a name, in the order of the run."""
    values = run.table.values_of(name, label, **labels)
    return [str(value) for value in values if value is not None]


def tasks(run: Run, question: str) -> list[str]:
    """The tasks of a question that have scores, in the order of the run."""
    return named(run, "score", "task", question=question)


def arms(run: Run, question: str, name: str = "score") -> list[str]:
    """Its variants: dense, the others in the order of the configuration, controls last."""
    measured = {*named(run, name, "arm", question=question)}
    listed = [str(arm) for arm in run.config.get("arms") or []]
    order = [*(arm for arm in listed if arm in measured), *sorted(measured - set(listed))]
    middle = [arm for arm in order if arm not in (DENSE, *CONTROLS)]
    return [arm for arm in (DENSE, *middle, *CONTROLS) if arm in measured]


def rates(run: Run, *questions: str) -> list[tuple[str, str]]:
    """(task, which variant learned at which rate) of those where variants have different ones."""
    chosen: dict[str, dict[str, float]] = {}
    for record in run.table.all("learning_rate"):
        question, task, arm = (str(record.labels.get(of)) for of in ("question", "task", "arm"))
        if question in questions:
            chosen.setdefault(f"{question}, {task}", {})[arm] = float(record.value or 0)
    return [(task, _by_rate(of)) for task, of in chosen.items() if len({*of.values()}) > 1]


def _by_rate(chosen: Mapping[str, float]) -> str:
    by_rate: dict[float, list[str]] = {}
    for arm, rate in sorted(chosen.items()):
        by_rate.setdefault(rate, []).append(arm)
    return "; ".join(f"{rate:g}: {', '.join(names)}" for rate, names in sorted(by_rate.items()))


def decides(run: Run, question: str, task: str) -> tuple[bool, str]:
    """Whether a task passes the sensitivity check, and why or why not."""
    check = run.table.find("decides", question=question, task=task)
    why = "" if check is None else str(check.labels.get("why", ""))
    if check is not None and check.value:
        return True, why
    for record in _left_out(run):
        if _task_of(record) == f"{question}/{task}":
            return False, f"with the first seed, {record.labels['why']}"
    return False, why if check else "softmax or uniform is not trained so far"


def seeds(run: Run) -> dict[str, dict[str, int]]:
    """By question and task, the seeds of each variant that was trained from scratch.

    Of tasks that the first seed did not end, where there are any.
    """
    left = {_task_of(record) for record in _left_out(run)}
    counts: dict[str, dict[str, int]] = {}
    for record in run.table.all("mean_score", over="seeds"):
        if "stage" not in record.labels:
            task = f"{record.labels['question']}/{record.labels['task']}"
            counts.setdefault(task, {})[str(record.labels["arm"])] = record.count
    return {task: of for task, of in counts.items() if task not in left} or counts


def seeds_in_words(run: Run) -> list[str]:
    """The same in words, of all tasks; empty where none was trained on."""
    counts = [count for of in seeds(run).values() for count in of.values()]
    if not counts:
        return []
    least = "" if min(counts) == max(counts) else f"{min(counts)} to "
    return [least + wording.count_of(max(counts), "seed")]


def progress(run: Run) -> list[str]:
    """How much of the plan is done, and what was left out because it would decide nothing."""
    planned, left = run.config.get("cells") or [], _left_out(run)
    done = {record.cell for record in run.records}
    done |= {str(record.labels["key"]) for record in left}
    missing = [str(key) for key in planned if key not in done]
    notes = []
    if missing:
        done_count = len(planned) - len(missing) - len(left)
        names = wording.listing(missing, 6)
        notes.append(prose("incomplete", done=done_count, planned=len(planned), missing=names))
    reasons = Counter((_task_of(record), str(record.labels["why"])) for record in left)
    return notes + [
        prose("left-out", cells=wording.count_of(count, "cell"), task=task, why=why)
        for (task, why), count in reasons.items()
    ]


def _left_out(run: Run) -> list[Record]:
    return run.table.matching(LEFT_OUT, {})


def _task_of(record: Record) -> str:
    return "/".join(str(record.labels["key"]).split("/")[:2])


def positions(names: Sequence[str], together: Sequence[Collection[str]] = ()) -> dict[str, int]:
    """The signs of variants in figures: dense attention has the ink.

    Variants that are plotted ``together`` have a colour and a marker each, if there are enough.
    """
    colours = len(LIGHT.arms)
    signs = {DENSE: 0}
    for arm in names:
        beside = {other for group in together if arm in group for other in group} & signs.keys()
        hues = {(signs[other] - 1) % colours for other in beside - {DENSE}}
        markers = {marker(signs[other]) for other in beside}
        free = [p for p in range(1, colours * (len(names) + 1)) if p not in signs.values()]
        fitting = [p for p in free if (p - 1) % colours not in hues] or free
        signs.setdefault(arm, next((p for p in fitting if marker(p) not in markers), fitting[0]))
    return signs
