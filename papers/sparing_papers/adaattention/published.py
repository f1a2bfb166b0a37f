"""Every figure of the AdaAttention paper's Tables I to VI and of its analysis (section III.D).

Source: Balajee, "Adaptive Attention Mechanisms for Efficient Transformer Models". Nothing here is
measured. Each figure names the quantity of ours that stands beside it, and says why the two differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sparing.core.record import Label, Record

TASKS = ("mnli", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")
GLUE = {
    "full": (84.6, 91.2, 91.8, 93.2, 85.1, 89.3, 90.2, 78.9),
    "linformer": (82.5, 88.9, 89.7, 91.5, 81.2, 87.1, 87.8, 75.2),
    "bigbird": (82.1, 88.2, 89.1, 91.0, 80.9, 86.8, 87.2, 74.8),
    "skip": (83.9, 90.1, 90.8, 92.5, 83.5, 88.5, 89.0, 76.9),
    "adaptive": (84.2, 91.0, 91.5, 93.0, 84.8, 89.1, 90.0, 78.5),
}
GLUE_MEANS = {"full": 88.2, "linformer": 85.5, "bigbird": 85.0, "skip": 87.1, "adaptive": 88.0}
GLUE_SPEEDS = (1.75, 1.76, 1.77, 1.78, 1.76, 1.79, 1.75, 1.74)
MEAN_SPEED = 1.76
# Exact match, F1, milliseconds, MB.
SQUAD = {
    "full": (88.5, 94.8, 450, 350),
    "linformer": (85.2, 92.1, 270, 180),
    "bigbird": (84.8, 91.5, 250, 170),
    "skip": (87.1, 93.9, 300, 210),
    "adaptive": (88.1, 94.5, 260, 220),
}
# Top-1, top-5, milliseconds, MB.
IMAGENET = {
    "full": (81.8, 95.7, 800, 500),
    "linformer": (79.2, 93.1, 450, 280),
    "bigbird": (78.5, 92.1, 420, 260),
    "skip": (80.4, 94.5, 550, 320),
    "adaptive": (81.4, 95.4, 480, 330),
}
# Accuracy and speed.
COMPONENTS = {
    "full": (88.2, 1.0),
    "random": (86.1, 1.5),
    "global": (87.4, 1.6),
    "adaptive": (88.0, MEAN_SPEED),
}
# Parameters, accuracy, speed.
SCORERS = {
    "scorer-d8": (1_200, 87.3, 1.68),
    "adaptive": (4_800, 88.0, MEAN_SPEED),
    "scorer-d2": (19_200, 88.1, 1.71),
    "scorer-d": (76_800, 88.1, 1.65),
}
# Accuracy, mean score, speed.
WEIGHTS = {
    "weight-0": (88.2, 0.95, 1.0),
    "adaptive": (88.0, 0.65, MEAN_SPEED),
    "weight-0.05": (87.5, 0.50, 1.85),
    "weight-0.1": (85.2, 0.35, 1.95),
}
LENGTHS = {"10-50": 1.2, "50-200": 1.6, "200+": 1.9}
UNIFORM = (1.7, -2.5)
QUANTISED = (2.3, -0.5)
LONGER = 1.1

# Table I prints accuracy for CoLA and MRPC, which GLUE judges by Matthews and F1.
_OTHER_MODEL = (
    "another model, other amounts of training, and means over the tasks that were run here: "
    "compare differences, not levels"
)
_SPEED = (
    "the printed method narrows q k alone, a few per cent of the arithmetic, and its scorer costs "
    "more than that saves; in a small model its many small calls cost most; fused attention is the "
    "baseline here"
)
_RIVAL_SPEED = "attention is a small part of the time at these lengths, whatever its form"
_REASONS = {
    "squad": "where it is run, on a part of SQuAD's training questions and with another model; no "
    "form that drops tokens or layers answers with a stretch of a text yet",
    "imagenet": "a million images are not run; where a small image set stands in, a small ViT from "
    "nothing is trained on it, so that only differences between rows compare",
    "uniform": "both were trained on for as long; the interval tells how sure the difference is",
    "parameters": "an MLP that reads all of a token's features cannot be so small",
    "score": "the printed loss rewards high scores; with the sign mended, Adam's step size, not "
    "the weight alone, decides how far scores fall",
    "memory": "nothing of the weights is dropped, and fused attention never holds the scores",
    "length": "arithmetic allows a few per cent at these lengths, and the scorer takes them",
    "int8": "INT8 alone brings the gain, see the rows of INT8 here and at BERT-base's shape",
}


@dataclass(frozen=True)
class Printed:
    """One printed figure: where it stands, as it stands, and what of ours it is compared with.

    ``name`` and ``labels`` are those of our record. ``value`` is in our unit, which for latency and
    memory is the ratio to the paper's own full model; ``text`` is what is printed.
    """

    source: str
    row: str
    column: str
    text: str
    value: float | int
    unit: str
    name: str
    reason: str
    labels: Mapping[str, Label] = field(default_factory=dict)

    def record(self) -> Record:
        """As a record that is quoted, never measured."""
        own: dict[str, Label] = {
            "source": self.source,
            "reason": self.reason,
            "row": self.row,
            "column": self.column,
            "printed": self.text,
        }
        return Record(self.name, self.value, self.unit, "paper", {**own, **self.labels})


def printed() -> list[Printed]:
    """All of them, in the paper's order."""
    return [
        *_glue(),
        *_other_tasks("Table II", "SQuAD", SQUAD, ("EM", "F1"), "squad", 512),
        *_other_tasks("Table III", "ImageNet", IMAGENET, ("Top-1", "Top-5"), "imagenet", 197),
        *_components(),
        *_scorers(),
        *_weights(),
        *_section_d(),
        _training(),
    ]


def _score(source: str, row: str, column: str, value: float, **labels: Label) -> Printed:
    own: dict[str, Label] = {"task": "mean", **labels}
    text = f"{value:.1f} %"
    return Printed(source, row, column, text, value / 100, "score", "score", _OTHER_MODEL, own)


def _speed(
    source: str, row: str, value: float, reason: str, column: str = "Speedup", **labels: Label
) -> Printed:
    text = f"{value:g}\N{MULTIPLICATION SIGN}"
    own = labels if "shape" in labels else {"task": "mean", "inputs": "all", **labels}
    return Printed(source, row, column, text, value, "ratio", "speed_up", reason, own)


def _glue() -> Iterator[Printed]:
    for arm, values in GLUE.items():
        for task, value in zip(TASKS, values, strict=True):
            metric = "pearson" if task == "stsb" else "accuracy"
            yield _score("Table I", arm, task, value, arm=arm, task=task, metric=metric)
        yield _score("Table I", arm, "mean", GLUE_MEANS[arm], arm=arm, task="glue")
    for task, value in zip(TASKS, GLUE_SPEEDS, strict=True):
        labels: dict[str, Label] = {"arm": "adaptive", "task": task}
        yield _speed("Table I", "adaptive", value, _SPEED, f"speed, {task}", **labels)
    labels = {"arm": "adaptive", "task": "glue"}
    yield _speed("Table I", "adaptive", MEAN_SPEED, _SPEED, "speed, mean", **labels)


def _other_tasks(
    source: str,
    name: str,
    rows: Mapping[str, tuple[float, float, int, int]],
    metrics: tuple[str, str],
    task: str,
    tokens: int,
) -> Iterator[Printed]:
    """Latency and memory stand beside BERT-base's shape, which is that of ViT-B's layers too."""
    _, _, whole_ms, whole_mb = rows["full"]
    shape: dict[str, Label] = {"shape": "bert-base", "tokens": tokens}
    for arm, (first, second, time_ms, size_mb) in rows.items():
        for metric, value in zip(metrics, (first, second), strict=True):
            labels: dict[str, Label] = {"arm": arm, "task": task, "metric": metric}
            why = _REASONS[task]
            text = f"{value} %"
            column = f"{name} {metric}"
            yield Printed(source, arm, column, text, value / 100, "score", "score", why, labels)
        form = {"adaptive": "as-printed"}.get(arm, arm)
        why = _SPEED if arm == "adaptive" else _RIVAL_SPEED
        own = {**shape, "arm": form}
        text, ratio = f"{time_ms} ms", whole_ms / time_ms
        yield Printed(source, arm, "Latency", text, ratio, "ratio", "speed_up", why, own)
        text, ratio, why = f"{size_mb} MB", size_mb / whole_mb, _REASONS["memory"]
        yield Printed(source, arm, "Memory", text, ratio, "ratio", "memory_ratio", why, own)


def _components() -> Iterator[Printed]:
    for arm, (score, speed) in COMPONENTS.items():
        yield _score("Table IV", arm, "Accuracy", score, arm=arm)
        yield _speed("Table IV", arm, speed, _SPEED, arm=arm)


def _scorers() -> Iterator[Printed]:
    for arm, (count, score, speed) in SCORERS.items():
        text = f"{count / 1000:.1f}K"
        labels: dict[str, Label] = {"arm": arm, "shape": "bert-base"}
        why = _REASONS["parameters"]
        yield Printed(
            "Table V", arm, "Parameters", text, count, "numbers", "scorer_params", why, labels
        )
        yield _score("Table V", arm, "Accuracy", score, arm=arm)
        yield _speed("Table V", arm, speed, _SPEED, arm=arm)


def _weights() -> Iterator[Printed]:
    for arm, (score, mean, speed) in WEIGHTS.items():
        yield _score("Table VI", arm, "Accuracy", score, arm=arm)
        labels: dict[str, Label] = {"arm": arm, "task": "mean"}
        why = _REASONS["score"]
        yield Printed(
            "Table VI", arm, "Avg score", f"{mean:.2f}", mean, "score", "head_score", why, labels
        )
        yield _speed("Table VI", arm, speed, _SPEED, arm=arm)


def _section_d() -> Iterator[Printed]:
    source = "Section III.D"
    for name, speed in LENGTHS.items():
        yield _speed(
            source,
            f"{name} tokens",
            speed,
            _REASONS["length"],
            arm="as-printed",
            shape="bert-base",
            length_class=name,
        )
    yield _speed(source, "uniform half", UNIFORM[0], _SPEED, arm="uniform")
    yield _loss(source, "uniform half", UNIFORM[1], _REASONS["uniform"], arm="uniform")
    yield _speed(source, "adaptive", MEAN_SPEED, _SPEED, arm="adaptive")
    yield _loss(source, "adaptive", -0.2, _OTHER_MODEL, arm="adaptive")
    why = _REASONS["int8"]
    yield _speed(source, "adaptive + INT8", QUANTISED[0], why, arm="adaptive int8")
    yield _loss(source, "adaptive + INT8", QUANTISED[1], _OTHER_MODEL, arm="adaptive int8")


def _training() -> Printed:
    """What the paper says of the time that training takes."""
    reason = "the scorer runs for every token, and training masks what inference slices off"
    text = "about 10 % longer"
    labels: dict[str, Label] = {"arm": "adaptive", "batch": 32}
    return Printed(
        "Section IV.B",
        "adaptive",
        "Training",
        text,
        LONGER,
        "ratio",
        "train_step_ratio",
        reason,
        labels,
    )


def _loss(source: str, row: str, points: float, reason: str, **labels: Label) -> Printed:
    text = f"{abs(points):g} % lost"
    own: dict[str, Label] = {"task": "mean", **labels}
    return Printed(
        source, row, "Loss", text, points / 100, "score", "score_difference", reason, own
    )
