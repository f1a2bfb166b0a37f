"""Exports are traced without checked shapes, as in the tests of the exporter."""

from tests.export.conftest import _free_sizes  # noqa: F401
