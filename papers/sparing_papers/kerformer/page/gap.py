"""How far a swapped encoder is from the dense one, in its layers and its answers, by stage."""

from __future__ import annotations

from statistics import fmean

from sparing.report.blocks import Block
from sparing_papers.kerformer.page.tables import copies
from sparing_papers.long_range.page.results import DENSE, LongResults
from sparing_papers.long_range.page.tables import NONE

GIVEN = "the dense model's"
BEFORE, IMITATED, DISTILLED, LABELS = "before", "layers", "warm", "plain"
TOLD = {
    BEFORE: "as swapped in",
    IMITATED: "imitated",
    DISTILLED: "distilled",
    LABELS: "labels alone",
}
# What follows the dense model's answers leaves the layers as they had learned to imitate.
OF_LAYERS = (BEFORE, IMITATED, LABELS)
OF_ANSWERS = (BEFORE, IMITATED, DISTILLED, LABELS)


def gap_block(results: LongResults) -> list[Block]:
    """Errors of layers, each given the dense model's inputs, and divergence of answers."""
    rows = []
    for arm in results.arms("pretrained"):
        if arm == DENSE:
            continue
        for task in results.tasks("pretrained"):
            layers = [_layers(results, arm, task, stage) for stage in OF_LAYERS]
            answers = [_answers(results, arm, task, stage) for stage in OF_ANSWERS]
            if any(cell != NONE for cell in (*layers, *answers)):
                rows.append((arm, task, *layers, *answers))
    explain = (
        "First what a layer's attention is off by, |error| / |output|, when it is given the dense "
        "model's inputs: the mean over layers, and the range over them. Then how far the answers "
        "are from the fine-tuned dense model's, as divergence in nats. Means over seeds. What "
        "learns from labels alone may leave the dense model on its way and be right all the same."
    )
    heads = (
        "arm",
        "task",
        *(f"layers, {TOLD[stage]}" for stage in OF_LAYERS),
        *(f"answers, {TOLD[stage]}" for stage in OF_ANSWERS),
    )
    return [Block("gap", "The gap to dense attention", explain, heads, tuple(rows))] if rows else []


def _layers(results: LongResults, arm: str, task: str, stage: str) -> str:
    labels = copies(arm, task, stage)
    line = results.line("layer_error", "layer", **labels, inputs=GIVEN)
    errors = [float(record.value or 0.0) for _, record in line]
    if not errors:
        return NONE
    return f"{fmean(errors):.2f} ({min(errors):.2f} to {max(errors):.2f})"


def _answers(results: LongResults, arm: str, task: str, stage: str) -> str:
    found = results.mean("output_divergence", **copies(arm, task, stage))
    return NONE if found is None else f"{float(found.value or 0.0):.3f}"
