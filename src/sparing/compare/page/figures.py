"""The plots of a run, in the order of the page."""

from __future__ import annotations

from sparing.compare.page.curves import crossover, memory
from sparing.compare.page.learning import learning
from sparing.compare.page.pareto import pareto
from sparing.compare.page.results import Results
from sparing.report.figures.drawing import Plot


def plots(results: Results) -> list[Plot]:
    """All plots of a run, the crossover first; each says so when its records are missing."""
    return [crossover(results), pareto(results), memory(results), learning(results)]
