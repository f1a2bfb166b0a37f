"""Optional packages are imported on request, and named where they are missing."""

from __future__ import annotations

import logging
import sys

import pytest

from sparing.core.errors import UsageError
from sparing.export._extra import require


def test_a_missing_package_is_named_with_what_installs_it():
    with pytest.raises(
        UsageError, match=r"no_such_package is not installed .*pip install '.\[onnx\]'"
    ):
        require("no_such_package.part")


def test_an_import_cannot_set_up_the_root_logger(tmp_path, monkeypatch):
    (tmp_path / "loud_package.py").write_text("import logging\nlogging.basicConfig(level=10)\n")
    monkeypatch.syspath_prepend(tmp_path)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    level = root.level
    try:
        assert require("loud_package").__name__ == "loud_package"
    finally:
        sys.modules.pop("loud_package", None)
    assert (root.level, root.handlers) == (level, [])
