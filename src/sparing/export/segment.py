"""One segment in each engine: the same names, checks and errors."""

from __future__ import annotations

import inspect
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sparing.answers.kinds import LOGITS
from sparing.core.errors import UsageError
from sparing.export.inputs import Sizes, explained
from sparing.export.joined import EXIT, SECOND, THRESHOLD
from sparing.export.onnx import open_session
from sparing.export.openvino import FloatPrecision, open_compiled, reason_of
from sparing.export.outputs import answer_of, joined_answer

BESIDES = ("next_hidden", "confidence")
Result = tuple[Any, NDArray[Any], NDArray[Any] | None]
"""Hidden states, the answer (logits, or those of ``export.outputs``), and a learned confidence."""


class ModuleSegment:
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
        self.joined = self.takes_second = False
        self.outputs: tuple[str, ...] = tuple(getattr(written, "outputs", ()))
        self.answer = answer_of(self.outputs or LOGITS, type(written).__name__)
        self.sizes: Sizes = {}
        self.device = next((held.device for held in module.parameters()), torch.device("cpu"))
        kinds = (held.dtype for held in module.parameters() if held.is_floating_point())
        self.dtype = next(kinds, torch.float32)

    def to_input(self, value: Tensor) -> Tensor:
        """An input on the module's device; fractions in its precision."""
        return value.to(self.device, self.dtype if value.is_floating_point() else value.dtype)

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
        if len(self.outputs) > 1:
            made = dict(zip(self.outputs, result, strict=True))
            parts = [made[name] for name in self.answer]
            result = parts[0] if len(parts) == 1 else torch.stack(parts, -1)
        hidden, logits, *sure = (None, result) if isinstance(result, Tensor) else result
        # in float32, as numpy has no bfloat16, and a threshold means the same in every precision
        return hidden, logits.float().cpu().numpy(), sure[0].float().cpu().numpy() if sure else None


class _FileSegment:
    """What the engines of files share: arrays as inputs, on the CPU."""

    def to_input(self, value: Tensor) -> NDArray[Any]:
        """An input as an array."""
        value = value.float() if value.is_floating_point() else value
        array: NDArray[Any] = value.cpu().numpy()
        return array

    def rows(self, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        """An index for rows of this back end's values."""
        return chosen


class OnnxSegment(_FileSegment):
    """A segment that is an ONNX Runtime session."""

    def __init__(self, path: Path, thread_count: int) -> None:
        self.session = open_session(path, thread_count)
        self.takes = [given.name for given in self.session.get_inputs()]
        self.sizes: Sizes = {
            given.name: [size if isinstance(size, int) else None for size in given.shape]
            for given in self.session.get_inputs()
        }
        self.needs = self.takes
        names = [made.name for made in self.session.get_outputs()]
        self.answer = answer_of(names, path)
        self.outputs = [name for name in names if name in (*self.answer, *BESIDES)]
        self.gives_hidden = "next_hidden" in self.outputs
        settings = {given.name for given in self.session.get_overridable_initializers()}
        self.joined = THRESHOLD in settings and EXIT in names
        self.takes_second = self.joined and SECOND in settings

    def run(self, values: dict[str, Any]) -> Result:
        """Hidden states, for the next segment, logits, and the confidence if it is learned."""
        outputs = self._run(self.outputs, {name: values[name] for name in self.takes})
        answer = joined_answer(outputs, self.answer)
        return outputs.get("next_hidden"), answer, outputs.get("confidence")

    def run_joined(
        self, values: dict[str, Any], threshold: float, second: float
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The logits and the exits of a file that holds a whole chain."""
        given = {name: values[name] for name in self.takes}
        given[THRESHOLD] = np.array(threshold, dtype=np.float32)
        if self.takes_second:
            given[SECOND] = np.array(second, dtype=np.float32)
        outputs = self._run([*self.answer, EXIT], given)
        return outputs[self.answer[0]], outputs[EXIT]

    def _run(self, names: list[str], given: dict[str, Any]) -> dict[str, NDArray[Any]]:
        try:
            made = self.session.run(names, given)
        except Exception as error:  # onnxruntime's own errors share no public base class
            raise explained(error, given) from error
        return dict(zip(names, made, strict=True))


class OpenVinoSegment(_FileSegment):
    """A segment that OpenVINO has compiled; each thread has a request of its own."""

    def __init__(self, path: Path, thread_count: int, floats: FloatPrecision) -> None:
        compiled = open_compiled(path, thread_count, floats)
        self.model, self.tokens = compiled.model, compiled.tokens
        self.quantised = compiled.quantised
        self.takes = [given.get_any_name() for given in self.model.inputs]
        self.vocabularies = compiled.vocabularies
        self.sizes: Sizes = {
            given.get_any_name(): [
                size.get_length() if size.is_static else None for size in given.partial_shape
            ]
            for given in self.model.inputs
        }
        self.types = {
            given.get_any_name(): given.get_element_type().to_dtype() for given in self.model.inputs
        }
        self.needs = self.takes
        outputs = [made.get_any_name() for made in self.model.outputs]
        self.answer = answer_of(outputs, path)
        self.positions = {name: number for number, name in enumerate(outputs)}
        self.gives_hidden = "next_hidden" in self.positions
        self.joined = self.takes_second = False
        self._requests = threading.local()

    def run(self, values: dict[str, Any]) -> Result:
        """Hidden states, for the next segment, logits, and the confidence if it is learned.

        The hidden states are overwritten by the next call of this thread.
        """
        # arrays that are not contiguous would be refused
        given = {
            name: np.ascontiguousarray(values[name], dtype=self.types[name]) for name in self.takes
        }
        self._require_limits(given)
        request = getattr(self._requests, "request", None)
        if request is None:
            request = self._requests.request = self.model.create_infer_request()
        try:
            request.infer(given, share_inputs=True, share_outputs=True)
        except RuntimeError as error:
            raise explained(UsageError(reason_of(error)), given) from error
        made = {
            name: request.get_output_tensor(number).data for name, number in self.positions.items()
        }
        confidence = made.get("confidence")
        copied = None if confidence is None else confidence.copy()
        answer = joined_answer({name: made[name].copy() for name in self.answer}, self.answer)
        return made.get("next_hidden"), answer, copied

    def _require_limits(self, given: dict[str, NDArray[Any]]) -> None:
        """Raise ``UsageError`` for numbers outside of tables, which OpenVINO does not refuse."""
        for name, count in self.vocabularies.items():
            if int(given[name].max()) >= count:
                raise explained(UsageError("out of the vocabulary"), given)
        tokens = next(iter(given.values())).shape[1]
        if self.tokens is not None and tokens > self.tokens:
            raise explained(UsageError(f"{tokens} tokens, and positions for {self.tokens}"), given)


Segment = ModuleSegment | OnnxSegment | OpenVinoSegment
