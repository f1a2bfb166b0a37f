"""The installed studies: every distribution declares its studies, and listing imports none.

A distribution declares a study under the entry-point group ``sparing.studies``: a light object that
says where the study's code and its page are.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sparing.core.errors import UsageError, nearest, quoted
from sparing.core.folder import IMPORTED
from sparing.experiment.installed import MISSING_PAPERS, has_papers, installed, study_names

if TYPE_CHECKING:
    from sparing.experiment.parallel.engines import Where
    from sparing.experiment.plan import Plan
    from sparing.experiment.study import StudyResult

GENERAL = "compare"  # its page shows any run of arms


@dataclass(frozen=True)
class Study:
    """A study by name, and where its parts are; they are imported when they are used.

    ``module`` has ``Options``, ``BUDGETS`` and ``prepare(options, folder, data)``, which gives an
    ``Experiment``. ``pages`` has ``build(run)``, and ``answer(run)`` where the run answers with one
    sentence. Cells of a study with ``shards`` may be run in several folders and merged.
    """

    name: str
    module: str
    pages: str
    shards: bool = True

    def load(self) -> ModuleType:
        """The study's code."""
        return importlib.import_module(self.module)

    @property
    def budgets(self) -> Mapping[str, Any]:
        """The options of each budget, by the budget's name."""
        budgets: Mapping[str, Any] = self.load().BUDGETS
        return budgets

    def run(
        self,
        options: Any,
        folder: Path,
        *,
        data: Path | None = None,
        where: Where | None = None,
        **how: Any,
    ) -> StudyResult:
        """Do the study in a folder that can be continued; ``how`` goes to ``conduct``.

        With ``where`` its cells run side by side, in other processes. Under torchrun or accelerate
        every process calls this and gets the result; they share each training.
        """
        from sparing.experiment.conduct import conduct
        from sparing.experiment.parallel.following import conducted
        from sparing.train.processes import environment_world
        from sparing.train.recipe import Recipe
        from sparing.train.room import on_cpu

        prepare = partial(self.load().prepare, options, folder, data)
        if where is None or where.is_here:
            given = getattr(options, "recipe", None)  # a method in studies of several recipes
            cpu = on_cpu(given if isinstance(given, Recipe) else Recipe())
            return conducted(prepare, folder, cpu=cpu, **how)
        if environment_world() > 1:
            raise UsageError(
                "--processes and --engine start processes for cells side by side, and torchrun and "
                "accelerate for one training: leave one of both out"
            )
        experiment = prepare()
        from sparing.experiment.parallel.engines import elsewhere
        from sparing.experiment.parallel.orders import Source

        whole = None if data is None else data.resolve()
        source = Source(self.module, options, folder.resolve(), whole, tuple(IMPORTED))
        with elsewhere(where, source) as do:
            return conduct(experiment, folder, elsewhere=do, **how)

    def plan(
        self, options: Any, folder: Path, *, data: Path | None = None, cells: str = "*"
    ) -> Plan:
        """What ``run`` would do and about how long it takes; starts nothing."""
        from sparing.experiment.conduct import plan
        from sparing.experiment.forecasts.effects import committed_runs

        runs = committed_runs(self.module, self.name)
        return plan(self.load().prepare(options, folder, data), folder, cells, runs)

    def page(self, run: Any) -> Any:
        """The ``sparing.report.page.Page`` of a ``sparing.report.run.Run``."""
        return importlib.import_module(self.pages).build(run)

    def answer(self, run: Any) -> str:
        """The one sentence that such a run answers with; empty where its goals are the answer."""
        answer = getattr(importlib.import_module(self.pages), "answer", None)
        return "" if answer is None else " ".join(str(answer(run)).split())


def find_study(name: str) -> Study:
    """The study of a name: an installed one, or the ``STUDY`` of a dotted module.

    Raises ``UsageError`` where there is none, with the nearest names and, where sparing-papers is
    not installed, how to install it.
    """
    if name in installed():
        return _declared(installed()[name])
    if "." not in name.strip(".") or name.startswith("."):
        missing = "" if has_papers() else f"; {MISSING_PAPERS}"
        raise UsageError(f"unknown study {name[:40]!r}{nearest(name, study_names())}{missing}")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        raise UsageError(f"no module {name!r} to take a study from") from error
    if not isinstance(getattr(module, "STUDY", None), Study):
        raise UsageError(f"the module {name} has no STUDY")
    study: Study = module.STUDY
    return study


def _declared(entry: EntryPoint) -> Study:
    """The study that a distribution declares; ``UsageError`` where it declares none."""
    source = entry.dist.name if entry.dist else "a distribution"
    try:
        study = entry.load()
    except (ImportError, AttributeError) as error:
        line = str(error).partition("\n")[0]
        raise UsageError(f"study {entry.name} of {source} cannot be loaded: {line}") from error
    if not isinstance(study, Study):
        raise UsageError(f"study {entry.name} of {source} is not a Study but {quoted(study)}")
    return study


def study_of(name: object) -> Study:
    """The study that a run's file names: an installed one, or of a module that is imported already.

    A file never causes an import: ``UsageError`` for a foreign module that is not imported.
    """
    if isinstance(name, str) and "." in name and name not in sys.modules:
        raise UsageError(
            f"study {name[:40]!r} is not of sparing and its module is not imported: "
            "import it first if you trust it"
        )
    return find_study(str(name))


def shown_as(name: object) -> Study:
    """The study that shows a run of the study that a file names.

    Runs of no study and of foreign ones that are not imported are shown as comparisons.
    """
    unknown = name is None or ("." in str(name) and str(name) not in sys.modules)
    return find_study(GENERAL) if unknown else study_of(name)
