"""The candidates for what is served: a model in an engine and precision, with its exits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from sparing.core.record import Label
from sparing.export.forms import COMPILED, Form
from sparing.measure.calibration import most_changes, upper_bound
from sparing.slim.answer import CLASS, Answer

DENSE, OURS = "dense", "slim"
# 16 for each factor of ten of the probability of other classes. All texts are answered already, so
# they cost nothing, and a coarser grid leaves a form far from the changes that it may make.
THRESHOLDS = tuple(round(1 - 0.5 * 10 ** (-step / 16), 6) for step in range(60))
# benchmarks/slim_shares.py: 1 to 7 % more certified speed than with the epsilons themselves instead
LIKELY = 0.9
# The safer neighbours of a candidate have thresholds so many steps higher in ``THRESHOLDS``.
SAFER = (1, 3)
# A threshold that only says that there are exits.
SOME = 0.5


@dataclass(frozen=True)
class Candidate:
    """One way to answer a text.

    ``model`` is "dense" or "slim"; engine, precision and settings are those of ``export.forms``. An
    input exits where its largest class probability is above ``threshold`` (1: never). With
    ``cascade`` the inputs that never exit are answered by the dense model, in the same engine. With
    ``second`` below 1 that is first the dense model in INT8, and the one in float32 answers where
    its largest class probability is at most ``second``.

    With ``layers`` it is a *cut*: the first layers of slim's plan alone, whose end is its one exit.
    """

    model: str
    engine: str
    precision: str
    settings: str = ""
    threshold: float = 1.0
    cascade: bool = False
    second: float = 1.0
    layers: int | None = None

    @classmethod
    def from_labels(cls, labels: Mapping[str, Label]) -> Candidate:
        """The candidate of a record; raises ``KeyError`` where a label is missing.

        ``layers`` may be missing: forms that are no cuts have no use for it.
        """
        end, layers = labels["cascade"], labels.get("layers")
        return cls(
            str(labels["arm"]),
            str(labels["engine"]),
            str(labels["precision"]),
            str(labels["settings"]),
            float(str(labels["threshold"])),
            bool(end),
            1.0 if isinstance(end, bool) else float(str(end)),
            None if layers is None else int(str(layers)),
        )

    @property
    def key(self) -> Candidate:
        """The same form without thresholds: candidates of one key share their answers.

        Those of slim with exits have a key of their own, with the threshold ``SOME``: they run in
        segments, and may round otherwise than the plan as one.
        """
        threshold = SOME if self.exits else 1.0
        return replace(self, threshold=threshold, cascade=False, second=1.0)

    @property
    def between(self) -> Candidate:
        """The dense form that may come between it and the dense model in float32."""
        return replace(self.key, model=DENSE, threshold=1.0, layers=None)

    @property
    def exits(self) -> bool:
        """Whether an input may leave inside slim's plan."""
        return self.model == OURS and self.layers is None and self.threshold < 1

    @property
    def cascades(self) -> bool:
        """Whether the dense model in float32 or bfloat16 may follow: it is another one then."""
        return self.model != DENSE or self.precision == "int8"

    @property
    def labels(self) -> dict[str, Label]:
        """For records; ``cascade`` is ``second`` where that is below 1."""
        return {
            "arm": self.model,
            "engine": self.engine,
            "precision": self.precision,
            "settings": self.settings,
            "threshold": self.threshold,
            "cascade": self.second if self.second < 1 else self.cascade,
            "layers": self.layers,
        }

    @property
    def compiled(self) -> bool:
        """Whether it runs through torch.compile."""
        return self.settings == COMPILED

    def __str__(self) -> str:
        parts = [f"{self.model}, {self.engine} {self.precision}"]
        parts += [COMPILED] if self.compiled else []
        parts += [f"layers 1 to {self.layers}"] if self.layers else []
        parts += [f"exits above {self.threshold:g}"] if self.threshold < 1 else []
        parts += [f"then dense int8 above {self.second:g}"] if self.second < 1 else []
        return ", ".join(parts + (["then dense"] if self.cascade else []))


ANY = Candidate(OURS, "", "")


@dataclass(frozen=True)
class Screened:
    """A form without exits, and how fast it is on a few texts.

    ``speed`` is over the fastest dense form in float32, at the first batch size. ``competes`` says
    that it is not slower there than the fastest form of its model in float32, and ``near`` that it
    is not at some batch size. With exits it is the speed where no input leaves.
    """

    candidate: Candidate
    speed: float
    competes: bool
    near: bool


@dataclass(frozen=True)
class Timed:
    """A candidate with its measurements on the choosing texts.

    ``changed`` is the share of texts that it answers otherwise than the dense model, ``divergence``
    the mean KL divergence from it, in nats. ``speed`` is over the fastest dense form in float32.
    ``good`` says that its score keeps the floor there, where texts have labels.
    """

    candidate: Candidate
    changed: float
    divergence: float
    good: bool
    speed: float


@dataclass(frozen=True)
class Point:
    """One point of the frontier: a candidate that changes at most ``epsilon`` of the answers.

    ``changed`` of ``count`` calibration answers differ. ``candidate`` is None where no form but the
    dense model in float32 is certified.
    """

    epsilon: float
    candidate: Candidate | None
    speed: float
    changed: int
    count: int


def key_of(model: str, form: Form) -> Candidate:
    """The candidate of a form without exits."""
    return Candidate(model, form.engine, form.precision, form.settings)


def answers_at(
    logits: Float[Tensor, "texts exits classes"],
    threshold: float,
    *,
    cascade: bool,
    second: float = 1.0,
) -> tuple[Float[Tensor, "texts classes"], Int[Tensor, " texts"]]:
    """The answer of each text and the number of its exit.

    ``logits`` are those after every segment. If there are several, the last one is the dense
    model's, which is used with ``cascade`` alone. With ``second`` below 1 the last but one is the
    dense model's in INT8.
    """
    used = logits if cascade or logits.shape[1] == 1 else logits[:, :-1]
    confidence = used.softmax(-1).amax(-1)
    sure = confidence > threshold
    if second < 1:
        sure[:, -2] = confidence[:, -2] > second
    sure[:, -1] = True
    exits = sure.int().argmax(1)
    return used.gather(1, exits[:, None, None].expand(-1, 1, used.shape[2]))[:, 0], exits


def stages(
    candidate: Candidate, logits: Mapping[Candidate, Tensor]
) -> Float[Tensor, "texts stages ..."]:
    """The answers that a candidate chooses from, of those of all forms by their keys."""
    answers = logits[candidate.key]
    if candidate.second == 1:
        return answers
    middle = logits[candidate.between][:, :1]
    return torch.cat([answers[:, :-1], middle, answers[:, -1:]], dim=1)


def changed_by(
    candidate: Candidate,
    logits: Float[Tensor, "texts exits classes"],
    reference: Float[Tensor, "texts classes"],
    answer: Answer = CLASS,
) -> NDArray[np.bool_]:
    """Which texts a candidate answers otherwise than the reference; ``logits`` of ``stages``."""
    answers, _ = taken(candidate, logits)
    differs: NDArray[np.bool_] = answer.differs(answers, reference).numpy()
    return differs


def shares_to_try(count: int, epsilons: Sequence[float], delta: float) -> list[float]:
    """The shares of changed answers to find thresholds for, with ``count`` calibration texts.

    For each epsilon these are the largest share that passes its certificate, and the one that
    passes with a probability of ``LIKELY``. A form that changes more of the choosing texts passes
    by luck alone, and one at the edge passes half of the time. Each epsilon has an equal part of
    ``delta``. Where there are too few texts for a pass, it is a form without a change.
    """
    shares = set[float]()
    for epsilon in epsilons:
        most = most_changes(count, epsilon, delta / len(epsilons))
        shares |= {most / count, upper_bound(most, count, LIKELY)} if most >= 0 else {0.0}
    return sorted(shares)


def candidates_of(
    key: Candidate,
    logits: Float[Tensor, "texts exits classes"],
    reference: Float[Tensor, "texts classes"],
    shares: Sequence[float],
) -> list[Candidate]:
    """The candidates of one form: its key, and the boldest threshold for each share.

    For every share, with and without the dense model at the end, it is the lowest threshold that
    changes at most that share of the choosing texts. Thresholds under which every choosing text
    takes the same exit as under one before are left out.
    """
    listed, ways = [key], {_way(replace(key, threshold=1.0), logits)}
    for cascade in (False, True):
        boldest = boldest_thresholds(logits, reference, shares, cascade=cascade)
        for threshold in boldest.values():
            one = replace(key, threshold=threshold, cascade=cascade)
            if _way(one, logits) not in ways:
                ways.add(_way(one, logits))
                listed.append(one)
    return listed


def with_safer(
    listed: Sequence[Candidate], logits: Mapping[Candidate, Float[Tensor, "texts exits classes"]]
) -> list[Candidate]:
    """Candidates, and each one's neighbours with thresholds that are a few steps higher.

    The boldest thresholds were chosen for how few answers they change on these texts, so they
    change more on others. A neighbour that is tested before one costs little: where it fails, the
    bolder one fails too. Neighbours under which all texts take the exits of another are left out.
    ``logits`` are the answers of all forms by their keys.
    """
    neighbours = (_raised(one, by) for one in listed if one.threshold < 1 for by in SAFER)
    known = {_work(one, logits): one for one in listed}
    for one in neighbours:
        known.setdefault(_work(one, logits), one)
    return list(dict.fromkeys([*listed, *known.values()]))


def _raised(one: Candidate, by: int) -> Candidate:
    """A candidate with all of its thresholds so many steps higher."""

    def higher(threshold: float) -> float:
        if threshold == 1:
            return threshold
        return THRESHOLDS[min(THRESHOLDS.index(threshold) + by, len(THRESHOLDS) - 1)]

    return replace(one, threshold=higher(one.threshold), second=higher(one.second))


def _work(one: Candidate, logits: Mapping[Candidate, Tensor]) -> tuple[Candidate, bool, bytes]:
    """What two candidates do alike if it is the same: their stages, and the exits of all texts."""
    return one.key, one.second < 1, _way(one, stages(one, logits))


def boldest_thresholds(
    logits: Float[Tensor, "texts exits classes"],
    reference: Float[Tensor, "texts classes"],
    shares: Sequence[float],
    *,
    cascade: bool,
) -> dict[float, float]:
    """The lowest threshold that changes at most that share of the answers, for each share.

    A share that no threshold keeps is left out. Empty where no input can exit earlier.
    """
    if logits.shape[1] == 1 or (not cascade and logits.shape[1] == 2):
        return {}
    tried = [replace(ANY, threshold=threshold, cascade=cascade) for threshold in THRESHOLDS]
    changed = [float(changed_by(one, logits, reference).mean()) for one in tried]
    boldest = {}
    for share in shares:
        fits = [t for t, seen in zip(THRESHOLDS, changed, strict=True) if seen <= share]
        if fits:
            boldest[share] = fits[0]
    return boldest


def taken(
    candidate: Candidate, logits: Float[Tensor, "texts exits classes"]
) -> tuple[Float[Tensor, "texts classes"], Int[Tensor, " texts"]]:
    """``answers_at`` with a candidate's thresholds; ``logits`` are those of ``stages``."""
    return answers_at(
        logits, candidate.threshold, cascade=candidate.cascade, second=candidate.second
    )


def _way(candidate: Candidate, logits: Float[Tensor, "texts exits classes"]) -> bytes:
    """The exits that all texts take: candidates with the same ones do the same work."""
    _, exits = taken(candidate, logits)
    way: bytes = exits.numpy().tobytes()
    return way


def losses(
    candidates: Sequence[Candidate],
    logits: Mapping[Candidate, Float[Tensor, "texts exits classes"]],
    reference: Float[Tensor, "texts classes"],
    answer: Answer = CLASS,
) -> NDArray[np.float64]:
    """1 where a candidate changes a text's answer, as (texts, candidates)."""
    columns = [changed_by(one, stages(one, logits), reference, answer) for one in candidates]
    return np.stack(columns, axis=1).astype(np.float64)
