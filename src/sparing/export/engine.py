"""One loop for a chain of segments, in PyTorch or ONNX Runtime: confident inputs exit early.

Every compared engine runs in this loop, the dense model as a chain of one segment. So a difference
in time is due to the models and not to the loops.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from sparing.core.errors import UsageError
from sparing.export.inputs import Sizes, checked, explained, length_of
from sparing.export.onnx import open_session
from sparing.measure.machine import threads

BackEnd = Literal["eager", "onnxruntime"]
Result = tuple[Any, NDArray[Any], NDArray[Any] | None]
"""Hidden states, logits, and a learned confidence."""
# Below this a softmax of one row is faster in plain Python than in NumPy.
FEW_CLASSES = 16


class Chain:
    """Segments run one after another; after each, the inputs with enough confidence leave.

    The first segment takes the model's inputs by name (``input_ids``, ``attention_mask`` and
    perhaps ``token_type_ids``, each (batch, tokens), or ``pixel_values``). Each later one takes
    ``hidden`` (batch, tokens, width) and, for texts, ``attention_mask``. Each returns (hidden,
    logits) or (hidden, logits, confidence); the last may return logits alone. Between two segments
    the inputs with a confidence above ``threshold`` leave. It is the largest class probability,
    unless one is returned. The others go on as a smaller batch, cut to the longest of them. At a
    threshold of 1 no input exits early.

    ``segments`` are modules (back end "eager": in inference mode, on their own device) or paths of
    ``export_onnx`` (back end "onnxruntime": on the CPU). ``thread_count`` threads compute.
    ``longest`` is the most tokens that the model takes. Raises ``UsageError`` for no segments, both
    kinds at once, modules in training, or a threshold outside [0, 1].
    """

    def __init__(
        self,
        segments: Sequence[nn.Module | Path],
        threshold: float = 1.0,
        *,
        thread_count: int = 1,
        longest: int | None = None,
    ) -> None:
        if not segments:
            raise UsageError("a chain needs at least one segment")
        if thread_count < 1:
            raise UsageError(f"thread_count must be at least 1; got {thread_count}")
        modules = [segment for segment in segments if isinstance(segment, nn.Module)]
        if modules and len(modules) < len(segments):
            raise UsageError("a chain holds modules or exported files, not both")
        self.thread_count, self.longest = thread_count, longest
        self.back_end: BackEnd = "eager" if modules else "onnxruntime"
        self._segments: Sequence[_ModuleSegment | _OnnxSegment] = (
            [_ModuleSegment(module) for module in modules]
            if modules
            else [
                _OnnxSegment(segment, thread_count)
                for segment in segments
                if isinstance(segment, Path)
            ]
        )
        if not all(segment.gives_hidden for segment in self._segments[:-1]):
            raise UsageError("only the last segment of a chain may give logits alone")
        self.threshold = threshold

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def takes(self) -> tuple[str, ...]:
        """The names of the inputs of the first segment."""
        return tuple(self._segments[0].takes)

    @property
    def threshold(self) -> float:
        """An input leaves when its confidence is above this."""
        return self._threshold

    @threshold.setter
    def threshold(self, value: float) -> None:
        """Set it; raises ``UsageError`` outside [0, 1]."""
        if not 0 <= value <= 1:
            raise UsageError(f"threshold must be in [0, 1]; got {value}")
        self._threshold = value

    def __call__(self, inputs: Mapping[str, Any]) -> tuple[Any, Any]:
        """The logits (batch, classes), and each input's segment number (from 0) of exit.

        Takes tensors or NumPy arrays and returns the same kind: arrays where all inputs are arrays.
        Whole numbers of any width and booleans are cast. Raises ``UsageError``, naming the input,
        for all that the model cannot read: see ``export.inputs.checked``.
        """
        given, keep = self._checked(inputs)
        with torch.inference_mode(), self._pinned():
            run = self._run_one if len(next(iter(given.values()))) == 1 else self._run_many
            logits, places = run(given, keep)
        if all(isinstance(value, np.ndarray) for value in inputs.values()):
            return logits.numpy(), places.numpy()
        return logits, places

    def every_exit(self, inputs: Mapping[str, Any]) -> Float[Tensor, "batch exits classes"]:
        """The logits after every segment without early exits, to calibrate a threshold."""
        given, keep = self._checked(inputs)
        answers = []
        with torch.inference_mode(), self._pinned():
            values, keep = self._start(given, keep)
            for segment in self._segments:
                hidden, logits, _ = segment.run(values)
                answers.append(torch.from_numpy(logits.copy()))
                values = {**values, "hidden": hidden}
        return torch.stack(answers, 1)

    def _pinned(self) -> Any:
        """PyTorch's threads are the process's; sessions have their own."""
        if self.back_end == "onnxruntime" or torch.get_num_threads() == self.thread_count:
            return nullcontext()
        return threads(self.thread_count)

    def _checked(
        self, inputs: Mapping[str, Any]
    ) -> tuple[dict[str, Tensor], NDArray[np.bool_] | None]:
        """The inputs as tensors, and the mask of real tokens (batch, tokens), None for images."""
        first = self._segments[0]
        return checked(inputs, first.takes, first.needs, first.sizes, self.longest)

    def _start(
        self, inputs: Mapping[str, Tensor], keep: NDArray[np.bool_] | None
    ) -> tuple[dict[str, Any], NDArray[np.bool_] | None]:
        """The inputs in the back end's form, cut to the longest."""
        values = {name: self._segments[0].to_input(value) for name, value in inputs.items()}
        if keep is None or keep[:, -1].any():
            return values, keep
        length = length_of(keep)
        return {name: value[:, :length] for name, value in values.items()}, keep[:, :length]

    def _run_one(
        self, inputs: Mapping[str, Tensor], keep: NDArray[np.bool_] | None
    ) -> tuple[Tensor, Tensor]:
        values, keep = self._start(inputs, keep)
        last = len(self._segments) - 1
        for number, segment in enumerate(self._segments):
            values["hidden"], logits, sure = segment.run(values)
            if number == last or _sure(logits[0], sure, self._threshold):
                break
        return torch.from_numpy(logits), torch.tensor([number])

    def _run_many(
        self, inputs: Mapping[str, Tensor], keep: NDArray[np.bool_] | None
    ) -> tuple[Tensor, Tensor]:
        values, keep = self._start(inputs, keep)
        values["hidden"], logits, sure = self._segments[0].run(values)
        answers = np.array(logits)
        places = np.zeros(len(answers), dtype=np.int64)
        going = np.arange(len(answers))
        for number, segment in enumerate(self._segments[1:], start=1):
            stay = np.flatnonzero(~_all_sure(logits, sure, self._threshold))
            if not stay.size:
                break
            if stay.size < going.size:
                going = going[stay]
                values, keep = _chosen(segment, values, keep, stay)
            values["hidden"], logits, sure = segment.run(values)
            answers[going], places[going] = logits, number
        return torch.from_numpy(answers), torch.from_numpy(places)


class _ModuleSegment:
    """A segment that is a PyTorch module."""

    def __init__(self, module: nn.Module) -> None:
        if module.training:
            raise UsageError("a chain needs modules in evaluation mode: call .eval() on them first")
        self.module = module
        written: Any = getattr(
            module, "_orig_mod", module
        )  # the module inside torch.compile's wrapper
        parameters = inspect.signature(written.forward).parameters.values()
        self.takes = [parameter.name for parameter in parameters]
        self.needs = [
            parameter.name for parameter in parameters if parameter.default is parameter.empty
        ]
        self.gives_hidden = True  # seen only when it runs
        self.sizes: Sizes = {}
        self.device = next((held.device for held in module.parameters()), torch.device("cpu"))

    def to_input(self, value: Tensor) -> Tensor:
        """An input on the module's device."""
        return value.to(self.device)

    def rows(self, chosen: NDArray[np.int64]) -> Tensor:
        """An index for rows of this back end's values."""
        return torch.from_numpy(chosen).to(self.device)

    def run(self, values: dict[str, Any]) -> Result:
        """Hidden states, for the next segment, logits, and the confidence if it is learned."""
        given = {name: values[name] for name in self.takes if name in values}
        try:
            result = self.module(**given)
        except (IndexError, ValueError, RuntimeError) as error:
            raise explained(error, given) from error
        hidden, logits, *sure = (None, result) if isinstance(result, Tensor) else result
        # in float32, as numpy has no bfloat16, and a threshold means the same in every precision
        return hidden, logits.float().cpu().numpy(), sure[0].float().cpu().numpy() if sure else None


class _OnnxSegment:
    """A segment that is an ONNX Runtime session."""

    def __init__(self, path: Path, thread_count: int) -> None:
        self.session = open_session(path, thread_count)
        self.takes = [given.name for given in self.session.get_inputs()]
        self.sizes: Sizes = {
            given.name: [size if isinstance(size, int) else None for size in given.shape]
            for given in self.session.get_inputs()
        }
        self.needs = self.takes
        self.outputs = [made.name for made in self.session.get_outputs()]
        self.gives_hidden = "next_hidden" in self.outputs

    def to_input(self, value: Tensor) -> NDArray[Any]:
        """An input as an array."""
        value = value.float() if value.is_floating_point() else value
        array: NDArray[Any] = value.cpu().numpy()
        return array

    def rows(self, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        """An index for rows of this back end's values."""
        return chosen

    def run(self, values: dict[str, Any]) -> Result:
        """Hidden states, for the next segment, logits, and the confidence if it is learned."""
        given = {name: values[name] for name in self.takes}
        try:
            made = self.session.run(self.outputs, given)
        except Exception as error:  # onnxruntime's own errors share no public base class
            raise explained(error, given) from error
        outputs = dict(zip(self.outputs, made, strict=True))
        return outputs.get("next_hidden"), outputs["logits"], outputs.get("confidence")


def _chosen(
    segment: _ModuleSegment | _OnnxSegment,
    values: dict[str, Any],
    keep: NDArray[np.bool_] | None,
    stay: NDArray[np.int64],
) -> tuple[dict[str, Any], NDArray[np.bool_] | None]:
    """The values that later segments need of the remaining inputs, cut to the longest of these."""
    rows = segment.rows(stay)
    names = [name for name in ("hidden", "attention_mask") if name in values]
    chosen: dict[str, Any] = {name: values[name][rows] for name in names}
    if keep is None:
        return chosen, None
    keep = keep[stay]
    length = length_of(keep)
    return {name: value[:, :length] for name, value in chosen.items()}, keep[:, :length]


def _all_sure(
    logits: NDArray[Any], learned: NDArray[Any] | None, threshold: float
) -> NDArray[np.bool_]:
    """Whether each row's confidence exceeds the threshold.

    The confidence is the largest probability unless it is learned.
    """
    if learned is not None:
        above: NDArray[np.bool_] = learned > threshold
        return above
    spread = logits - logits.max(1, keepdims=True)
    sure: NDArray[np.bool_] = 1 / np.exp(spread).sum(1) > threshold
    return sure


def _sure(row: NDArray[Any], learned: NDArray[Any] | None, threshold: float) -> bool:
    """The same for one row, without NumPy's overhead where there are few classes."""
    if learned is not None or len(row) > FEW_CLASSES:
        return bool(_all_sure(row[None], learned, threshold)[0])
    values = row.tolist()
    top = max(values)
    return 1 / sum(math.exp(value - top) for value in values) > threshold
