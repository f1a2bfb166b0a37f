"""The page of the study."""

from sparing.report.prose import Prose

prose = Prose(__name__)
