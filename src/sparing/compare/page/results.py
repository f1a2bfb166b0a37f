"""Records by question: which arms, which lengths, what value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy
from scipy import special

from sparing.core.record import Label, Record
from sparing.core.traits import FAMILIES
from sparing.experiment.records import RecordTable
from sparing.report.run import Config

MANY_ARMS = 12
"""From more arms on, tables go by family and figures show in colour only what nothing beats."""


@dataclass(frozen=True)
class Setting:
    """At which size a quantity was taken: of the whole model or the attention core alone."""

    scope: str
    tokens: int
    batch: int

    def labels(self) -> dict[str, Label]:
        """As the labels that its records carry."""
        return {"scope": self.scope, "tokens": self.tokens, "batch": self.batch}


class Results(RecordTable):
    """The records of a comparison: which arms, which lengths, what value."""

    def __init__(self, records: Sequence[Record], config: Config) -> None:
        super().__init__(records, config["arms"])
        self.config = config
        self.baseline: str = config["baseline"]
        self.others = [arm for arm in self.arms if arm != self.baseline]

    @property
    def curves_disturbed(self) -> bool:
        """Whether the machine was busy while attention cores were timed at any length."""
        return any(map(self.disturbance, self.all("latency_ratio", scope="attention")))

    def crossover(self, arm: str) -> Record | None:
        """The newest word on where the arm's attention core becomes faster; it may be: nowhere."""
        found = self.matching("crossover_tokens", {"arm": arm})
        return found[-1] if found else None

    def setting(self, *names: str) -> Setting | None:
        """At which size to compare the arms by these quantities.

        The whole model before the attention core, the length nearest to the task's own, then the
        smallest batch; the same for all arms.
        """
        wanted = self.task_tokens
        sizes = (_size(r.labels) for name in names for r in self.all(name))
        found = {size for size in sizes if size is not None}
        return min(found, key=lambda s: _preference(s, wanted), default=None)

    def position(self, arm: str) -> int:
        """What gives an arm its colour and marker in every figure; the baseline is 0."""
        return 0 if arm == self.baseline else 1 + self._coloured.index(arm)

    @cached_property
    def crowded(self) -> bool:
        """Whether there are too many arms to tell apart by colour."""
        return len(self.arms) > MANY_ARMS

    @cached_property
    def beaten(self) -> dict[str, list[str]]:
        """Where arms are many: those beaten both here and at the longest length, and by whom.

        Beaten means that another arm is at least as accurate on average and at least as fast, and
        one of both more: here by the latency at the task's size, then by the attention core's at
        the longest length measured. The baseline never counts as beaten.
        """
        if not self.crowded:
            return {}
        timed = [times for times in (self.times(), self.far_times()) if times]
        measured = [_beaten(self._judged(times)) for times in timed]
        found = {}
        for arm in self.others:
            if measured and all(arm in by for by in measured):
                found[arm] = list(dict.fromkeys(by[arm] for by in measured))
        return found

    @cached_property
    def grey(self) -> frozenset[str]:
        """The arms without a colour of their own: the beaten ones, and the slowest of too many."""
        rest = [arm for arm in self.others if arm not in self.beaten]
        times = self.far_times() or self.times()
        rest.sort(key=lambda arm: times.get(arm, float("inf")))
        return frozenset((*self.beaten, *rest[MANY_ARMS - 1 :])) if self.crowded else frozenset()

    def times(self) -> dict[str, float]:
        """Each arm's median latency at the size at which arms are compared."""
        setting = self.setting("latency_ratio", "latency_ms")
        found = {}
        for arm in self.arms if setting else ():
            assert setting is not None
            time_ms = self.value("latency_ms", arm=arm, statistic="p50", **setting.labels())
            if time_ms:
                found[arm] = time_ms
        return found

    def far_times(self) -> dict[str, float]:
        """Each arm's median latency of the attention core at the longest length of any."""
        curves = {arm: dict(self.curve("latency_ms", arm, statistic="p50")) for arm in self.arms}
        longest = max((tokens for curve in curves.values() for tokens in curve), default=0)
        return {arm: curve[longest] for arm, curve in curves.items() if longest in curve}

    def _judged(self, times: dict[str, float]) -> dict[str, tuple[float, float]]:
        """(mean accuracy, time) of the arms that have both."""
        accuracies = {arm: self.accuracy(arm) for arm in times}
        return {arm: (found[0], times[arm]) for arm, found in accuracies.items() if found}

    def family(self, arm: str) -> str:
        """The arm's family where arms are many and the run names one, else empty."""
        families = self.config.get("families")
        if not self.crowded or not isinstance(families, dict):
            return ""
        return str(families.get(arm) or "other")

    @cached_property
    def ordered(self) -> list[str]:
        """The arms as a table lists them, the baseline first.

        Where they are many: by family, the fastest of each first, those without a time last.
        """
        first = [self.baseline] if self.baseline in self.arms else []
        if not self.crowded:
            return [*first, *self.others]
        times = self.times()

        def place(arm: str) -> tuple[int, str, float]:
            family = self.family(arm)
            known = FAMILIES.index(family) if family in FAMILIES else len(FAMILIES)
            return known, family, times.get(arm, float("inf"))

        return [*first, *sorted(self.others, key=place)]

    @cached_property
    def _coloured(self) -> list[str]:
        """The other arms, those first that need a colour of their own."""
        return sorted(self.others, key=lambda arm: arm in self.grey)

    @property
    def task_tokens(self) -> int | None:
        """The longest sequence that the task gives the model."""
        tokens = self.config["task"].get("tokens")
        return tokens if isinstance(tokens, int) else None

    def lengths(self, name: str, **labels: Label) -> list[int]:
        """The lengths at which there are values, ascending."""
        found = (r.labels.get("tokens") for r in self.all(name, **labels))
        return sorted({tokens for tokens in found if isinstance(tokens, int)})

    def core_batch(self, name: str) -> Label:
        """The batch of the curves over the length: the one with most records."""
        batches = Counter(r.labels.get("batch") for r in self.all(name, scope="attention"))
        return batches.most_common(1)[0][0] if batches else None

    def curve(self, name: str, arm: str, **labels: Label) -> list[tuple[int, float]]:
        """(tokens, value) of one arm's attention core, ascending by length."""
        found = self.all(name, arm=arm, scope="attention", batch=self.core_batch(name), **labels)
        pairs = ((r.labels.get("tokens"), r.value) for r in found)
        return sorted((t, v) for t, v in pairs if isinstance(t, int) and v is not None and v > 0)

    def accuracies(self, arm: str) -> list[Record]:
        """The accuracy on the test split, one record a seed."""
        return self.all("accuracy", arm=arm, split="test")

    def accuracy(self, arm: str) -> tuple[float, tuple[float, float] | None] | None:
        """Mean accuracy over the seeds with its 95 % interval, or None.

        The interval is Student's over the seeds; with one seed it is the record's own, if any.
        """
        found = self.accuracies(arm)
        if not found:
            return None
        if len(found) == 1:
            return float(found[0].value or 0.0), found[0].interval
        return mean_interval([float(r.value or 0.0) for r in found])


def _beaten(judged: dict[str, tuple[float, float]]) -> dict[str, str]:
    """Each arm that another beats, with the fastest that does."""
    found = {}
    for arm, own in judged.items():
        stronger = [other for other in judged if _beats(judged[other], own)]
        if stronger:
            found[arm] = min(stronger, key=lambda other: judged[other][1])
    return found


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether (accuracy, time) is nowhere worse than the other and somewhere better."""
    return one[0] >= other[0] and one[1] <= other[1] and one != other


def mean_interval(values: list[float]) -> tuple[float, tuple[float, float]]:
    """The mean of at least two scores and its 95 % interval by Student's t, kept where they can be.

    Shares lie within 0 to 1, correlations within -1 to 1.
    """
    sample = numpy.asarray(values, dtype=float)
    error = sample.std(ddof=1) / numpy.sqrt(len(sample))
    reach = float(special.stdtrit(len(sample) - 1, 0.975) * error)
    mean = float(sample.mean())
    least = 0.0 if sample.min() >= 0 else -1.0
    return mean, (max(least, mean - reach), min(1.0, mean + reach))


def _size(labels: dict[str, Label]) -> Setting | None:
    scope, tokens, batch = (labels.get(name) for name in ("scope", "tokens", "batch"))
    if scope in ("model", "attention") and isinstance(tokens, int) and isinstance(batch, int):
        return Setting(str(scope), tokens, batch)
    return None


def _preference(setting: Setting, wanted: int | None) -> tuple[bool, int, int]:
    distance = setting.tokens if wanted is None else abs(setting.tokens - wanted)
    return setting.scope != "model", distance, setting.batch
