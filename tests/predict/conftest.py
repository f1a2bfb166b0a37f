"""Tiny models of every kind of answer, and files of texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agree.conftest import _free_sizes  # noqa: F401
from tests.agree.kinds import save
from tests.agree.models import save_model


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> dict[str, Path]:
    """The folder of a model for each kind of answer."""
    root = tmp_path_factory.mktemp("models")
    kinds = ("number", "labels", "entities", "span", "vector")
    return {"class": save_model(root / "class")} | {kind: save(root / kind, kind) for kind in kinds}
