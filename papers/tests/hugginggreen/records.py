"""Plausible records of the HuggingGreen study, and what its own analysis makes of them."""

from __future__ import annotations

import json
import random

from sparing.core.record import Record
from sparing_papers.hugginggreen.analysis import analyse

# Variant: energy in joules, accuracy, share of the dense variant's arithmetic.
PATCHES = {
    "dense": (100.0, 0.900, 1.0),
    "dense again": (100.0, 0.900, 1.0),
    "contrast top 0.7": (72.0, 0.895, 0.69),
    "random top 0.7": (71.0, 0.870, 0.69),
    "contrast top 0.7, decay": (85.0, 0.898, 0.84),
    "fewer steps, as 0.7": (70.0, 0.888, 0.7),
    "larger patches, as 0.7": (75.0, 0.885, 0.7),
    "convolutions, as 0.7": (72.0, 0.930, 0.2),
    "half the layers, distilled": (160.0, 0.899, 0.5),
}
ATTENTION = {
    "dense": (100.0, 0.900, 1.0),
    "gaussian keys, half the heads": (120.0, 0.898, 0.9),
    "softmax, half the heads": (90.0, 0.890, 0.9),
}
STAGES = {
    "scratch": (100.0, 0.85, 1.0),
    "masked, fine-tuned": (180.0, 0.86, 1.0),
    "scratch, energy of masked, fine-tuned": (181.0, 0.88, 1.0),
    "scratch, steps of masked, fine-tuned": (170.0, 0.88, 1.0),
}
QUESTIONS = {"patches": PATCHES, "attention": ATTENTION, "stages": STAGES}
EPOCHS = 4


def measured(
    pairs: int = 10, task: str = "digits", noise: float = 0.002, *, learning: bool = False
) -> list[Record]:
    """Every training of every question, with a little noise; until the last epoch if learning."""
    chance = random.Random(0)
    records = []
    for question, arms in QUESTIONS.items():
        for seed in range(pairs):
            common = chance.gauss(0, noise)
            for arm, (energy, accuracy, share) in arms.items():
                joules = energy * (1 + chance.gauss(0, 5 * noise))
                score = accuracy + common + chance.gauss(0, noise / 2)
                labels = {"question": question, "task": task, "depth": 4, "arm": arm, "seed": seed}
                records += _training(
                    labels, joules, score, share, EPOCHS if learning else EPOCHS - 1
                )
    return records


def _training(labels, joules, score, share, best) -> list[Record]:
    cell = "/".join(str(labels[key]) for key in ("question", "task", "depth", "seed", "arm"))
    curve = [
        {
            "epoch": epoch,
            "score": score - 0.05 * max(0, best - epoch),
            "energy": {"cpu_j": joules * epoch / EPOCHS},
            "flops": 1e12 * share * epoch / EPOCHS,
        }
        for epoch in range(1, EPOCHS + 1)
    ]
    interval = (0.4 * joules, 2 * joules)
    parts = [
        Record("accuracy", score, "score", "measured", labels),
        Record("macro_f1", score - 0.01, "score", "measured", labels),
        Record("train_time_s", joules / 5, "s", "measured", labels),
        Record("train_flops", 1e12 * share, "FLOP", "modelled", labels),
        Record("curve", score, "score", "measured", {**labels, "told": json.dumps(curve)}),
    ]
    for name, value in (("train_energy_j", joules), ("inference_energy_j", share)):
        component_labels = {**labels, "component": "cpu"}
        parts.append(Record(name, value, "J", "estimated", component_labels, interval))
    return [
        Record(r.name, r.value, r.unit, r.obtained, dict(r.labels), r.interval, cell=cell)
        for r in parts
    ]


def picture(label: str = "0", task: str = "digits") -> Record:
    """A picture of 4 x 4 pixels in 4 patches."""
    content = {
        "pixels": [[[16 * row + column] for column in range(4)] for row in range(4)],
        "side": 2,
        "scored": {"contrast": {"scores": [0.1, 0.2, 0.3, 0.4], "kept": [1, 2, 3]}},
    }
    labels = {"task": task, "label": label, "told": json.dumps(content)}
    return Record("picture", None, "", "measured", labels, cell=f"pictures/{task}")


def records(
    pairs: int = 10, task: str = "digits", margin: float = 0.01, *, learning: bool = False
) -> list[Record]:
    """The trainings with what follows from them."""
    training_records = measured(pairs, task, learning=learning)
    return [picture(task=task), *training_records, *analyse(training_records, {task: 1000}, margin)]


def config(**changes: object) -> dict[str, object]:
    """What the study writes beside them."""
    return {
        "study": "hugginggreen",
        "identity": {},
        "name": "green",
        "task": {"name": "digits", "kind": "image", "notes": []},
        "tasks": ["digits"],
        "model": {"name": "vit", "width": 64},
        "machine": {"processor": "one"},
        "arms": ["dense", "contrast top 0.7"],
        "baseline": "dense",
        "seeds": list(range(10)),
        "recipes": {"digits": {"epochs": 4, "batch_size": 64, "learning_rate": 1e-3}},
        "patches": {"digits": [8, 2]},
        "margin": 0.01,
        "intensity_g_per_kwh": 400.0,
        "watts_per_core": 5.0,
        "cells": ["patches/digits/4/0/dense"],
        "started": "2026-01-01T00:00:00+00:00",
        "command": "sparing study hugginggreen",
        **changes,
    }
