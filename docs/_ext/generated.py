"""The generated pages of the site: a Sphinx extension that writes them before the sources are read.

``pages`` makes every page from the library and from committed records, so that two builds of one
commit are equal. The pages are not committed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from command_pages import command_pages
from docstrings import process_docstring
from mechanism_pages import mechanism_pages
from model_page import model_pages
from record_pages import record_pages, task_pages
from speed_page import speed_pages

FOLDER = "reference"


def pages() -> dict[str, str]:
    """Every generated page by its path below ``docs``."""
    makers = (
        mechanism_pages,
        speed_pages,
        command_pages,
        model_pages,
        record_pages,
        task_pages,
    )
    return {f"{FOLDER}/{path}": text for make in makers for path, text in make().items()}


def write(docs: Path) -> None:
    """Write the pages that are new or changed, so that Sphinx reads no other again."""
    for name, text in pages().items():
        path = docs / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Register the extension."""
    app.connect("builder-inited", lambda app: write(Path(app.srcdir)))
    app.connect("autodoc-process-docstring", process_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
