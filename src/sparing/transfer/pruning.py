"""Remove attention heads for good: smaller projections, and a model that still saves and loads."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sparing.core.errors import Unsupported, UsageError
from sparing.core.printing import fitted_lines
from sparing.transfer.blocks import Block, removed_heads
from sparing.transfer.families.known import find_blocks
from sparing.transfer.importance import Loss, importance
from sparing.transfer.layers import HEAD_COUNTS
from sparing.transfer.registry import NAME
from sparing.transfer.swap import PRUNED, is_swapped, own_configuration, write_entry
from sparing.transfer.unwrapping import unwrapped

Step = Callable[[float, str], None]


@dataclass(frozen=True)
class PrunedLayer:
    """One block: its number of heads at first, and the numbers of the removed ones."""

    index: int
    name: str
    heads: int
    removed: tuple[int, ...]


@dataclass(frozen=True)
class PruneReport:
    """The removed heads, block by block; ``removed_params`` counts the removed parameters."""

    model_class: str
    layers: tuple[PrunedLayer, ...]
    removed_params: int

    @property
    def heads(self) -> int:
        """The heads of the unpruned model."""
        return sum(layer.heads for layer in self.layers)

    @property
    def removed(self) -> int:
        """How many of them are removed, those pruned earlier included."""
        return sum(len(layer.removed) for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return {**asdict(self), "heads": self.heads, "removed": self.removed}

    def __str__(self) -> str:
        """At most 40 lines."""
        lines = [
            f"{self.model_class}: {self.removed} of {self.heads} heads removed, "
            f"{self.removed_params:,} parameters fewer"
        ]
        for layer in self.layers:
            remaining = layer.heads - len(layer.removed)
            gone = ", ".join(map(str, layer.removed)) or "none"
            lines.append(
                f"  {layer.index}: {remaining} of {layer.heads} heads left; removed: {gone}"
            )
        return fitted_lines(lines)


def prune(
    model: nn.Module,
    heads: float | Mapping[int, Iterable[int]],
    batches: Iterable[Mapping[str, Any]] | None = None,
    *,
    step: float = 0.1,
    loss: Loss | None = None,
    on_progress: Step | None = None,
) -> PruneReport:
    """Remove heads from a BERT- or ViT-family model of transformers, in place and for good.

    ``heads`` names them, ``{0: [1, 5], 3: [2]}``, by their numbers in the unpruned model. Or it is
    the share of all heads to be removed in the end, such as 0.3. Then the least important are
    removed, ``step`` of all heads at a time. Before each step importance is measured again on
    ``batches`` and divided by its length in each block. Batches are dictionaries of inputs with
    labels, or with the start and end positions of answers; ``loss`` is as for ``importance``. The
    result equals gates of zero on those heads. A block may lose all its heads: its attention then
    adds only the output projection's bias. The configuration records the removed heads, so
    ``save_pretrained`` and ``sparing.load`` work. Prune before the optimizer is built. Raises
    ``UsageError`` for heads that do not exist and impossible shares, and ``Unsupported`` for
    grouped keys, other families and swapped models; the model then does not change.

    Source: Michel, Levy, Neubig, 2019, arXiv 1905.10650, sections 2.3 and 4.1. What differs: the
    importance of a head is the mean over examples of absolute values, for any batch size, and heads
    are removed, not masked.
    """
    model = unwrapped(model, merged=True, changed=True)
    blocks = find_blocks(model)
    if is_swapped(model):
        raise Unsupported(
            "prune cannot cut heads out of a swapped mechanism: unswap first, prune, swap again"
        )
    before = size_of(model)
    if isinstance(heads, Mapping):
        remove(model, _checked(blocks, heads))
    else:
        _prune_share(model, heads, batches, step, loss, on_progress)
    return PruneReport(type(model).__name__, pruned_layers(model), before - size_of(model))


def pruned_layers(model: nn.Module) -> tuple[PrunedLayer, ...]:
    """The removed heads of each block."""
    gone = removed_heads(model)
    return tuple(
        PrunedLayer(block.index, block.name, block.heads, gone.get(block.index, ()))
        for block in find_blocks(model)
    )


def size_of(model: nn.Module) -> int:
    """The number of the model's parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def remove(model: nn.Module, heads: Mapping[int, Sequence[int]]) -> None:
    """Cut named heads out of the projections, and record them in the configuration.

    Heads have the numbers of the unpruned model. Weights may be on the meta device. Raises
    ``UsageError`` for heads that do not exist.
    """
    assert isinstance(model, PreTrainedModel)
    blocks = find_blocks(model)
    heads, gone = _checked(blocks, heads), removed_heads(model)
    for block in blocks:
        if heads.get(block.index):
            _cut(block, set(heads[block.index]))
    merged = {
        block.index: sorted({*gone.get(block.index, ()), *heads.get(block.index, ())})
        for block in blocks
    }
    own_configuration(model)
    rows = [{"layer": index, "heads": removed} for index, removed in merged.items() if removed]
    write_entry(model, "pruned", rows)


def _prune_share(
    model: nn.Module,
    share: float,
    batches: Iterable[Mapping[str, Any]] | None,
    step: float,
    loss: Loss | None,
    on_progress: Step | None,
) -> None:
    """Remove the least important heads, some at a time, up to the share."""
    for name, value in (("heads", share), ("step", step)):
        if not isinstance(value, float | int) or isinstance(value, bool) or not 0 < value < 1:
            raise UsageError(f"prune: {name} must be a share between 0 and 1; got {value!r}")
    if batches is None:
        raise UsageError("prune needs batches with labels to rank the heads by importance")
    given = list(batches)
    blocks = find_blocks(model)
    total, left = (
        sum(block.heads for block in blocks),
        sum(len(block.remaining) for block in blocks),
    )
    goal = round(share * total)
    if goal <= total - left:
        raise UsageError(
            f"prune: {total - left} of {total} heads are removed already: {share:g} or more"
        )
    if goal >= total:
        raise UsageError(f"prune: {share:g} of {total} heads would leave none")
    first = left
    while total - left < goal:
        count = min(max(1, math.floor(step * total)), goal - (total - left))
        remove(model, _least(model, given, count, loss or _loss_of(given)))
        left -= count
        if on_progress is not None:
            done = (first - left) / (goal - (total - first))
            on_progress(done, f"{total - left} of {total} heads removed")


def _loss_of(batches: Sequence[Mapping[str, Any]]) -> Loss | None:
    """The loss of answers that are spans of a text; None for a model's own of labels."""
    if not batches or "start_positions" not in batches[0]:
        return None
    return lambda output, batch: output.loss * len(batch["start_positions"])


def _least(
    model: nn.Module, batches: Sequence[Mapping[str, Any]], count: int, loss: Loss | None
) -> dict[int, list[int]]:
    """The least important heads among the remaining ones."""
    worth = importance(model, batches, loss=loss).normalised().heads
    left = [(block.index, head) for block in find_blocks(model) for head in block.remaining]
    left.sort(key=lambda key: float(worth[key]))
    chosen: dict[int, list[int]] = {}
    for index, head in left[:count]:
        chosen.setdefault(index, []).append(head)
    return chosen


def _checked(blocks: Sequence[Block], heads: Mapping[int, Iterable[int]]) -> dict[int, list[int]]:
    """The named heads, after a check that each exists."""
    by_index = {block.index: block for block in blocks}
    checked = {}
    for index, numbers in heads.items():
        if index not in by_index:
            raise UsageError(
                f"prune: there is no layer {index!r}; the model has 0 to {len(blocks) - 1}"
            )
        checked[index] = [*dict.fromkeys(numbers)]
        for head in checked[index]:
            if type(head) is not int or head not in by_index[index].remaining:
                left = ", ".join(map(str, by_index[index].remaining)) or "none"
                raise UsageError(f"prune: layer {index} has no head {head!r}; it has {left}")
    if not any(checked.values()):
        raise UsageError("prune: no heads were named")
    return checked


def _cut(block: Block, gone: set[int]) -> None:
    """Slice one block's projections: rows of q, k and v, columns of the output."""
    positions = [position for position, head in enumerate(block.remaining) if head not in gone]
    rows = torch.arange(len(block.remaining) * block.dim).view(-1, block.dim)[positions].flatten()
    made = {id(linear): linear for linear in block.projections.values()}
    starts = {stream: block.rows_of(stream).start for stream in block.projections}
    places = {id(linear): rows for linear in block.followers}
    for key in made:
        streams = [name for name, linear in block.projections.items() if id(linear) == key]
        places[key] = torch.cat([rows + starts[stream] for stream in streams])
    for linear in (*made.values(), *block.followers):
        _keep_rows(linear, places[id(linear)])
    block.output.weight = _part(block.output.weight, rows, 1)
    block.output.in_features = len(rows)
    for name in HEAD_COUNTS:
        if isinstance(getattr(block.attention, name, None), int):
            setattr(block.attention, name, len(positions))
    if hasattr(block.attention, "all_head_size"):
        block.attention.all_head_size = len(rows)  # type: ignore[assignment]
    setattr(block.attention, PRUNED, True)
    if block.after_cut is not None:
        block.after_cut(block.attention, [block.remaining[position] for position in positions])
    if not positions:
        block.attention.__class__ = _headless(type(block.attention))  # type: ignore[arg-type]


def _keep_rows(linear: nn.Linear, rows: Tensor) -> None:
    """Only these outputs of a linear layer."""
    linear.weight = _part(linear.weight, rows, 0)
    if linear.bias is not None:
        linear.bias = _part(linear.bias, rows, 0)
    linear.out_features = len(rows)


def _part(parameter: Tensor, places: Tensor, dim: int) -> nn.Parameter:
    chosen = parameter.detach().index_select(dim, places.to(parameter.device))
    return nn.Parameter(chosen, requires_grad=parameter.requires_grad)


@functools.cache
def _headless(kind: Any) -> type[nn.Module]:
    """The attention class for a layer that has lost all its heads.

    transformers reshapes an empty tensor into -1 heads there, which PyTorch cannot infer. It is a
    subclass, so a search for the layer by its class still succeeds.
    """

    def forward(self: Any, hidden_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
        mixed = hidden_states.new_zeros((*hidden_states.shape[:-1], 0))
        for name in ("o_proj", "out_proj", "out_lin", "o", "Wo"):
            if hasattr(self, name):
                return getattr(self, name)(mixed), None
        return mixed, None

    names = {"forward": forward, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), names)


def read_rows(entry: Mapping[str, Any]) -> dict[int, list[int]]:
    """The pruned heads of a saved entry; raises ``UsageError`` for a damaged one."""
    rows = entry.get("pruned", [])
    removed = {}
    for row in rows if isinstance(rows, list) else [rows]:
        good = isinstance(row, dict) and isinstance(row.get("layer"), int)
        if not good or not isinstance(row.get("heads"), list) or row["layer"] in removed:
            raise UsageError(f"the entry {NAME!r} has a damaged row of pruned heads: {row!r}")
        removed[row["layer"]] = row["heads"]
    return removed
