"""Read and check a run's folder: its configuration, records, goals and failed cells."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sparing.core.errors import DataError
from sparing.core.reading import read_json
from sparing.core.record import RECORDS, Record, RecordLog, is_finite
from sparing.experiment.forecasts.needs import Need
from sparing.experiment.records import RecordTable

Config = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A run's configuration, records, declared goals and failed cells.

    ``folder`` is where it was read, for a page that shows another file of its study.
    """

    config: Config
    records: list[Record]
    goals: list[dict[str, Any]]
    failed: list[dict[str, Any]]
    folder: Path | None = field(default=None, compare=False)

    @cached_property
    def table(self) -> RecordTable:
        """The records, to be looked up by name and labels."""
        return RecordTable(self.records, self.config.get("arms") or ())


def read_run(folder: Path) -> Run:
    """Read a run's folder.

    Raises ``DataError`` in one line when the folder is missing, is not a run, or a file in it is
    damaged. A record that the run was writing when it was stopped is left out.
    """
    if not (folder / "config.json").is_file():
        raise DataError(
            f"{folder} is not a run: it has no config.json; compare, study and slim write it"
        )
    config = _read_json(folder / "config.json", dict)
    _check_config(config, folder / "config.json")
    entries = RecordLog(folder / RECORDS).read()
    records = [replace(entry, labels=clean(entry.labels)) for entry in entries]
    goals = _read_json(folder / "goals.json", dict, optional=True).get("goals", [])
    failed = _read_json(folder / "failed.json", list, optional=True)
    goals = _check_goals(_dictionaries(goals, "goals.json"))
    return Run(config, records, goals, _dictionaries(failed, "failed.json"), folder)


def clean(value: Any) -> Any:
    """A value with every text in it free of characters that would break a page or a figure.

    Control characters, lone surrogates and direction overrides become a replacement sign; line
    breaks and tabs stay.
    """
    if isinstance(value, str):
        return "".join(map(_clean_character, value))
    if isinstance(value, dict):
        return {clean(key): clean(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [clean(entry) for entry in value]
    return value


def _clean_character(character: str) -> str:
    if character in "\n\t":
        return character
    category = unicodedata.category(character)
    joiner = character in "\u200c\u200d"
    unwanted = category in ("Cc", "Cs", "Cn") or (category == "Cf" and not joiner)
    return "\N{REPLACEMENT CHARACTER}" if unwanted else character


def _read_json(path: Path, kind: type, *, optional: bool = False) -> Any:
    if optional and not path.exists():
        return kind()
    content = read_json(path)
    if not isinstance(content, kind):
        raise DataError(f"{path} must hold a JSON {'object' if kind is dict else 'list'}")
    return clean(content)


def _check_config(config: Config, path: Path) -> None:
    arms = config.get("arms")
    if not isinstance(arms, list) or not arms or not all(isinstance(arm, str) for arm in arms):
        if config.get("study") == "train":
            raise DataError(
                f"{path} is of a training, which has no page: see outcome.json beside it"
            )
        raise DataError(f"{path} is of another program: it has no list of names under 'arms'")
    if not isinstance(config.get("baseline"), str):
        raise DataError(f"{path} is of another program: it has no name under 'baseline'")
    for name in ("task", "model", "machine", "machines"):
        if not isinstance(config.setdefault(name, {}), dict):
            raise DataError(f"{path}: {name!r} must be a JSON object")
    if not isinstance(config.get("claims", []), list):
        raise DataError(f"{path}: 'claims' must be a list")
    if not all(isinstance(facts, dict) for facts in config["machines"].values()):
        raise DataError(f"{path}: each of 'machines' must be a JSON object")


def _check_goals(goals: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The goals; values and targets are numbers, texts or missing, ends of intervals numbers."""
    for goal in goals:
        interval = goal.get("interval") or ()
        given = (goal.get("value"), goal.get("target"))
        numbers = [value for value in given if not isinstance(value, str | None)]
        right = isinstance(interval, list | tuple) and len(interval) in (0, 2)
        if not right or not all(map(is_finite, (*numbers, *interval))):
            raise DataError(f"goals.json: {goal.get('name')!r} has a number that is none")
        need = goal.get("need", {})
        if not isinstance(need, dict):
            raise DataError(f"goals.json: the need of {goal.get('name')!r} is no object")
        Need.from_dict(need)
    return goals


def _dictionaries(entries: object, name: str) -> list[dict[str, Any]]:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DataError(f"{name} must list JSON objects")
    return entries
