"""A run that every process of a launcher begins: process 0 leads it, and the others follow."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparing.core.errors import DataError, Diverged, Unsupported, UsageError
from sparing.core.ranks import everywhere, first, first_before_others, is_first, world
from sparing.core.reading import read_json
from sparing.experiment.conduct import Experiment, conduct
from sparing.experiment.parallel.leading import announced
from sparing.experiment.parallel.orders import Refused, require_alike
from sparing.experiment.run import Run
from sparing.experiment.study import StudyResult
from sparing.measure.machine import version_here
from sparing.train.processes import errors_shared, join

BEGAN = "started"


def conducted(
    prepare: Callable[[], Experiment], folder: Path, *, cpu: bool, **how: Any
) -> StudyResult:
    """The result of ``conduct``, in each process of a launcher or in the only one.

    Process 0 alone opens the folder, writes, decides and measures. The others wait and take part in
    its trainings. An error in any process ends all. Raises ``UsageError`` where the others begin
    another run, and ``Unsupported`` for a study without a training that processes can share.
    """
    with errors_shared():
        if join(cpu=cpu) == 1:
            return conduct(prepare(), folder, **how)
        with first_before_others():  # it may write prepared data
            experiment = prepare()
        _require_shared(experiment, folder)
        began = _agreed(experiment)
        if not is_first():
            _follow(experiment, folder, began)
        return first(lambda: _led(experiment, folder, how))


def _led(experiment: Experiment, folder: Path, how: dict[str, Any]) -> StudyResult:
    try:
        result = conduct(experiment, folder, **how)
    except Exception:
        announced()  # that was all: the others hear of the error next
        raise
    announced()
    return result


def _require_shared(experiment: Experiment, folder: Path) -> None:
    """Raise ``Unsupported`` unless processes can share one of the trainings."""
    if not any(cell.together for cell in experiment.cells(Run(folder, experiment.config))):
        raise Unsupported(
            f"no training of {experiment.name} can be shared by processes: leave torchrun and "
            "accelerate out; --processes runs cells side by side, where there are such"
        )


def _agreed(experiment: Experiment) -> str:
    """When process 0 began; ``UsageError`` in all processes where one begins another run."""
    of_first, version, node = first(
        lambda: (experiment.config, version_here(), socket.gethostname())
    )
    problem = ""
    try:
        require_alike(of_first, experiment.config)
        if version != version_here():
            problem = f"{socket.gethostname()} has {version_here()}, {node} has {version}"
    except Refused as error:
        problem = str(error)
    for number, one in enumerate(everywhere(problem)):
        if one:
            raise UsageError(f"process {number} of {world()}: {one}: start all with one command")
    return str(of_first[BEGAN])


def _follow(experiment: Experiment, folder: Path, began: str) -> None:
    """Take part in every training that process 0 announces; writes nothing."""
    from sparing.models.shared.quiet import quiet
    from sparing.train.surroundings import generators_kept

    begun: Run | None = None
    with quiet(), generators_kept():
        while key := announced():
            with errors_shared():
                if begun is None:
                    begun = _opened(experiment, folder, began)
                _take_part(experiment, begun, key)


def _opened(experiment: Experiment, folder: Path, began: str) -> Run:
    """The run that process 0 has opened; ``DataError`` where this process does not see it."""
    path = folder / "config.json"
    if not path.is_file() or read_json(path).get(BEGAN) != began:
        raise DataError(
            f"{socket.gethostname()} does not see the run in {folder}: put it on a path that all "
            "machines share, or start all processes on one"
        )
    opened = Run(folder, experiment.config)
    experiment.begin(opened)
    return opened


def _take_part(experiment: Experiment, opened: Run, key: str) -> None:
    """Train with the others; a training that diverges does so in all, and process 0 notes it."""
    cells = {cell.key: cell for cell in experiment.cells(opened)}
    training = cells[key].together
    assert training is not None
    try:
        training()
    except Diverged:
        return
