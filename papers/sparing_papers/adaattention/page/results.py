"""The records of the AdaAttention study by question: arms, printed figures, patterns, examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sparing.core.errors import DataError
from sparing.core.reading import parse_json
from sparing.core.record import Label, Record
from sparing.experiment.records import RecordTable
from sparing.report.run import Config, Run

FULL, ADAPTIVE, OURS = "full", "adaptive", "slim"
AS_PRINTED, FREE = "as-printed", "attention free"
SHAPE = "bert-base"
MEAN = "mean"
_QUOTING = ("source", "reason", "row", "column", "printed")
NAMES = {
    FULL: "full (dense)",
    ADAPTIVE: "adaptive, as the paper",
    "linformer": "Linformer",
    "bigbird": "BigBird",
    "skip": "skip tokens",
    "prune": "prune heads",
    "random": "random scores",
    "global": "fixed global scores",
    "uniform": "uniform half width",
    "prune-gradual": "prune heads, training between",
    "uniform-rotated": "uniform half width, rotated",
    "adaptive-rotated": "adaptive, rotated",
    "threshold-0.3": "threshold 0.3",
    "threshold-0.7": "threshold 0.7",
    "scorer-d8": "scorer d/8",
    "scorer-d2": "scorer d/2",
    "scorer-d": "scorer d",
    "weight-0": "\N{GREEK SMALL LETTER LAMDA} 0",
    "weight-0.05": "\N{GREEK SMALL LETTER LAMDA} 0.05",
    "weight-0.1": "\N{GREEK SMALL LETTER LAMDA} 0.10",
    "no-threshold": "no threshold",
    "literal-loss": "the printed loss",
    OURS: "slim (ours)",
    AS_PRINTED: "as printed",
    FREE: "no attention at all",
}


@dataclass(frozen=True)
class Claim:
    """A printed figure beside ours: ``ours`` is None where nothing was measured."""

    source: str
    row: str
    column: str
    printed: str
    reason: str
    ours: Record | None
    own_baseline: bool


@dataclass(frozen=True)
class Example:
    """A test input with what the skipping arm keeps of it; ``columns`` is 0 for texts.

    ``parts`` are (text or grey level, kept).
    """

    task: str
    label: str
    answer: str
    share: float
    parts: tuple[tuple[str | float, bool], ...]
    columns: int


class AdaResults:
    """One run's records; what a run has not reached yet is empty or None."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.all = RecordTable(run.records, run.config["arms"])

    @property
    def tasks(self) -> list[str]:
        """The tasks of the run."""
        return [str(name) for name in self.run.config.get("tasks") or []]

    @property
    def inputs(self) -> str:
        """What the inputs are of the tasks that run every arm."""
        kinds = {self.is_image(task) for task in self.ablations}
        if len(kinds) > 1:
            return "inputs"
        return "images" if kinds == {True} else "texts"

    def is_image(self, task: str) -> bool:
        """Whether a task's inputs are images.

        A run says so of its first task alone; of others their model does, or their examples.
        """
        if task in self.tasks[:1]:
            return bool(self.run.config["task"].get("kind") == "image")
        identity = self.run.config.get("identity")
        known = identity.get("image_model") if isinstance(identity, dict) else None
        own = str(self.recipes.get(task, {}).get("model") or "")
        if own and own in ("vit", str(known or "").rstrip("/").rpartition("/")[2]):
            return True
        return any("grey" in record.labels for record in self.all.all("kept_tokens", task=task))

    @property
    def recipes(self) -> dict[str, Config]:
        """How each task's models were trained; empty in runs that had one recipe for all."""
        recipes = self.run.config.get("recipes")
        found = recipes.items() if isinstance(recipes, dict) else ()
        return {str(task): each for task, each in found if isinstance(each, dict)}

    @property
    def arms(self) -> list[str]:
        """The arms that were trained or timed on the tasks, in the study's order."""
        found = [str(r.labels["arm"]) for r in self.all.all("score", task=MEAN)]
        order = [*(a for a in self.all.arms if a in found), *found]
        return list(dict.fromkeys(order))

    @property
    def arms_anywhere(self) -> list[str]:
        """The arms that were trained on any task, in the study's order; INT8 forms last."""
        found = {str(r.labels["arm"]) for r in self.all.all("seed_score")} - {"dense"}
        plain = [arm for arm in self.all.arms if arm in found and not arm.endswith(" int8")]
        return [*plain, *(arm for arm in self.all.arms if arm in found and arm not in plain)]

    @property
    def seeds(self) -> int:
        """How many seeds were trained."""
        seeds = self.run.config.get("seeds")
        return len(seeds) if isinstance(seeds, list) else 0

    def speed(self, arm: str) -> Record | None:
        """The mean speed over the tasks' texts, against full."""
        return self.all.find("speed_up", arm=arm, task=MEAN, inputs="all")

    def shape_speed(self, form: str, tokens: int) -> Record | None:
        """The speed at BERT-base's shape, against full."""
        return self.all.find("speed_up", arm=form, shape=SHAPE, tokens=tokens)

    def latency(self, arm: str, of: str) -> float | None:
        """Milliseconds on the first task that runs every arm, batch 1, in the arm's own group."""
        for task in self.ablations:
            found = own_group_first(self.all.all("latency_ms", arm=arm, task=task, of=of))
            if found:
                return found[0].value
        return None

    def difference(self, arm: str, task: str = MEAN) -> Record | None:
        """The score less full's, over the tasks that run every arm unless one is named."""
        return self.all.find("score_difference", arm=arm, task=task)

    def speed_on(self, arm: str, task: str) -> Record | None:
        """The speed on one task's inputs, against full, in the arm's own group."""
        found = own_group_first(self.all.all("speed_up", arm=arm, task=task, inputs="all"))
        return found[0] if found else None

    @property
    def ablations(self) -> list[str]:
        """The tasks that run every arm: means are over these."""
        return [str(name) for name in self.run.config.get("ablations") or self.tasks]

    @cached_property
    def missing(self) -> list[str]:
        """The cells that were planned and are not there yet."""
        done = {record.cell for record in self.run.records}
        return [str(key) for key in self.run.config.get("cells") or [] if key not in done]

    @cached_property
    def lengths(self) -> list[int]:
        """The lengths of the speeds at BERT-base's shape."""
        found = {r.labels.get("tokens") for r in self.all.all("latency_ms", shape=SHAPE)}
        return sorted(tokens for tokens in found if isinstance(tokens, int))

    @property
    def forms(self) -> list[str]:
        """What was timed at BERT-base's shape."""
        return list(
            dict.fromkeys(str(r.labels["arm"]) for r in self.all.all("latency_ms", shape=SHAPE))
        )

    def claims(self, source: str) -> list[Claim]:
        """The printed figures of a table, in its order, each beside ours."""
        return [
            self._claim(record)
            for record in self.all.claims
            if record.labels.get("source") == source
        ]

    def _claim(self, record: Record) -> Claim:
        labels = {k: v for k, v in record.labels.items() if k not in _QUOTING}
        found = self.all.all(record.name, **labels)
        inside = [each for each in found if each.labels.get("task") in self.ablations]
        ours = _beside(inside if inside and "task" not in labels else found, record.name)
        texts = [str(record.labels.get(name, "")) for name in _QUOTING]
        source, reason, row, column, printed = texts
        baseline = labels.get("arm") == FULL and record.name == "speed_up"
        return Claim(source, row, column, printed, reason, ours, baseline)

    def rows_of(self, name: str, task: str, *keys: str) -> list[tuple[Any, ...]]:
        """The labels asked for and the value of each record of that name for a task."""
        return [
            (*(record.labels.get(key) for key in keys), record.value)
            for record in self.all.all(name, task=task)
        ]

    @cached_property
    def examples(self) -> list[Example]:
        """The inputs that one can step through; ``DataError`` where a record is damaged."""
        return [_example(record) for record in self.all.all("kept_tokens")]


def _beside(found: Sequence[Record], name: str) -> Record | None:
    """What stands beside a printed figure: the newest; of speeds that of the arm's own group."""
    if name != "speed_up":
        return found[-1] if found else None
    own = [record for record in found if record.labels.get("group") != "int8"]
    return (own or list(found))[-1] if found else None


def own_group_first(records: Sequence[Record]) -> list[Record]:
    """The mean over seeds first; arms that were timed again beside the INT8 forms come last."""
    places = {"seeds": 0, "int8": 2}
    return sorted(records, key=lambda record: places.get(str(record.labels.get("group")), 1))


def name_of_arm(arm: object) -> str:
    """An arm as a reader knows it; INT8 forms after the arm they come from."""
    text = str(arm)
    if text.endswith(" int8"):
        return f"{name_of_arm(text.removesuffix(' int8'))}, INT8"
    return NAMES.get(text, text)


def number(labels: dict[str, Label], name: str) -> float:
    """A label that is a number, or 0."""
    value = labels.get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _example(record: Record) -> Example:
    labels = record.labels
    columns = 0
    try:
        kept: Sequence[bool] = [bool(each) for each in parse_json(str(labels["kept"]))]
        if "grey" in labels:
            shown: list[str | float] = [float(each) for each in parse_json(str(labels["grey"]))]
            columns = int(parse_json(str(labels["columns"])))
        else:
            shown = [str(each) for each in parse_json(str(labels["tokens"]))]
        parts = tuple(zip(shown, kept, strict=True))
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"record {record.name!r} carries no example: {error}") from error
    task, label, answer = (str(labels.get(name, "")) for name in ("task", "label", "answer"))
    share = float(record.value or 0.0)
    return Example(task, label, answer, share=share, parts=parts, columns=columns)
