"""A run's page written into its folder: HTML, its Markdown twin and the figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sparing.experiment.registry import shown_as
from sparing.report.markdown import page_markdown
from sparing.report.rendering import page_html, pictures, replace_file
from sparing.report.run import read_run
from sparing.report.sections import Document


@dataclass(frozen=True)
class Page(Document):
    """The page that a study builds of its run, as one HTML file and as Markdown."""

    @property
    def html(self) -> str:
        """The page as one file that fetches nothing."""
        return page_html(self)

    @property
    def markdown(self) -> str:
        """The same as GitHub Markdown."""
        return page_markdown(self)


def write_report(folder: Path) -> dict[str, Path]:
    """Write ``report.html``, ``report.md`` and ``figures/*.png`` into a run's folder.

    Reads ``config.json``, ``records.jsonl`` (or its compressed form), ``goals.json`` and
    ``failed.json`` there, and what the study's page shows besides; works during a run. Each file
    replaces the old one at once, so an open page is never half written. Returns the written files
    by name (``html``, ``md``, and ``crossover`` and the other figures, with ``-dark`` for the dark
    form).

    Raises ``DataError`` for a folder that is no run, is damaged or cannot be written.
    """
    folder = Path(folder)
    run = read_run(folder)
    page = shown_as(run.config.get("study")).page(run)
    files: dict[str, tuple[Path, bytes]] = {}
    for plot in page.figures:
        files |= pictures(plot, folder / "figures")
    files["md"] = (folder / "report.md", page.markdown.encode())
    files["html"] = (folder / "report.html", page.html.encode())
    for path, text in files.values():
        replace_file(path, text)
    return {name: path for name, (path, _) in files.items()}
