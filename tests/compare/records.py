"""Plausible records without an engine: what a run of compare would leave in its folder."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

from sparing.core.record import Label, Record, RecordLog
from sparing.report.run import Run

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
EIGHT = (
    "softmax",
    "eager",
    "window",
    "linear",
    "linformer",
    "nystrom",
    "kerformer",
    "probabilistic",
)
FAMILIES = {
    "dense": (
        "softmax",
        "eager",
        "probabilistic",
        "difference",
        "additive",
        "gaussian_keys",
        "kernel",
    ),
    "sparse": ("window", "bigbird", "longformer", "local", "strided", "lisa"),
    "low-rank": ("linformer", "nystrom", "dct", "skyformer"),
    "kernel": ("linear", "kerformer", "efficient", "performer", "cosformer", "random_features"),
    "hashing": ("reformer", "yoso", "ecoformer"),
    "control": ("uniform", "none"),
    "other": ("adaptive", "pruned"),
}
THIRTY = tuple(arm for arms in FAMILIES.values() for arm in arms)
TIME = "2025-01-01T00:00:00+00:00"


@dataclass(frozen=True)
class Shape:
    """How one variant behaves: overhead and slopes of its latency in ms, and its accuracy."""

    fixed: float
    linear: float
    square: float
    accuracy: float


SHAPES = {
    "softmax": Shape(0.05, 4e-4, 2.6e-6, 0.962),
    "eager": Shape(0.06, 5e-4, 7.5e-6, 0.962),
    "window": Shape(0.14, 1.1e-3, 0.0, 0.955),
    "linear": Shape(0.11, 9.0e-4, 0.0, 0.931),
    "linformer": Shape(0.08, 7.5e-4, 0.0, 0.960),
    "nystrom": Shape(0.45, 2.1e-3, 0.0, 0.957),
    "kerformer": Shape(0.10, 8.0e-4, 0.0, 0.964),
    "probabilistic": Shape(0.15, 2e-3, 2.2e-5, 0.958),
}


def run_of(records: list[Record], about: dict[str, object], failed: object = ()) -> Run:
    """A run as a page reads it, without a folder."""
    parts = {name: about.get(name, {}) for name in ("task", "model", "machine")}
    return Run({**about, **parts}, list(records), [], list(failed))  # type: ignore[call-overload]


def config(
    arms: tuple[str, ...] = EIGHT, seeds: int = 5, tokens: int = 65, **changes: object
) -> dict[str, object]:
    """A run's configuration."""
    return {
        "study": "compare",
        "name": "digits",
        "task": {
            "name": "digits",
            "kind": "image",
            "metric": "accuracy",
            "chance": 0.1,
            "classes": 10,
            "licence": "CC BY 4.0",
            "source": "scikit-learn, UCI optical recognition of handwritten digits",
            "tokens": tokens,
            "examples": {"train": 1257, "validation": 180, "test": 360},
        },
        "model": {"name": "vit", "layers": 2, "width": 64, "heads": 4},
        "arms": list(arms),
        "baseline": arms[0],
        "seeds": seeds,
        "budget": "quick",
        "machine": {
            "cpu": "Example CPU @ 2.10 GHz",
            "cores": 2,
            "threads": 1,
            "memory_bytes": 16 * 1024**3,
            "accelerator": "none",
            "system": "Linux 6.1",
            "python": "3.11.2",
            "torch": "2.13.0",
            "transformers": "5.23.0",
            "sparing": "0.1.0",
        },
        "machine_id": "example-2c-1a2b3c",
        "commit": "0123456789ab",
        "command": f"sparing compare digits --mechanisms {','.join(arms)} --seeds {seeds}",
        "started": TIME,
        "sparing_version": "0.1.0",
        **changes,
    }


def record(
    name: str,
    value: int | float | None,
    unit: str = "",
    interval: tuple[float, float] | None = None,
    obtained: str = "measured",
    **labels: Label,
) -> Record:
    """One record of the example machine."""
    return Record(
        name,
        value,
        unit,
        obtained,  # type: ignore[arg-type]
        labels,
        interval,
        machine="example-2c-1a2b3c",
        commit="0123456789ab",
        time=TIME,
    )


def records(arms: tuple[str, ...] = EIGHT, seeds: int = 5, tokens: int = 65) -> list[Record]:
    """Everything that a finished run of these variants would record; the first is the baseline."""
    chance = random.Random(0)
    made = []
    for position, arm in enumerate(arms):
        shape = shape_of(arm, position)
        made += _training(arm, shape, seeds, chance)
        made += _costs(arm, shape, arms[0], tokens)
        made += _curves(arm, shape, chance)
        if position:
            made += _against(arm, shape, arms[0], seeds, _mean(made, arm) - _mean(made, arms[0]))
    for length in LENGTHS:
        share = 0.92 * length / (length + 900)
        made.append(record("attention_share", share, "share", tokens=length))
        made.append(record("largest_gain", 1 / (1 - share), "ratio", tokens=length))
    return made


def _training(arm: str, shape: Shape, seeds: int, chance: random.Random) -> list[Record]:
    made = []
    for seed in range(seeds):
        final = shape.accuracy + chance.gauss(0, 0.005)
        for epoch in range(1, 13):
            reached = 0.1 + (final - 0.1) * (1 - 0.72**epoch) + chance.gauss(0, 0.006)
            labels: dict[str, Label] = {
                "arm": arm,
                "seed": seed,
                "epoch": epoch,
                "step": 40 * epoch,
            }
            made.append(record("validation_accuracy", reached, "share", **labels))
            made.append(record("train_loss", 2.3 * (1 - reached), "nats", **labels))
        time_s = 24 * (1 + 4 * shape.fixed) + chance.gauss(0, 0.4)
        made.append(record("accuracy", final, "share", arm=arm, seed=seed, split="test"))
        made.append(record("train_time_s", time_s, "s", arm=arm, seed=seed))
        energy: dict[str, Label] = {"arm": arm, "seed": seed, "component": "cpu"}
        made.append(record("train_energy_j", 6 * time_s, "J", None, "estimated", **energy))
    return made


def shape_of(arm: str, position: int) -> Shape:
    """A variant's own shape, or one near another's, different for each position."""
    if arm in SHAPES:
        return SHAPES[arm]
    near = list(SHAPES.values())[position % len(SHAPES)]
    factor = 1 + position / 20
    lost = 0.5 if arm in FAMILIES["control"] else position / 400
    return Shape(
        near.fixed * factor, near.linear * factor, near.square * factor, near.accuracy - lost
    )


def thirty(**changes: object) -> dict[str, object]:
    """The configuration of a run of thirty variants in their families."""
    families = {arm: family for family, arms in FAMILIES.items() for arm in arms}
    return config(THIRTY, 3, families=families, **changes)


def _latency(shape: Shape, tokens: int) -> float:
    return shape.fixed + shape.linear * tokens + shape.square * tokens**2


def _peak(shape: Shape, tokens: int) -> float:
    square = 16 * tokens**2 if shape.square > 3e-6 else 0
    return 4 * tokens * 256 * (1 + 6 * shape.fixed) + square + 40_000


def _costs(arm: str, shape: Shape, baseline: str, tokens: int) -> list[Record]:
    dense = SHAPES.get(baseline, SHAPES["softmax"])
    labels: dict[str, Label] = {"arm": arm, "scope": "model", "tokens": tokens, "batch": 1}
    factor = (1.2 + 2 * _latency(shape, tokens)) / (1.2 + 2 * _latency(dense, tokens))
    made = [
        record("params", 100_000 + 4096 * (shape.square == 0), "parameters", arm=arm),
        record("peak_bytes", 3.1e6 * factor, "bytes", **labels),
        record("flops", 2.75e7 * (0.9 + 0.1 * factor), "FLOP", None, "modelled", **labels),
        record("energy_j", 0.009 * factor, "J", None, "estimated", **labels),
    ]
    for statistic, scale in (("p50", 1.0), ("p90", 1.05), ("p99", 1.2)):
        made.append(record("latency_ms", 1.5 * factor * scale, "ms", **labels, statistic=statistic))
    if arm != baseline:
        near = (0.97 * factor, 1.02 * factor)
        made += [
            record("latency_ratio", factor, "ratio", near, **labels),
            record("peak_ratio", factor, "ratio", near, **labels),
            record("flops_ratio", 0.9 + 0.1 * factor, "ratio", None, "modelled", **labels),
            record("energy_ratio", factor, "ratio", near, "estimated", **labels),
            *(latency_verdict(arm, factor, near) if labels["batch"] == 1 else ()),
        ]
    return made


def _curves(arm: str, shape: Shape, chance: random.Random) -> list[Record]:
    made = []
    for tokens in LENGTHS:
        labels: dict[str, Label] = {"arm": arm, "scope": "attention", "tokens": tokens, "batch": 1}
        middle = _latency(shape, tokens) * (1 + chance.gauss(0, 0.01))
        for statistic, scale in (("p50", 1.0), ("p90", 1.05)):
            made.append(record("latency_ms", middle * scale, "ms", **labels, statistic=statistic))
        made.append(record("peak_bytes", _peak(shape, tokens), "bytes", **labels))
    return made


def _mean(made: list[Record], arm: str) -> float:
    accuracies = [r.value or 0.0 for r in made if r.name == "accuracy" and r.labels["arm"] == arm]
    return sum(accuracies) / len(accuracies)


def _against(arm: str, shape: Shape, baseline: str, seeds: int, difference: float) -> list[Record]:
    dense = SHAPES.get(baseline, SHAPES["softmax"])
    reach = 0.012 / seeds**0.5
    interval = (difference - reach, difference + reach)
    labels: dict[str, Label] = {"arm": arm, "baseline": baseline, "margin": 0.01, "p_value": 0.31}
    labels["verdict"] = verdict_of(interval, 0.01)
    ratio = (1 + 4 * shape.fixed) / (1 + 4 * dense.fixed)
    near = (0.97 * ratio, 1.03 * ratio)
    crossing = next((n for n in range(64, 4097) if _latency(shape, n) < _latency(dense, n)), None)
    longest: dict[str, Label] = {} if crossing else {"longest_tokens": LENGTHS[-1]}
    return [
        record("accuracy_difference", difference, "share", interval, **labels),
        record("train_time_ratio", ratio, "ratio", near, arm=arm),
        record("train_energy_ratio", ratio, "ratio", near, "estimated", arm=arm),
        record("crossover_tokens", crossing, "tokens", arm=arm, **longest),
    ]


def latency_verdict(arm: str, ratio: float, interval: tuple[float, float] | None) -> list[Record]:
    """What the analysis makes of a ratio whose interval decides; nothing without one."""
    if interval is None:
        return []
    low, high = interval
    word = "faster" if high < 1 else "slower" if low > 1 else "undecided"
    return [record("latency_verdict", ratio, "ratio", interval, arm=arm, verdict=word)]


def verdict_of(interval: tuple[float, float], margin: float) -> str:
    """The word for a difference's interval."""
    low, high = interval
    if low >= -margin:
        return "better" if low > 0 else "no worse"
    return "worse" if high < -margin else "undecided"


GOALS = [
    {
        "name": "an efficient variant as accurate as dense",
        "target": "within 1 point",
        "value": -0.002,
        "interval": [-0.007, 0.004],
        "met": True,
        "unit": "share",
    },
    {
        "name": "faster than dense at 65 tokens",
        "target": 1.0,
        "value": 1.09,
        "interval": [1.06, 1.12],
        "met": False,
        "unit": "ratio",
    },
    {"name": "half the energy", "target": 0.5, "value": None, "met": "undecided", "unit": "ratio"},
]

CLAIMS = [
    record(
        "latency_ratio",
        0.4,
        "ratio",
        None,
        "paper",
        arm="linformer",
        scope="model",
        tokens=512,
        source="Linformer, arXiv 2006.04768, table 3",
        reason="their baseline is unfused and on a GPU",
    )
]


def write_run(
    folder: Path,
    settings: dict[str, object],
    records: list[Record],
    goals: list[dict[str, object]] | None = None,
    failed: list[dict[str, object]] | None = None,
) -> Path:
    """Lay a run's folder out as the engine does."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    RecordLog(folder / "records.jsonl").append(records)
    if goals is not None:
        (folder / "goals.json").write_text(json.dumps({"goals": goals}))
    if failed is not None:
        (folder / "failed.json").write_text(json.dumps(failed))
    return folder
