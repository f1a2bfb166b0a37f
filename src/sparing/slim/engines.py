"""One model in every installed engine and precision: the dense baseline, and a plan of slim."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sparing.core.errors import UsageError
from sparing.export.dense import dense_segment
from sparing.export.engine import Chain
from sparing.export.folder import copy_chain
from sparing.export.forms import Form, Forms
from sparing.export.joined import join
from sparing.export.onnx import MOST_BYTES
from sparing.export.segment import Segment
from sparing.export.static_int8 import MOST_INPUTS
from sparing.layers.plan import Plan
from sparing.measure.machine import usable_processors
from sparing.slim.evidence.candidates import DENSE, OURS, Candidate, key_of
from sparing.slim.models import adaptive_form
from sparing.tasks import Task
from sparing.transfer.adaptive import AdaptiveClassifier
from sparing.transfer.embedding.dense import SentenceEncoder
from sparing.transfer.families.known import family_of
from sparing.transfer.folding.fold import is_folded
from sparing.transfer.freezing import segments

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Run = Callable[[Mapping[str, Tensor]], Tensor]
"""Inputs to logits."""
Runs = dict[str, Run]
EXPORTED = (".onnx", ".xml", ".bin", "chain.json")


@dataclass(frozen=True, eq=False)
class Engines:
    """Builds runnable forms on a device; exported files go to ``folder``.

    With ``skips_pads`` those of ONNX Runtime compute no pads, of both models: for batches.
    """

    task: Task
    folder: Path
    thread_count: int
    device: str = "cpu"
    skips_pads: bool = False

    @cached_property
    def options(self) -> dict[str, Any]:
        """What both sides' forms share; INT8 is calibrated on inputs that are trained on."""
        return {
            "example_inputs": self.example(),
            "thread_count": self.thread_count,
            "longest": self.longest,
            "calibration": self.calibration(),
            "device": self.device,
            "skips_pads": self.skips_pads,
        }

    def example(self) -> dict[str, Tensor]:
        """The two longest validation inputs, as a batch: short ones could lose all tokens."""
        held = self.task.validation
        longest = sorted(range(len(held)), key=lambda index: -held.lengths[index])[:2]
        batch = self.task.collate([held[index] for index in longest])
        batch.pop("labels")
        return batch

    def calibration(self) -> list[dict[str, Tensor]]:
        """Training inputs, one by one, for the scales of static INT8."""
        count = min(MOST_INPUTS, len(self.task.train))
        step = len(self.task.train) / count
        inputs = []
        for number in range(count):
            one = self.task.collate([self.task.train[int(number * step)]])
            one.pop("labels")
            inputs.append(one)
        return inputs

    def dense(self, model: PreTrainedModel | SentenceEncoder) -> Forms:
        """The dense model in every engine and precision."""
        if isinstance(model, SentenceEncoder):
            segment = dense_segment(model.encoder, list(model.later)).eval()
        else:
            segment = dense_segment(model).eval()
        folder, eager = self.folder / "dense", without_pads(model)
        return Forms([segment], folder=folder, eager=eager, **self.options)

    def ours(self, model: AdaptiveClassifier, plan: Plan, name: str) -> Forms:
        """A plan in every engine and precision; ``name`` is the folder of its exported files."""
        model.plan = plan
        return Forms(segments(model), folder=self.folder / name, **self.options)

    def cuts(self, model: AdaptiveClassifier, plan: Plan, ends: Sequence[int]) -> dict[int, Forms]:
        """The first layers of a plan up to each of these ends, as one segment."""
        return {end: self.ours(model, first_layers(plan, end), f"first-{end}") for end in ends}

    def installed(self) -> dict[str, list[str]]:
        """The forms that can be built here, and those that cannot, with the reason."""
        calibration = [{"input_ids": torch.zeros(1, 2, dtype=torch.long)}]
        forms = Forms([], {}, self.folder, calibration=calibration, device=self.device)
        return {"measured": list(map(str, forms)), "missing": list(map(str, forms.missing))}

    def drop(self) -> None:
        """Remove every exported file: the served files are in the folder of the model.

        Other files, links, and folders that are not empty afterwards are kept.
        """
        if self.folder.is_symlink() or not self.folder.is_dir():
            return
        for path in sorted(self.folder.rglob("*"), key=lambda path: -len(path.parts)):
            if path.is_symlink() or self.folder.resolve() not in path.resolve().parents:
                continue
            if path.is_file() and path.name.endswith(EXPORTED):
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    @property
    def longest(self) -> int | None:
        """The most tokens that the task's model reads."""
        return self.task.tokens if self.task.kind == "tokens" else None


@dataclass(frozen=True, eq=False)
class BothForms:
    """The forms of the dense model and of slim's, and the chains that they make together.

    ``slim`` are segments that end at the plan's exits. ``cuts`` are its first layers as one
    segment, by their number, the whole plan as well: without exits one segment is faster.
    """

    dense: Forms
    slim: Forms
    thread_count: int
    longest: int | None
    cuts: Mapping[int, Forms] = field(default_factory=dict)
    _joined: set[Path] = field(default_factory=set)

    @property
    def keys(self) -> list[Candidate]:
        """Every form without exits but the cuts; the dense ones come first."""
        dense = [key_of(DENSE, form) for form in self.dense]
        return [*dense, *(key_of(OURS, form) for form in self.slim)]

    def require(self, keys: Collection[Candidate]) -> None:
        """Raise ``UsageError`` unless these forms of an earlier start of the run are here now.

        Forms that this start has and the earlier one had not are refused too.
        """
        for missing in sorted(set(keys) ^ set(self.keys), key=str):
            now = "not any more" if missing in keys else "only now"
            raise UsageError(
                f"{missing} can be built {now}: other engines were installed when this run began; "
                "install the same ones, or begin it anew with --overwrite"
            )

    def parts(self, one: Candidate) -> list[Any]:
        """The segments of a form; those of a cascade end with the dense model."""
        forms = self.dense if one.model == DENSE else self.slim
        if one.model != DENSE and not one.exits and self.cuts:
            forms = self.cuts[one.layers or max(self.cuts)]
        form = Form(one.engine, one.precision, one.settings)  # type: ignore[arg-type]
        parts = list(forms.parts(form))
        if one.second < 1:
            parts += self.dense.parts(form)
        if one.cascade:
            form = self.dense.find(one.engine, cascade_precision(one.precision))
            parts += self.dense.parts(form)
        return parts

    def fits(self, one: Candidate) -> bool:
        """Whether a form's segments can be one file, where its engine joins them."""
        parts = self.parts(one)
        if one.engine != "onnxruntime" or len(parts) == 1:
            return True
        size: int = sum(part.stat().st_size for part in parts)
        return size <= MOST_BYTES

    def files(self, one: Candidate) -> list[Any]:
        """What is opened to answer with a form: segments, those of ONNX Runtime as one file."""
        parts = self.parts(one)
        if one.engine != "onnxruntime" or len(parts) == 1:
            return parts
        end = ("-int8" if one.second < 1 else "") + ("-dense" if one.cascade else "")
        path: Path = parts[0].with_name(f"joined{end}.onnx")
        if path not in self._joined:
            self._joined.add(join(parts, path))
        return [path]

    def chain(self, key: Candidate, *, cascade: bool = False) -> Chain:
        """A form's segments in its engine, which give the answers of every exit."""
        return self._opened(self.parts(replace(key, cascade=cascade)), key, None)

    def without_leaving(self, key: Candidate) -> Run:
        """A form's answers by its segments, of which every input runs all."""
        return self.run(replace(key, threshold=1.0), self._served(key, None))

    def _opened(
        self, parts: Sequence[Any], key: Candidate, shared: dict[Any, Segment] | None
    ) -> Chain:
        precision: Any = key.precision
        return Chain(
            parts,
            thread_count=self.thread_count,
            longest=self.longest,
            precision=precision,
            shared=shared,
        )

    def write(self, candidate: Candidate, folder: Path) -> list[Path]:
        """A candidate's files as a chain in ``folder``; none for a form in PyTorch."""
        if candidate.engine == "eager":
            return []
        precision: Any = candidate.precision
        return copy_chain(
            self.parts(candidate),
            folder,
            threshold=candidate.threshold,
            second=candidate.second,
            longest=self.longest,
            precision=precision,
        )

    def at_once(self, candidate: Candidate) -> int:
        """Inputs that may be answered side by side: one for each free processor, on files alone.

        Sessions share nothing between calls. Modules in PyTorch share the process's threads.
        """
        if candidate.engine == "eager":
            return 1
        return max(1, usable_processors() // self.thread_count)

    def run(self, candidate: Candidate, chain: Chain | None = None) -> Run:
        """A candidate's answers; ``chain`` may be shared by candidates of one key."""
        opened = chain or self._served(candidate, None)

        def run(inputs: Mapping[str, Tensor]) -> Tensor:
            opened.threshold, opened.second = candidate.threshold, candidate.second
            logits: Tensor = opened(inputs)[0]
            return logits

        return run

    def runs(self, candidates: Sequence[Candidate]) -> Runs:
        """The answers of several candidates by name, all open at once, each file opened once."""
        shared: dict[Any, Segment] = {}
        return {str(one): self.run(one, self._served(one, shared)) for one in candidates}

    def _served(self, one: Candidate, shared: dict[Any, Segment] | None) -> Chain:
        """A candidate as it is served; files that are not open in ``shared`` are opened."""
        return self._opened(self.files(one), one.key, shared)


def first_layers(plan: Plan, count: int) -> Plan:
    """The first layers of a plan, without exits."""
    heads, neurons = plan.heads[:count], plan.neurons[:count]
    return replace(plan, heads=heads, neurons=neurons, exits=(), threshold=1.0)


def without_pads(model: PreTrainedModel | SentenceEncoder) -> list[nn.Module]:
    """The dense model of texts as one of slim's segments, which leaves out pads, in a list.

    Empty for images, which have none, and for folded models, which are faster as they are.
    """
    encoder = model.encoder if isinstance(model, SentenceEncoder) else model
    if encoder.main_input_name != "input_ids" or is_folded(encoder):
        return []
    layers = family_of(encoder.config).sizes(encoder.config).layers
    return segments(adaptive_form(model, [layers]))


def cascade_precision(precision: str) -> str:
    """The precision of the dense model at the end of a cascade: INT8 answers too would differ."""
    return "float32" if precision == "int8" else precision


def float32_runs(forms: Forms, name: str) -> Runs:
    """Every engine in float32, by ``name`` and engine."""
    runs: Runs = {}
    for form in forms:
        if form.precision == "float32":
            runs[f"{name} {form.engine}"] = logits_of(forms[form])
    return runs


def logits_of(chain: Chain) -> Run:
    """A chain that gives its logits alone."""

    def run(inputs: Mapping[str, Tensor]) -> Tensor:
        logits: Tensor = chain(inputs)[0]
        return logits

    return run
