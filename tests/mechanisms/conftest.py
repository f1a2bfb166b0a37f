"""Both ways through a batch of rows, for the mechanisms that have two."""

from __future__ import annotations

import pytest

from sparing.mechanisms import _pieces, local


@pytest.fixture(params=["row by row", "at once"])
def way(request, monkeypatch):
    """As on a processor, and as on an accelerator."""
    if request.param == "at once":
        for module in (_pieces, local):
            monkeypatch.setattr(module, "at_once", lambda rows: True)
    return request.param
