"""What a run of the AdaAttention study would leave in its folder, without training anything."""

from __future__ import annotations

import json

from sparing.core.record import Label, Record
from sparing_papers.adaattention import arithmetic
from sparing_papers.adaattention import published as paper
from tests.compare import records as make

TIME = make.TIME
SPEEDS = {
    "adaptive": 0.86,
    "linformer": 0.9,
    "bigbird": 0.8,
    "skip": 1.3,
    "prune": 1.2,
    "random": 0.93,
    "global": 0.92,
    "uniform": 0.97,
    "scorer-d8": 0.88,
    "scorer-d2": 0.85,
    "scorer-d": 0.8,
    "weight-0": 0.95,
    "weight-0.05": 0.84,
    "weight-0.1": 0.83,
    "no-threshold": 0.82,
    "literal-loss": 0.95,
    "slim": 1.9,
    "full int8": 1.6,
    "adaptive int8": 1.4,
}
FORMS = {
    "full": 1.0,
    "as-printed": 0.94,
    "uniform": 1.0,
    "linformer": 1.1,
    "skip": 1.7,
    "width 2/3": 1.5,
    "attention free": 1.14,
    "full int8": 2.0,
}
WORDS = ["[class]", "a", "film", "of", "<b>nothing</b>"]


def config(**changes: object) -> dict[str, object]:
    """The configuration of a run on one task with one seed."""
    study_config = {
        "study": "adaattention",
        "name": "adaattention-quick",
        "tasks": ["sst2"],
        "special": {"sst2": {"first": True, "last": False}},
        "baseline": "full",
        "arms": ["full", *(arm for arm in SPEEDS if not arm.endswith("int8"))],
        "seeds": [0],
        "threads": 1,
        "engine": "eager PyTorch, fused attention; INT8 by torch.ao, dynamic",
        "dense_epochs": 3,
        "recipe": {"epochs": 2, "batch_size": 32, "learning_rate": 1e-3},
        "model": {"name": "bert", "layers": 4, "width": 128},
    }
    whole = {**make.config(), **study_config}
    task = {"name": "sst2", "kind": "tokens", "metric": "accuracy", "tokens": 64}
    whole["task"] = {**task, "subset": False, "notes": [], "examples": {"sst2": {"test": 872}}}
    return {**whole, **changes}


def one(name: str, value: float, unit: str = "share", **labels: Label) -> Record:
    """A measured record."""
    interval = labels.pop("interval", None)
    intervals = {"share": (value - 0.02, value + 0.02), "ratio": (value - 0.03, value + 0.03)}
    ends = intervals.get(unit) if interval is None else None
    return Record(name, value, unit, "measured", labels, ends, 3, "cell", "m", "c", TIME)


def records(*, measured: bool = True, examples: bool = True) -> list[Record]:
    """All records; without ``measured`` those of the arithmetic alone."""
    records = [*arithmetic.bounds(), *arithmetic.scorers(), *arithmetic.impossible()]
    records += paper.printed()
    if not measured:
        return records
    records += [record for arm in ("full", *SPEEDS) for record in _arm(arm)]
    records += [record for form in FORMS for record in _form(form)]
    records += _patterns()
    return [*records, *(_examples() if examples else [])]


def _arm(arm: str) -> list[Record]:
    mean: dict[str, Label] = {"arm": arm, "task": "mean"}
    task_labels: dict[str, Label] = {"arm": arm, "task": "sst2"}
    records = [one("score", 0.77, **mean), one("flops", 2e6, "FLOP", **task_labels)]
    records += [one("latency_ms", 3.0, "ms", **task_labels, of=of) for of in ("p50", "p99")]
    if arm != "full":
        records.append(one("speed_up", SPEEDS[arm], "ratio", **mean, inputs="all"))
        records.append(one("speed_up", SPEEDS[arm], "ratio", **task_labels, inputs="10-50"))
        records.append(one("train_step_ratio", 1.2, "ratio", **task_labels, batch=32))
        records.append(one("score_difference", -0.01, **mean))
    if arm in ("adaptive", "literal-loss"):
        records += [one("head_score", 0.3, **mean), one("cut_share", 0.67, **mean)]
    return records


def _form(form: str) -> list[Record]:
    records = []
    for tokens, name in ((32, "10-50"), (128, "50-200"), (512, "200+")):
        labels: dict[str, Label] = {"arm": form, "shape": "bert-base", "tokens": tokens}
        labels["length_class"] = name
        records += [one("latency_ms", 9.0, "ms", **labels, of=of) for of in ("p50", "p99")]
        if form != "full":
            records.append(one("speed_up", FORMS[form], "ratio", **labels))
    records.append(one("memory_ratio", 1.01, "", **labels))
    return [*records, one("peak_bytes", 3e7, "bytes", **labels)]


def _patterns() -> list[Record]:
    about: dict[str, Label] = {"task": "sst2", "arm": "adaptive"}
    records = [
        one("pattern_head", 0.1 * layer + 0.2 * head, **about, layer=layer, head=head)
        for layer in (1, 2)
        for head in (1, 2, 3)
    ]
    records += [
        one("pattern_place", 0.4, **about, layer=layer, place=part)
        for layer in (1, 2)
        for part in ("first", "part 1", "part 2", "last")
    ]
    records += [
        one("pattern_difficulty", value, **about, difficulty=name, confidence=0.8)
        for name, value in (("hard", 0.31), ("middle", 0.3), ("easy", 0.29))
    ]
    for share in (0.75, 0.5):
        labels = {"task": "sst2", "arm": "full", "kept_share": share}
        names = ("score_error", "output_error", "certified", "truly_small", "bound_saturated")
        records += [one(name, 0.5, "", **labels) for name in names]
        names = ("score_error_bound", "output_error_bound", "bound_over_error")
        records += [one(name, 20.0, "", **labels) for name in names]
    return records


def _examples() -> list[Record]:
    flags = [True, False, True, False, True]
    texts: dict[str, Label] = {"tokens": json.dumps(WORDS), "kept": json.dumps(flags)}
    patches: dict[str, Label] = {
        "grey": json.dumps([0.0, 0.5, 1.0, 0.25]),
        "kept": json.dumps(flags[:4]),
        "columns": "2",
    }
    labels: dict[str, Label] = {"arm": "skip", "label": "negative", "answer": "positive"}
    return [
        one("kept_tokens", 0.6, **labels, **texts, task="sst2", example=1),
        one("kept_tokens", 0.6, **labels, **patches, task="digits", example=2),
    ]
