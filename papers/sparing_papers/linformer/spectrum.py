"""How much rank attention matrices have: singular values by layer, head and length."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from sparing.core.record import Label, Labels, Record, measured
from sparing.experiment.run import Cell
from sparing.measure.machine import threads
from sparing_papers.linformer.matrices import (
    captured,
    effective_rank,
    rank_holding,
    spectrum,
)
from sparing_papers.linformer.options import SPECTRUM, Options
from sparing_papers.linformer.sources import Source

QUARTER = "n/4"


def spectrum_cell(source: Source, tokens: int, options: Options, seconds: float) -> Cell:
    """Singular values of every head at one length, as means over the inputs."""

    def do() -> list[Record]:
        with threads(options.longer.thread_count):
            model, rows = source.at(tokens, options.spectrum_texts, 0)
            records: list[Record] = []
            for number, layer in enumerate(captured(model, rows)):
                records += _layer(layer.weights, labels_of(source, tokens, number), tokens)
        return records

    key = f"{SPECTRUM}/{source.name}/{source.seed}/{tokens}"
    return Cell(key, do, weight=seconds)


def labels_of(source: Source, tokens: int, layer: int) -> Labels:
    """What every record of a head carries."""
    return {
        "source": source.name,
        "seed": source.seed,
        "tokens": tokens,
        "beyond": tokens > source.longest,
        "layer": layer,
    }


def _layer(weights: Tensor, labels: Labels, tokens: int) -> Iterator[Record]:
    shares = spectrum(weights)
    count = len(shares)
    means = {
        "effective_rank": effective_rank(shares).mean(0),
        "rank_90": rank_holding(shares).mean(0),
    }
    for name, values in means.items():
        for head, value in enumerate(values.tolist()):
            yield from measured({**labels, "head": head}, "", count, **{name: value})
    held = shares.cumsum(-1).mean(0)
    for span, first in _summed_counts(tokens):
        for head, value in enumerate(held[:, first - 1].tolist()):
            at: Labels = {**labels, "head": head, "kept": span}
            yield from measured(at, "share", count, kept_share=value)


def _summed_counts(tokens: int) -> list[tuple[Label, int]]:
    """How many of the first singular values are summed: powers of two, and a quarter of all."""
    powers = [2**n for n in range(tokens.bit_length()) if 2**n < tokens]
    return [*((count, count) for count in (*powers, tokens)), (QUARTER, max(1, tokens // 4))]
