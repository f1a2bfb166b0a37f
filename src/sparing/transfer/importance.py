"""How much each head and each feed-forward neuron matters for the loss, example by example."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.errors import UsageError
from sparing.transfer.blocks import Block
from sparing.transfer.families.known import find_blocks

Loss = Callable[[Any, Mapping[str, Any]], Tensor]


@dataclass(frozen=True)
class Importance:
    """The mean over ``examples`` of the loss's sensitivity to each head and each neuron.

    Row l is block l. Heads are at their numbers in the unpruned model; removed ones have 0. Neurons
    are in the model's order.
    """

    heads: Float[Tensor, "layers heads"]
    neurons: Float[Tensor, "layers neurons"]
    examples: int

    def normalised(self) -> Importance:
        """The same with each block's row divided by its Euclidean length.

        Gradients grow from block to block, so raw values compare inside a block only.
        """
        return Importance(_unit(self.heads), _unit(self.neurons), self.examples)


def importance(
    model: nn.Module, batches: Iterable[Mapping[str, Any]], *, loss: Loss | None = None
) -> Importance:
    """Rank heads and feed-forward neurons of a BERT- or ViT-family model by a first-order estimate.

    Formula: I = mean over examples of |sum over tokens (and dim) of a * dL/da|.

    Symbols: a is a head's input to the output projection, or a neuron's activation; L is the
    example's own loss. The sum is the derivative by a gate of 1 on the head or neuron.

    ``batches`` are dictionaries of the model's inputs with ``labels``. ``loss`` takes the model's
    output and the batch and returns the SUM of the examples' losses (unless given, the model's own
    loss times the batch size: transformers averages over examples). The model runs in evaluation
    mode and does not change. Raises ``UsageError`` without examples or labels or where a gradient
    is not finite, and ``Unsupported`` for other families.

    Source: Michel, Levy, Neubig, 2019, arXiv 1905.10650, section 4.1, equation 2; for neurons
    Molchanov et al., 2017, arXiv 1611.06440, section 2.2. What differs: the absolute value is taken
    for each example. The absolute value of a batch's gradient falls with the batch size, since
    gradients of different examples cancel.
    """
    blocks = find_blocks(model)
    sums = _Sums(blocks)
    with still(model):
        for batch in batches:
            with _gates(blocks) as gates, torch.enable_grad():
                output = model(**batch)
                total = _own_loss(output, batch) if loss is None else loss(output, batch)
                if not bool(total.isfinite()):
                    raise UsageError(f"importance: the loss is {float(total)}")
                sums.add(gates.gradients(total))
    return sums.result()


def _own_loss(output: Any, batch: Mapping[str, Any]) -> Tensor:
    loss = getattr(output, "loss", None)
    if loss is None:
        raise UsageError("importance needs a model with a head and batches with labels")
    return loss * len(batch["labels"])  # type: ignore[no-any-return]


class _Gates:
    """One gate of 1 for each example and head or neuron, made when its layer is first called."""

    def __init__(self) -> None:
        self.made: dict[tuple[int, str], Tensor] = {}

    def hook(self, key: tuple[int, str], count: int) -> Callable[..., Any]:
        """A pre-hook for the layer that reads ``count`` heads or neurons."""

        def gate(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
            parts = inputs[0].reshape(*inputs[0].shape[:-1], count, -1)
            # a layer that is called in chunks of tokens has one gate for all of them
            if key not in self.made:
                ones = parts.new_ones(len(parts), count)
                self.made[key] = ones.requires_grad_()
            return ((parts * self.made[key][:, None, :, None]).flatten(-2),)

        return gate

    def gradients(self, total: Tensor) -> dict[tuple[int, str], Tensor]:
        """The derivative of the loss by each gate."""
        gradients = torch.autograd.grad(total, list(self.made.values()))
        return dict(zip(self.made, gradients, strict=True))


@contextmanager
def _gates(blocks: Sequence[Block]) -> Iterator[_Gates]:
    """Gates on all heads and neurons while the block is open."""
    gates, handles = _Gates(), []
    for block in blocks:
        for name, layer, count in (
            ("heads", block.output, len(block.remaining)),
            ("neurons", block.fall, block.fall.in_features),
        ):
            if count:
                hook = gates.hook((block.index, name), count)
                handles.append(layer.register_forward_pre_hook(hook))
    try:
        yield gates
    finally:
        for handle in handles:
            handle.remove()


class _Sums:
    """Absolute derivatives, added up over examples in float64."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        heads = max(block.heads for block in blocks)
        neurons = max(block.fall.in_features for block in blocks)
        self.remaining = {block.index: list(block.remaining) for block in blocks}
        self.sums = {
            "heads": torch.zeros(len(blocks), heads, dtype=torch.float64),
            "neurons": torch.zeros(len(blocks), neurons, dtype=torch.float64),
        }
        self.examples = 0

    def add(self, gradients: Mapping[tuple[int, str], Tensor]) -> None:
        """Count one batch: the derivative by each gate (batch, count)."""
        for (index, name), gradient in gradients.items():
            if not bool(gradient.isfinite().all()):
                raise UsageError(f"importance: a gradient in block {index} is not finite")
            columns = self.remaining[index] if name == "heads" else slice(gradient.shape[1])
            self.sums[name][index, columns] += gradient.double().abs().sum(0).cpu()
        self.examples += len(next(iter(gradients.values())))

    def result(self) -> Importance:
        """The means."""
        if not self.examples:
            raise UsageError("importance needs at least one batch of examples")
        means = {name: value / self.examples for name, value in self.sums.items()}
        return Importance(means["heads"], means["neurons"], self.examples)


def _unit(rows: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / length.where(length > 0, 1)


@contextmanager
def still(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, and the modes of all modules restored."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
