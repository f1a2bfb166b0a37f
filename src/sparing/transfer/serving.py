"""Which mechanism can serve which layer, why not, and what it changes of the layer."""

from __future__ import annotations

from sparing.core.catalogue import MECHANISMS, mechanism_class
from sparing.core.mechanism import Mechanism
from sparing.core.options import option_defaults
from sparing.transfer.layers import AttentionLayer, projection_names, reads_one_input
from sparing.transfer.plan import Assignment

# DeBERTa's projections of its embeddings of distances.
_OF_DISTANCES = ("pos_key_proj", "pos_query_proj")


def reason_against(layer: AttentionLayer, assignment: Assignment, mechanism: Mechanism) -> str:
    """Why a mechanism cannot serve a layer; empty if it can."""
    name = assignment.mechanism
    if layer.causal and not mechanism.traits.causal:
        return f"it is causal and {name} cannot be"
    if "x" in mechanism.streams and not reads_one_input(layer):
        return f"{name} reads its input, and it has several"
    if assignment.bias == "drop" and not layer.biased:
        return "it adds no bias to its scores that could be dropped: leave bias out"
    if layer.biased and assignment.bias == "keep" and not mechanism.takes_bias:
        return (
            f"it adds a bias by distance to its scores, which {name} cannot do: choose "
            f"{_or(_takers())}, or bias='drop' to attend without distances"
        )
    if layer.window is not None and not mechanism.takes_bias and not assignment.named:
        return (
            f"it attends within a sliding window of {layer.window} tokens each way, which {name} "
            f"would leave: name the layer to allow that, or choose {_or(_takers())}"
        )
    return ""


def change_of(layer: AttentionLayer, assignment: Assignment, mechanism: Mechanism) -> str:
    """What a served layer keeps or loses besides its mixing, for the report; often nothing."""
    if layer.biased:
        dropped = assignment.bias == "drop"
        return "without its bias by distance" if dropped else "with its bias by distance"
    if layer.window is None:
        return ""
    if mechanism.takes_bias:
        return f"within its window of {layer.window} tokens each way"
    return f"beyond its window of {layer.window} tokens each way"


def unread_parts(
    layer: AttentionLayer, assignment: Assignment, mechanism: Mechanism
) -> tuple[str, ...]:
    """The layer's own parameters that a mechanism leaves unread, as names of modules."""
    projections = projection_names(layer.module)
    read = {name for stream, name in projections.items() if stream in mechanism.streams}
    unread = [name for name in projections.values() if name not in read]
    if layer.biased and assignment.bias == "drop":
        unread += [name for name in _OF_DISTANCES if hasattr(layer.module, name)]
    return tuple(f"{layer.name}.{name}" for name in dict.fromkeys(unread))


def within(options: dict[str, object], kind: type[Mechanism], layer: AttentionLayer) -> None:
    """Lower the option that bounds a mechanism's reach to the layer's window."""
    bound = kind.bounded_by
    if layer.window is not None and bound:
        given = options.get(bound, option_defaults(kind)[bound])
        assert isinstance(given, int)
        options[bound] = min(given, layer.window)


def _takers() -> list[str]:
    return [name for name in MECHANISMS.names() if mechanism_class(name).takes_bias]


def _or(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
