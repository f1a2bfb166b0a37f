"""Peak memory of each form of a run: dense and slim, engine by engine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from safetensors.torch import load_file, save_file
from torch import Tensor

from sparing.core.record import Label, Record
from sparing.export.dense import compiled_segment, dense_segment
from sparing.export.engine import Chain
from sparing.foreign.pretrained import write_pretrained
from sparing.layers.plan import Plan
from sparing.measure.memory import peak_memory
from sparing.slim.engines import Engines, has_onnx, logits_of, packed
from sparing.slim.models import inputs_of
from sparing.slim.steps import Steps
from sparing.transfer.adaptive import AdaptiveClassifier
from sparing.transfer.freezing import freeze
from sparing.transfer.opening import open_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Engine = Literal["eager", "compiled", "onnxruntime"]
PROBE = f"{__name__}:call_of"
FEW_TOKENS = 8


@dataclass(frozen=True)
class Form:
    """One model in one engine, as files that a fresh process can open.

    ``paths`` are a saved model's folder ("eager", "compiled"), or exported segments in their order
    ("onnxruntime"), between which inputs exit above ``threshold``.
    """

    arm: str
    engine: Engine
    paths: tuple[Path, ...]
    threshold: float = 1.0

    @property
    def weight_bytes(self) -> int:
        """Bytes of its weights on disk, which are those in memory."""
        files = [path / "model.safetensors" if path.is_dir() else path for path in self.paths]
        return sum(path.stat().st_size for path in files)


def form_peaks(
    engines: Engines,
    dense: PreTrainedModel,
    ours: AdaptiveClassifier,
    plan: Plan,
    inputs: Mapping[str, Tensor],
    *,
    exported: str = "chosen",
) -> list[Record]:
    """The peak of every form that ``Engines`` builds, on one batch, each in a fresh process.

    ``exported`` names the folder of ``Engines.ours`` that holds the plan's files; a form that is
    not exported is not measured in ONNX Runtime. Records are those of ``peaks``.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_pretrained(dense, folder / "dense")
        write_pretrained(freeze(ours, plan), folder / "ours")
        forms = [Form("dense", "eager", (folder / "dense",))]
        if engines.compiled:
            forms.append(Form("dense", "compiled", (folder / "dense",)))
        forms.append(Form("slim", "eager", (folder / "ours",)))
        if has_onnx():
            path = engines.folder / "dense" / "dense.onnx"
            segments = tuple(
                sorted((engines.folder / exported).glob("segment-*.onnx"), key=_number)
            )
            forms += [Form("dense", "onnxruntime", (path,))] if path.is_file() else []
            forms += [Form("slim", "onnxruntime", segments, plan.threshold)] if segments else []
        return peaks(forms, inputs, engines.thread_count)


def memory_of(steps: Steps, batch: int) -> list[Record]:
    """The peak of every form on the longest test batch, from files that are exported already."""
    _, inputs = inputs_of(steps.task, steps.task.test, batch)[-1]
    plan = steps.served().plan
    return form_peaks(steps.engines, steps.models.baseline(), steps.model(), plan, inputs)


def _number(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def peaks(
    forms: Sequence[Form], inputs: Mapping[str, Tensor], thread_count: int = 1
) -> list[Record]:
    """``peak_bytes`` and ``weight_bytes`` of each form on one batch, each in a fresh process.

    The peak is what the call adds to the loaded model (see ``peak_memory``). Labels are ``arm``,
    engine, batch and, for texts, tokens.
    """
    records = []
    first = next(iter(inputs.values()))
    size: dict[str, Label] = {"batch": first.shape[0]}
    if first.ndim == 2:
        size["tokens"] = first.shape[1]
    with tempfile.TemporaryDirectory() as scratch:
        held = Path(scratch) / "inputs.safetensors"
        save_file({name: value.contiguous() for name, value in inputs.items()}, held)
        for form in forms:
            arguments = {
                "engine": form.engine,
                "paths": [str(path) for path in form.paths],
                "threshold": form.threshold,
                "inputs": str(held),
                "thread_count": thread_count,
            }
            peak = peak_memory(PROBE, arguments, threads=thread_count)
            labels: dict[str, Label] = {"arm": form.arm, "engine": form.engine, **size}
            records += [
                Record("peak_bytes", peak.bytes, "bytes", "measured", labels),
                Record("weight_bytes", form.weight_bytes, "bytes", "measured", labels),
            ]
    return records


def call_of(
    engine: Engine, paths: Sequence[str], threshold: float, inputs: str, thread_count: int
) -> Callable[[], object]:
    """A form's call in its own process, after a small warm-up call that loads the libraries."""
    given = load_file(inputs)
    run = _opened(engine, [Path(path) for path in paths], threshold, given, thread_count)
    run({name: _small(value) for name, value in given.items()})
    return lambda: run(given)


def _opened(
    engine: Engine,
    paths: list[Path],
    threshold: float,
    inputs: Mapping[str, Tensor],
    thread_count: int,
) -> Callable[[Mapping[str, Tensor]], Tensor]:
    if engine == "onnxruntime":
        return logits_of(Chain(paths, threshold, thread_count=thread_count))
    model = open_model(str(paths[0])).eval()
    if isinstance(model, AdaptiveClassifier):
        return packed(model)
    segment = dense_segment(model)
    if engine == "compiled":
        segment = compiled_segment(segment, inputs)
    return logits_of(Chain([segment], thread_count=thread_count))


def _small(value: Tensor) -> Tensor:
    """One input, of few tokens where it is a text."""
    return value[:1, :FEW_TOKENS] if value.ndim == 2 else value[:1]
