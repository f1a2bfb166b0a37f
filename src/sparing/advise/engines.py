"""The dense model as it is, in every engine and precision: exported and timed here."""

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
from sparing.core.errors import SparingError, Unsupported
from sparing.core.record import Label, Record
from sparing.core.scratch import scratch_inside
from sparing.experiment.cells.probe import model_call
from sparing.export.dense import dense_segment
from sparing.export.engine import Chain
from sparing.export.forms import Form, Forms
from sparing.measure.latency import paired_latency
from sparing.measure.statistics import Ratio, as_record

PYTORCH, ONNX, INT8 = "PyTorch", "ONNX Runtime", "ONNX Runtime INT8"
NAMES = {"eager": PYTORCH, "onnxruntime": ONNX, "openvino": "OpenVINO"}
PRECISIONS = {"float32": "", "bfloat16": " bfloat16", "int8": " INT8"}
CALIBRATED_ON = 300
Answers = Literal["class", "labels", "vectors", "nothing"]
Chains = dict[str, tuple[Form, Chain]]
"""Forms by name, each with its chain."""
COMPARED = 200
"""How many texts are answered in another precision and compared, at most."""


@dataclass(frozen=True)
class Agreement:
    """How far another precision and float32 agree on ``count`` texts.

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
    """One engine and precision: the model's time over PyTorch's on the same inputs, in turns.

    ``option`` are the options of ``sparing export`` that make it, empty for PyTorch. ``agreement``
    is None if the outputs are the same, no texts were given, or answers cannot be equal or not
    (such as one number).
    """

    name: str
    exact: bool
    ratio: Ratio
    agreement: Agreement | None = None
    option: str = ""


@dataclass(frozen=True)
class Engines:
    """The timed engines, the inputs in words, or why nothing could be timed.

    ``missing`` are engines and precisions that are not there, by name, with their reason.
    """

    measured: tuple[Engine, ...] = ()
    inputs: str = ""
    obstacle: str = ""
    missing: tuple[tuple[str, str], ...] = ()

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
    """Export the model, quantise it, and time all forms in turns.

    The inputs are the given texts, in batches of ``batch`` in file order, or else random inputs of
    ``tokens`` tokens. The files are removed afterwards. If the model cannot be exported, the reason
    is in ``obstacle`` and nothing is raised.
    """
    obstacle = _obstacle(subject)
    if obstacle:
        return Engines(obstacle=obstacle), []
    call_ms = 1e3 * budget_s / (rounds + 2) / 4
    batches, words = _batches(subject, texts, tokens, batch, ms_per_token, call_ms)
    with scratch_inside(Path(tempfile.gettempdir()), "sparing-advise") as folder:
        opened = _chains_or_reason(subject, folder, threads, _calibration(subject, texts, batches))
        if isinstance(opened, str):
            return Engines(obstacle=opened), []
        chains, missing = opened
        calls = {PYTORCH: _in_pytorch(subject, batches)}
        calls |= {name: _in_chain(chain, batches) for name, (_, chain) in chains.items()}
        timed = paired_latency(
            calls, baseline=PYTORCH, rounds=rounds, warmup=1, threads=threads, budget_s=budget_s
        )
        agreements = _agreements(subject, texts, chains)
    measured = tuple(
        _engine(name, form, timed[name].ratio, agreements) for name, (form, _) in chains.items()
    )
    labels: dict[str, Label] = {"tokens": tokens, "batch": batch, "inputs": words}
    labels["threads"] = timed[PYTORCH].threads
    return Engines(measured, words, "", missing), _records(measured, labels)


def name_of(form: Form) -> str:
    """An engine and precision in words."""
    return f"{NAMES[form.engine]}{PRECISIONS[form.precision]}"


def _engine(name: str, form: Form, ratio: Ratio, agreements: Mapping[str, Agreement]) -> Engine:
    exact = form.precision == "float32"
    option = ""
    if form.engine != "eager":
        option = f"--to {form.engine.replace('runtime', '')} --precision {form.precision}"
    return Engine(name, exact, ratio, None if exact else agreements.get(name), option)


def _calibration(
    subject: Subject, texts: Texts | None, batches: Sequence[Inputs]
) -> list[Mapping[str, Tensor]]:
    """Inputs for the scales of static INT8: texts one by one; images as they are timed."""
    if texts is not None:
        count = min(CALIBRATED_ON, len(texts.ids))
        chosen = [round(number * len(texts.ids) / count) for number in range(count)]
        return [padded(texts, [index]) for index in chosen]
    return list(batches) if subject.reads == "images" else []


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
    subject: Subject,
    folder: Path,
    threads: int | None,
    calibration: Sequence[Mapping[str, Tensor]],
) -> tuple[Chains, tuple[tuple[str, str], ...]] | str:
    """All forms, and those that are missing, or why nothing can be exported."""
    try:
        return _chains(subject, folder, threads, calibration)
    except SparingError as error:
        return str(error)
    except OSError as error:  # a full disk must not lose earlier measurements
        return f"its export cannot be written to {folder.parent}: {error.strerror or error}"


def _chains(
    subject: Subject,
    folder: Path,
    threads: int | None,
    calibration: Sequence[Mapping[str, Tensor]],
) -> tuple[Chains, tuple[tuple[str, str], ...]]:
    length = subject.limit if subject.limit is not None else 16
    size = length if subject.reads == "images" else min(length, 16)
    example = _kept(random_inputs(subject, 2, size))
    forms = Forms(
        [dense_segment(subject.model)],
        example,
        folder,
        thread_count=threads or torch.get_num_threads(),
        longest=subject.limit if subject.reads == "tokens" else None,
        calibration=calibration,
    )
    missing = [(name_of(absent.form), absent.reason) for absent in forms.missing]
    chains: Chains = {}
    for form in forms:
        if name_of(form) == PYTORCH:
            continue
        try:
            chains[name_of(form)] = form, forms[form]
        except Unsupported as error:
            if form.engine == "onnxruntime" and form.precision == "float32":
                raise
            missing.append((name_of(form), str(error)))
    return chains, tuple(missing)


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


def _agreements(subject: Subject, texts: Texts | None, chains: Chains) -> dict[str, Agreement]:
    """Each precision beside float32 on texts; empty without texts."""
    if texts is None:
        return {}
    answers, step = answers_of(subject), max(1, len(texts.ids) // COMPARED)
    if answers == "nothing":
        return {}
    # one text at a time: INT8 scales depend on the batch
    inputs = [padded(texts, [index]) for index in range(0, len(texts.ids), step)][:COMPARED]
    exact = [chains[ONNX][1](one)[0] for one in inputs]
    return {
        name: _agreement(exact, [chain(one)[0] for one in inputs], answers)
        for name, (form, chain) in chains.items()
        if form.precision != "float32"
    }


def _agreement(exact: Sequence[Tensor], other: Sequence[Tensor], answers: Answers) -> Agreement:
    """Compare two forms' answers to the same texts."""
    pairs, count = list(zip(exact, other, strict=True)), len(exact)
    if answers == "class":
        return _share(sum(int(a.argmax() == b.argmax()) for a, b in pairs), count, "same class")
    if answers == "labels":  # a label is given at a probability of one half
        return _share(sum(bool(((a > 0) == (b > 0)).all()) for a, b in pairs), count, "same set")
    cosines = [F.cosine_similarity(one, another, dim=-1).mean() for one, another in pairs]
    return Agreement("cosine", float(torch.stack(cosines).mean()), None, count)


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
