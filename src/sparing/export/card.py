"""The README.md of an exported model: how to open it without sparing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sparing.export.drift import Drift
from sparing.export.openvino import HINTS, FloatPrecision

TOKENS = """import numpy, tokenizers
tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
tokenizer.no_padding()
text = tokenizer.encode({example})
rows = dict(input_ids=text.ids, attention_mask=text.attention_mask, token_type_ids=text.type_ids)
inputs = {{name: numpy.array([rows[name]]) for name in {names}}}"""
ARRAYS = """import numpy
inputs = {{name: numpy.array(...) for name in {names}}}  # a batch of your inputs"""
ENGINES = {
    "onnxruntime": """import onnxruntime
model = onnxruntime.InferenceSession("onnx/model.onnx")
outputs = dict(zip([made.name for made in model.get_outputs()], model.run(None, inputs)))""",
    "openvino": """import openvino
settings = {{"INFERENCE_PRECISION_HINT": "{hint}"}}
path = "openvino/openvino_model.xml"
outputs = openvino.Core().compile_model(path, "CPU", settings)(inputs)""",
    "executorch": """import torch
from executorch.runtime import Runtime
program = Runtime.get().load_program("model.pte")
rows = [torch.from_numpy(inputs[name]) for name in {names}]
answers = program.load_method("forward").execute(rows)
outputs = dict(zip({made}, answers))""",
}
SESSION = """{reading}
import onnxruntime
model = onnxruntime.InferenceSession("onnx/model.onnx")
given = {{each.name: inputs[each.name] for each in model.get_inputs()}}
outputs = dict(zip([made.name for made in model.get_outputs()], model.run(None, given)))
answer = {answer}
{printing}"""
CHAIN = """import json
{reading}
import openvino
settings = {{"INFERENCE_PRECISION_HINT": "{hint}"}}
chain = json.load(open("chain.json"))
for name in chain["segments"]:{last}
    model = openvino.Core().compile_model(name, "CPU", settings)
    given = {{each.any_name: inputs[each.any_name] for each in model.inputs}}
    outputs = {{made.any_name: held for made, held in model(given).items()}}
    hidden = outputs.get("next_hidden")
    inputs = inputs if hidden is None else dict(inputs, hidden=hidden)
    answer = {answer}{leaving}
{printing}"""
EXACT = """
    if name == chain["segments"][-1]:  # the dense model, in float32
        settings = {"INFERENCE_PRECISION_HINT": "f32"}"""
ANSWER = 'outputs.get("sentence_embedding", outputs.get("logits"))[0]'
# A passage that is too long is read in windows; of all their answers the best one counts.
SPANS = """import {first}numpy, {engine}, tokenizers
tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
tokenizer.no_padding()
{opening}
question, passage = {example}
room = {longest} - len(tokenizer.encode(question, "").ids)
tokenizer.enable_truncation({longest}, stride=min({stride}, room // 2), strategy="only_second")
whole, found = tokenizer.encode(question, passage), []
for text in [whole, *whole.overflowing]:
    rows = dict(input_ids=text.ids, token_type_ids=text.type_ids)
    rows["attention_mask"] = text.attention_mask
    inputs = {{name: numpy.array([rows[name]]) for name in {names}}}
{running}
    starts, ends = outputs["start_logits"][0], outputs["end_logits"][0]
    inside = [number for number, part in enumerate(text.sequence_ids) if part == 1]
    pairs = [(first, last) for first in inside for last in inside if first <= last < first + 30]
    first, last = max(pairs, key=lambda pair: starts[pair[0]] + ends[pair[1]])
    found.append((starts[first] + ends[last], text.offsets[first][0], text.offsets[last][1]))
score, begin, end = max(found, key=lambda one: one[0])
print(passage[begin:end])"""
SPANS_IN = {
    "onnxruntime": {
        "first": "",
        "opening": 'model = onnxruntime.InferenceSession("onnx/model.onnx")',
        "running": """    given = {each.name: inputs[each.name] for each in model.get_inputs()}
    outputs = dict(zip((made.name for made in model.get_outputs()), model.run(None, given)))""",
    },
    "openvino": {
        "first": "json, ",
        "opening": """core, settings = openvino.Core(), {{"INFERENCE_PRECISION_HINT": "{hint}"}}
(name,) = json.load(open("chain.json"))["segments"]
model = core.compile_model(name, "CPU", settings)""",
        "running": """    given = {each.any_name: inputs[each.any_name] for each in model.inputs}
    outputs = {made.any_name: held for made, held in model(given).items()}""",
    },
}
# How the answer of models that answer for each token is read.
PRINTING = {
    "entities": """import json
labels = json.load(open("config.json"))["id2label"]
print([(token, labels[str(number)]) for token, number in zip(text.tokens, answer.argmax(-1))])""",
}
EXITING = """
    powers = numpy.exp(answer - answer.max())
    if powers.max() / powers.sum() > {limit}:
        break  # sure enough: later segments are not run"""
# A whole model before the last one has a threshold of its own.
LIMITS = """chain[
        "threshold" if name == chain["segments"][0] or "hidden" in given else "second_threshold"
    ]"""
WITHOUT = {"executorch": "In this folder, without sparing; on a phone, by ExecuTorch's library:"}
RESULTS = {
    "logits": "logits",
    "start_logits": "start",
    "end_logits": "end",
    "sentence_embedding": "vector",
    "last_hidden_state": "hidden_states",
}


def export_card(
    *,
    name: str,
    engine: str,
    precision: str,
    floats: FloatPrecision,
    inputs: Sequence[str],
    outputs: Sequence[str],
    prompt: str,
    fast_tokenizer: bool,
    longest: int | None,
    labels: Mapping[int, str],
    drift: Drift,
    compared: str,
    made: Sequence[str] = (),
) -> str:
    """The model, its drift, and the lines that open it with its engine alone, as Markdown.

    ``floats`` is the precision of everything that is not in INT8. ``outputs`` are the names of
    those that hold the answer. ``prompt`` goes before every text. ``compared`` are the inputs of
    the drift in words, and ``made`` all outputs of a program that does not name them.
    """
    rest = f", everything else in {floats}" if (engine, precision) == ("openvino", "int8") else ""
    lines = [
        f"# {name} for {engine}, {precision}",
        f"Products with weights are in {precision}{rest}. Against the dense model in PyTorch, on "
        f"{compared}: {drift}.",
        *([f"It reads at most {longest:,} tokens."] if longest and "input_ids" in inputs else []),
        *([f"Labels: {_listed(labels)}."] if labels else []),
        *([f"Every text begins with the prompt {prompt!r}."] if prompt else []),
        WITHOUT.get(engine, "In this folder, without sparing and without PyTorch:"),
        _code(engine, floats, inputs, outputs, prompt, fast_tokenizer, made),
    ]
    return "\n\n".join(lines) + "\n"


def _code(
    engine: str,
    floats: FloatPrecision,
    inputs: Sequence[str],
    outputs: Sequence[str],
    prompt: str,
    fast_tokenizer: bool,
    made: Sequence[str],
) -> str:
    """The lines that open the model and answer one text, or a question and its passage."""
    example = json.dumps(f"{prompt}a text")
    if "end_logits" in outputs:
        example = '"a question", "a passage"'
    reading = TOKENS if fast_tokenizer else ARRAYS
    lines = [
        reading.format(names=list(inputs), example=example),
        ENGINES[engine].format(hint=HINTS[floats], names=list(inputs), made=list(made)),
        *(f'{RESULTS[output]} = outputs["{output}"]' for output in outputs),
    ]
    return "\n".join(["```python", *lines, "```"])


def chain_program(
    engine: str,
    floats: FloatPrecision,
    inputs: Sequence[str],
    texts: Sequence[str],
    *,
    exits: bool,
    second: bool = False,
    exact: bool = False,
    kind: str = "class",
    windows: tuple[int, int] = (0, 0),
) -> str:
    """The lines that open a folder's chain with its engine alone and answer one input.

    ``inputs`` are the names of the model's, and ``texts`` a text or a pair as an example; none for
    inputs that no tokenizer makes. A file of ONNX Runtime holds the whole chain. With ``exits`` the
    segments of OpenVINO run in turn until the largest class probability is above the threshold.
    With ``second`` a whole model before the last one has a threshold of its own, and with ``exact``
    the last one is in float32. ``kind`` is what the model answers with. ``windows`` are the most
    tokens of a window of a passage, and how many tokens of it neighbours share.
    """
    example = ", ".join(map(json.dumps, texts))
    if kind == "span":
        parts = SPANS_IN[engine]
        opening = parts["opening"]
        opening = opening.format(hint=HINTS[floats]) if engine == "openvino" else opening
        sizes = dict(zip(("longest", "stride"), windows, strict=True))
        more = {**parts, "opening": opening, "names": list(inputs)}
        return f"```python\n{SPANS.format(engine=engine, example=example, **sizes, **more)}\n```"
    reading = (TOKENS if texts else ARRAYS).format(names=list(inputs), example=example)
    printing = PRINTING.get(kind, "print(answer)")
    parts = {"reading": reading, "answer": ANSWER, "printing": printing}
    if engine == "onnxruntime":
        code = SESSION.format(**parts)
    else:
        limit = LIMITS if second else 'chain["threshold"]'
        leaving = EXITING.format(limit=limit) if exits else ""
        last = EXACT if exact and floats != "float32" else ""
        code = CHAIN.format(**parts, hint=HINTS[floats], leaving=leaving, last=last)
    return f"```python\n{code}\n```"


def _listed(labels: Mapping[int, str]) -> str:
    return ", ".join(f"{number} is {' '.join(name.split())!r}" for number, name in labels.items())
