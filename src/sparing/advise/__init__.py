"""What would make a model faster on this machine, and what would not."""

from sparing.report.prose import Prose

prose = Prose(__name__)
