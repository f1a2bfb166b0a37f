"""Exported sizes are symbols; one exported chain serves many tests."""

from __future__ import annotations

import pytest

from sparing.export.folder import describe_chain, export_chain
from sparing.export.openvino import convert
from tests.export.segments import TOKENS, text_segments, texts

THRESHOLD = 0.8


@pytest.fixture(autouse=True)
def _free_sizes(free_sizes):
    """Every test here has them."""


@pytest.fixture(scope="session")
def text_chain(tmp_path_factory):
    """The folder of an exported chain of two text segments (whose annotations have no shapes)."""
    folder = tmp_path_factory.mktemp("texts") / "with" / "parents"
    export_chain(text_segments(), texts(2, 8), folder, threshold=THRESHOLD, longest=TOKENS)
    return folder


@pytest.fixture(scope="session")
def openvino_chain(text_chain, tmp_path_factory):
    """The folder of the same chain for OpenVINO."""
    folder = tmp_path_factory.mktemp("openvino")
    paths = convert(sorted(text_chain.glob("*.onnx")), folder, texts(2, 8))
    describe_chain(folder, paths, threshold=THRESHOLD, longest=TOKENS)
    return folder
