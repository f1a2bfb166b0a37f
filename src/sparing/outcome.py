"""The result of a run of ``compare`` or ``slim``: its answer, its numbers, and its paths."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sparing.core.printing import MOST_LINES, fitted_lines
from sparing.experiment.study import StudyResult
from sparing.report.wording import shortened

WIDTH = 100


@dataclass(frozen=True, repr=False)
class Outcome(StudyResult):
    """A study's result with its page: ``print`` shows the answer, a notebook the table too.

    ``answer`` is the page's first sentence; ``pages`` are its files by name. Of ``slim``, ``model``
    is the folder of the model in PyTorch and ``served`` that of the served form in its engine; each
    is None where there is none.
    """

    pages: dict[str, Path]
    answer: str
    model: Path | None = None
    served: Path | None = None

    @property
    def study(self) -> Outcome:
        """The result itself: measurements and paths."""
        return self

    @property
    def page(self) -> Path:
        """The page in HTML."""
        return self.pages["html"]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: a busy machine, the answer and the folders first."""
        locations = {
            "folder": self.folder,
            "page": self.page,
            "model": self.model,
            "served": self.served,
        }
        known = {
            name: str(location) for name, location in locations.items() if location is not None
        }
        pages = {name: str(path) for name, path in self.pages.items()}
        first = {"disturbance": self.disturbance, "answer": self.answer}
        return {**first, **known, **super().to_dict(), "pages": pages}

    def places(self) -> list[str]:
        """The paths of all files, a line each."""
        named = {"model": self.model, "served form": self.served, "page": self.page}
        return [f"The {name}: {path}" for name, path in named.items() if path is not None]

    def __str__(self) -> str:
        """The answer, the goals and the paths, in 40 lines at most."""
        lines = [self.disturbance] if self.disturbance else []
        lines += [self.answer, ""] if self.answer else []
        lines += self.goal_lines()
        lines += [f"failed: {shortened(f'{f.cell}: {f.error}', WIDTH)}" for f in self.failures[:5]]
        return "\n".join([fitted_lines(lines, MOST_LINES - 4), "", *self.places()])

    def __repr__(self) -> str:
        return f"<{self.name} in {self.folder}: {shortened(self.answer, WIDTH)}>"

    def _repr_html_(self) -> str:
        from sparing.compare.page.build import table_html
        from sparing.report.run import Run

        failed = [vars(failure) for failure in self.failures]
        return table_html(Run(self.config, self.records, [], failed))


def finish(result: StudyResult) -> Outcome:
    """Write the page of a finished study and return its answer; of several processes, 0 writes."""
    from sparing.core.ranks import first

    return first(lambda: _finished(result))


def _finished(result: StudyResult) -> Outcome:
    from sparing.experiment.registry import shown_as
    from sparing.report.page import write_report
    from sparing.report.run import read_run

    pages = write_report(result.folder)
    run = read_run(result.folder)
    answer = shown_as(run.config.get("study")).answer(run)
    parts = {field.name: getattr(result, field.name) for field in fields(StudyResult)}
    model, served = (_saved(result, name) for name in ("torch", "serve"))
    return Outcome(**parts, pages=pages, answer=answer, model=model, served=served)


def _saved(result: StudyResult, name: str) -> Path | None:
    """A folder of a model that ``slim`` saved, if there is one."""
    path = result.folder / "model" / name
    return path if result.name == "slim" and path.is_dir() else None
