"""Look-ups in the run of a comparison: sizes, curves and accuracies."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy
from scipy import special

from sparing.core.record import Label, Record
from sparing.report.run import Run

Estimate = tuple[float, tuple[float, float] | None]
"""A value and its interval, where it has one."""


@dataclass(frozen=True)
class Setting:
    """At which size a quantity was taken: of the whole model or the attention core alone."""

    scope: str
    tokens: int
    batch: int

    def labels(self) -> dict[str, Label]:
        """As the labels that its records carry."""
        return {"scope": self.scope, "tokens": self.tokens, "batch": self.batch}


def others(run: Run) -> list[str]:
    """All variants but the baseline."""
    return [arm for arm in run.table.arms if arm != run.config["baseline"]]


def seeds(run: Run) -> int:
    """How many seeds were planned."""
    planned = run.config.get("seeds")
    return len(planned) if isinstance(planned, list) else planned if isinstance(planned, int) else 0


def task_tokens(run: Run) -> int | None:
    """The longest sequence that the task gives the model."""
    tokens = run.config["task"].get("tokens")
    return tokens if isinstance(tokens, int) else None


def arm_failed(run: Run, arm: str) -> bool:
    """Whether a cell of this variant ended in an error."""
    return any(_cell_names(failure.get("cell"), arm) for failure in run.failed)


def _cell_names(cell: object, arm: str) -> bool:
    if isinstance(cell, dict):
        return cell.get("arm") == arm
    return arm in re.split("[/:;,=| ]", str(cell))


def curves_disturbed(run: Run) -> bool:
    """Whether the machine was busy while attention cores were timed at any length."""
    return any(map(run.table.disturbance, run.table.all("latency_ratio", scope="attention")))


def crossover(run: Run, arm: str) -> Record | None:
    """The newest record of the length from which the variant's attention core is faster, if any."""
    records = run.table.matching("crossover_tokens", {"arm": arm})
    return records[-1] if records else None


def setting(run: Run, *names: str) -> Setting | None:
    """At which size to compare the variants by these quantities.

    The whole model before the attention core, the length nearest to the task's own, then the
    smallest batch; the same for all variants.
    """
    sizes = {_size(record.labels) for name in names for record in run.table.all(name)}
    usual = task_tokens(run) or 0
    known = (size for size in sizes if size is not None)
    return min(
        known, key=lambda s: (s.scope != "model", abs(s.tokens - usual), s.batch), default=None
    )


def _size(labels: dict[str, Label]) -> Setting | None:
    scope, tokens, batch = (labels.get(name) for name in ("scope", "tokens", "batch"))
    if scope in ("model", "attention") and isinstance(tokens, int) and isinstance(batch, int):
        return Setting(str(scope), tokens, batch)
    return None


def times(run: Run) -> dict[str, float]:
    """Each variant's median latency at the size at which variants are compared."""
    size = setting(run, "latency_ratio", "latency_ms")
    if size is None:
        return {}
    labels: dict[str, Label] = {"statistic": "p50", **size.labels()}
    medians = {arm: run.table.value("latency_ms", arm=arm, **labels) for arm in run.table.arms}
    return {arm: time_ms for arm, time_ms in medians.items() if time_ms}


def far_times(run: Run) -> dict[str, float]:
    """Each variant's median latency of the attention core at the longest length of any."""
    curves = {arm: dict(curve(run, "latency_ms", arm, statistic="p50")) for arm in run.table.arms}
    longest = max((tokens for points in curves.values() for tokens in points), default=0)
    return {arm: points[longest] for arm, points in curves.items() if longest in points}


def lengths(run: Run, name: str, **labels: Label) -> list[int]:
    """The lengths at which there are values, ascending."""
    values = run.table.values_of(name, "tokens", **labels)
    return sorted(tokens for tokens in values if isinstance(tokens, int))


def core_batch(run: Run, name: str) -> Label:
    """The batch of the curves over the length: the one with most records."""
    batches = Counter(r.labels.get("batch") for r in run.table.all(name, scope="attention"))
    return batches.most_common(1)[0][0] if batches else None


def curve(run: Run, name: str, arm: str, **labels: Label) -> list[tuple[int, float]]:
    """(tokens, value) of one variant's attention core, ascending by length."""
    batch = core_batch(run, name)
    records = run.table.all(name, arm=arm, scope="attention", batch=batch, **labels)
    pairs = ((record.labels.get("tokens"), record.value) for record in records)
    return sorted((t, v) for t, v in pairs if isinstance(t, int) and v is not None and v > 0)


def accuracies(run: Run, arm: str) -> list[Record]:
    """The accuracy on the test split, one record a seed."""
    return run.table.all("accuracy", arm=arm, split="test")


def accuracy(run: Run, arm: str) -> Estimate | None:
    """Mean accuracy over the seeds with its 95 % interval, or None.

    The interval is Student's over the seeds; with one seed it is the record's own, if any.
    """
    records = accuracies(run, arm)
    if len(records) == 1:
        return float(records[0].value or 0.0), records[0].interval
    return mean_interval([float(r.value or 0.0) for r in records]) if records else None


def mean_interval(values: list[float]) -> tuple[float, tuple[float, float]]:
    """The mean of at least two scores and its 95 % interval by Student's t, within its limits.

    Shares are within 0 to 1, correlations within -1 to 1.
    """
    sample = numpy.asarray(values, dtype=float)
    error = sample.std(ddof=1) / numpy.sqrt(len(sample))
    reach = float(special.stdtrit(len(sample) - 1, 0.975) * error)
    mean = float(sample.mean())
    least = 0.0 if sample.min() >= 0 else -1.0
    return mean, (max(least, mean - reach), min(1.0, mean + reach))
