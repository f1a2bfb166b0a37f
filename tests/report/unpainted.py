"""Pages for tests of their words: a plot is drawn for the page, and not again as pixels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sparing.report import rendering


@contextmanager
def unpainted() -> Iterator[None]:
    """Leave the files of figures empty, which take as long to draw as all the rest of a page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rendering, "to_png", lambda draw, look: b"")
        yield
