"""The page of a slimmed model."""

from sparing.report.prose import Prose

prose = Prose(__name__)
