"""Which layer gets which mechanism: reading the user's plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sparing.core.catalogue import allow, mechanism_class
from sparing.core.errors import Unsupported, UsageError, require_choice
from sparing.core.options import option_defaults, require_options

BIASES = ("keep", "drop")
Layers = str | int | Iterable[int] | None
Choice = str | Sequence[object]


@dataclass(frozen=True)
class Assignment:
    """One layer's mechanism with its options; ``named`` when the user named this layer.

    ``bias`` says what becomes of a bias that the layer adds to its scores: "keep" or "drop".
    """

    mechanism: str
    options: Mapping[str, object] = field(default_factory=dict)
    named: bool = False
    bias: str = "keep"


def read_plan(
    mechanism: object,
    layers: object,
    options: Mapping[str, object],
    count: int,
) -> dict[int, Assignment]:
    """The assignment of each chosen layer among ``count``, in order.

    Raises ``UsageError`` for unknown mechanisms, options and layers and for layers chosen twice.
    """
    if isinstance(mechanism, str):
        allow(mechanism)
        bias, options = _checked(mechanism, options)
        chosen = range(count) if layers is None else read_layers(layers, count)
        named = layers is not None
        return {index: Assignment(mechanism, options, named, bias) for index in chosen}
    if not isinstance(mechanism, Mapping) or not mechanism:
        raise UsageError(f"swap needs a mechanism's name or a plan of layers; got {mechanism!r}")
    if layers is not None or options:
        raise UsageError(
            "a plan names its own layers and options: write "
            '{"0-2": ("window", {"radius": 8}), "3-": "softmax"}'
        )
    plan: dict[int, Assignment] = {}
    for key, choice in mechanism.items():
        name, (bias, own_options) = _read_choice(choice)
        for index in read_layers(key, count):
            if index in plan:
                raise UsageError(f"the plan chooses layer {index} twice, again under {key!r}")
            plan[index] = Assignment(name, own_options, named=True, bias=bias)
    return dict(sorted(plan.items()))


def read_layers(layers: object, count: int) -> list[int]:
    """Layer numbers from 4, [0, 2] or text such as ``"0-2,5"`` and ``"3-"`` (to the last)."""
    if isinstance(layers, str):
        numbers = [
            index for part in layers.split(",") for index in _read_range(part.strip(), count)
        ]
    elif isinstance(layers, int) and not isinstance(layers, bool):
        numbers = [layers]
    elif isinstance(layers, Iterable):
        numbers = list(layers)
    else:
        raise UsageError(f"layers must be numbers or text such as '0-2,5'; got {layers!r}")
    for number in numbers:
        if type(number) is not int or not 0 <= number < count:
            raise UsageError(
                f"there is no layer {number!r}: this model has self-attention layers 0 to "
                f"{count - 1}"
            )
    if not numbers:
        raise UsageError(f"no layer chosen by {layers!r}; this model has 0 to {count - 1}")
    return sorted(set(numbers))


def refuse_for_shared(kind: str, calls: int, modules: int) -> Unsupported:
    """The error for choosing among layers that are one and the same module."""
    return Unsupported(
        f"the {calls} layers of this {kind} share {modules} attention module(s), so they cannot be "
        "chosen one by one; give one mechanism for all and no layers"
    )


def _read_range(part: str, count: int) -> range:
    match = re.fullmatch(r"(\d+)(-(\d*))?", part)
    if match is None:
        raise UsageError(f"cannot read layers {part!r}; write '4', '0-2', '3-' or '0-2,5'")
    first = int(match[1])
    last = first if match[2] is None else int(match[3]) if match[3] else count - 1
    if last < first and (match[3] or first < count):
        raise UsageError(f"layers {part!r} run backwards")
    return range(first, max(first, last) + 1)


def _read_choice(choice: object) -> tuple[str, tuple[str, Mapping[str, object]]]:
    """A name, or a name with options (a pair; a list of two where it comes from JSON)."""
    pair = (choice, {}) if isinstance(choice, str) else choice
    if isinstance(pair, tuple | list) and len(pair) == 2:
        name, options = pair
        if isinstance(name, str) and isinstance(options, Mapping):
            allow(name)
            return name, _checked(name, options)
    raise UsageError(f"a plan gives a name or a pair such as ('window', {{...}}); got {choice!r}")


def _checked(name: str, options: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """What becomes of a layer's bias, and the mechanism's own options."""
    kind = mechanism_class(name)
    bias: object = "keep"
    if "bias" not in option_defaults(kind):
        bias = options.get("bias", bias)
        options = {option: value for option, value in options.items() if option != "bias"}
        require_choice(name, "bias", bias, BIASES)
    require_options(name, kind, options)
    return str(bias), options
