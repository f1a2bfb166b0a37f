"""The tables of the Linformer study's language part: perplexity, transfer, translation."""

from __future__ import annotations

from functools import partial

from sparing.core.record import Label, Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.estimates import interval_text, value_text
from sparing.report.figures.chart import Scales, lines_plot, points
from sparing.report.figures.drawing import Plot
from sparing.report.run import Run
from sparing.report.table import Column, table
from sparing_papers.linformer.page import prose
from sparing_papers.linformer.page.figures import arm_signs
from sparing_papers.linformer.page.tables import ARM
from sparing_papers.long_range import DENSE
from sparing_papers.long_range.page.lookups import arms, difference, line, mean, numbers
from sparing_papers.long_range.page.tables import points_text, score_text, with_gap

FREQUENCIES = "frequencies"


def language_blocks(run: Run) -> list[Block]:
    """Masked and causal models, fine-tuning, and the generated translation."""
    blocks = [_masked(run), _transfer(run), _causal(run), _translation(run)]
    return [block for block in blocks if block.rows]


def language_figures(run: Run) -> list[Plot]:
    """Perplexity of masked models by length, where there is more than one: tables have the rest."""
    lines = {
        arm: points(line(run, "perplexity", "tokens", arm=arm, **_labels(run, "masked")))
        for arm in arms(run, "masked", "perplexity")
        if arm != FREQUENCIES
    }
    if not any(len(of_arm) > 1 for of_arm in lines.values()):
        return []
    title, text = "Masked language models by length", prose("figure-masked")
    scales = Scales("tokens in a row", "Perplexity", log_x=True, log_y=True)
    return [lines_plot("masked", title, text, lines, arm_signs(run), scales)]


def _labels(run: Run, question: str, *more: str) -> dict[str, Label]:
    """The question, its corpus and more labels, as its first record has them."""
    records = run.table.all("perplexity", question=question)
    return {name: records[0].labels[name] for name in ("question", "corpus", *more) if records}


def _masked(run: Run) -> Block:
    labels = _labels(run, "masked")

    def cell(tokens: int, arm: str) -> str:
        return _perplexity(run, {**labels, "arm": arm, "tokens": tokens})

    lengths = numbers(run, "perplexity", "tokens", question="masked")
    columns = [ARM, *(Column(f"{tokens} tokens", partial(cell, tokens)) for tokens in lengths)]
    explain = prose("masked", corpus=labels.get("corpus", ""))
    rows = arms(run, "masked", "perplexity")
    return table("masked", "Masked language models", explain, rows, columns)


def _perplexity(run: Run, labels: dict[str, Label]) -> str:
    """A mean, or what was measured once, and the difference from dense attention."""
    once = run.table.find("perplexity", seed=None, **labels)
    gap = interval_text(
        difference(run, "perplexity", **labels), lambda value: wording.signed(value, 2)
    )
    return with_gap(value_text(mean(run, "perplexity", **labels) or once, wording.number), gap)


def _transfer(run: Run) -> Block:
    scores = run.table.all("score", question="transfer")
    names = ("question", "task", "corpus", "tokens")
    labels = {name: scores[0].labels[name] for name in names if scores}

    def cell(start: str, arm: str) -> str:
        return score_text(run, "score", arm=arm, start=start, **labels)

    columns = [
        ARM,
        Column("from scratch", partial(cell, "scratch")),
        Column("pretrained", partial(cell, "pretrained")),
        Column[str](
            "gain, points", lambda a: points_text(mean(run, "pretraining_gain", arm=a, **labels))
        ),
    ]
    explain = prose("transfer", task=labels.get("task", ""))
    return table("transfer", "Transfer", explain, arms(run, "transfer"), columns)


def _causal(run: Run) -> Block:
    labels = _labels(run, "causal", "tokens")
    refused = {
        str(record.labels["arm"]): f"refused: {record.labels['why']}"
        for record in run.table.matching("refused", {"question": "causal"})
    }

    def cell(arm: str) -> str:
        return refused.get(arm) or _perplexity(run, {**labels, "arm": arm})

    rows = [*arms(run, "causal", "perplexity"), *refused]
    explain = prose("causal", corpus=labels.get("corpus", ""))
    columns = (ARM, Column("perplexity", cell))
    return table("causal", "Causal language models", explain, rows, columns)


def _translation(run: Run) -> Block:
    def cell(name: str, record: Record) -> str:
        labels = {label: value for label, value in record.labels.items() if label != "over"}
        return score_text(run, name, **labels)

    columns = (
        Column[Record]("where", lambda record: str(record.labels["place"])),
        Column[Record]("variant", lambda record: str(record.labels["arm"])),
        Column("whole sentences right", partial(cell, "score")),
        Column("words right", partial(cell, "token_accuracy")),
    )
    scores = run.table.all("mean_score", question="translation")
    rows = sorted(scores, key=lambda r: (str(r.labels["place"]), r.labels["arm"] != DENSE))
    return table("translation", "Translation", prose("translation"), rows, columns)
