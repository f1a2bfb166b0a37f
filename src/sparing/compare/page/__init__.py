"""The page of a comparison."""

from sparing.report.prose import Prose

prose = Prose(__name__)
