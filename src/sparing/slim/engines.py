"""One model in every installed engine: the dense baseline, and plans of the adaptive model."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sparing.export.dense import compiled_segment, dense_segment
from sparing.export.engine import Chain
from sparing.export.folder import export_chain
from sparing.export.onnx import export_onnx
from sparing.layers.plan import Plan
from sparing.tasks import Task
from sparing.transfer.adaptive import AdaptiveClassifier
from sparing.transfer.freezing import freeze, segments

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Run = Callable[[Mapping[str, Tensor]], Tensor]
"""Inputs to logits."""
Runs = dict[str, Run]
EXPORTED = (".onnx", ".onnx.data", ".xml", ".bin", "chain.json")


def has_onnx() -> bool:
    """Whether the extra ``onnx`` is installed."""
    return all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime", "onnxscript"))


@dataclass(frozen=True, eq=False)
class Engines:
    """Builds runnable forms; exported files go to ``folder``."""

    task: Task
    folder: Path
    thread_count: int
    compiled: bool

    def example(self) -> dict[str, Tensor]:
        """The two longest validation inputs, as a batch: short ones could lose all tokens."""
        held = self.task.validation
        longest = sorted(range(len(held)), key=lambda index: -held.lengths[index])[:2]
        batch = self.task.collate([held[index] for index in longest])
        batch.pop("labels")
        return batch

    def dense(self, model: PreTrainedModel) -> Runs:
        """The dense model in every engine, by the engine's name."""
        segment = dense_segment(model).eval()
        chains = {"eager": self.chain([segment])}
        if self.compiled:
            chains["compiled"] = self.chain([compiled_segment(segment, self.example())])
        if has_onnx():
            path = self.folder / "dense" / "dense.onnx"
            if not path.is_file():
                export_onnx(segment, self.example(), path)
            chains["onnxruntime"] = self.chain([path])
        return {name: logits_of(chain) for name, chain in chains.items()}

    def ours(self, model: AdaptiveClassifier, plan: Plan, name: str) -> Runs:
        """A plan in every engine; ``name`` is the folder of its exported files."""
        model.plan = plan
        frozen = freeze(model).eval()
        runs: Runs = {"eager": packed(frozen)}
        if has_onnx():
            paths = self.exported(model, plan, name)
            runs["onnxruntime"] = logits_of(self.chain(paths, plan.threshold))
        return runs

    def exported(self, model: AdaptiveClassifier, plan: Plan, name: str) -> list[Path]:
        """A plan's segments as files."""
        model.plan = plan
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        return export_chain(
            segments(model), self.example(), folder, threshold=plan.threshold, longest=self.longest
        )

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

    def chain(self, parts: Any, threshold: float = 1.0) -> Chain:
        """A chain of segments (files or modules), one after the other."""
        return Chain(parts, threshold, thread_count=self.thread_count, longest=self.longest)


def logits_of(chain: Chain) -> Run:
    """A chain that gives its logits alone."""

    def run(inputs: Mapping[str, Tensor]) -> Tensor:
        logits: Tensor = chain(inputs)[0]
        return logits

    return run


def packed(model: AdaptiveClassifier) -> Run:
    """The adaptive model itself, on packed rows."""

    def run(inputs: Mapping[str, Tensor]) -> Tensor:
        with torch.inference_mode():
            logits: Tensor = model(**inputs).logits
        return logits

    return run
