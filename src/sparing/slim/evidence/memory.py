"""Peak memory of the tested forms: what a call adds to the loaded model, in a fresh process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from sparing.core.record import Label, Record
from sparing.export.dense import dense_segment
from sparing.export.engine import Chain
from sparing.foreign.pretrained import write_pretrained
from sparing.measure.memory import peak_memory
from sparing.slim.evidence.candidates import DENSE, Candidate
from sparing.slim.evidence.verify import tested
from sparing.slim.inputs import inputs_of
from sparing.slim.steps import Steps
from sparing.transfer.embedding.dense import SentenceEncoder
from sparing.transfer.opening import open_model

PROBE = f"{__name__}:call_of"
FEW_TOKENS = 8


@dataclass(frozen=True)
class Stored:
    """A form as files that a fresh process can open: segments, or a saved model's folder."""

    form: Candidate
    paths: tuple[Path, ...]

    @property
    def weight_bytes(self) -> int:
        """Bytes of its weights on disk, which are about those in memory."""
        weights = [_weights(path) for path in self.paths]
        return sum(path.stat().st_size for path in weights if path.is_file())


def memory_of(steps: Steps, batch: int) -> list[Record]:
    """The peak of every tested form with files, and of the dense model as transformers runs it.

    The input is the longest test batch.
    """
    both = steps.forms
    _, inputs = inputs_of(steps.task, steps.task.test, batch)[-1]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "dense"
        baseline = steps.models.baseline()
        # what pools the tokens of an embedding model holds no memory to speak of
        encoder = baseline.encoder if isinstance(baseline, SentenceEncoder) else baseline
        write_pretrained(encoder, folder)
        stored = [Stored(Candidate(DENSE, "eager", "float32"), (folder,))]
        stored += [
            Stored(one, tuple(both.files(one)))
            for one in tested(steps, both)
            if one.engine != "eager"
        ]
        return peaks(stored, inputs, steps.engines.thread_count)


def peaks(
    forms: Sequence[Stored], inputs: Mapping[str, Tensor], thread_count: int = 1
) -> list[Record]:
    """``peak_bytes`` and ``weight_bytes`` of each form on one batch, each in a fresh process.

    Labels are the form's, the batch and, for texts, the tokens.
    """
    records = []
    first = next(iter(inputs.values()))
    size: dict[str, Label] = {"batch": first.shape[0]}
    if first.ndim == 2:
        size["tokens"] = first.shape[1]
    with tempfile.TemporaryDirectory() as scratch:
        held = Path(scratch) / "inputs.safetensors"
        save_file({name: value.contiguous() for name, value in inputs.items()}, held)
        for one in forms:
            arguments = {
                "paths": [str(path) for path in one.paths],
                "threshold": one.form.threshold,
                "second": one.form.second,
                "precision": one.form.precision,
                "inputs": str(held),
                "thread_count": thread_count,
            }
            peak = peak_memory(PROBE, arguments, threads=thread_count)
            labels = {**one.form.labels, **size}
            records += [
                Record("peak_bytes", peak.bytes, "bytes", "measured", labels),
                Record("weight_bytes", one.weight_bytes, "bytes", "measured", labels),
            ]
    return records


def call_of(
    paths: Sequence[str],
    threshold: float,
    second: float,
    precision: Any,
    inputs: str,
    thread_count: int,
) -> Callable[[], object]:
    """A form's call in its own process, after a small warm-up call that loads the libraries."""
    given = load_file(inputs)
    parts: list[Any] = [Path(path) for path in paths]
    if parts[0].is_dir():
        parts = [dense_segment(open_model(paths[0]).eval())]
    chain = Chain(parts, threshold, second=second, thread_count=thread_count, precision=precision)
    chain({name: _small(value) for name, value in given.items()})
    return lambda: chain(given)


def _weights(path: Path) -> Path:
    """The file that holds the weights of a segment or a saved model."""
    if path.is_dir():
        return path / "model.safetensors"
    return path.with_suffix(".bin") if path.suffix == ".xml" else path


def _small(value: Tensor) -> Tensor:
    """One input, of few tokens where it is a text."""
    return value[:1, :FEW_TOKENS] if value.ndim == 2 else value[:1]
