"""``sparing export MODEL --to ENGINE --precision P``: a model for another engine, or a phone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from sparing.cli.shared.common import Json, emit, progress_bar, verb
from sparing.core.errors import UsageError, require_choice

if TYPE_CHECKING:
    from sparing.advise.source import Source
    from sparing.export.drift import Answers, Drift
    from sparing.export.openvino import FloatPrecision

EXAMPLE = "sparing export models/digits --to openvino --output-dir models/digits-openvino"
ENGINES = {"onnx": "onnxruntime", "openvino": "openvino", "executorch": "executorch"}
PHONE = "executorch"
PRECISIONS = ("float32", "bfloat16", "int8")


@verb
def run(
    model: Annotated[str, typer.Argument(help="The folder of a dense model, or a hub name.")],
    output_dir: Annotated[Path, typer.Option(help="A new folder for the exported model.")],
    to: Annotated[
        str, typer.Option(help="The engine: onnx, openvino, or executorch for phones.")
    ] = "onnx",
    precision: Annotated[
        str, typer.Option(help="float32, int8, or with openvino also bfloat16.")
    ] = "float32",
    texts: Annotated[
        str | None, typer.Option(help="Your texts, to calibrate openvino's INT8 and to compare on.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(help="The most tokens on a phone; the model's limit if not given.")
    ] = None,
    skip_pads: Annotated[
        bool, typer.Option("--skip-pads", help="With onnx: compute no pads, for batches of texts.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a dense model for another engine, or for a phone.

    Its answers are compared with those of the dense model in PyTorch. The folder holds the
    model, its tokenizer, and a README.md with the lines that open it without sparing. Models
    of slim are exported already, but for phones.
    """
    from sparing.advise.source import open_source
    from sparing.export.saving import require_new

    _require_possible(to, precision, texts, tokens, skip_pads)
    require_new(output_dir)
    with progress_bar(quiet=as_json) as show:
        show(0.0, f"opening {model}")
        calibrated = (to, precision) == ("openvino", "int8")
        source = open_source(model, texts, calibrated=calibrated, phone=to == PHONE, tokens=tokens)
        export = _lower if to == PHONE else partial(_export, skips_pads=skip_pads)
        facts = export(source, ENGINES[to], precision, output_dir, show)
    emit(facts) if as_json else _print(facts)


def _require_possible(
    to: str, precision: str, texts: str | None, tokens: int | None, skip_pads: bool
) -> None:
    """Raise ``UsageError`` for what no model can be exported to, before it is opened."""
    require_choice("export", "--to", to, ENGINES)
    require_choice("export", "--precision", precision, PRECISIONS)
    if skip_pads and to != "onnx":
        raise UsageError("--skip-pads is for --to onnx: other engines compute the pads")
    if (to, precision) == (PHONE, "bfloat16"):
        raise UsageError("XNNPACK has no bfloat16 here: use --precision float32 or int8")
    if to == PHONE:
        from sparing.export.executorch import require_packages

        require_packages()
    elif tokens is not None:
        raise UsageError(f"--tokens is for --to {PHONE}: other engines read any length")
    if (to, precision) == ("onnx", "bfloat16"):
        raise UsageError(
            "ONNX Runtime has no products in bfloat16 on a CPU: use --to openvino, or "
            "--precision int8"
        )
    if (to, precision) == ("openvino", "int8") and texts is None:
        from sparing.export.static_int8 import FEWEST_INPUTS

        raise UsageError(
            f"--precision int8 --to openvino is calibrated on texts: give --texts FILE, at least "
            f"{FEWEST_INPUTS}; --to onnx needs none"
        )


def _export(
    source: Source,
    engine: str,
    precision: str,
    folder: Path,
    show: Callable[[float, str], None],
    *,
    skips_pads: bool,
) -> dict[str, Any]:
    from sparing.core.scratch import scratch_inside
    from sparing.export.drift import measure_drift
    from sparing.export.forms import Forms
    from sparing.export.saving import save_beside, writing_folder
    from sparing.foreign.pretrained import write_pretrained

    with scratch_inside(Path(tempfile.gettempdir()), "sparing-export") as scratch:
        options: dict[str, Any] = {"longest": source.longest, "calibration": source.calibration}
        forms = Forms([source.segment], _example(source), scratch, skips_pads=skips_pads, **options)
        form = forms.find(engine, precision)
        show(0.1, f"exporting to {form}")
        chain = forms[form]
        show(0.7, f"comparing answers on {source.words}")
        dense = forms[forms.find("eager", "float32")]
        drift = measure_drift(dense, chain, source.compared, _answers(source))
        with writing_folder(folder) as part:
            paths = forms.write(form, part)
            size = sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
            names = [path.relative_to(part).as_posix() for path in paths]
            save_beside(source.name, part)
            write_pretrained(source.model.config, part)
            if source.sentences:
                source.sentences.copy(part)
            floats = chain.rest or "float32"
            _write_card(source, form.engine, form.precision, floats, drift, part)
    show(1.0, f"saved in {folder}")
    rest = chain.rest if precision == "int8" else None
    facts = _facts(source, folder, drift, size, names)
    chosen = {"engine": engine, "precision": precision, "rest": rest, "skips_pads": skips_pads}
    return {**facts, **chosen}


def _lower(
    source: Source, engine: str, precision: str, folder: Path, show: Callable[[float, str], None]
) -> dict[str, Any]:
    """Write the model as one program for a phone, run here by the phone's runtime."""
    from sparing.advise.source import LONGEST
    from sparing.export.drift import measure_drift
    from sparing.export.engine import Chain
    from sparing.export.executorch import PROGRAM, Program, export_executorch
    from sparing.export.saving import save_beside, writing_folder
    from sparing.foreign.pretrained import write_pretrained

    most = (source.longest or LONGEST) if source.subject.reads == "tokens" else None
    options: dict[str, Any] = {"precision": precision, "tokens": most}
    with writing_folder(folder) as part:
        show(0.1, f"lowering to {engine} {precision}")
        lowered = export_executorch(source.segment, _example(source), part / PROGRAM, **options)
        show(0.7, f"comparing answers on {source.words}")
        program = Program(part / PROGRAM, lowered.inputs, lowered.outputs)
        drift = measure_drift(Chain([source.segment]), program, source.compared, _answers(source))
        save_beside(source.name, part)
        write_pretrained(source.model.config, part)
        _write_card(source, engine, precision, "float32", drift, part, lowered.outputs)
    show(1.0, f"saved in {folder}")
    facts = _facts(source, folder, drift, lowered.bytes, [PROGRAM])
    chosen = {"engine": engine, "precision": precision, "rest": None}
    return {**facts, **chosen, "program": lowered.to_dict()}


def _facts(
    source: Source, folder: Path, drift: Drift, size: int, segments: Sequence[str]
) -> dict[str, Any]:
    """What ``--json`` prints of any form; sizes are in bytes."""
    return {
        "model": source.name,
        "folder": str(folder),
        "segments": list(segments),
        "bytes": size,
        "dense_bytes": sum(held.nbytes for held in source.model.parameters()),
        "inputs": list(source.names),
        "compared": source.words,
        "drift": drift.to_dict(),
    }


def _example(source: Source) -> dict[str, Any]:
    """Two inputs of a few tokens; the exported file takes any batch and length."""
    import torch

    from sparing.advise.model import random_inputs

    most = min(source.subject.limit or 16, 16)
    inputs = random_inputs(source.subject, 2, most)
    if "input_ids" in inputs:
        inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    return {name: inputs[name] for name in source.names}


def _answers(source: Source) -> Answers:
    from sparing.advise.source import kind_of
    from sparing.export.drift import Answers

    if source.subject.kind.endswith("ForImageClassification"):
        return "class"
    kind = kind_of(source)
    return next((name for name in get_args(Answers) if kind and name == kind.name), "none")


def _write_card(
    source: Source,
    engine: str,
    precision: str,
    floats: FloatPrecision,
    drift: Drift,
    folder: Path,
    made: Sequence[str] = (),
) -> None:
    from sparing.core.writing import write_atomically
    from sparing.export.card import export_card

    named = type(source.model).__name__.endswith("Classification")
    card = export_card(
        name=Path(source.name).name,
        engine=engine,
        precision=precision,
        floats=floats,
        inputs=source.names,
        outputs=source.outputs,
        prompt=source.sentences.prompt if source.sentences else "",
        fast_tokenizer=(folder / "tokenizer.json").is_file(),
        longest=source.longest,
        labels=source.model.config.id2label if named else {},
        drift=drift,
        compared=source.words,
        made=made,
    )
    write_atomically(folder / "README.md", card)


def _print(facts: Mapping[str, Any]) -> None:
    from sparing.export.drift import Drift

    rest = f", the rest in {facts['rest']}" if facts["rest"] else ""
    size, dense = (facts[name] / 1e6 for name in ("bytes", "dense_bytes"))
    rest += ", no pads computed" if facts.get("skips_pads") else ""
    print(f"{facts['engine']}, {facts['precision']}{rest}: {size:.1f} MB; {dense:.1f} MB before")
    print(f"{facts['compared']}, against the dense model in PyTorch: {Drift(**facts['drift'])}")
    if "program" in facts:
        from sparing.export.executorch import Lowered

        print(Lowered(**facts["program"]).words())
    print(f"saved in {facts['folder']}; its README.md has the lines that open it")
