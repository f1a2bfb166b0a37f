"""Other people's implementations as witnesses; where they err, a test shows it."""

from __future__ import annotations

import importlib
import os
import warnings
from types import ModuleType

import pytest


def witness(name: str) -> ModuleType:
    """A module of a package that the extra ``witnesses`` names.

    Where it is not installed its tests are skipped; with SPARING_WITNESSES=required, as in ``make
    test-all``, they fail.
    """
    if os.environ.get("SPARING_WITNESSES") != "required":
        return pytest.importorskip(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old packages, as importorskip does
        return importlib.import_module(name)
