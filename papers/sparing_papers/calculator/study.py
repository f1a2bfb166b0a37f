"""The predictive calculator: the published study repeated rightly, with every network it names.

``sparing study calculator`` trains feed-forward, recurrent and attention networks on the published
sums, several seeds each, and a language model on their text. It scores them on the published sets
and the corrected ones, beside two weights that solve the task and the calculator that comes along.
Then it tests the published claims one by one. Other budgets train the networks as the text writes
them, and vary dropout, activation and optimiser; they search and record each learning rate.

Source: Mukin, A Predictive Calculator (2025), github.com/AntonStantan/matura.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from sparing.experiment.conduct import Experiment
from sparing.experiment.plan import clocked
from sparing.experiment.run import Cell
from sparing.experiment.study import base_config, plain
from sparing.tasks.arithmetic import FACTS
from sparing_papers.calculator.analysis import analyse
from sparing_papers.calculator.arms import EVERY
from sparing_papers.calculator.cells import all_cells
from sparing_papers.calculator.claims import claims_of, decide_goals
from sparing_papers.calculator.language import language_cells
from sparing_papers.calculator.names import BASELINE, FIXED
from sparing_papers.calculator.options import BUDGETS as BUDGETS
from sparing_papers.calculator.options import Options as Options


def prepare(options: Options, folder: Path, data: Path | None = None) -> Experiment:
    """The study with these options; no data is needed. Raises ``UsageError`` for unknown names."""
    # how variants are built and trained belongs to a run as much as what they are called
    networks = {
        name: {
            **asdict(EVERY[name]),
            "rates": EVERY[name].rates if name in options.searches else (),
            "recipe": asdict(EVERY[name].recipe(0, options.epochs)),
        }
        for name in dict.fromkeys([*options.trained, *options.searches])
    }
    identity = plain({**asdict(options), "networks": networks})
    config = base_config("calculator", identity, models=[options.language_model])
    return Experiment(
        "calculator",
        config | _described(options, folder.name),
        lambda opened: _cells(options, folder),
        lambda records: decide_goals(records, options.questions),
        analyse,
    )


def _cells(options: Options, folder: Path) -> list[Cell]:
    cells = [*all_cells(options, folder), *language_cells(options, folder)]
    return [clocked(cell) for cell in cells]


def _described(options: Options, name: str) -> dict[str, Any]:
    """What a reader of the page wants to know beside the numbers."""
    return {
        "name": name,
        "task": {
            "name": "arithmetic",
            "kind": "values",
            "metric": "exact",
            "licence": FACTS.licence,
            "source": FACTS.source,
        },
        "model": {"name": "predictors"},
        "arms": [*options.trained, *FIXED],
        "questions": list(options.questions),
        "baseline": BASELINE,
        "seeds": list(range(options.seeds)),
        "epochs": options.epochs,
        "language_model_tests": options.language_model_tests,
        "claims": [claim.kind for claim in claims_of(options.questions)],
        "watts_per_core": options.watts_per_core,
        "threads": options.thread_count,
    }
