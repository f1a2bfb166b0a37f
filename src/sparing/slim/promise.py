"""What is certified of the served form, in words that the page and the card share."""

from __future__ import annotations

from dataclasses import dataclass

from sparing.core.errors import DataError
from sparing.core.record import Record
from sparing.experiment.records import RecordTable
from sparing.report.prose import Prose
from sparing.slim.evidence.candidates import DENSE, Candidate

ENGINES = {"eager": "PyTorch", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
PRECISIONS = {"float32": "float32", "bfloat16": "bfloat16", "int8": "INT8"}
# What decides when two answers agree, as a record names it.
AGREES_BY = {
    "least_cosine": "least-cosine",
    "label_threshold": "label-threshold",
    "most_difference": "most-difference",
}
prose = Prose("sparing.slim")


@dataclass(frozen=True)
class Promise:
    """The served form and what is certified of it.

    At most ``epsilon`` of its answers differ from the dense model's, with confidence 1 - ``delta``;
    of ``count`` calibration answers ``changed`` do. ``agrees_by`` is the name and the value of the
    number that decides when two agree, where there is one. ``reference`` says that it is the dense
    model in float32, whose answers are the same.
    """

    form: Candidate
    epsilon: float
    delta: float
    changed: int
    count: int
    reference: bool
    agrees_by: tuple[str, float] | None = None


def promise_of(table: RecordTable) -> Promise | None:
    """The promise of a run; None before it is certified."""
    seen = table.find("disagreement")
    if seen is None:
        return None
    given = seen.labels
    return Promise(
        form_of(seen),
        _number(seen, "epsilon"),
        _number(seen, "delta"),
        int(_number(seen, "disagreements")),
        seen.count,
        seen.labels.get("reference") is True,
        next(((key, _number(seen, key)) for key in AGREES_BY if given.get(key) is not None), None),
    )


def guarantee(promise: Promise) -> tuple[str, str]:
    """What is certified, as a sentence without its stop, and the sentences on what it means."""
    form = promise.form
    values = {
        "percent": f"{100 * (1 - promise.epsilon):.4g}",
        "sure": f"{100 * (1 - promise.delta):.4g}",
        "engine": engine_name(form),
        "precision": precision_name(form),
        "seen": promise.changed,
        "count": promise.count,
    }
    key = "guarantee-dense" if form.model == DENSE else "guarantee"
    key = "reference" if promise.reference else key
    meaning = prose("reference-meaning" if promise.reference else "meaning", **values)
    if promise.agrees_by is not None:
        name, number = promise.agrees_by
        rule = AGREES_BY[name]
        meaning += f" {prose(rule, number=number)}"
    return prose(key, **values), meaning


def form_of(record: Record) -> Candidate:
    """The form that a record is about; ``DataError`` where its labels name none."""
    try:
        return Candidate.from_labels(record.labels)
    except (KeyError, ValueError) as error:
        raise DataError(f"record {record.name!r} names no form by its labels: {error}") from error


def engine_name(form: Candidate) -> str:
    """The display name of its engine."""
    name = ENGINES.get(form.engine, form.engine)
    return f"compiled {name}" if form.compiled else name


def precision_name(form: Candidate) -> str:
    """The display name of its precision."""
    return PRECISIONS.get(form.precision, form.precision)


def dense_words(form: Candidate) -> str:
    """How a served dense model in PyTorch was timed; empty for all other forms."""
    plain = form.model == DENSE and form.engine == "eager" and not form.compiled
    return prose("dense-in-torch") if plain else ""


def torch_program(form: Candidate, device: str, folder: str) -> str:
    """A program that opens the slim model in PyTorch, and makes it what is served.

    It is moved to the device and the precision of the served form, and compiled, where PyTorch
    serves the slim model; else it is opened as it is.
    """
    moves, compiled = [], False
    if form.engine == "eager" and form.model != DENSE:
        moves += [f'"{device}"'] if device != "cpu" else []
        moves += [f"torch.{form.precision}"] if form.precision != "float32" else []
        compiled = form.compiled
    lines = ["import torch", ""] if compiled or len(moves) > 0 else []
    lines += ["import sparing", ""]
    lines += [f"model = sparing.load({folder})  # the plan that was cut out"]
    lines += [f"model = model.to({', '.join(moves)})"] if moves else []
    return "\n".join(lines + (["model = torch.compile(model, dynamic=True)"] if compiled else []))


def form_name(form: Candidate) -> str:
    """A form in a table: model, engine and precision, and its exits."""
    parts = [f"{form.model}, {engine_name(form)} {precision_name(form)}"]
    parts += [f"layers 1 to {form.layers}"] if form.layers else []
    parts += [f"exits above {form.threshold:g}"] if form.threshold < 1 else []
    parts += [f"then dense INT8 above {form.second:g}"] if form.second < 1 else []
    return ", ".join(parts + (["then dense"] if form.cascade else []))


def form_words(form: Candidate) -> str:
    """A form in a sentence: model, engine, precision, and what its exits do."""
    words = f"the {form.model} model in {engine_name(form)}, {precision_name(form)}"
    words += f", of which layers 1 to {form.layers} run" if form.layers else ""
    if form.threshold < 1:
        words += f"; an input exits when its largest class probability is above {form.threshold:g}"
    if form.second < 1:
        return words + (
            f"; the others go to the dense model in INT8, and where its largest probability is at "
            f"most {form.second:g}, to the one in float32"
        )
    return words + ("; the dense model answers the rest" if form.cascade else "")


def _number(record: Record, name: str) -> float:
    value = record.labels.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"record {record.name!r} has no number under {name!r}")
    return float(value)
