"""One loop for a chain of segments, in any engine: confident inputs exit early.

Every compared engine runs in this loop, the dense model as a chain of one segment. So a difference
in time is due to the models and not to the loops.
"""

from __future__ import annotations

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

from sparing.core.errors import Unsupported, UsageError, require_choice
from sparing.export.inputs import checked, length_of
from sparing.export.joined import checked_threshold
from sparing.export.openvino import (
    ENDING,
    PRECISIONS,
    FloatPrecision,
    Precision,
    float_precision,
)
from sparing.export.segment import ModuleSegment, OnnxSegment, OpenVinoSegment, Segment
from sparing.measure.machine import threads

BackEnd = Literal["eager", "onnxruntime", "openvino"]
# Below this a softmax of one row is faster in plain Python than in NumPy.
FEW_CLASSES = 16


class Chain:
    """Segments run one after another; after each, the inputs with enough confidence leave.

    The first segment takes the model's inputs by name (``input_ids``, ``attention_mask`` and
    perhaps ``token_type_ids``, each (batch, tokens), or ``pixel_values``). Each later one takes
    ``hidden`` (batch, tokens, width) and, for texts, ``attention_mask``; or it takes the model's
    inputs again, as the whole model at the end of a cascade does. Each returns (hidden, logits) or
    (hidden, logits, confidence); one may return logits alone before the model's inputs are taken
    again, and at the end. Between two segments
    the inputs with a confidence above ``threshold`` leave. It is the largest class probability,
    unless one is returned. The others go on as a smaller batch, cut to the longest of them. At a
    threshold of 1 no input exits early. A whole model between the first segment and the last one
    has the threshold ``second`` instead.

    ``segments`` are modules or files. Modules run in inference mode on their own device (back end
    "eager"). Files run on the CPU: those of ``export_onnx`` (back end "onnxruntime"), or ``.xml``
    files of ``export.openvino.convert`` (back end "openvino"). One file of ``export.joined`` is a
    chain too: its inputs leave inside it. ``thread_count`` threads compute.
    ``longest`` is the most tokens that the model takes. Chains with the same ``shared`` dictionary
    open a file once.

    ``precision`` is that of products with weights. OpenVINO computes float32 files in "float32" or
    "bfloat16"; "int8" is for files of ``export.static_int8``, with everything else in ``rest``
    (default: bfloat16 where the processor has it, else float32). A whole model in float32 that
    comes later stays in it. Modules and ONNX files have a precision of their own, which the
    argument only names.

    Raises ``UsageError`` for no segments, several kinds at once, modules in training, a threshold
    outside [0, 1], or a ``second`` below 1 without a whole model in between. Raises ``Unsupported``
    for a precision that the engine or the processor does not have.
    """

    def __init__(
        self,
        segments: Sequence[nn.Module | Path],
        threshold: float = 1.0,
        *,
        second: float = 1.0,
        thread_count: int = 1,
        longest: int | None = None,
        precision: Precision = "float32",
        rest: FloatPrecision | None = None,
        shared: dict[Any, Segment] | None = None,
    ) -> None:
        if not segments:
            raise UsageError("a chain needs at least one segment")
        if thread_count < 1:
            raise UsageError(f"thread_count must be at least 1; got {thread_count}")
        kinds = {back_end_of(segment) for segment in segments}
        if len(kinds) > 1:
            raise UsageError("a chain holds modules or exported files of one engine, not both")
        self.back_end: BackEnd = kinds.pop()
        self.thread_count, self.longest = thread_count, longest
        self.precision, self.rest = precision, self._rest(precision, rest)
        shared = {} if shared is None else shared
        self._segments = [self._opened(one, shared, at) for at, one in enumerate(segments)]
        self._require_precision()
        self.joined = any(one.joined for one in self._segments)
        if self.joined and len(self._segments) > 1:
            raise UsageError("a joined file is a whole chain: it can have no other segments")
        pairs = zip(self._segments, self._segments[1:], strict=False)
        if any("hidden" in later.takes and not before.gives_hidden for before, later in pairs):
            raise UsageError("only the last segment of a chain may give logits alone")
        self._wholes = frozenset(
            number
            for number, one in enumerate(self._segments[1:-1], start=1)
            if "hidden" not in one.takes
        )
        self.threshold, self.second = threshold, second

    def _rest(self, precision: Precision, rest: FloatPrecision | None) -> FloatPrecision | None:
        """The precision of what is not in INT8; None in engines that do not choose it."""
        if self.back_end == "openvino":
            return float_precision(precision, rest)
        require_choice("a chain", "precision", precision, PRECISIONS)
        if rest is not None:
            raise UsageError(f"rest is for OpenVINO files; got {rest!r} in {self.back_end}")
        if self.back_end == "onnxruntime" and precision == "bfloat16":
            raise Unsupported(
                "ONNX Runtime has no products in bfloat16 on a CPU: export to OpenVINO instead"
            )
        return None

    def _opened(
        self, segment: nn.Module | Path, shared: dict[Any, Segment], number: int
    ) -> Segment:
        if isinstance(segment, nn.Module):
            return ModuleSegment(segment)
        opened = self._file(segment, shared, self.rest)
        if number == 0 or self.precision != "int8" or not isinstance(opened, OpenVinoSegment):
            return opened
        # behind INT8 the dense model is the reference itself
        exact = not opened.quantised and "hidden" not in opened.takes
        return self._file(segment, shared, "float32") if exact else opened

    def _file(
        self, path: Path, shared: dict[Any, Segment], floats: FloatPrecision | None
    ) -> Segment:
        key = (path, self.thread_count, floats)
        if key not in shared:
            shared[key] = (
                OnnxSegment(path, self.thread_count)
                if floats is None
                else OpenVinoSegment(path, self.thread_count, floats)
            )
        return shared[key]

    def _require_precision(self) -> None:
        """Raise ``UsageError`` unless OpenVINO's files hold the precision that was given.

        Of INT8 chains one segment is enough: a cascade ends in a model in float32.
        """
        files = [one for one in self._segments if isinstance(one, OpenVinoSegment)]
        quantised = any(one.quantised for one in files)
        if files and quantised != (self.precision == "int8"):
            holds = "int8" if quantised else "float32"
            raise UsageError(f"the segments hold {holds}; got {self.precision!r} as the precision")

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def takes(self) -> tuple[str, ...]:
        """The names of the inputs of the first segment."""
        return tuple(self._segments[0].takes)

    @property
    def answer(self) -> tuple[str, ...]:
        """The names of the outputs that hold its answer; several are joined along the last axis."""
        return self._segments[-1].answer

    @property
    def threshold(self) -> float:
        """An input leaves when its confidence is above this."""
        return self._threshold

    @threshold.setter
    def threshold(self, value: float) -> None:
        """Set it; raises ``UsageError`` outside [0, 1]."""
        self._threshold = checked_threshold(value, "threshold")

    @property
    def second(self) -> float:
        """An input leaves after a whole model before the last one above this."""
        return self._second

    @second.setter
    def second(self, value: float) -> None:
        """Set it; raises ``UsageError`` outside [0, 1], or below 1 without such a model."""
        self._second = checked_threshold(value, "second")
        if value < 1 and not (self._wholes or self._segments[0].takes_second):
            raise UsageError("second is the threshold of a whole model before the last segment")

    def _limit(self, number: int) -> float:
        """The threshold after a segment."""
        return self._second if number in self._wholes else self._threshold

    def __call__(self, inputs: Mapping[str, Any]) -> tuple[Any, Any]:
        """The logits (batch, classes), and each input's segment number (from 0) of exit.

        A chain with another ``answer`` gives that instead, such as vectors (batch, dimensions).
        Takes tensors or NumPy arrays and returns the same kind: arrays where all inputs are arrays.
        Whole numbers of any width and booleans are cast. Raises ``UsageError``, naming the input,
        for all that the model cannot read: see ``export.inputs.checked``.
        """
        given, keep = self._checked(inputs)
        with torch.inference_mode(), self._pinned():
            one = len(next(iter(given.values()))) == 1
            run = self._run_joined if self.joined else self._run_one if one else self._run_many
            logits, places = run(given, keep)
        if all(isinstance(value, np.ndarray) for value in inputs.values()):
            return logits.numpy(), places.numpy()
        return logits, places

    def every_exit(self, inputs: Mapping[str, Any]) -> Float[Tensor, "batch exits ..."]:
        """The logits after every segment without early exits, to calibrate a threshold.

        Raises ``Unsupported`` for a joined file, which gives an input's last logits alone.
        """
        if self.joined:
            raise Unsupported("a joined file gives one answer for each input: open its segments")
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
        if self.back_end != "eager" or torch.get_num_threads() == self.thread_count:
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

    def _run_joined(
        self, inputs: Mapping[str, Tensor], keep: NDArray[np.bool_] | None
    ) -> tuple[Tensor, Tensor]:
        values, _ = self._start(inputs, keep)
        segment = self._segments[0]
        assert isinstance(segment, OnnxSegment)
        logits, exits = segment.run_joined(values, self._threshold, self._second)
        return torch.from_numpy(logits), torch.from_numpy(exits)

    def _run_one(
        self, inputs: Mapping[str, Tensor], keep: NDArray[np.bool_] | None
    ) -> tuple[Tensor, Tensor]:
        values, keep = self._start(inputs, keep)
        last = len(self._segments) - 1
        for number, segment in enumerate(self._segments):
            values["hidden"], logits, sure = segment.run(values)
            if number == last or _sure(logits[0], sure, self._limit(number)):
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
            stay = np.flatnonzero(~_all_sure(logits, sure, self._limit(number - 1)))
            if not stay.size:
                break
            if stay.size < going.size:
                going = going[stay]
                values, keep = _chosen(self._segments[number:], values, keep, stay)
            values["hidden"], logits, sure = segment.run(values)
            answers[going], places[going] = logits, number
        return torch.from_numpy(answers), torch.from_numpy(places)


def back_end_of(segment: nn.Module | Path) -> BackEnd:
    """The engine that runs a segment: by its kind, and a file's by its ending."""
    if isinstance(segment, nn.Module):
        return "eager"
    return "openvino" if segment.suffix == ENDING else "onnxruntime"


def _chosen(
    later: Sequence[Segment],
    values: dict[str, Any],
    keep: NDArray[np.bool_] | None,
    stay: NDArray[np.int64],
) -> tuple[dict[str, Any], NDArray[np.bool_] | None]:
    """The values that later segments need of the remaining inputs, cut to the longest of these."""
    rows = later[0].rows(stay)
    taken = {"attention_mask", *(name for segment in later for name in segment.takes)}
    chosen: dict[str, Any] = {
        name: value[rows] for name, value in values.items() if name in taken and value is not None
    }
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
