"""A page as data: a document of sections, each a sequence of typed parts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from sparing.report.blocks import Block
from sparing.report.cells import Column, Row
from sparing.report.figures.drawing import Plot
from sparing.report.run import Run

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Verdict:
    """The page's first sentence, ``lead`` and ``because``, and the ones after it."""

    lead: str
    because: str
    second: tuple[str, ...] = ()


@dataclass(frozen=True)
class Text:
    """A paragraph in small print; left out where it is empty."""

    text: str


@dataclass(frozen=True)
class Bar:
    """A table cell of a share of one: a text with a bar under it; None is the text alone."""

    text: str
    share: float | None = None

    @property
    def width(self) -> str:
        """The bar's length in per cent, for a style."""
        return f"{100 * min(1.0, max(0.0, self.share or 0.0)):.1f}"


@dataclass(frozen=True)
class Table:
    """A table of plain texts; left out without rows, folded up under ``fold`` if that is given.

    The last cell of a row that is shorter than ``heads`` spans the columns that it lacks.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str | Bar]]
    fold: str = ""
    style: str = "plain"


@dataclass(frozen=True)
class Comparison:
    """A table of variants; cells have notes and tones, and ``signs`` puts one beside each."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    caption: str = ""
    head: str = "Variant"
    signs: bool = True


@dataclass(frozen=True)
class Listing:
    """Variants, each with its sign and a few words."""

    items: Pairs


@dataclass(frozen=True)
class Snippet:
    """A piece of code with the words above it."""

    words: str
    code: str
    language: str = "python"


@dataclass(frozen=True)
class Raw:
    """A part that only one page has, in both forms."""

    html: Markup
    markdown: str


@dataclass(frozen=True)
class Section:
    """Parts under a title; a plot or a block in it brings a title of its kind."""

    key: str
    title: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Pair:
    """Sections beside each other where the page is wide enough."""

    sections: Sequence[Section]


CLOSING = {
    "run": "Task, machine and versions",
    "words": "What the words mean",
    "repeat": "Repeat it",
}
"""The sections that end every page, by their anchors; the last only where a command is known."""
FEW_SECTIONS = 5
"""A page with more sections begins with a list of them."""

Part = Text | Table | Comparison | Listing | Snippet | Raw | Plot | Block | Section | Pair


@dataclass(frozen=True)
class Document:
    """The content of a page; ``subject`` follows the run's name in its title.

    ``positions`` give names their signs, those of ``faded`` names are grey; ``style`` is added
    to the style of every page as it is.
    """

    run: Run
    subject: str
    headline: Sequence[str]
    verdict: Verdict
    notices: Sequence[str]
    sections: Sequence[Part]
    facts: Pairs
    words: Pairs
    positions: Mapping[str, int] = field(default_factory=dict)
    faded: Collection[str] = ()
    style: str = ""

    @property
    def figures(self) -> list[Plot]:
        """The plots of all sections, in their order."""
        return list(_plots(self.sections))

    @property
    def contents(self) -> Pairs:
        """The anchor and title of all sections, in order; empty for a short page."""
        closing = (pair for pair in CLOSING.items() if self.command or pair[0] != "repeat")
        titles = [*_titles(self.sections), *closing]
        return titles if len(titles) > FEW_SECTIONS else ()

    @property
    def command(self) -> str:
        """The command that repeats the run; empty where it is not known."""
        return str(self.run.config.get("command") or "")


def figure(plot: Plot, *more: Part) -> Section:
    """A section of a plot, under the plot's title, and what belongs to it."""
    return Section(f"figure-{plot.name}", "", (plot, *more))


def _titles(parts: Sequence[Part]) -> Iterator[tuple[str, str]]:
    for part in parts:
        if isinstance(part, Pair):
            yield from _titles(part.sections)
        elif isinstance(part, Section | Block):
            plots = _plots(part.parts) if isinstance(part, Section) else ()
            yield part.key, part.title or next(plot.title for plot in plots)


def _plots(parts: Sequence[Part]) -> Iterator[Plot]:
    for part in parts:
        if isinstance(part, Plot):
            yield part
        elif isinstance(part, Section | Pair):
            yield from _plots(part.parts if isinstance(part, Section) else part.sections)
