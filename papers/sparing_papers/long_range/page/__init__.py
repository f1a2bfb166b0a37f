"""What the pages of both studies share."""

from sparing.report.prose import Prose

prose = Prose(__name__)
