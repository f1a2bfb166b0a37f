"""Before a run: the smallest effect that its planned seeds could decide, by committed runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sparing.core.errors import DataError
from sparing.core.reading import read_json
from sparing.core.record import RECORDS, Record, RecordLog
from sparing.experiment.claims import GoalResult
from sparing.experiment.forecasts.needs import SEEDS, smallest_effect

RESULTS = "results"
Decide = Callable[[Sequence[Record]], list[GoalResult]]


@dataclass(frozen=True)
class Effect:
    """The smallest ``effect`` on a goal's quantity that so many ``seeds`` would decide.

    It is the half width of their interval, by the spread of ``known`` seeds in the run ``source``.
    The effect is in the unit of the goal.
    """

    goal: str
    effect: float
    unit: str
    seeds: int
    known: int
    source: str


def committed_runs(module: str, study: str) -> list[Path]:
    """The runs of a study in the folder ``results`` beside its package, as in a clone."""
    spec = find_spec(module.partition(".")[0])
    package = Path(spec.origin).parent if spec and spec.origin else None
    folders = sorted((package.parent / RESULTS).glob("*/")) if package else []
    return [folder for folder in folders if _is_of(folder, study)]


def _is_of(folder: Path, study: str) -> bool:
    path = folder / "config.json"
    return path.is_file() and dict(read_json(path)).get("study") == study


def smallest_effects(
    decide: Decide, folders: Iterable[Path], seeds: Callable[[str], int]
) -> tuple[Effect, ...]:
    """Of each goal that some run measured with several seeds, by the run with the most of them.

    ``seeds`` gives the planned number by the goal's name. A run that cannot be read is left out.
    """
    best: dict[str, Effect] = {}
    for folder in folders:
        try:
            goals = decide(RecordLog(folder / RECORDS).read())
        except DataError:
            continue
        for effect in _of_goals(goals, folder.name, seeds):
            before = best.get(effect.goal)
            if before is None or effect.known > before.known:
                best[effect.goal] = effect
    return tuple(best.values())


def _of_goals(
    goals: Iterable[GoalResult], source: str, seeds: Callable[[str], int]
) -> Iterable[Effect]:
    for goal in goals:
        forecast, planned = goal.forecast, seeds(goal.name)
        if forecast is None or forecast.of != SEEDS or goal.value is None:
            continue
        effect = smallest_effect(forecast, goal.value, planned)
        if effect is not None:
            yield Effect(goal.name, effect, goal.unit, planned, forecast.count, source)


def planned_seeds(config: Mapping[str, Any]) -> Callable[[str], int]:
    """The number of seeds that a run's configuration names, whatever the goal; 0 without one."""
    seeds = config.get("seeds")
    count = len(seeds) if isinstance(seeds, list) else int(seeds or 0)
    return lambda goal: count
