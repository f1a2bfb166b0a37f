"""The predictive calculator: the published study repeated rightly, with every network it names.

``sparing study calculator`` trains feed-forward, recurrent and attending networks on the published
sums, several seeds each, and a language model on their text; it scores them on the published sets
and the corrected ones, beside two weights that solve the task and the calculator that comes along,
and tests the published claims one by one.

Source: Mukin, A Predictive Calculator (2025), github.com/AntonStantan/matura.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from sparing.core.progress import Progress
from sparing.experiment.plan import Plan, clocked, do_pieces, plan_by_kind, wanted_cells
from sparing.experiment.run import ANALYSIS, Cell, open_run, standing
from sparing.experiment.study import StudyResult, base_config, plain, write_goals
from sparing.tasks.arithmetic import FACTS
from sparing_papers.calculator.analysis import analyse
from sparing_papers.calculator.arms import ARMS, BASELINE, FIXED
from sparing_papers.calculator.cells import all_cells
from sparing_papers.calculator.claims import CLAIMS, judge
from sparing_papers.calculator.language import language_cells
from sparing_papers.calculator.options import BUDGETS as BUDGETS
from sparing_papers.calculator.options import Options as Options


def run(
    options: Options,
    folder: Path,
    *,
    data: Path | None = None,
    on_progress: Progress = lambda fraction, text: None,
    overwrite: bool = False,
    cells: str = "*",
    minutes: float | None = None,
) -> StudyResult:
    """Run the study in a folder that can be continued after any interruption.

    Finished cells are never repeated; ``cells`` and ``minutes`` run a part of them. No data is
    needed. Raises ``UsageError`` for unknown names and for a folder that holds another run; a cell
    that fails is noted in the result, and the others go on.
    """
    # how arms are built and trained belongs to a run as much as what they are called
    networks = {
        name: {**asdict(ARMS[name]), "recipe": asdict(ARMS[name].recipe(0, options.epochs))}
        for name in options.trained
    }
    identity = plain({**asdict(options), "networks": networks})
    config = base_config("calculator", identity, models=[options.language_model])
    config |= _described(options, folder.name)
    planned = _cells(options, folder)
    config["cells"] = [cell.key for cell in planned]
    wanted = wanted_cells(planned, cells)
    with open_run(folder, config, overwrite=overwrite) as opened:
        failures = do_pieces(opened, wanted, minutes, on_progress)
        measured = [r for r in opened.records() if r.cell != ANALYSIS]
        opened.replace_analysis(analyse(measured))
        records = opened.records()
        goals = judge(records)
        write_goals(opened.folder, goals)
        return StudyResult("calculator", folder, opened.config, records, goals, failures)


def plan(options: Options, folder: Path, *, data: Path | None = None) -> Plan:
    """What ``run`` would do in that folder and about how long it takes; trains nothing."""
    records, finished = standing(folder)
    return plan_by_kind(_cells(options, folder), records, finished, parts=2)


def _cells(options: Options, folder: Path) -> list[Cell]:
    found = [*all_cells(options, folder), *language_cells(options, folder)]
    return [clocked(cell) for cell in found]


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
        "baseline": BASELINE,
        "seeds": list(range(options.seeds)),
        "epochs": options.epochs,
        "language_model_tests": options.language_model_tests,
        "claims": [claim.kind for claim in CLAIMS],
        "watts_per_core": options.watts_per_core,
        "threads": options.thread_count,
    }
