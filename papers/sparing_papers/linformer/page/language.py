"""The tables of the Linformer study's language part: perplexity, transfer, translation."""

from __future__ import annotations

from sparing.core.record import Label, Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.figures.chart import Lines, Scales, lines_plot, points
from sparing.report.figures.drawing import Plot
from sparing_papers.linformer.page.figures import arm_positions
from sparing_papers.long_range.page.results import DENSE, LongResults
from sparing_papers.long_range.page.tables import NONE, points_text, score_text

FREQUENCIES = "frequencies"


def language_blocks(results: LongResults) -> list[Block]:
    """Masked and causal models, fine-tuning, and the generated translation."""
    found = [_masked(results), _transfer(results), _causal(results), _translation(results)]
    return [block for block in found if block.rows]


def language_figures(results: LongResults) -> list[Plot]:
    """Perplexity of masked models by length, where there is more than one: tables have the rest."""
    arms = results.arms("masked", "perplexity")
    lines: Lines = {
        arm: points(results.line("perplexity", "tokens", **_masked_labels(results, arm)))
        for arm in arms
        if arm != FREQUENCIES
    }
    if not any(len(line) > 1 for line in lines.values()):
        return []
    return [
        lines_plot(
            "masked",
            "Masked language models by length",
            "Perplexity on held-out text by the length of the rows that were trained on, with "
            "95 % intervals over seeds; lower is better. Each length hides other words, so "
            "that a few per cent from one length to the next may be the words'.",
            lines,
            arm_positions(results),
            Scales("tokens in a row", "Perplexity", log_x=True, log_y=True),
        )
    ]


def _masked_labels(results: LongResults, arm: str) -> dict[str, Label]:
    return {"question": "masked", "corpus": _corpus(results, "masked"), "arm": arm}


def _corpus(results: LongResults, question: str) -> str:
    found = results.find("perplexity", question=question)
    return "" if found is None else str(found.labels["corpus"])


def _masked(results: LongResults) -> Block:
    lengths = sorted(
        {int(r.labels["tokens"] or 0) for r in results.all("perplexity", question="masked")}
    )
    rows = []
    for arm in results.arms("masked", "perplexity"):
        labels = _masked_labels(results, arm)
        cells = [_perplexity(results, {**labels, "tokens": tokens}) for tokens in lengths]
        rows.append((arm, *cells))
    explain = (
        f"Trained from scratch on {_corpus(results, 'masked')}; perplexity on hidden words of "
        "held-out text, lower is better; behind it the difference from softmax with its 95 % "
        "interval over seeds. Frequencies guesses by how often a word occurs."
    )
    heads = ("arm", *(f"{tokens} tokens" for tokens in lengths))
    return Block("masked", "Masked language models", explain, heads, tuple(rows))


def _perplexity(results: LongResults, labels: dict[str, Label]) -> str:
    """A mean, or what was measured once, and the difference from dense attention."""
    found = results.mean("perplexity", **labels) or results.find("perplexity", **labels, seed=None)
    if found is None or found.value is None:
        return NONE
    text = wording.number(float(found.value))
    gap = results.difference("perplexity", labels)
    return text if gap is None else f"{text}; {_gap(gap)}"


def _gap(gap: Record) -> str:
    value = float(gap.value or 0)
    text = wording.signed(value, 2)
    if gap.interval is not None:
        low, high = (wording.signed(float(end), 2) for end in gap.interval)
        text += f" ({low} to {high})"
    return text


def _transfer(results: LongResults) -> Block:
    first = results.find("score", question="transfer")
    rows = []
    if first is not None:
        here = {name: first.labels[name] for name in ("question", "task", "corpus", "tokens")}
        for arm in results.arms("transfer"):
            cells = [arm]
            for start in ("scratch", "pretrained"):
                labels: dict[str, Label] = {**here, "arm": arm, "start": start}
                text = score_text(results.mean("score", **labels))
                gap = results.difference("score", labels)
                cells.append(text if gap is None else f"{text}; {points_text(gap)}")
            gain = results.mean("pretraining_gain", **here, arm=arm)
            rows.append((*cells, points_text(gain)))
    task = "" if first is None else str(first.labels["task"])
    explain = (
        f"The masked models fine-tuned on {task}, beside the same arms from scratch. Behind each "
        "score the difference from softmax in points."
    )
    heads = ("arm", "from scratch", "pretrained", "gain, points")
    return Block("transfer", "Transfer", explain, heads, tuple(rows))


def _causal(results: LongResults) -> Block:
    rows = []
    for arm in results.arms("causal", "perplexity"):
        first = results.find("perplexity", question="causal", arm=arm)
        assert first is not None
        here = {name: first.labels[name] for name in ("question", "corpus", "tokens", "arm")}
        rows.append((arm, _perplexity(results, here)))
    rows += [
        (str(r.labels["arm"]), f"refused: {r.labels['why']}")
        for r in results.all("refused", question="causal")
    ]
    explain = (
        f"Decoders trained from scratch on {_corpus(results, 'causal')}: perplexity of the next "
        "word on held-out text. Mechanisms whose outputs mix all positions are refused."
    )
    return Block("causal", "Causal language models", explain, ("arm", "perplexity"), tuple(rows))


def _translation(results: LongResults) -> Block:
    scores = list(results.all("mean_score", question="translation"))
    rows = []
    for record in sorted(scores, key=lambda r: (str(r.labels["place"]), r.labels["arm"] != DENSE)):
        labels = {k: v for k, v in record.labels.items() if k != "over"}
        cells = [str(labels["place"]), str(labels["arm"])]
        for name in ("score", "token_accuracy"):
            text = score_text(results.mean(name, **labels))
            gap = results.difference(name, labels)
            cells.append(text if gap is None else f"{text}; {points_text(gap)}")
        rows.append(tuple(cells))
    explain = (
        "A generated translation, with the mechanism in the encoder alone or in cross-attention "
        "too. Behind each share the difference from softmax in points."
    )
    heads = ("where", "arm", "whole sentences right", "words right")
    return Block("translation", "Translation", explain, heads, tuple(rows))
