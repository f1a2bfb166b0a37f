"""The dense model as it is, in every engine and precision: exported and timed here."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from sparing.advise.model import Inputs, Subject, completed, random_inputs, sharing_copy
from sparing.advise.padding import Texts, in_file_order, padded, sample
from sparing.core.errors import SparingError, one_line
from sparing.core.record import Label, Record
from sparing.core.scratch import scratch_inside
from sparing.experiment.cells.probe import model_call
from sparing.export.dense import dense_segment
from sparing.export.engine import Chain
from sparing.export.forms import UNCALIBRATED, Form, Forms
from sparing.export.static_int8 import FEWEST_INPUTS, MOST_INPUTS
from sparing.foreign.kinds import answer_kind
from sparing.measure.latency import PairedLatency, paired_latency
from sparing.measure.statistics import Ratio, as_record
from sparing.transfer.folding.fold import fold_if_possible, is_folded

PYTORCH, ONNX, INT8 = "PyTorch", "ONNX Runtime", "ONNX Runtime INT8"
FOLDED = "PyTorch folded"
NAMES = {"eager": PYTORCH, "onnxruntime": ONNX, "openvino": "OpenVINO"}
PRECISIONS = {"float32": "", "bfloat16": " bfloat16", "int8": " INT8"}
Answers = Literal["class", "labels", "vectors", "nothing"]
Chains = dict[str, tuple[Form, Chain]]
"""Forms by name, each with its chain."""
Missing = tuple[tuple[str, str], ...]
"""Names of forms that are not there, each with its reason."""
COMPARED = 200
"""How many texts are answered in another precision and compared, at most."""
FORMS_TIME = 4.0  # about the time of all forms over PyTorch's
CALIBRATED, IMAGES = "it is calibrated on texts: ", "this model reads images"


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

    ``option`` are the options of ``sparing export`` that make it, empty in PyTorch. ``agreement``
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
    missing: Missing = ()

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
    """Export the model, quantise it, fold what can be folded, and time all forms in turns.

    The inputs are the given texts, in batches of ``batch`` in file order, or else random inputs of
    ``tokens`` tokens. In batches of texts ONNX Runtime skips pads where it can. If the model cannot
    be exported, the reason is in ``obstacle`` and nothing is raised.
    """
    if obstacle := _obstacle(subject):
        return Engines(obstacle=obstacle), []
    call_ms = 1e3 * budget_s / (rounds + 2) / FORMS_TIME
    batches, words = _batches(subject, texts, tokens, batch, ms_per_token, call_ms)
    split = _split(subject, texts)
    with scratch_inside(Path(tempfile.gettempdir()), "sparing-advise") as folder:
        forms = _forms(subject, folder, threads, split, texts is not None and batch > 1)
        opened = _chains_or_reason(forms, batches[0], split)
        if isinstance(opened, str) and forms.skips_pads:  # such as convolutions, which mix tokens
            forms = _forms(subject, folder, threads, split, False)
            opened = _chains_or_reason(forms, batches[0], split)
        if isinstance(opened, str):
            return Engines(obstacle=opened), []
        chains, missing = opened
        calls = _calls(subject, chains, batches)
        timed = paired_latency(
            calls, baseline=PYTORCH, rounds=rounds, warmup=1, threads=threads, budget_s=budget_s
        )
        agreements = _agreements(forms, chains, split.compared, answers_of(subject))
    measured = tuple(_measured(chains, timed, agreements, forms.skips_pads))
    labels: dict[str, Label] = {"tokens": tokens, "batch": batch, "inputs": words}
    labels["threads"] = timed[PYTORCH].threads
    return Engines(measured, words, "", missing), _records(measured, labels)


def _calls(
    subject: Subject, chains: Chains, batches: Sequence[Inputs]
) -> dict[str, Callable[[], object]]:
    """All batches through PyTorch, the folded model and every chain, by name."""
    calls = {PYTORCH: _in_pytorch(subject.model, batches)} | _folded(subject, batches)
    return calls | {name: _in_chain(chain, batches) for name, (_, chain) in chains.items()}


def name_of(form: Form) -> str:
    """An engine and precision in words."""
    return f"{NAMES[form.engine]}{PRECISIONS[form.precision]}"


def _measured(
    chains: Chains,
    timed: Mapping[str, PairedLatency],
    agreements: Mapping[str, Agreement],
    skips_pads: bool,
) -> Iterator[Engine]:
    """Every form that was exported, and the folded model."""
    for name, (form, _) in chains.items():
        yield _engine(name, form, timed[name].ratio, agreements, skips_pads)
    if FOLDED in timed:
        yield Engine(FOLDED, True, timed[FOLDED].ratio)


def _engine(
    name: str, form: Form, ratio: Ratio, agreements: Mapping[str, Agreement], skips_pads: bool
) -> Engine:
    exact = form.precision == "float32"
    option = ""
    if form.engine != "eager":
        option = f"--to {form.engine.replace('runtime', '')} --precision {form.precision}"
        option += " --skip-pads" if skips_pads and form.engine == "onnxruntime" else ""
    return Engine(name, exact, ratio, None if exact else agreements.get(name), option)


@dataclass(frozen=True)
class _Split:
    """Texts one by one: for the scales of static INT8, and others to compare answers on.

    One at a time, since scales of dynamic INT8 depend on the batch. ``reason`` says why there are
    none for the scales.
    """

    calibration: Sequence[Inputs] = ()
    compared: Sequence[Inputs] = ()
    reason: str = ""


def _split(subject: Subject, texts: Texts | None) -> _Split:
    if texts is None:
        images = subject.reads == "images"
        return _Split(reason=CALIBRATED + (IMAGES if images else "give --texts"))
    distinct = list({ids: index for index, ids in enumerate(texts.ids)}.values())
    reason = f"{CALIBRATED}give at least {FEWEST_INPUTS} that differ, not {len(distinct)}"
    taken: list[int] = []
    if len(distinct) >= FEWEST_INPUTS:
        taken, reason = _spread(distinct, min(MOST_INPUTS, len(distinct) // 2)), ""
    held = {texts.ids[index] for index in taken}
    others = [index for index, ids in enumerate(texts.ids) if ids not in held]
    calibration = [padded(texts, [index]) for index in taken]
    return _Split(calibration, [padded(texts, [i]) for i in _spread(others, COMPARED)], reason)


def _spread(values: Sequence[int], most: int) -> list[int]:
    """So many of the values at most, at equal distances."""
    count = min(most, len(values))
    return [values[number * len(values) // count] for number in range(count)]


def _obstacle(subject: Subject) -> str:
    """Why no other engine can run the model here; empty if one may."""
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
        return [_tensors_of(random_inputs(subject, batch, tokens))], f"random {kind}, batch {batch}"
    chosen = sample(texts, in_file_order(texts.lengths, batch), ms_per_token, call_ms)
    count = sum(map(len, chosen))
    return [padded(texts, members) for members in chosen], f"{count:,} of your texts, batch {batch}"


def _tensors_of(inputs: Inputs) -> Inputs:
    """Only the tensors: an exported model has no other arguments."""
    return {name: value for name, value in inputs.items() if isinstance(value, Tensor)}


def _forms(
    subject: Subject, folder: Path, threads: int | None, split: _Split, skips_pads: bool
) -> Forms:
    length = subject.limit if subject.limit is not None else 16
    size = length if subject.reads == "images" else min(length, 16)
    model = sharing_copy(subject.model)
    fold_if_possible(model)
    return Forms(
        [dense_segment(model)],
        _tensors_of(random_inputs(subject, 2, size)),
        folder,
        thread_count=threads or torch.get_num_threads(),
        longest=subject.limit if subject.reads == "tokens" else None,
        calibration=split.calibration,
        skips_pads=skips_pads,
    )


def _chains_or_reason(forms: Forms, inputs: Inputs, split: _Split) -> tuple[Chains, Missing] | str:
    """All forms that give answers, and those that are missing, or why nothing can be exported."""
    missing = [
        (name_of(absent.form), split.reason if absent.reason == UNCALIBRATED else absent.reason)
        for absent in forms.missing
    ]
    chains: Chains = {}
    for form in forms:
        name = name_of(form)
        if name == PYTORCH:
            continue
        try:
            chain = forms[form]
            chain(inputs)
        # a full disk, or memory that runs out, must not lose earlier measurements
        except (SparingError, OSError, RuntimeError) as error:
            reason = _reason(error, forms.folder)
            if name == ONNX:  # all other exports are made from this one
                return reason
            missing.append((name, reason))
        else:
            chains[name] = form, chain
    return chains, tuple(missing)


def _reason(error: Exception, folder: Path) -> str:
    if isinstance(error, OSError):
        return f"its export cannot be written to {folder.parent}: {error.strerror or error}"
    return one_line(str(error))


def _in_pytorch(model: PreTrainedModel, batches: Sequence[Inputs]) -> Callable[[], object]:
    calls = [model_call(model, completed(model, batch)) for batch in batches]
    return lambda: [call() for call in calls]


def _folded(subject: Subject, batches: Sequence[Inputs]) -> dict[str, Callable[[], object]]:
    """The model with what depends on weights alone as constants; nothing if there is no such."""
    if is_folded(subject.model):
        return {}
    model = sharing_copy(subject.model)
    return {FOLDED: _in_pytorch(model, batches)} if fold_if_possible(model) else {}


def _in_chain(chain: Chain, batches: Sequence[Inputs]) -> Callable[[], object]:
    return lambda: [chain(batch) for batch in batches]


def answers_of(subject: Subject) -> Answers:
    """The type of the model's outputs for comparison: class, labels, vectors, or nothing.

    One number has no share of equal answers, and spans are compared by ``sparing agree`` alone.
    """
    if subject.kind.endswith("ForQuestionAnswering"):
        return "nothing"
    if not subject.kind.endswith("ForSequenceClassification"):
        return "vectors"
    kind = answer_kind(subject.model.config)
    return "nothing" if kind == "number" else kind


def _agreements(
    forms: Forms, chains: Chains, compared: Sequence[Inputs], answers: Answers
) -> dict[str, Agreement]:
    """Each other precision beside the dense model in PyTorch, which answers once."""
    if not compared or answers == "nothing":
        return {}
    dense = forms[Form("eager", "float32")]
    exact = [dense(inputs)[0] for inputs in compared]
    return {
        name: _agreement(exact, [chain(inputs)[0] for inputs in compared], answers)
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
    cosines = [F.cosine_similarity(one, another.float(), dim=-1).mean() for one, another in pairs]
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
            compared: dict[str, Label] = {"engine": engine.name, "baseline": PYTORCH}
            same = Ratio(agreement.value, agreement.interval, agreement.count)
            records.append(as_record(name, same, "share", compared))
    return records
