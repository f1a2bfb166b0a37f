"""The dense model as it is in ONNX Runtime, in float32 and in INT8: exported and timed here."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from sparing.advise.model import Inputs, Subject, completed, random_inputs
from sparing.advise.padding import Texts, in_file_order, padded, sample
from sparing.core.errors import SparingError
from sparing.core.record import Label, Record
from sparing.core.scratch import scratch_inside
from sparing.experiment.cells.probe import model_call
from sparing.export.dense import dense_chains, dense_segment
from sparing.export.engine import Chain
from sparing.export.int8 import Int8Settings
from sparing.measure.latency import paired_latency
from sparing.measure.statistics import Ratio, as_record

PYTORCH, ONNX, INT8 = "PyTorch", "ONNX Runtime", "ONNX Runtime INT8"
Answers = Literal["class", "labels", "vectors", "nothing"]
COMPARED = 200
"""How many texts are answered in INT8 and compared, at most."""


@dataclass(frozen=True)
class Agreement:
    """How far INT8 and float32 agree on ``count`` texts.

    ``value`` is the share of texts with the same class, or the same set of labels; ``interval`` is
    its exact 95 % interval. For models that return vectors ``value`` is the mean cosine over
    tokens, without interval.
    """

    kind: str
    value: float
    interval: tuple[float, float] | None
    count: int


@dataclass(frozen=True)
class Engine:
    """One engine: the whole model's time over PyTorch's on the same inputs, in turns.

    ``agreement`` is None if the outputs are the same, no texts were given, or answers cannot be
    equal or not (such as one number).
    """

    name: str
    exact: bool
    ratio: Ratio
    agreement: Agreement | None = None


@dataclass(frozen=True)
class Engines:
    """The timed engines, the inputs in words, or why nothing could be timed."""

    measured: tuple[Engine, ...] = ()
    inputs: str = ""
    obstacle: str = ""

    def find(self, name: str) -> Engine | None:
        """The engine of this name, None where it was not measured."""
        return next((engine for engine in self.measured if engine.name == name), None)


def measure_engines(
    subject: Subject,
    texts: Texts | None,
    tokens: int,
    batch: int,
    *,
    ms_per_token: float,
    rounds: int,
    threads: int | None,
    budget_s: float,
) -> tuple[Engines, list[Record]]:
    """Export the model, quantise it, and time all three forms in turns.

    The inputs are the given texts, in batches of ``batch`` in file order, or else random inputs of
    ``tokens`` tokens. The files are removed afterwards. If the model cannot be exported, the reason
    is in ``obstacle`` and nothing is raised.
    """
    obstacle = _obstacle(subject)
    if obstacle:
        return Engines(obstacle=obstacle), []
    call_ms = 1e3 * budget_s / (rounds + 2) / 2.5
    batches, words = _batches(subject, texts, tokens, batch, ms_per_token, call_ms)
    with scratch_inside(Path(tempfile.gettempdir()), "sparing-advise") as folder:
        chains = _chains_or_reason(subject, folder, threads)
        if isinstance(chains, str):
            return Engines(obstacle=chains), []
        calls = {PYTORCH: _in_pytorch(subject, batches)}
        calls |= {name: _in_chain(chain, batches) for name, chain in chains.items()}
        timed = paired_latency(
            calls, baseline=PYTORCH, rounds=rounds, warmup=1, threads=threads, budget_s=budget_s
        )
        agreement = None if texts is None else _agreement(texts, chains, answers_of(subject))
    measured = (
        Engine(ONNX, True, timed[ONNX].ratio),
        Engine(INT8, False, timed[INT8].ratio, agreement),
    )
    labels: dict[str, Label] = {"tokens": tokens, "batch": batch, "inputs": words}
    labels["threads"] = timed[PYTORCH].threads
    return Engines(measured, words), _records(measured, labels)


def _obstacle(subject: Subject) -> str:
    """Why the model cannot run in ONNX Runtime here; empty if it can."""
    model = subject.model
    if model.config.is_encoder_decoder or subject.causal:
        return "it generates text, and only encoders are exported here"
    if model.device.type != "cpu" or model.dtype != torch.float32:
        return f"it is {model.dtype} on {model.device.type}, and float32 on the CPU is exported"
    return ""


def _batches(
    subject: Subject,
    texts: Texts | None,
    tokens: int,
    batch: int,
    ms_per_token: float,
    call_ms: float,
) -> tuple[list[Inputs], str]:
    if texts is None:
        kind = "images" if subject.reads == "images" else f"inputs of {tokens:,} tokens"
        return [_kept(random_inputs(subject, batch, tokens))], f"random {kind}, batch {batch}"
    chosen = sample(texts, in_file_order(texts.lengths, batch), ms_per_token, call_ms)
    count = sum(map(len, chosen))
    return [padded(texts, members) for members in chosen], f"{count:,} of your texts, batch {batch}"


def _kept(inputs: Inputs) -> Inputs:
    """Only the tensors: an exported model has no other arguments."""
    return {name: value for name, value in inputs.items() if isinstance(value, Tensor)}


def _chains_or_reason(
    subject: Subject, folder: Path, threads: int | None
) -> dict[str, Chain] | str:
    """Both exported forms, or why there are none: the advice continues without them."""
    try:
        return _chains(subject, folder, threads)
    except SparingError as error:
        return str(error)
    except OSError as error:  # a full disk must not lose earlier measurements
        return f"its export cannot be written to {folder.parent}: {error.strerror or error}"


def _chains(subject: Subject, folder: Path, threads: int | None) -> dict[str, Chain]:
    length = subject.limit if subject.limit is not None else 16
    example = _kept(random_inputs(subject, 2, min(length, 16)))
    if subject.reads == "images":
        example = _kept(random_inputs(subject, 2, length))
    forms = dense_chains(
        dense_segment(subject.model),
        example,
        folder,
        int8=[Int8Settings()],
        compiled=False,
        eager_int8=False,
        thread_count=threads or torch.get_num_threads(),
        longest=subject.limit if subject.reads == "tokens" else None,
    )
    float32 = forms.pop("onnxruntime")
    forms.pop("eager")
    (int8,) = forms.values()
    return {ONNX: float32, INT8: int8}


def _in_pytorch(subject: Subject, batches: Sequence[Inputs]) -> Callable[[], object]:
    calls = [model_call(subject.model, completed(subject.model, batch)) for batch in batches]
    return lambda: [call() for call in calls]


def _in_chain(chain: Chain, batches: Sequence[Inputs]) -> Callable[[], object]:
    return lambda: [chain(batch) for batch in batches]


def answers_of(subject: Subject) -> Answers:
    """The type of the model's outputs for comparison: class, labels, vectors, or nothing.

    One number has no share of equal answers; of the two outputs of a span one is exported.
    """
    config = subject.model.config
    if subject.kind.endswith("ForQuestionAnswering"):
        return "nothing"
    if not subject.kind.endswith("ForSequenceClassification"):
        return "vectors"
    if config.num_labels == 1 or config.problem_type == "regression":
        return "nothing"
    return "labels" if config.problem_type == "multi_label_classification" else "class"


def _agreement(
    texts: Texts, chains: Mapping[str, Callable[[Inputs], Any]], answers: Answers
) -> Agreement | None:
    """Compare INT8 with float32 answers, one text at a time: INT8 scales depend on the batch."""
    if answers == "nothing":
        return None
    step = max(1, len(texts.ids) // COMPARED)
    chosen = list(range(0, len(texts.ids), step))[:COMPARED]
    pairs = [
        tuple(chains[name](padded(texts, [index]))[0] for name in (ONNX, INT8)) for index in chosen
    ]
    count = len(pairs)
    if answers == "class":
        return _share(sum(int(a.argmax() == b.argmax()) for a, b in pairs), count, "same class")
    if answers == "labels":  # a label is given at a probability of one half
        return _share(sum(bool(((a > 0) == (b > 0)).all()) for a, b in pairs), count, "same set")
    cosines = [F.cosine_similarity(one, other, dim=-1).mean() for one, other in pairs]
    return Agreement("cosine", float(torch.stack(cosines).mean()), None, len(pairs))


def _share(same: int, count: int, kind: str) -> Agreement:
    from scipy.stats import binomtest

    ends = binomtest(same, count).proportion_ci(method="exact")
    return Agreement(kind, same / count, (float(ends.low), float(ends.high)), count)


def _records(measured: Sequence[Engine], labels: dict[str, Label]) -> list[Record]:
    records = []
    for engine in measured:
        engine_labels: dict[str, Any] = {**labels, "engine": engine.name, "baseline": PYTORCH}
        ratio, agreement = engine.ratio, engine.agreement
        records.append(as_record("engine_latency_ratio", ratio, "ratio", engine_labels))
        if agreement is not None:
            name = "output_cosine" if agreement.kind == "cosine" else "answer_agreement"
            compared: dict[str, Label] = {"engine": engine.name, "baseline": ONNX}
            same = Ratio(agreement.value, agreement.interval, agreement.count)
            records.append(as_record(name, same, "share", compared))
    return records
