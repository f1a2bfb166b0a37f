"""Scores with a share of the heads, or of their coordinates, along a curve."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparing.core.record import Label, Record
from sparing.experiment.run import Cell
from sparing.measure.statistics import unseen
from sparing.train import evaluate
from sparing.transfer.families.known import find_blocks
from sparing.transfer.gradual import labelled_batches
from sparing.transfer.pruning import prune
from sparing.transfer.rotating import rotate
from sparing.transfer.swap import swap
from sparing_papers.adaattention.arms import Work, importance_examples, inputs_for_moments
from sparing_papers.adaattention.cells.answers import answers_on_test, kept_answers, score_of
from sparing_papers.adaattention.names import FULL

WIDTH_SHARES = (0.75, 0.5, 0.31, 0.25, 0.125)
HEAD_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
FIRST, ROTATED = "first", "rotated"
RESAMPLES = 2_000


def rotation_cell(work: Work, seed: int) -> Cell:
    """The full model with narrower queries and keys, untrained: as is, and rotated first."""

    def do() -> list[Record]:
        whole = kept_answers(work, FULL, seed)
        records = []
        for basis in (FIRST, ROTATED):
            for share in WIDTH_SHARES:
                model = work.open(FULL, seed)
                if basis == ROTATED:
                    rotate(model, inputs_for_moments(work, seed))
                options: dict[str, Any] = {
                    "scores": "fixed",
                    "score": share,
                    "threshold": None,
                    "levels": 0,
                }
                swap(model, "adaptive", tokens=work.task.tokens, **options)
                answered = answers_on_test(model.eval(), work)
                labels: dict[str, Label] = {"task": work.name, "basis": basis, "seed": seed}
                labels |= {"kept_share": share, "metric": work.task.metric}
                records.append(_difference(work, answered, whole, labels))
        return records

    return Cell(f"{work.name}/rotation/{seed}", do)


def _difference(
    work: Work, answered: Tensor, whole: Tensor | None, labels: dict[str, Label]
) -> Record:
    """The difference to the full model, with the 95 % bootstrap interval over examples."""
    value = score_of(work, answered)
    if whole is None:
        return Record("width_score", value, "score", "measured", labels, count=len(answered))
    generator = torch.Generator().manual_seed(0)
    draws = torch.randint(len(whole), (RESAMPLES, len(whole)), generator=generator)
    drawn = torch.tensor(
        [score_of(work, answered, draw=d) - score_of(work, whole, draw=d) for d in draws],
        dtype=torch.float64,
    )
    low, high = drawn.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    gap = value - score_of(work, whole)
    if low == high:  # no answer differs, but so few examples cannot show that none ever will
        low, high = (gap + side * unseen(len(whole), 0.95) for side in (-1, 1))
    about: dict[str, Label] = {**labels, "score": value}
    return Record("width_difference", gap, "score", "measured", about, (low, high), len(whole))


def heads_cell(work: Work, seed: int) -> Cell:
    """The full model's validation score as heads are removed, least important first, untrained."""

    def do() -> list[Record]:
        model = work.open(FULL, seed)
        batches = labelled_batches(work.task, importance_examples(work.task), seed)
        records = [_with_heads(work, 1.0, evaluate(model, work.task, "validation").score, seed)]
        total = sum(block.heads for block in find_blocks(model))
        counts = dict.fromkeys(round(share * total) for share in HEAD_SHARES)
        for count in (number for number in counts if 0 < number < total):
            prune(model, count / total, batches)
            score = evaluate(model, work.task, "validation").score
            records.append(_with_heads(work, 1 - count / total, score, seed))
        return records

    return Cell(f"{work.name}/heads/{seed}", do)


def _with_heads(work: Work, left: float, score: float, seed: int) -> Record:
    labels: dict[str, Label] = {"task": work.name, "seed": seed, "heads_left": round(left, 4)}
    labels |= {"training": "none", "metric": work.task.metric, "split": "validation"}
    return Record("heads_score", score, "score", "measured", labels)
