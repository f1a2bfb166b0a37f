"""An encoder's blocks: the modules of heads and of feed-forward neurons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from sparing.core.errors import Unsupported
from sparing.transfer.layers import (
    AttentionLayer,
    find_layers,
    has_position_bias,
    projection_names,
)
from sparing.transfer.swap import entry_of

# Paths of the output projection, from the attention module or from its parent.
_OUTPUTS = ("o_proj", "out_proj", "out_lin", "../output.dense")
_BIASES = ("use_relative_position_bias", "use_shared_relative_position_bias")
_FEED_FORWARDS = (
    ("intermediate.dense", "output.dense"),
    ("mlp.fc1", "mlp.fc2"),
    ("ffn.lin1", "ffn.lin2"),
)


@dataclass(frozen=True)
class Block:
    """One block of an encoder: attention of ``len(remaining)`` heads of ``dim``, then feed-forward.

    ``index`` counts the blocks. ``projections`` are the linear layers that make q, k and v, with
    one row for each coordinate of each head. One that makes all three has their rows in this order.
    ``output`` has a column for each. ``rise`` has a row for each feed-forward neuron, or for each
    and then each one's gate; ``fall`` has a column. ``remaining`` are the numbers of the remaining
    heads in the unpruned model, which had ``heads`` of them. ``followers`` also have a row for each
    coordinate, and ``after_cut`` gets the remaining heads where a module must know them.
    """

    index: int
    name: str
    attention: nn.Module
    projections: dict[str, nn.Linear]
    output: nn.Linear
    rise: nn.Linear
    fall: nn.Linear
    dim: int
    heads: int
    remaining: tuple[int, ...]
    followers: tuple[nn.Linear, ...] = ()
    after_cut: Callable[[nn.Module, Sequence[int]], None] | None = None

    def rows_of(self, stream: str) -> slice:
        """The rows of a stream's projection that are its own: of one for all three, a third."""
        linear = self.projections[stream]
        if len({id(one) for one in self.projections.values()}) > 1:
            return slice(0, linear.out_features)
        count = linear.out_features // 3
        start = "qkv".index(stream) * count
        return slice(start, start + count)


@dataclass(frozen=True)
class Paths:
    """Where a family has the modules of a block, from its layer; see ``Block``."""

    attention: str
    projections: Mapping[str, str]
    output: str
    rise: str
    fall: str
    followers: tuple[str, ...] = ()


def named_blocks(
    model: nn.Module,
    layers: Sequence[nn.Module],
    paths: Paths,
    dim: int,
    after_cut: Callable[[nn.Module, Sequence[int]], None] | None = None,
) -> list[Block]:
    """The blocks of a model with its layers' modules at these paths, pruned or not."""
    names = {id(module): name for name, module in model.named_modules()}
    removed, blocks = removed_heads(model), []
    for index, layer in enumerate(layers):
        at: Any = layer.get_submodule
        gone = set(removed.get(index, ()))
        output = at(paths.output)
        heads = output.in_features // dim + len(gone)
        present = dict(layer.named_modules())
        block = Block(
            index,
            f"{names[id(layer)]}.{paths.attention}",
            at(paths.attention),
            {stream: at(path) for stream, path in paths.projections.items()},
            output,
            at(paths.rise),
            at(paths.fall),
            dim,
            heads,
            tuple(head for head in range(heads) if head not in gone),
            tuple(at(path) for path in paths.followers if path in present),
            after_cut,
        )
        blocks.append(block)
    return blocks


def registered_blocks(model: nn.Module) -> list[Block]:
    """The blocks of a model of transformers' BERT or ViT family, in order, pruned or not.

    Raises ``Unsupported``, naming the block and the reason, for any other family, for shared
    layers, and for keys that are grouped.
    """
    layers = find_layers(model)
    removed = removed_heads(model)
    return [_block(model, layer, removed.get(index, ())) for index, layer in enumerate(layers)]


def removed_heads(model: nn.Module) -> dict[int, tuple[int, ...]]:
    """The heads that were pruned from each block, by their numbers in the unpruned model."""
    return {row["layer"]: tuple(row["heads"]) for row in entry_of(model).get("pruned", ())}


def _block(model: nn.Module, layer: AttentionLayer, removed: Sequence[int]) -> Block:
    family = f"{type(model).__name__}: {layer.name}"
    if layer.index is None or getattr(layer.module, "is_causal", True):
        raise Unsupported(
            f"{family} is not an encoder's self-attention; choose a BERT or ViT family"
        )
    if hasattr(getattr(model, "config", None), "num_hidden_groups"):
        raise Unsupported(f"{family} is shared by several layers, which cannot differ")
    config: Any = getattr(layer.module, "config", None)
    if has_position_bias(layer.module) or any(getattr(config, name, False) for name in _BIASES):
        raise Unsupported(f"{family} adds a position bias for each head")
    names = projection_names(layer.module)
    if len(set(names.values())) != 3:
        raise Unsupported(f"{family} has no separate projections for q, k and v")
    linears = {stream: _linear(layer.module, name) for stream, name in names.items()}
    output = _output(model, layer)
    inner = _feed_forward(model, layer)
    projections = {stream: linear for stream, linear in linears.items() if linear is not None}
    if output is None or inner is None or len(projections) != 3:
        raise Unsupported(
            f"{family}: its output projection or feed-forward layer is not where BERT and ViT "
            "families have it"
        )
    rows = {linear.out_features for linear in projections.values()} | {output.in_features}
    if len(rows) != 1:
        raise Unsupported(f"{family} groups its keys: a key head serves several query heads")
    count = rows.pop() // layer.dim
    heads = count + len(removed)
    remaining = tuple(head for head in range(heads) if head not in set(removed))
    return Block(
        layer.index,
        layer.name,
        layer.module,
        projections,
        output,
        *inner,
        layer.dim,
        heads,
        remaining,
    )


def _output(model: nn.Module, layer: AttentionLayer) -> nn.Linear | None:
    parent = model.get_submodule(layer.name.rpartition(".")[0])
    for path in _OUTPUTS:
        start = parent if path.startswith("../") else layer.module
        linear = _linear(start, path.removeprefix("../"))
        if linear is not None:
            return linear
    return None


def _feed_forward(model: nn.Module, layer: AttentionLayer) -> tuple[nn.Linear, nn.Linear] | None:
    """Climb from the attention module to the block that also holds a feed-forward layer."""
    name = layer.name
    for _ in range(2):
        name = name.rpartition(".")[0]
        block = model.get_submodule(name)
        for first, second in _FEED_FORWARDS:
            rise, fall = _linear(block, first), _linear(block, second)
            if rise is not None and fall is not None:
                return rise, fall
    return None


def _linear(start: nn.Module, path: str) -> nn.Linear | None:
    """The linear layer at a path below a module, or None."""
    module: object = start
    for name in path.split("."):
        module = getattr(module, name, None)
    return module if isinstance(module, nn.Linear) else None
