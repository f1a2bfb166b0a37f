"""A study that trains between cells of process 0 alone, and what processes do with it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sparing.core.errors import UsageError
from sparing.core.ranks import everywhere, rank, world
from sparing.core.record import Record
from sparing.core.writing import write_atomically
from sparing.experiment.cells.training import trained_cell
from sparing.experiment.claims import GoalResult
from sparing.experiment.conduct import Experiment
from sparing.experiment.registry import Study
from sparing.experiment.run import Cell
from sparing.experiment.study import StudyResult, base_config, plain
from sparing.measure.load import LoadWatch
from sparing.train import TrainResult, train
from sparing.train.objective import LabelLoss
from tests.train.several import COUNT, RECIPE, forbid_writing, plain_model
from tests.train.small import token_task

STUDY = Study(__name__, __name__, "")


@dataclass(frozen=True)
class Options:
    """``faults`` are by cell: what its loss does in the third step, or ``unshared``."""

    seed: int = 4
    faults: Mapping[str, str] = field(default_factory=dict)


def prepare(options: Options, folder: Path, data: Path | None = None) -> Experiment:
    config = base_config(__name__, plain(asdict(options) | {"faults": {}}))
    config |= {"arms": ["a", "b"], "baseline": "a"}  # read by pages
    return Experiment(__name__, config, lambda opened: cells_of(options, folder), goals)


def cells_of(options: Options, folder: Path) -> list[Cell]:
    """A cell whose file the trainings read, two trainings, and one that measures."""
    last = Cell("last", partial(_measured, 3.0))
    return [Cell("begin", partial(_begin, options, folder)), *_trainings(options, folder), last]


def _trainings(options: Options, folder: Path) -> list[Cell]:
    cells = []
    for name in ("train/a", "train/b"):
        fault = options.faults.get(name, "")
        training = partial(_train, folder, name, fault)
        if fault == "unshared":
            cells.append(Cell(name, lambda training=training: _scores(training())))
        else:
            cells.append(trained_cell(name, training, _scores))
    return cells


def _begin(options: Options, folder: Path) -> list[Record]:
    write_atomically(folder / "models" / "seed.txt", str(options.seed))
    return _measured(1.0)


def _measured(value: float) -> list[Record]:
    assert (rank(), world()) == (0, 1), "it is of one process"
    assert int(os.environ.get("RANK", "0")) == 0, "it is of process 0"
    watch = LoadWatch()
    time.sleep(0.05)
    load = watch.end()
    return [Record("score", value, "", "measured", {"share": load.share})]


def _train(folder: Path, name: str, fault: str) -> TrainResult:
    task = token_task(COUNT)
    model = plain_model(task, seed=int((folder / "models" / "seed.txt").read_text()))
    loss = Failing(fault) if fault else LabelLoss()
    return train(model, task, RECIPE, output_dir=folder / "models" / name[-1], objective=loss)


def _scores(result: TrainResult) -> list[Record]:
    assert world() == 1, "records are of process 0 alone"
    return [Record("loss", result.validation_loss, "", "measured")]


class Failing(LabelLoss):
    """A loss that fails in the third step."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def __call__(self, model: Any, batch: Any, step: int) -> torch.Tensor:
        loss = super().__call__(model, batch, step)
        if step == 2 and self.way == "diverge":
            return loss * float("nan")
        if step == 2 and rank() == 1:
            if self.way == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.way == "raise":
                raise UsageError("process 1 alone fails")
        return loss


def goals(records: Sequence[Record]) -> list[GoalResult]:
    return []


def run(folder: Path, **options: Any) -> StudyResult:
    return STUDY.run(Options(**options), folder)


def run_both(folder: Path) -> None:
    """Two runs in one of several processes: all is well, and one training diverges."""
    torch.set_num_threads(1)
    if os.environ["RANK"] != "0":
        forbid_writing(folder)
    for name, faults in (("well", {}), ("ill", {"train/a": "diverge", "train/b": "unshared"})):
        result = run(folder / name, faults=faults)
        assert world() == 2
        assert all(one == result.records for one in everywhere(result.records))
    torch.distributed.barrier()


def run_one(folder: Path, faults: Mapping[str, str], other: bool) -> int:
    """One run; with ``other`` process 1 begins another one than process 0."""
    torch.set_num_threads(1)
    number = os.environ["RANK"]
    run(folder, faults=faults, seed=5 if other and number == "1" else 4)
    return 3
