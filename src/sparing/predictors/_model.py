"""A predictor: any of the networks of this folder, as one class of transformers."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from sparing.core.errors import CheckpointError, UsageError, nearest
from sparing.core.reading import parse_json, read_plain
from sparing.models.shared.quiet import quiet
from sparing.predictors import PREDICTORS
from sparing.predictors._parts import SLOTS
from sparing.tasks.arithmetic import as_values
from sparing.tasks.shared.expressions import Expression, parse

KIND = "sparing-predictor"
# The optimiser's tensors per weight, and its counters: the published code's Adam counts
# its learning rate and its steps, AdamW on a schedule its steps alone.
OPTIMIZER_STATE = {"": (0, 0), "adam": (2, 2), "adamw": (2, 1)}


class PredictorConfig(PretrainedConfig):  # type: ignore[misc]  # transformers is untyped
    """``network`` is the name of a file of this folder, ``options`` its keyword arguments."""

    model_type = KIND

    def __init__(
        self, network: str = "feed_forward", options: dict[str, Any] | None = None, **rest: Any
    ) -> None:
        super().__init__(**rest)
        self.network = network
        self.options = dict(options or {})
        self.num_labels = 1


class Predictor(PreTrainedModel):  # type: ignore[misc]
    """One number from the values of a sum: operands as they are, + as 1, - as 0, missing as 0.5."""

    config_class = PredictorConfig
    main_input_name = "values"
    base_model_prefix = ""

    def __init__(self, config: PredictorConfig) -> None:
        super().__init__(config)
        self.network = _network(config.network, config.options)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: each network initialises its own weights when it is built."""

    def forward(self, values: Float[Tensor, "batch slots"]) -> SequenceClassifierOutput:
        """``logits`` of one column: the predictions.

        Raises ``UsageError`` for another number of slots (recurrent networks read any), and (on
        CPU) values that are not finite.
        """
        fits = values.ndim == 2 and (values.shape[1] == SLOTS or self._reads_any(values.shape[1]))
        if not fits:
            most = "one value or more" if self._reads_any(1) else f"{SLOTS} values"
            raise UsageError(f"a predictor reads {most} a sum; got {tuple(values.shape)}")
        if values.device.type == "cpu" and not bool(values.isfinite().all()):
            row = int((~values.isfinite()).any(1).nonzero()[0, 0])
            raise UsageError(f"a predictor reads finite values: those of row {row} are not")
        return SequenceClassifierOutput(logits=self.network(values)[:, None])

    def _reads_any(self, slots: int) -> bool:
        """Whether the network reads sums of any length, this many slots among them."""
        return slots > 0 and bool(getattr(self.network, "any_length", False))

    @torch.inference_mode()
    def predict(self, sums: Sequence[str | Expression], batch: int = 512) -> list[float]:
        """A value for each sum; raises ``UsageError`` for one with more numbers than slots.

        A recurrent network reads any number of them: sums beyond the slots have no missing parts.
        The value is not a whole number: round it for an answer.
        """
        weights, was_training = next(self.parameters()), self.training
        expressions = [parse(one) if isinstance(one, str) else one for one in sums]
        rows = [
            (indices, as_values([expressions[n] for n in indices], slots).to(weights))
            for slots, indices in self._by_slots(expressions).items()
        ]
        answers = [0.0] * len(expressions)
        try:
            self.eval()
            for indices, values in rows:
                parts = (values[start : start + batch] for start in range(0, len(values), batch))
                given = torch.cat([self(part).logits[:, 0] for part in parts]).tolist()
                for index, answer in zip(indices, given, strict=True):
                    answers[index] = answer
        finally:
            self.train(was_training)
        return answers

    def _by_slots(self, expressions: Sequence[Expression]) -> dict[int, list[int]]:
        """Which expressions are read with how many slots."""
        groups: dict[int, list[int]] = {}
        for number, one in enumerate(expressions):
            parts = 2 * len(one.operands) - 1
            slots = parts if parts > SLOTS and self._reads_any(parts) else SLOTS
            groups.setdefault(slots, []).append(number)
        return groups


@dataclass(frozen=True)
class ParameterCounts:
    """Counts as in the published table: ``total`` is ``architecture`` plus ``optimizer``."""

    architecture: int
    optimizer: int

    @property
    def total(self) -> int:
        """The sum of both."""
        return self.architecture + self.optimizer


def parameter_counts(model: nn.Module, optimizer: str = "") -> ParameterCounts:
    """The trained parameters, and their optimiser's ("adam", "adamw") state; "" counts none."""
    if optimizer not in OPTIMIZER_STATE:
        raise UsageError(f"unknown optimizer {optimizer!r}{nearest(optimizer, OPTIMIZER_STATE)}")
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    copies, counters = OPTIMIZER_STATE[optimizer]
    return ParameterCounts(trained, copies * trained + counters)


def network_options(name: str) -> dict[str, Any]:
    """The options of a network with their defaults."""
    kind = PREDICTORS.load(name).Network
    return {
        option.name: option.default
        for option in inspect.signature(kind).parameters.values()
        if option.kind is inspect.Parameter.KEYWORD_ONLY
    }


def _network(name: str, options: dict[str, Any]) -> nn.Module:
    known = network_options(name)
    for option in options:
        if option not in known:
            raise UsageError(f"predictor {name} has no option {option!r}{nearest(option, known)}")
    with torch.device("cpu"):
        network: nn.Module = PREDICTORS.load(name).Network(**options)
    return network


def open_predictor(folder: Path) -> Predictor:
    """See ``load_predictor``; transformers would build on the meta device.

    It would lose unsaved buffers.
    """
    file = folder / "config.json"
    try:
        written = parse_json(read_plain(file), finite=False)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder} holds no predictor: no sound config.json") from error
    if not isinstance(written, dict) or written.get("model_type") != KIND:
        raise CheckpointError(f"{file} is not the file of a predictor")
    try:
        with quiet():
            model = Predictor(PredictorConfig(written["network"], written["options"]))
        model.load_state_dict(load_file(folder / "model.safetensors"))
    except (OSError, SafetensorError, KeyError, RuntimeError, TypeError, UsageError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise CheckpointError(f"the predictor in {folder} is damaged: {reason}") from error
    if not all(bool(value.isfinite().all()) for value in model.parameters()):
        raise CheckpointError(f"the predictor in {folder} is damaged: weights are not finite")
    opened: Predictor = model.eval()
    return opened
