"""Score differences of two trained variants, with intervals over test examples and trainings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from sparing.core.record import Label, Record
from sparing.measure.pooling import Part, parts_of, reach_of
from sparing.measure.statistics import unseen
from sparing_papers.adaattention.arms import Work
from sparing_papers.adaattention.cells.answers import kept_answers, score_of

RESAMPLES = 500
CONFIDENCE = 0.95

Pairs = Sequence[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Gap:
    """A mean difference, the parts of its variance, and its numbers of examples and seeds."""

    value: float
    parts: tuple[Part, ...]
    examples: int
    seeds: int

    def record(self, name: str, labels: dict[str, Label], count: int) -> Record:
        """The difference with its 95 % interval, as a record."""
        # if no answer differs, so few examples cannot show that none ever will
        reach = reach_of(self.parts, CONFIDENCE) or unseen(self.examples, CONFIDENCE)
        interval = (self.value - reach, self.value + reach)
        return Record(name, self.value, "score", "measured", labels, interval, count)


def gap_of(work: Work, arm: str, to: str, seeds: Sequence[int]) -> Gap | None:
    """The score difference of two variants on a task, over the seeds that have both.

    None without such a seed. Seeds and examples are crossed random effects, as in
    ``pool_differences``.
    """
    answered = [(kept_answers(work, arm, seed), kept_answers(work, to, seed)) for seed in seeds]
    pairs = [(ours, theirs) for ours, theirs in answered if ours is not None and theirs is not None]
    if not pairs:
        return None
    gaps = _gaps(work, pairs)
    parts = _resampled(work, pairs) if gaps is None else parts_of(gaps.numpy())
    value = fmean(score_of(work, ours) - score_of(work, theirs) for ours, theirs in pairs)
    return Gap(value, tuple(parts), len(pairs[0][0]), len(pairs))


def mean_gap(gaps: Sequence[Gap]) -> Gap:
    """The mean over tasks of equal weight; trainings of two tasks are independent."""
    parts = tuple(part.times(1 / len(gaps)) for gap in gaps for part in gap.parts)
    least, seeds = min(gap.examples for gap in gaps), min(gap.seeds for gap in gaps)
    return Gap(fmean(gap.value for gap in gaps), parts, least, seeds)


def _gaps(work: Work, pairs: Pairs) -> Tensor | None:
    """(seeds, examples): the difference of each example; None if the metric is no mean of such."""
    if work.task.answer == "span":
        column = work.task.metrics.index(work.task.metric)
        return torch.stack([(ours - theirs)[:, column].double() for ours, theirs in pairs])
    if work.task.metric != "accuracy":
        return None
    labels = work.task.test.labels
    right = [[(outputs.argmax(-1) == labels).double() for outputs in pair] for pair in pairs]
    return torch.stack([ours - theirs for ours, theirs in right])


def _resampled(work: Work, pairs: Pairs) -> list[Part]:
    """The same two parts for a metric of all answers together, by bootstrap over examples.

    All seeds use the same samples. The variance over samples of one seed's difference, beside that
    of the mean over seeds, gives the part that the seeds share.
    """
    count, seeds = len(pairs[0][0]), len(pairs)
    generator = torch.Generator().manual_seed(0)
    draws = torch.randint(count, (RESAMPLES, count), generator=generator)
    drawn = np.array(
        [
            [score_of(work, ours, draw=d) - score_of(work, other, draw=d) for ours, other in pairs]
            for d in draws
        ]
    )
    of_mean = float(drawn.mean(1).var(ddof=1))
    if seeds == 1:
        return [Part(of_mean, count - 1)]
    of_one = float(drawn.var(0, ddof=1).mean())
    unshared = max(0.0, (of_one - of_mean) / (seeds - 1))
    seen = np.array([score_of(work, ours) - score_of(work, other) for ours, other in pairs])
    return [
        Part(float(seen.var(ddof=1)) / seeds, seeds - 1),
        Part(max(0.0, of_mean - unshared), count - 1),
    ]
