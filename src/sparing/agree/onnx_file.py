"""An ONNX file that others made: which inputs it takes, and which output holds its logits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparing.core.errors import Unsupported, UsageError, listed
from sparing.export.inputs import explained
from sparing.export.onnx import open_session

Array = NDArray[Any]
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
TYPES: dict[str, Any] = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(float)": np.float32,
}
FLOATS = ("tensor(float)", "tensor(float16)", "tensor(double)")


class OnnxFile:
    """A session of ONNX Runtime on any subset of the usual three inputs.

    Its logits are the output of that name, or else the first matrix of floats. ``width`` and
    ``batch`` are the tokens and texts that the file fixes, None where they are free. Raises
    ``UsageError`` for a file that cannot be run and ``Unsupported`` for other inputs or outputs.
    """

    def __init__(self, path: Path, thread_count: int) -> None:
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
        self.path = path
        self.session = open_session(path, thread_count)
        self.types = {given.name: given.type for given in self.session.get_inputs()}
        for name, kind in self.types.items():
            if name not in INPUTS or kind not in TYPES:
                raise Unsupported(
                    f"{path} takes the input {name} of {kind}; a text classifier takes some of "
                    f"{', '.join(INPUTS)}"
                )
        if INPUTS[0] not in self.types:
            raise Unsupported(f"{path} takes no input {INPUTS[0]}")
        shape = next(g.shape for g in self.session.get_inputs() if g.name == INPUTS[0])
        if len(shape) != 2:
            raise Unsupported(f"{path} takes {INPUTS[0]} of shape {shape}, not (batch, tokens)")
        self.batch, self.width = (size if isinstance(size, int) else None for size in shape)
        self.output = self._logits()

    @property
    def takes(self) -> tuple[str, ...]:
        """The names of its inputs."""
        return tuple(self.types)

    def _logits(self) -> str:
        outputs = self.session.get_outputs()
        named = [made.name for made in outputs if made.name == "logits"]
        matrices = [m.name for m in outputs if m.type in FLOATS and len(m.shape or ()) == 2]
        if not named and not matrices:
            raise Unsupported(
                f"{self.path} has no output 'logits' and no matrix of floats among its outputs "
                f"{listed(made.name for made in outputs)}"
            )
        return str((named or matrices)[0])

    def run(self, inputs: Mapping[str, Array]) -> Array:
        """The logits (batch, classes)."""
        given = {name: inputs[name].astype(TYPES[kind]) for name, kind in self.types.items()}
        try:
            logits: Array = self.session.run([self.output], given)[0]
        except Exception as error:  # onnxruntime's own errors share no public base class
            raise explained(error, given) from error
        if logits.ndim != 2:
            raise Unsupported(
                f"{self.path} gives {self.output} of shape {logits.shape}, not (batch, classes)"
            )
        return logits
