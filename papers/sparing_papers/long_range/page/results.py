"""Records of a long-range study: means over seeds and paired differences, by arm, task, length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

from sparing.core.errors import DataError
from sparing.core.record import Label, Record
from sparing.report import wording
from sparing.report.figures.palette import LIGHT, marker
from sparing.report.run import Run

DENSE, CONTROLS = "softmax", ("uniform", "none")
COUNTED = ("tokens", "factor", "slots")  # labels that tables are ordered by
LEFT_OUT = "left_out"
Key = tuple[object, ...]


class LongResults:
    """All records of a run, asked for by name and labels.

    Raises ``DataError`` where a length, a factor or a number of slots is no whole number.
    """

    def __init__(self, run: Run) -> None:
        _require_counts(run.records)
        self.run = run
        self._means: dict[Key, Record] = {}
        self._gaps: dict[Key, Record] = {}
        for each in run.records:
            if each.labels.get("over") != "seeds":
                continue
            kept = self._gaps if "less" in each.labels else self._means
            kept[_key(each.name, each.labels)] = each

    def asks(self, *questions: str) -> bool:
        """Whether the run asks any of these; one that does not say which asks all."""
        asked = self.run.config.get("questions")
        return not isinstance(asked, list) or any(each in asked for each in questions)

    def mean(self, name: str, **labels: Label) -> Record | None:
        """The mean over seeds of what has exactly these labels beside the seed."""
        return self._means.get(_key(f"mean_{name}", labels))

    def difference(
        self, name: str, labels: Mapping[str, Label], *, less: str = DENSE
    ) -> Record | None:
        """The paired difference of what has exactly these labels from another arm over seeds."""
        return self._gaps.get(_key(f"{name}_difference", {**labels, "less": less}))

    def line(self, name: str, along: str, **labels: Label) -> list[tuple[float, Record]]:
        """Means along one label that is a number, such as tokens; the others as given."""
        found = []
        for each in self._means.values():
            own = {k: v for k, v in each.labels.items() if k != "over"}
            at = own.pop(along, None)
            if each.name == f"mean_{name}" and own == labels and isinstance(at, int | float):
                found.append((float(at), each))
        return sorted(found, key=lambda pair: pair[0])

    def all(self, name: str, **labels: Label) -> Iterator[Record]:
        """Records as they were measured that carry these labels, others being free."""
        wanted = labels.items()
        return (r for r in self.run.records if r.name == name and wanted <= r.labels.items())

    def find(self, name: str, **labels: Label) -> Record | None:
        """The newest such record."""
        found = list(self.all(name, **labels))
        return found[-1] if found else None

    def tasks(self, question: str) -> list[str]:
        """The tasks of a question that were judged, in the order of the run."""
        found = (str(r.labels["task"]) for r in self.all("score", question=question))
        return list(dict.fromkeys(found))

    def arms(self, question: str, name: str = "score") -> list[str]:
        """Its arms: dense, the others in the order of the configuration, controls last."""
        judged = {str(r.labels["arm"]) for r in self.all(name, question=question)}
        listed = [str(arm) for arm in self.run.config.get("arms") or []]
        order = [*(arm for arm in listed if arm in judged), *sorted(judged - set(listed))]
        middle = [arm for arm in order if arm not in (DENSE, *CONTROLS)]
        return [arm for arm in (DENSE, *middle, *CONTROLS) if arm in judged]

    def rates(self, *questions: str) -> list[tuple[str, str]]:
        """(task, which arm learned at which rate) of those whose arms could have several."""
        found: dict[str, dict[str, float]] = {}
        for each in self.all("learning_rate"):
            question, task = each.labels.get("question"), each.labels.get("task")
            if question in questions:
                own = found.setdefault(f"{question}, {task}", {})
                own[str(each.labels["arm"])] = float(each.value or 0)
        return [(name, _by_rate(own)) for name, own in found.items() if len({*own.values()}) > 1]

    def decides(self, question: str, task: str) -> tuple[bool, str]:
        """Whether a task tells mechanisms apart, and why or why not."""
        found = self.find("decides", question=question, task=task)
        if found is not None and found.value:
            return True, str(found.labels.get("why", ""))
        for each in self.all(LEFT_OUT):
            if _task_of(str(each.labels["key"])) == f"{question}/{task}":
                return False, f"with the first seed, {each.labels['why']}"
        if found is None:
            return False, "softmax or uniform is not trained so far"
        return False, str(found.labels.get("why", ""))

    @cached_property
    def seeds(self) -> dict[str, dict[str, int]]:
        """By question and task, the seeds of each arm that was trained from scratch.

        Of tasks that the first seed did not end, where there are any.
        """
        means = self._means.values()
        scores = [r for r in means if r.name == "mean_score" and "stage" not in r.labels]
        left = {_task_of(str(each.labels["key"])) for each in self.all(LEFT_OUT)}
        found: dict[str, dict[str, int]] = {}
        for each in scores:
            task = f"{each.labels['question']}/{each.labels['task']}"
            found.setdefault(task, {})[str(each.labels["arm"])] = each.count
        return {task: arms for task, arms in found.items() if task not in left} or found

    @property
    def seeds_told(self) -> list[str]:
        """The same in words, of all tasks; empty where none was trained on."""
        counts = [count for arms in self.seeds.values() for count in arms.values()]
        if not counts:
            return []
        least = "" if min(counts) == max(counts) else f"{min(counts)} to "
        return [least + wording.count_of(max(counts), "seed")]

    @cached_property
    def missing(self) -> list[str]:
        """The cells that were planned, have not ended, and were not left out."""
        done = {record.cell for record in self.run.records}
        done |= {str(each.labels["key"]) for each in self.all(LEFT_OUT)}
        return [str(key) for key in self.run.config.get("cells") or [] if key not in done]

    def progress(self) -> list[str]:
        """How much of the plan is done, and what was left out because it would decide nothing."""
        found, left = [], [each.labels for each in self.all(LEFT_OUT)]
        planned, missing = len(self.run.config.get("cells") or []), self.missing
        if missing:
            found.append(
                f"This run is not complete: {planned - len(missing) - len(left):,} of {planned:,} "
                f"cells are done; missing are {wording.listing(missing, 6)}. The same command "
                "goes on."
            )
        reasons = Counter((_task_of(str(each["key"])), str(each["why"])) for each in left)
        return found + [
            f"{wording.count_of(count, 'cell')} of {task} left out, since little can be decided "
            f"there: with the first seed, {why}."
            for (task, why), count in reasons.items()
        ]


def _require_counts(records: Sequence[Record]) -> None:
    for each in records:
        for name in COUNTED:
            if name in each.labels and not isinstance(each.labels[name], int):
                raise DataError(
                    f"records.jsonl: a {each.name} has {name} {each.labels[name]!r}, which is no "
                    "whole number: it is damaged or of another program"
                )


def _by_rate(rates: Mapping[str, float]) -> str:
    arms: dict[float, list[str]] = {}
    for arm, rate in sorted(rates.items()):
        arms.setdefault(rate, []).append(arm)
    return "; ".join(f"{rate:g}: {', '.join(own)}" for rate, own in sorted(arms.items()))


def _task_of(key: str) -> str:
    return "/".join(key.split("/")[:2])


def positions(arms: Sequence[str], together: Sequence[Collection[str]] = ()) -> dict[str, int]:
    """The signs of arms in figures: dense attention has the ink.

    Arms that are drawn ``together`` have a colour and a marker each, as far as there are some.
    """
    colours = len(LIGHT.arms)
    found = {DENSE: 0}
    for arm in arms:
        beside = {other for each in together if arm in each for other in each} & found.keys()
        hues = {(found[other] - 1) % colours for other in beside - {DENSE}}
        markers = {marker(found[other]) for other in beside}
        free = [p for p in range(1, colours * (len(arms) + 1)) if p not in found.values()]
        fitting = [p for p in free if (p - 1) % colours not in hues] or free
        found.setdefault(arm, next((p for p in fitting if marker(p) not in markers), fitting[0]))
    return found


def _key(name: str, labels: dict[str, Label]) -> Key:
    return (name, *sorted((k, v) for k, v in labels.items() if k != "over"))
