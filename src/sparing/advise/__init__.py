"""Measure what would make a model faster on this machine."""

from sparing.report.prose import Prose

prose = Prose(__name__)
