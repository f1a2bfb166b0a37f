"""Ways to make a model faster, with their measured effects: attention is the last."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Literal

from sparing.advise import prose
from sparing.advise.curves import Candidate, WholeModel
from sparing.advise.engines import FOLDED, Agreement, Engine, Engines
from sparing.advise.model import Subject
from sparing.advise.numbers import DASH, gain_bounds, percent, ratio_words, speed
from sparing.advise.padding import FILE, SINGLE, Padding
from sparing.advise.parts import Parts
from sparing.core.errors import Unsupported, UsageError
from sparing.experiment.inputs.task import task_of
from sparing.foreign.kinds import answer_kind
from sparing.measure.statistics import Ratio
from sparing.transfer.families.dense import require_classifier
from sparing.transfer.families.known import family_of

Verdict = Literal["pays", "does not pay", "undecided", "not measured"]
# A gain below this is not worth a change, let alone a training.
WORTH = 1.05
SAME = "the same"
NEEDS_TEXTS = "not measured: give --texts"


@dataclass(frozen=True)
class Findings:
    """All measurements for the recommendation.

    ``disturbance`` is what kept the machine busy meanwhile; empty if it was quiet. ``source`` names
    the file of the texts in commands; empty without texts.
    """

    subject: Subject
    tokens: int
    batch: int
    parts: Parts
    chosen: tuple[Candidate, ...]
    whole: WholeModel | None
    padding: Padding | None
    engines: Engines = field(default_factory=Engines)
    disturbance: str = ""
    source: str = ""

    @property
    def model(self) -> str:
        """The model's name in commands; MODEL for an object that was never saved."""
        subject = self.subject
        return "MODEL" if subject.name == subject.kind else shlex.quote(subject.name)

    @property
    def texts(self) -> str:
        """The option of commands that names the texts; empty without texts."""
        return f" --texts {shlex.quote(self.source)}" if self.source else ""


@dataclass(frozen=True)
class Remedy:
    """One thing to do: its effect on the whole model, what happens to the answers, and how.

    ``sentence`` is its sentence in the recommendation, or empty. ``gain`` is the measured factor,
    0 if there is none. ``free`` says that the answers stay and nothing is trained.
    """

    name: str
    verdict: Verdict
    effect: str
    answers: str
    how: str
    sentence: str = ""
    gain: float = 0.0
    free: bool = False


def remedies(findings: Findings) -> tuple[Remedy, ...]:
    """All remedies for this model: measured ones by their gain, then slim, and attention last."""
    free = [_padding(findings)] if findings.subject.reads == "tokens" else []
    free = sorted([*free, *_engines(findings)], key=lambda remedy: -remedy.gain)
    return (*free, _slim(findings), _attention(findings))


def verdict_of(ratio: Ratio) -> Verdict:
    """Whether a ratio of times is a gain worth having, by its whole interval."""
    low, high = gain_bounds(ratio)
    if low >= WORTH:
        return "pays"
    return "does not pay" if high < WORTH else "undecided"


def _padding(findings: Findings) -> Remedy:
    padding, how = findings.padding, "batches of like length, or one text each"
    if padding is None:
        return Remedy("no padding", "not measured", NEEDS_TEXTS, SAME, how)
    ratio = padding.ratios[padding.best]
    verdict, words = verdict_of(ratio), _padding_words(padding)
    key = {"pays": "padding-pays", "undecided": "padding-undecided"}.get(verdict, "padding-none")
    sentence = prose(key, padding=words, share=percent(padding.pad_shares[FILE]))
    effect = ratio_words(ratio, findings.disturbance)
    return Remedy("no padding", verdict, effect, SAME, how, sentence, 1 / ratio.value, free=True)


def _padding_words(padding: Padding) -> str:
    way = "taking your texts one by one" if padding.best == SINGLE else "grouping them by length"
    share, gain = percent(padding.pad_shares[FILE]), speed(padding.ratios[padding.best])
    return prose("padding-words", padding=padding, share=share, way=way, speed=gain)


def _engines(findings: Findings) -> list[Remedy]:
    """The dense model in every other engine and precision.

    Sentences are for the best of those with the same answers, and for the best of the others if it
    is faster still.
    """
    engines = findings.engines
    if not engines.measured and not engines.missing:
        reason = engines.obstacle or "left out"
        return [Remedy("another engine", "not measured", f"not measured: {reason}", SAME, "")]
    exact = min((e for e in engines.measured if e.exact), key=_time, default=None)
    rest = min((e for e in engines.measured if not e.exact), key=_time, default=None)
    if exact is not None and rest is not None and _time(exact) / _time(rest) < WORTH:
        rest = None
    best = [engine for engine in (exact, rest) if engine is not None]
    listed = [_engine(engine, findings, named=engine in best) for engine in engines.measured]
    missing = [
        Remedy(name, "not measured", f"not measured: {reason}", "", "")
        for name, reason in engines.missing
    ]
    return [*listed, *missing]


def _time(engine: Engine) -> float:
    return engine.ratio.value


def _engine(engine: Engine, findings: Findings, *, named: bool) -> Remedy:
    verdict, sentence = verdict_of(engine.ratio), ""
    answers = SAME if engine.exact else _changed_answers(engine, findings)
    words = speed(engine.ratio)
    if verdict == "pays" and named:
        inputs = findings.engines.inputs
        key = "fold" if engine.name == FOLDED else "serve"
        sentence = prose(key, engine=engine.name, speed=words, inputs=inputs)
        if not engine.exact:
            sentence = prose("precision", engine=engine.name, speed=words, answers=answers)
    effect = ratio_words(engine.ratio, findings.disturbance)
    gain, how = 1 / engine.ratio.value, "model.bfloat16()"
    if engine.name == FOLDED:
        how = "sparing.fold(model)"
    elif engine.option:
        how = f"sparing export {findings.model} {engine.option}{findings.texts} --output-dir DIR"
    return Remedy(engine.name, verdict, effect, answers, how, sentence, gain, free=engine.exact)


def _changed_answers(engine: Engine, findings: Findings) -> str:
    if engine.agreement is not None:
        return _agreement_words(engine.agreement)
    without = findings.subject.reads == "tokens" and findings.padding is None
    return NEEDS_TEXTS if without else "may change: not compared for this kind"


def _agreement_words(agreement: Agreement) -> str:
    if agreement.interval is None:
        return f"vectors of mean cosine {agreement.value:.4f}, {agreement.count} texts"
    low, high = (f"{100 * end:.1f}" for end in agreement.interval)
    same = f"{100 * agreement.value:.1f} % the same"
    return f"{same} ({low}{DASH}{high} %), {agreement.count} texts"


def _slim(findings: Findings) -> Remedy:
    subject = findings.subject
    obstacle = _slim_obstacle(subject)
    if obstacle:
        return Remedy("slim", "not measured", f"not for this model: {obstacle}", "", "")
    data = findings.texts or ("" if task_of(subject.name) else " --task TASK")
    named = subject.kind.endswith("ForSequenceClassification")
    if named and answer_kind(subject.model.config) == "number":
        data += " --most-difference NUMBER"
    command = f"sparing slim {findings.model}{data}"
    sentence = prose("slim", command=command)
    answers = "share changed is bounded"
    return Remedy("slim", "not measured", "not measured: it trains", answers, command, sentence)


def _slim_obstacle(subject: Subject) -> str:
    """Why slim cannot take this model; empty if it can. A model without a head gets one."""
    try:
        family_of(subject.model.config)
        if not subject.kind.endswith("Model"):
            require_classifier(subject.model)
    except (Unsupported, UsageError) as error:
        return str(error)
    return ""


def _attention(findings: Findings) -> Remedy:
    whole = findings.whole
    if whole is None:
        return Remedy(
            "other attention", "not measured", "no mechanism can be used in this model", "", ""
        )
    name = f"other attention ({whole.mechanism})"
    answers = SAME if whole.exact else "need training"
    effect = ratio_words(whole.measured, findings.disturbance)
    how = "sparing.swap" if whole.exact else "sparing train ... --distil-from DENSE"
    return Remedy(name, verdict_of(whole.measured), effect, answers, how)
