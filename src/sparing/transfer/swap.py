"""Swap efficient attention into a transformers model in one line, and undo it."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig

from sparing.core.catalogue import build as build_mechanism
from sparing.core.catalogue import mechanism_class
from sparing.core.errors import Unsupported, UsageError
from sparing.core.heads import Heads
from sparing.core.mechanism import Mechanism
from sparing.core.options import option_defaults
from sparing.core.reading import parse_json
from sparing.transfer.biased import BiasedState, replace_forward, restore_forward
from sparing.transfer.layers import (
    AttentionLayer,
    find_layers,
    has_rotary,
    is_dispatched,
    own_attention,
    own_name,
    parameter_kind,
    projection_weights,
    token_limit,
)
from sparing.transfer.plan import Assignment, Choice, Layers, read_plan, refuse_for_shared
from sparing.transfer.registry import NAME, LayerState
from sparing.transfer.report import LeftLayer, SwappedLayer, SwapReport
from sparing.transfer.serving import change_of, reason_against, unread_parts, within
from sparing.transfer.unwrapping import unwrapped

ENTRY_VERSION = 1
# Seeds of layers differ by so much that trainings with other seeds share no random numbers.
LAYER_SEEDS = 1000
# The attribute of a changed module, and the part of the entry that records it.
PRUNED = "sparing_pruned"
_MARKS = {"sparing_state": "swap", "sparing_hook": "patches", PRUNED: "pruned"}


@dataclass(frozen=True)
class Placement:
    """A mechanism that is built for a layer and not yet attached."""

    layer: AttentionLayer
    assignment: Assignment
    mechanism: Mechanism


def swap(
    model: nn.Module,
    mechanism: str | Mapping[str, Choice],
    layers: Layers = None,
    *,
    tokens: int | None = None,
    **options: Any,
) -> SwapReport:
    """Put a mechanism into the chosen self-attention layers of a transformers model, in place.

    ``mechanism`` is a name, with ``options`` for it and ``layers`` such as ``[0, 2]`` or ``"0-2"``
    (all that it can serve when None). Or it is a plan ``{"0-2": "window", "3-": ("linear",
    {...})}``. The option ``bias="drop"`` leaves out the bias that MPNet and DeBERTa add. A
    layer that is not named keeps its sliding window. ``tokens`` is the longest sequence (the
    model's position limit unless given). A swap replaces an earlier one. Call it before the
    optimizer is built: mechanisms may add parameters. Layer i uses the mechanism's ``seed`` + 1000
    i. The model gets its own configuration, which is saved: give the whole model, not a part of
    another. Raises ``UsageError`` for unknown names, options and layers. Raises ``Unsupported``,
    naming layer and reason, where a named layer or every one cannot be served; nothing changes.
    """
    attention = find_layers(model := unwrapped(model, changed=True))
    assert isinstance(model, PreTrainedModel)
    self_layers = [layer for layer in attention if layer.index is not None]
    if layers is not None or not isinstance(mechanism, str):
        _refuse_shared(model, self_layers)
    plan = read_plan(mechanism, layers, options, len(self_layers))
    placements, left = _built_placements(model, self_layers, plan, tokens)
    left += [LeftLayer(None, one.name, one.obstacle) for one in attention if one.index is None]
    if not placements:
        reasons = "; ".join(sorted({layer.reason for layer in left}))
        raise Unsupported(f"no layer of this {type(model).__name__} can be swapped: {reasons}")
    rows = [_start(placement) for placement in placements]
    _rows(placements)  # raises for options that cannot be saved
    if is_swapped(model):
        unswap(model)
    attach(model, placements)
    activate(model)
    order = [layer.name for layer in attention]
    left.sort(key=lambda layer: order.index(layer.name))
    return SwapReport(type(model).__name__, tuple(rows), tuple(left), model)


def unswap(model: nn.Module) -> None:
    """Restore every layer's own attention: outputs and state dict are as before the swap.

    A model that is not swapped does not change; one built from a swapped model's configuration gets
    its own attention. Raises ``UsageError`` for anything but a transformers model.
    """
    module: Any
    model = unwrapped(model)
    if not isinstance(model, PreTrainedModel):
        raise UsageError(f"unswap needs a transformers model; got {type(model).__name__}")
    if not is_swapped(model):
        _forget_name(model)
        return
    swapped = [
        layer
        for layer in find_layers(model)
        if NAME in layer.module._modules and is_dispatched(layer.module)
    ]
    towers = [
        (tower, next(vars(part)["sparing_state"] for part in tower.modules() if _is_ours(part)))
        for tower in _towers(model, swapped)
    ]
    for module in model.modules():
        state: LayerState | BiasedState | None = vars(module).pop("sparing_state", None)
        if state is None:
            continue
        module._modules.pop(NAME, None)
        if isinstance(state, BiasedState):
            restore_forward(module)
            continue
        if state.hook is not None:
            state.hook.remove()
        if module.config._attn_implementation == NAME:
            module.config._attn_implementation_internal = state.original.name
    for tower, first in towers:
        if tower.config._attn_implementation == NAME:
            tower.config._attn_implementation_internal = first.original.name
    write_entry(model, "swap", [])


def _forget_name(model: PreTrainedModel) -> None:
    """Remove sparing's name from configurations that were copied from a swapped model's."""
    configs = [vars(module).get("config") for module in model.modules()]
    if not any(getattr(config, "_attn_implementation", None) == NAME for config in configs):
        return
    own_configuration(model)  # the swapped model may share them
    for module in model.modules():
        config = vars(module).get("config")
        if getattr(config, "_attn_implementation", None) == NAME:
            config._attn_implementation_internal = own_name(config, model)


def is_swapped(model: nn.Module) -> bool:
    """Whether the model has a swapped layer."""
    return any(_is_ours(module) for module in model.modules())


def _is_ours(module: nn.Module) -> bool:
    return "sparing_state" in vars(module)


def build(
    model: PreTrainedModel, layer: AttentionLayer, assignment: Assignment, tokens: int | None
) -> Mechanism:
    """The mechanism for a layer, of its device, type and dropout (unless the options give one)."""
    if tokens is None:
        tokens = token_limit(model, layer)
        if tokens is None and layer.biased:  # some mechanisms need a length
            tokens = getattr(model.config, "max_position_embeddings", None)
    options, kind = dict(assignment.options), mechanism_class(assignment.mechanism)
    within(options, kind, layer)
    known = option_defaults(kind)
    if "dropout" in known and layer.dropout:
        options.setdefault("dropout", layer.dropout)
    heads = Heads(layer.heads, layer.dim, layer.width, tokens)
    mechanism = build_mechanism(assignment.mechanism, heads, options)
    device, dtype = parameter_kind(layer.module)
    return mechanism.to(device, dtype).train(layer.module.training)


def attach(model: PreTrainedModel, placements: list[Placement]) -> None:
    """Give the chosen layers their mechanisms, and the model a configuration of its own.

    The configuration carries the entry ``sparing`` that ``sparing.load`` needs.
    """
    own_configuration(model)
    for placement in placements:
        layer = placement.layer
        layer.module.add_module(NAME, placement.mechanism)
        if not is_dispatched(layer.module):
            replace_forward(
                layer.module, layer.name, drops_bias=placement.assignment.bias == "drop"
            )
    write_entry(model, "swap", _rows(placements))


def own_configuration(model: nn.Module) -> None:
    """Replace the model's configurations, which other models may share, by separate ones."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, PreTrainedConfig):
                vars(module)[name] = copy.deepcopy(value, memo)


def write_entry(model: nn.Module, part: str, rows: list[dict[str, Any]]) -> None:
    """Record a change of the model in the configuration; without rows the part is removed."""
    config: Any = model.config
    entry = entry_of(model) | {"version": ENTRY_VERSION, part: rows}
    if not rows:
        del entry[part]
    if entry.keys() <= {"version"}:
        vars(config).pop(NAME, None)
    else:
        setattr(config, NAME, entry)


def entry_of(model: nn.Module) -> dict[str, Any]:
    """The recorded changes of the model, without parts that the model does not have.

    transformers itself reads a swapped model as a plain one, and keeps the entry.
    """
    noted = getattr(getattr(model, "config", None), NAME, None) or {}
    has = {_MARKS[name] for module in model.modules() for name in vars(module) if name in _MARKS}
    gone = {*_MARKS.values()} - has
    return {name: value for name, value in noted.items() if name not in gone}


def activate(model: PreTrainedModel) -> None:
    """Let transformers dispatch to sparing in every configuration that a swapped layer reads."""
    all_layers = [layer for layer in find_layers(model) if is_dispatched(layer.module)]
    swapped = [layer for layer in all_layers if NAME in layer.module._modules]
    towers = {id(tower.config): tower.config for tower in _towers(model, swapped)}
    read = {id(layer.module.config) for layer in swapped} | {*towers}
    modules: list[Any] = []
    for layer in all_layers:
        module: Any = layer.module
        if id(module.config) not in read:
            continue
        modules.append(module)
        module.sparing_state = LayerState(layer.name, own_attention(module, model))
        mechanism = module._modules.get(NAME)
        if mechanism is not None and "x" in mechanism.streams:
            module.sparing_state.hook = module.register_forward_pre_hook(
                _capture_input, with_kwargs=True
            )
    for config in [*(module.config for module in modules), *towers.values()]:
        config._attn_implementation_internal = NAME


def _towers(model: PreTrainedModel, layers: list[AttentionLayer]) -> list[Any]:
    """The innermost models around layers: they make the mask, by configurations of their own.

    A tower inside a composed model has the composed model's configuration, while its layers keep
    their own.
    """
    named: dict[str, Any] = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, PreTrainedModel)
    }
    paths: dict[str, None] = {}
    for layer in layers:
        around = [name for name in named if not name or layer.name.startswith(f"{name}.")]
        paths[max(around, key=len)] = None
    return [named[name] for name in paths]


def _capture_input(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Keep the layer's input for a mechanism that reads x, until the attention call."""
    module.sparing_state.note(args[0] if args else kwargs["hidden_states"])


def _refuse_shared(model: PreTrainedModel, layers: list[AttentionLayer]) -> None:
    """Raise ``Unsupported`` where choosing layers is impossible because they are one module."""
    config = model.config
    if hasattr(config, "num_hidden_groups"):
        calls = config.num_hidden_layers * getattr(config, "inner_group_num", 1)
        if calls > len(layers):
            raise refuse_for_shared(type(model).__name__, calls, len(layers))


def _built_placements(
    model: PreTrainedModel,
    layers: list[AttentionLayer],
    plan: Mapping[int, Assignment],
    tokens: int | None,
) -> tuple[list[Placement], list[LeftLayer]]:
    """Build every mechanism before anything is changed, and say why the other layers are left."""
    placements, left = [], []
    for index, layer in enumerate(layers):
        assignment = plan.get(index)
        if assignment is None:
            left.append(LeftLayer(index, layer.name, "it was not chosen"))
            continue
        reason, mechanism = layer.obstacle, None
        if not reason:
            assignment = with_own_seed(assignment, index)
            mechanism = build(model, layer, assignment, tokens)
            reason = reason_against(layer, assignment, mechanism)
        if reason and assignment.named:
            raise Unsupported(f"layer {index} ({layer.name}) cannot be swapped: {reason}")
        if reason or mechanism is None:
            left.append(LeftLayer(index, layer.name, reason))
        else:
            placements.append(Placement(layer, assignment, mechanism))
    share(placements)
    return placements, left


def with_own_seed(assignment: Assignment, index: int) -> Assignment:
    """Give each layer its own seed: one random pattern in all layers reaches far fewer tokens.

    Random numbers shared by all layers use one seed.
    """
    seed = option_defaults(mechanism_class(assignment.mechanism)).get("seed")
    seed = assignment.options.get("seed", seed)
    if not isinstance(seed, int) or assignment.options.get("sharing") == "layerwise":
        return assignment
    return replace(assignment, options={**assignment.options, "seed": seed + LAYER_SEEDS * index})


def _start(placement: Placement) -> SwappedLayer:
    """Start a mechanism's parameters from the layer's where possible, and describe the layer."""
    layer, mechanism = placement.layer, placement.mechanism
    fresh = {
        name: (id(parameter), parameter._version)
        for name, parameter in mechanism.named_parameters()
    }
    mechanism.init_from(projection_weights(layer))
    untrained = {
        name: parameter.numel()
        for name, parameter in mechanism.named_parameters()
        if fresh.get(name) == (id(parameter), parameter._version)
        # projections that the layer rotates by position afterwards are only a starting point
        or ("x" in mechanism.streams and has_rotary(layer.module))
    }
    has_dropout = "dropout" in mechanism.options()
    return SwappedLayer(
        index=layer.index or 0,
        name=layer.name,
        mechanism=placement.assignment.mechanism,
        options=mechanism.options(),
        tokens=mechanism.heads.tokens,
        untrained=untrained,
        unused=unread_parts(layer, placement.assignment, mechanism),
        dropout_off=0.0 if has_dropout else layer.dropout,
        change=change_of(layer, placement.assignment, mechanism),
    )


def _rows(placements: list[Placement]) -> list[dict[str, Any]]:
    """The entry for config.json: enough to build the same mechanisms again."""
    layers = [
        {
            "layer": placement.layer.index,
            "name": placement.layer.name,
            "mechanism": placement.assignment.mechanism,
            "options": placement.mechanism.options(),
            "tokens": placement.mechanism.heads.tokens,
            **({"bias": "drop"} if placement.assignment.bias == "drop" else {}),
        }
        for placement in placements
    ]
    try:
        swapped: list[dict[str, Any]] = parse_json(json.dumps(layers, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise UsageError(f"an option cannot be saved: {error}") from error
    return swapped


def share(placements: list[Placement]) -> None:
    """Let mechanisms with one projection for all layers (``sharing="layerwise"``) share it."""
    firsts: list[Any] = []
    for placement in placements:
        mechanism: Any = placement.mechanism
        if mechanism.options().get("sharing") != "layerwise":
            continue
        for first in firsts:
            if first.heads == mechanism.heads and first.options() == mechanism.options():
                mechanism.share_projections(first)
                break
        else:
            firsts.append(mechanism)
