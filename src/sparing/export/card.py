"""The README.md of an exported model: how to open it without sparing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparing.export.drift import Drift
from sparing.export.openvino import HINTS, FloatPrecision

TOKENS = """import numpy, tokenizers
tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
tokenizer.no_padding()
text = tokenizer.encode("{example}")
rows = dict(input_ids=text.ids, attention_mask=text.attention_mask, token_type_ids=text.type_ids)
inputs = {{name: numpy.array([rows[name]]) for name in {names}}}"""
ARRAYS = """import numpy
inputs = {{name: numpy.array(...) for name in {names}}}  # a batch of your inputs"""
ENGINES = {
    "onnxruntime": """import onnxruntime
model = onnxruntime.InferenceSession("segment-0.onnx")
logits = model.run(["logits"], inputs)[0]""",
    "openvino": """import openvino
settings = {{"INFERENCE_PRECISION_HINT": "{hint}"}}
model = openvino.Core().compile_model("segment-0.xml", "CPU", settings)
logits = model(inputs)["logits"]""",
}


def export_card(
    *,
    name: str,
    engine: str,
    precision: str,
    floats: FloatPrecision,
    inputs: Sequence[str],
    fast_tokenizer: bool,
    longest: int | None,
    labels: Mapping[int, str],
    drift: Drift,
    compared: str,
) -> str:
    """The model, its drift, and the lines that open it with its engine alone, as Markdown.

    ``floats`` is the precision of everything that is not in INT8. ``compared`` are the inputs of
    the drift in words.
    """
    rest = f", everything else in {floats}" if (engine, precision) == ("openvino", "int8") else ""
    reading = TOKENS if fast_tokenizer else ARRAYS
    lines = [
        f"# {name} for {engine}, {precision}",
        f"Products with weights are in {precision}{rest}. Against the dense model in PyTorch, on "
        f"{compared}: {drift}.",
        *([f"It reads at most {longest:,} tokens."] if longest and "input_ids" in inputs else []),
        *([f"Outputs: {_listed(labels)}."] if labels else []),
        "In this folder, without sparing and without PyTorch:",
        "```python\n"
        + reading.format(names=list(inputs), example="a text")
        + "\n"
        + ENGINES[engine].format(hint=HINTS[floats])
        + "\n```",
    ]
    return "\n\n".join(lines) + "\n"


def _listed(labels: Mapping[int, str]) -> str:
    return ", ".join(f"{number} is {' '.join(name.split())!r}" for number, name in labels.items())
