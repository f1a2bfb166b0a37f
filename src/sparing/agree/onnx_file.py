"""An ONNX file that others made: which inputs it takes, and which outputs hold its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sparing.answers.kinds import LOGITS, Kind, joined, kind_of_outputs
from sparing.core.errors import Unsupported, UsageError, listed, quoted
from sparing.export.inputs import explained
from sparing.export.onnx import open_session
from sparing.foreign.sentences import Sentences, vectors

Array = NDArray[Any]
Inputs = Mapping[str, Array]
HIDDEN = ("last_hidden_state", "token_embeddings")
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

    ``kind`` is the kind of answer that its outputs show, ``ranks`` their numbers of axes. ``width``
    and ``batch`` are the tokens and texts that the file fixes, None where they are free. Raises
    ``UsageError`` for a file that cannot be run and ``Unsupported`` for other inputs.
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
                    f"{path} takes the input {name} of {kind}; a model of texts takes some of "
                    f"{', '.join(INPUTS)}"
                )
        if INPUTS[0] not in self.types:
            raise Unsupported(f"{path} takes no input {INPUTS[0]}")
        shape = next(g.shape for g in self.session.get_inputs() if g.name == INPUTS[0])
        if len(shape) != 2:
            raise Unsupported(f"{path} takes {INPUTS[0]} of shape {shape}, not (batch, tokens)")
        self.batch, self.width = (size if isinstance(size, int) else None for size in shape)
        outputs = [made for made in self.session.get_outputs() if made.type in FLOATS]
        self.ranks = {made.name: len(made.shape or ()) for made in outputs}
        self.kind = kind_of_outputs(self.ranks)

    @property
    def takes(self) -> tuple[str, ...]:
        """The names of its inputs."""
        return tuple(self.types)

    def answering(self, kind: Kind, sentences: Sentences | None) -> Callable[[Inputs], Array]:
        """What gives the outputs of a kind of answer.

        Vectors of tokens go through the later modules of ``sentences``. Raises ``Unsupported``
        where there is no such output.
        """
        later = None
        if set(kind.outputs) <= set(self.ranks):
            names = list(kind.outputs)
        elif kind.name == "vector" and sentences is not None:
            if "attention_mask" not in self.types:
                raise Unsupported(f"{self.path} takes no attention_mask: pads would be pooled too")
            names, later = [self._first(3, *HIDDEN)], sentences.open()
        elif kind.outputs == LOGITS:
            names = [self._first(3 if kind.by_token else 2, *LOGITS)]
        else:
            raise Unsupported(f"{self.path} has no {' and '.join(kind.outputs)}: {self._listed()}")

        def run(inputs: Inputs) -> Array:
            outputs = self._outputs(names, inputs)
            for name, made in zip(names, outputs, strict=True):
                axes = 3 if later or (kind.by_token and len(names) == 1) else 2
                if made.ndim != axes:
                    raise Unsupported(f"{self.path} gives {name} of shape {made.shape}")
            if later is None:
                return joined(outputs)
            hidden, mask = map(torch.from_numpy, (outputs[0], inputs["attention_mask"]))
            return vectors(later, hidden, mask).detach().numpy()

        return run

    def _first(self, axes: int, *names: str) -> str:
        """The output of one of these names, or the first one with so many axes."""
        named = [name for name in names if name in self.ranks]
        fitting = [name for name, rank in self.ranks.items() if rank == axes]
        if not named and not fitting:
            what = "matrix" if axes == 2 else f"array of {axes} axes"
            raise Unsupported(
                f"{self.path} has no output {quoted(names[0])} and no {what} of floats: "
                f"{self._listed()}"
            )
        return (named or fitting)[0]

    def _listed(self) -> str:
        return f"its outputs are {listed(made.name for made in self.session.get_outputs())}"

    def _outputs(self, names: Sequence[str], inputs: Inputs) -> list[Array]:
        """These outputs for a batch."""
        given = {name: inputs[name].astype(TYPES[kind]) for name, kind in self.types.items()}
        try:
            made: list[Array] = self.session.run(list(names), given)
        except Exception as error:  # onnxruntime's own errors share no public base class
            raise explained(error, given) from error
        return made
