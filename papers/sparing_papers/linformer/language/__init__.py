"""Language models with projected keys and values: trainings and what they are evaluated on."""

from sparing.report.prose import Prose

prose = Prose(__name__)
