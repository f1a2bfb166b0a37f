"""The page of a study that is a verdict, figures and tables, and its Markdown twin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparing.report import blocks
from sparing.report.blocks import Block
from sparing.report.drawing import Plot
from sparing.report.markdown import block_parts, closing, escape, picture
from sparing.report.page import Page
from sparing.report.rendering import chip, environment, inline
from sparing.report.run import Run

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Verdict:
    """The page's first sentences."""

    lead: str
    because: str
    second: tuple[str, ...]


@dataclass(frozen=True)
class StudyPage:
    """Everything that such a page says; ``subject`` stands in its title behind the run's name.

    ``positions`` give names in legends their signs.
    """

    run: Run
    subject: str
    headline: Sequence[str]
    verdict: Verdict
    notices: Sequence[str]
    figures: Sequence[Plot]
    positions: Mapping[str, int]
    blocks: Sequence[Block]
    facts: Pairs
    words: Pairs

    def page(self) -> Page:
        """The page with its Markdown twin and its figures."""
        return Page(self.figures, self.html(), self.markdown())

    def html(self) -> str:
        """The page as one file."""
        name = blocks.name_of(self.run)
        template = environment().get_template("study.html.jinja")
        return template.render(
            title=f"{name}: {self.subject}",
            name=name,
            headline=self.headline,
            verdict=self.verdict,
            notices=self.notices,
            figures=[inline(plot) for plot in self.figures],
            chips={each: chip(position) for each, position in self.positions.items()},
            blocks=self.blocks,
            facts=self.facts,
            words=self.words,
            command=str(self.run.config.get("command") or ""),
        )

    def markdown(self) -> str:
        """The same in Markdown."""
        decided = self.verdict
        parts = [
            f"# {escape(blocks.name_of(self.run))}",
            escape(" · ".join(self.headline)),
            f"**{escape(decided.lead)}**{escape(decided.because)}",
            *(f"> {escape(notice)}" for notice in self.notices),
            *(escape(sentence) for sentence in decided.second),
            *(picture(plot) for plot in self.figures),
        ]
        for block in self.blocks:
            parts += block_parts(block)
        parts += closing(self.run, list(self.facts), list(self.words))
        return "\n\n".join(part for part in parts if part) + "\n"
