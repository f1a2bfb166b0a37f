"""Shapes in annotations are checked while the tests run; nothing may reach for the network."""

from __future__ import annotations

import os

import pytest
import torch
from jaxtyping import install_import_hook

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
install_import_hook("sparing", "beartype.beartype")


@pytest.fixture(autouse=True)
def _two_threads():
    """Tests share the machine: more threads than this only wait for each other."""
    torch.set_num_threads(1)
