"""Slim in one of several processes: its trainings in float64, and a whole run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jaxtyping
import torch

from sparing.core.ranks import everywhere, world
from sparing.layers.plan import Plan
from sparing.slim.models import Models
from sparing.slim.options import Options
from sparing.slim.search.fixed_width import train_at_width
from sparing.slim.study import steps_of, task_of
from sparing.train.processes import join
from tests.slim.conftest import run_of
from tests.train.several import forbid_writing

TUNED = "tuned"


class Doubled(Models):
    """The models of slim in float64."""

    def dense(self) -> Any:
        """The dense model."""
        return super().dense().double()

    def opened(self, folder: str) -> Any:
        """A model of this run."""
        return super().opened(folder).double()


def without_dropout(toy: Path, folder: Path) -> Path:
    """A copy of a model that drops nothing in training."""
    folder.mkdir()
    for path in toy.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    nothing = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config | nothing))
    return folder


def distil(options: Options, folder: Path) -> None:
    """Distil with sampled plans, and tune half of it at fixed width; texts are answered already."""
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        join(cpu=True)
        assert world() == 2
        if os.environ["RANK"] != "0":
            forbid_writing(folder)
    task = task_of(options)[0]
    whole = steps_of(options, task, folder).models
    facts = {name: getattr(whole, name) for name in Models.__dataclass_fields__}
    models = Doubled(**facts)
    torch.manual_seed(0)
    models.train_adaptive()
    model = models.adaptive()
    plan = replace(halved(model), exits=(1,), threshold=0.5)
    train_at_width(models, model, plan, folder / "models" / TUNED, options.fixed_width_epochs)
    everywhere(None)


def halved(model: Any) -> Plan:
    """Two layers of half the heads and neurons."""
    sizes = model.encoder.sizes[:2]
    heads = tuple(size.heads // 2 for size in sizes)
    return Plan(heads, tuple(size.neurons // 2 for size in sizes))


def whole_run(given: Mapping[str, Any], folder: Path) -> int:
    """A run of slim in one of several processes; returns its finished cells."""
    jaxtyping.config.update("jaxtyping_disable", True)
    torch.set_num_threads(1)
    if os.environ["RANK"] != "0":
        forbid_writing(folder)
    result = run_of(Options(**given), folder, "onnxruntime")
    assert all(one == len(result.records) for one in everywhere(len(result.records)))
    return 0 if result.failures else len({record.cell for record in result.records})
