"""Inputs meet the library as users have it: shapes are not checked, and one folder is writable."""

from __future__ import annotations

import importlib
import tempfile

import pytest
from jaxtyping import config

from tests.fuzz.harness import WRITES

# Imported before anything is tried: what a first import takes is no part of an input's time.
HEAVY = (
    *("transformers.trainer", "datasets", "scipy.stats", "sklearn.datasets", "matplotlib.figure"),
    *(
        "sparing.report",
        "sparing.slim.study",
        "sparing.compare.study",
        "sparing.advise.study",
    ),
    *("sparing_papers.kerformer.study", "sparing.calculator", "sparing.transfer.adaptive"),
)


@pytest.fixture(scope="package", autouse=True)
def _imported():
    for name in HEAVY:
        importlib.import_module(name)


@pytest.fixture(autouse=True)
def _as_users_have_it(tmp_path_factory, monkeypatch):
    base = tmp_path_factory.getbasetemp()
    scratch = base / "scratch"
    scratch.mkdir(exist_ok=True)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.delenv("SPARING_DATA", raising=False)
    monkeypatch.setenv("HOME", str(scratch))
    monkeypatch.setenv("MPLCONFIGDIR", str(scratch))
    monkeypatch.setenv("COLUMNS", "100")
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    WRITES.allow(base)
    yield
    WRITES.allowed = ()
    config.update("jaxtyping_disable", before)
