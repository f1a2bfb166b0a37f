"""Docstrings of the library as reStructuredText: names are code, formulas keep their signs."""

from __future__ import annotations

import re
from typing import Any

CODE = re.compile(r"``.+?``|`[^`\n]+`")
SPECIAL = re.compile(r"([\\*|_])")


def process_docstring(
    app: Any, what: str, name: str, subject: Any, options: Any, lines: list[str]
) -> None:
    """Escape the prose and mark indented blocks as code; for ``autodoc-process-docstring``."""
    del app, what, name, subject, options
    lines[:] = restructured(lines)


def restructured(lines: list[str]) -> list[str]:
    """The lines of a docstring for docutils."""
    text = "\n".join(lines).strip("\n")
    blocks = re.split(r"\n\s*\n", text)
    made: list[str] = []
    in_code = False
    for block in blocks:
        is_code = block.startswith("    ")
        if is_code and not in_code:
            made.append(".. code-block:: python")
        made.append(block if is_code else _prose(block))
        in_code = is_code
    return [*"\n\n".join(made).split("\n"), ""]


def _prose(block: str) -> str:
    """A paragraph or a list: code in double backticks, everything else literal."""
    made, end = [], 0
    for match in CODE.finditer(block):
        made.append(SPECIAL.sub(r"\\\1", block[end : match.start()]))
        made.append("``" + match.group().strip("`") + "``")
        end = match.end()
    made.append(SPECIAL.sub(r"\\\1", block[end:]))
    return "".join(made)
