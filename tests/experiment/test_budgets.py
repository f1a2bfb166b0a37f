"""Budgets of a study in a TOML file beside its code."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparing.experiment.inputs.budgets import load_budgets


@dataclass(frozen=True)
class Part:
    arms: tuple[str, ...] = ("softmax",)
    rates: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    seeds: int = 3
    part: Part = field(default_factory=Part)


def written(folder, monkeypatch, text):
    package = folder / "a_study"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "budgets.toml").write_text(text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "a_study", raising=False)
    return load_budgets("a_study", Options)


def test_budgets_are_options_with_what_they_do_not_name_as_usual(tmp_path, monkeypatch):
    text = "[quick]\nseeds = 1\n[standard.part]\narms = ['a', 'b']\nrates = { x = [1, 2] }\n"
    budgets = written(tmp_path, monkeypatch, text)
    assert budgets == {
        "quick": Options(seeds=1),
        "standard": Options(part=Part(("a", "b"), {"x": (1, 2)})),
    }


def test_a_setting_that_no_option_has_is_refused(tmp_path, monkeypatch):
    with pytest.raises(TypeError, match="epochs"):
        written(tmp_path, monkeypatch, "[quick.part]\nepochs = 1\n")
