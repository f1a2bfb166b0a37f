"""The records that a study may write: name, unit, meaning and labels, declared in records.toml."""

from __future__ import annotations

import importlib.resources
import importlib.util
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparing.core.errors import DataError, UsageError, nearest, quoted
from sparing.experiment.registry import Study

FILE = "records.toml"
ENGINE = "sparing.experiment"  # every run may have its records
Tables = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """What is declared of one record; a few have one of several units."""

    units: tuple[str, ...]
    means: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Schema:
    """The declared records of a study by name.

    A name with a star is a pattern: ``mean_*`` declares ``mean_score`` where ``score`` is declared.
    That has the unit of ``score``, the labels of both, and a meaning that names ``score``.
    """

    study: str
    entries: Mapping[str, Entry]

    def known(self, name: str) -> bool:
        """Whether records of this name are declared."""
        return self._find(name) is not None

    def entry(self, name: str) -> Entry:
        """The declaration of a name; ``UsageError`` for one that has none, with the nearest."""
        if entry := self._find(name):
            return entry
        raise UsageError(f"unknown record {quoted(name)}{nearest(name, self.entries)}")

    def unit(self, name: str) -> str:
        """The unit of a name, several joined by "or"; ``UsageError`` as ``entry``."""
        return " or ".join(filter(None, self.entry(name).units))

    def _find(self, name: str) -> Entry | None:
        if name in self.entries:
            return self.entries[name]
        for pattern, more in self.entries.items():
            before, star, after = pattern.partition("*")
            base = name.removeprefix(before).removesuffix(after)
            if star and name == f"{before}{base}{after}" and base in self.entries:
                of = self.entries[base]
                labels = tuple(dict.fromkeys((*of.labels, *more.labels)))
                return Entry(of.units, more.means.replace("*", base), labels)
        return None


def schema_of(study: Study) -> Schema:
    """The records of the engine, of the packages that the study's file includes, and its own.

    A later declaration of a name replaces an earlier one key by key. No package is run to read its
    file. Raises ``DataError`` for a broken file and for one of another distribution.
    """
    package = study.module.rpartition(".")[0]
    study_tables = _read(package) or {}
    include, tables = study_tables.pop("include", []), Tables()
    for part in (ENGINE, *(include if isinstance(include, list) else [include])):
        root = str(part).partition(".")[0]
        shared = _read(part) if root in ("sparing", package.partition(".")[0]) else None
        if shared is None:
            rule = f"include packages of sparing or the study that have {FILE}"
            raise DataError(f"{package}: {FILE} must {rule}; got {quoted(part)}")
        _add(tables, shared, part)
    _add(tables, study_tables, package)
    return Schema(study.name, {name: _entry(name, **table) for name, table in tables.items()})


def _read(package: str) -> Tables | None:
    """What the file of a package declares; None where it has none."""
    try:
        spec = importlib.util.find_spec(package) if package else None
        if spec is None or spec.submodule_search_locations is None:
            return None
        folder = importlib.resources.files(importlib.util.module_from_spec(spec))  # runs none of it
        return tomllib.loads((folder / FILE).read_text(encoding="utf-8"))
    except (ModuleNotFoundError, FileNotFoundError):
        return None
    except ValueError as error:
        raise DataError(f"{package}: {FILE} is not TOML: {error}") from error


def _add(tables: Tables, more: Tables, package: str) -> None:
    """Add a package's tables to earlier ones; ``DataError`` for what declares no record."""
    for name, table in more.items():
        try:
            tables[name] = {**tables.get(name, {}), **table}
            _entry(name, **tables[name])
        except TypeError as error:
            rule = "needs texts as means, labels and, unless it is a pattern, unit; got"
            raise DataError(f"{package}: {FILE}: {quoted(name)} {rule} {quoted(table)}") from error


def _entry(pattern: str, /, *, means: Any, unit: Any = (), labels: Any = ()) -> Entry:
    """The entry of a table; ``TypeError`` for other keys and values."""
    units = (unit,) if isinstance(unit, str) else unit
    lists = isinstance(units, list | tuple) and isinstance(labels, list | tuple)
    texts = lists and all(isinstance(text, str) for text in (means, *units, *labels))
    if not texts or bool(units) == ("*" in pattern):
        raise TypeError
    return Entry(tuple(units), means, tuple(labels))
