"""The sentences of a page, kept in a Markdown file beside the code that fills them in."""

from __future__ import annotations

import re
from functools import cached_property
from importlib import resources

_HEADING = re.compile(r"^## (\S+)$", re.MULTILINE)


class Prose:
    """Texts by key: ``prose("speed", pairs=10)`` is the text under ``## speed``, filled in.

    ``package`` holds the file, which is read with the first text. Line breaks inside a paragraph
    are spaces. Braces name what is filled in, as in ``str.format``.

    Raises ``KeyError`` for a key, or a value in braces, that is missing.
    """

    def __init__(self, package: str, name: str = "text.md") -> None:
        self._package, self._name = package, name

    @cached_property
    def texts(self) -> dict[str, str]:
        """All texts by key, not filled in."""
        content = resources.files(self._package).joinpath(self._name).read_text(encoding="utf-8")
        _, *parts = _HEADING.split(content)
        return {
            key: "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))
            for key, text in zip(parts[::2], parts[1::2], strict=True)
        }

    def __call__(self, key: str, **values: object) -> str:
        """The text of this key with the values in the place of its braces."""
        return self.texts[key].format(**values)

    def pairs(self, key: str, **values: object) -> list[tuple[str, str]]:
        """A word and what it means for each paragraph ``word: meaning`` of a text."""
        parts = (part.partition(": ") for part in self(key, **values).split("\n\n"))
        return [(word, meaning) for word, _, meaning in parts]
