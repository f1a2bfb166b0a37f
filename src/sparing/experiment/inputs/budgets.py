"""Budgets of a study: its options by name, kept in a TOML file beside the code."""

from __future__ import annotations

import dataclasses
import tomllib
import typing
from importlib import resources
from typing import Any, TypeVar

T = TypeVar("T")


def load_budgets(package: str, kind: type[T], name: str = "budgets.toml") -> dict[str, T]:
    """The budgets of a file of a package; settings that one leaves out keep their defaults.

    Lists are tuples there, and tables are the dataclasses that the fields are annotated with.

    Raises ``TypeError`` for a setting that its class does not have, and what the class raises.
    """
    content = resources.files(package).joinpath(name).read_text(encoding="utf-8")
    return {budget: _typed(kind, value) for budget, value in tomllib.loads(content).items()}


def _typed(hint: Any, value: Any) -> Any:
    """A value of TOML as the annotated type."""
    if isinstance(value, list):
        return tuple(_typed(None, item) for item in value)
    if not isinstance(value, dict):
        return value
    hints = typing.get_type_hints(hint) if dataclasses.is_dataclass(hint) else {}
    settings = {name: _typed(hints.get(name), item) for name, item in value.items()}
    return hint(**settings) if hints else settings
