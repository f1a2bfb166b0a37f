"""What ``sparing measure`` measures: a mechanism's core or a model, and its dense baseline."""

from __future__ import annotations

import copy
import difflib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sparing.core.errors import SparingError, Unsupported, UsageError
from sparing.core.paths import expanded

DENSE = "softmax"
USUAL_TOKENS, USUAL_HEADS, USUAL_DIM = 512, 12, 64
Call = Callable[[], object]


@dataclass(frozen=True)
class How:
    """How everything is measured."""

    batch: int
    threads: int
    rounds: int
    energy_seconds: float


@dataclass(frozen=True)
class Arm:
    """One thing to measure: a call here, and how a process of its own comes to the same call."""

    call: Call
    target: str
    arguments: Mapping[str, Any]
    flops: Callable[[], dict[str, int]]


@dataclass(frozen=True)
class Subject:
    """What is measured: the arms by name, the baseline among them, and the parts beside them.

    ``parts`` are attention cores that make up the baseline, each with its number.
    """

    scope: str
    tokens: int
    baseline: str
    arms: dict[str, Arm]
    parts: tuple[tuple[int, Call], ...] = ()
    notes: tuple[str, ...] = ()


def require_counts(**counts: int) -> None:
    """Raise ``UsageError`` for an option that is below one."""
    for name, count in counts.items():
        if count < 1:
            raise UsageError(f"--{name} must be at least 1; got {count}")


def find_subject(
    name: str,
    against: str,
    options: dict[str, Any],
    shape: tuple[int | None, int | None],
    tokens: int | None,
    how: How,
) -> Subject:
    """The subject of a name; ``shape`` is heads and dim of a mechanism, where given.

    Raises ``UsageError`` for what does not belong to a mechanism, or to a model.
    """
    if is_mechanism(name):
        if against:
            raise UsageError(f"a mechanism is measured against {DENSE}; --against takes a model")
        heads, dim = shape[0] or USUAL_HEADS, shape[1] or USUAL_DIM
        return cores(name, options, heads, dim, tokens or USUAL_TOKENS, how)
    if shape != (None, None):
        raise UsageError("--heads and --dim are a mechanism's, and a model has its own already")
    if options:
        raise UsageError("--set takes a mechanism's options, and a model has its own already")
    return models(name, against, tokens, how)


def is_mechanism(name: str) -> bool:
    """Whether this is a mechanism's name or dotted path, or a misspelling of a name.

    What has a slash or is a folder here is a model; so is a plain word that no mechanism is near,
    such as gpt2 on the hub.
    """
    from sparing.core.catalogue import MECHANISMS, RENAMED

    if "/" in name or expanded(name).is_dir():
        return False
    known = MECHANISMS.names()
    dotted = "." in name and "-" not in name
    return name in (*known, *RENAMED) or dotted or bool(difflib.get_close_matches(name, known, n=1))


def cores(
    name: str, options: dict[str, Any], heads: int, dim: int, tokens: int, how: How
) -> Subject:
    """A mechanism's core beside the fused dense one."""
    from sparing.experiment.cells import probe
    from sparing.measure.flops import count_flops

    require_counts(heads=heads, dim=dim)
    shape = probe.Shape(1, heads, heads * dim, 4 * heads * dim)

    def arm(core: str, core_options: dict[str, Any]) -> Arm:
        call = probe.attention_call(
            probe.build_core(core, core_options, shape, tokens), how.batch, tokens
        )
        arguments = {
            "name": core,
            "options": core_options,
            "shape": list(asdict(shape).values()),
            "tokens": tokens,
            "batch": how.batch,
        }
        return Arm(
            call,
            "sparing.experiment.cells.probe:attention",
            arguments,
            lambda: {"total": count_flops(call)},
        )

    arms = {DENSE: arm(DENSE, {})}
    if name != DENSE:
        arms[name] = arm(name, options)
    elif options:
        arms[f"{name} as set"] = arm(name, options)
    return Subject("attention", tokens, DENSE, arms)


def models(name: str, against: str, tokens: int | None, how: How) -> Subject:
    """A model beside another one, or beside itself with its own dense attention."""
    from sparing.experiment.inputs.fit import token_limit
    from sparing.transfer.opening import open_model
    from sparing.transfer.swap import is_swapped, unswap

    model = open_model(name).eval()
    is_image = model.main_input_name == "pixel_values"
    if is_image and tokens is not None:
        raise UsageError("--tokens is for models that read tokens; an image has as many as it has")
    length = tokens or min(USUAL_TOKENS, token_limit(model) or USUAL_TOKENS)
    arms = {}
    if against:
        other = open_model(against).eval()
        baseline = against if against != name else f"{against} again"
        arms[baseline] = _model_arm(against, other, False, length, how)
    elif is_swapped(model):
        other, baseline = copy.deepcopy(model), "dense" if name != "dense" else "dense itself"
        unswap(other)
        arms[baseline] = _model_arm(name, other, True, length, how)
    else:
        other, baseline = model, name
    arms[name] = _model_arm(name, model, False, length, how)
    if is_image:
        length = _image_tokens(other, arms[baseline].call)
    parts, notes = _parts(other, length, how.batch)
    return Subject("model", length, baseline, arms, parts, notes)


def _model_arm(name: str, model: Any, dense: bool, tokens: int, how: How) -> Arm:
    from sparing.experiment.inputs.batches import call_of, random_inputs
    from sparing.measure.flops import model_flops

    inputs = random_inputs(model, how.batch, tokens)
    arguments = {
        "name": name,
        "dense": dense,
        "tokens": tokens,
        "batch": how.batch,
    }
    return Arm(
        call_of(model, inputs),
        "sparing.experiment.inputs.batches:forward_call",
        arguments,
        lambda: asdict(model_flops(model, inputs)),
    )


def _image_tokens(model: Any, call: Call) -> int:
    """How long the sequence of an image is, as its first attention layer sees it."""
    from sparing.transfer.layers import find_layers

    seen: list[int] = []

    def note(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append((args[0] if args else kwargs["hidden_states"]).shape[1])

    hook = find_layers(model)[0].module.register_forward_pre_hook(note, with_kwargs=True)
    try:
        call()
    finally:
        hook.remove()
    return seen[0]


def _parts(
    model: Any, tokens: int, batch: int
) -> tuple[tuple[tuple[int, Call], ...], tuple[str, ...]]:
    """The dense attention cores in a model with their numbers, or a note why they are unknown."""
    from sparing.transfer.layers import find_layers, parameter_kind

    try:
        layers = [layer for layer in find_layers(model) if layer.index is not None]
        if any(layer.biased for layer in layers):
            raise Unsupported("its attention adds a bias by distance to its scores")
        kinds = Counter(
            (layer.heads, layer.dim, layer.causal, parameter_kind(layer.module)[1])
            for layer in layers
        )
    except SparingError as error:
        return (), (f"the share of attention is not known: {error}",)
    cores = tuple((count, _core(*kind, tokens, batch)) for kind, count in kinds.items())
    return cores, ()


def _core(heads: int, dim: int, causal: bool, dtype: Any, tokens: int, batch: int) -> Call:
    import torch

    from sparing.core.catalogue import mechanism
    from sparing.core.heads import Heads
    from sparing.core.mask import Mask

    built = mechanism(DENSE, Heads(heads, dim)).eval()
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(batch, heads, tokens, dim, generator=generator).to(dtype) for _ in range(3)
    )

    def call() -> object:
        with torch.inference_mode():
            return built(q, k, v, mask=Mask(causal=causal))

    return call
