"""The plots of a run, in the order of the page."""

from __future__ import annotations

from sparing.report.curves import crossover, memory
from sparing.report.drawing import Plot
from sparing.report.learning import learning
from sparing.report.pareto import pareto
from sparing.report.results import Results


def plots(results: Results) -> list[Plot]:
    """All plots of a run, the crossover first; each says so when its records are missing."""
    return [crossover(results), pareto(results), memory(results), learning(results)]
