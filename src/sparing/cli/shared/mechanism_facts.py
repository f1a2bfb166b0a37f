"""Facts of a mechanism that need no measurement: for ``sparing show`` and generated pages."""

from __future__ import annotations

import inspect
import math
import re
from importlib import resources
from typing import TYPE_CHECKING, Any

from sparing.core.errors import DataError, UsageError
from sparing.core.reading import parse_json

if TYPE_CHECKING:
    from torch import Tensor

    from sparing.core.execution.path import Call
    from sparing.core.mechanism import Mechanism
    from sparing.core.products import Products
    from sparing.core.workload import Cost

SECTIONS = ("Formula", "Symbols", "Cost", "Source", "What differs")
STEPS_TOKENS = 512
_SECTION = re.compile(rf"(?:^|(?<=\s))({'|'.join(SECTIONS)}):\s")
_MEASURED = "_measured.json"
_RESULTS = ("crossover_tokens", "longest_tokens", "speedup", "peak_ratio")
_ORIGIN = ("machine", "month", "commit")


def mechanism_facts(name: str, heads: int, dim: int, tokens: int) -> dict[str, Any]:
    """Everything about a mechanism, as plain data.

    Parameters and costs are those of ``heads`` heads of ``dim`` features, built for ``tokens``
    tokens with the default options.
    """
    from sparing.core.catalogue import mechanism_class
    from sparing.core.heads import Heads
    from sparing.core.options import option_defaults

    kind = mechanism_class(name, allowed=(name,))
    shape = Heads(heads, dim, tokens=tokens)
    built = kind(shape)
    description = inspect.getdoc(kind) or ""
    return {
        "name": name,
        "description": description,
        "sections": sections(description),
        "traits": vars(kind.traits),
        "options": {key: repr(value) for key, value in option_defaults(kind).items()},
        "built_for": {"heads": heads, "dim": dim, "tokens": tokens},
        "tensors": _tensors(built),
        "cost": _costs(built, tokens),
        "claims": _claims(name),
        "measured": measured(name),
    }


def sections(description: str) -> dict[str, str]:
    """The sections of a docstring: "Summary" and those of ``SECTIONS`` that it has."""
    summary, *parts = _SECTION.split(description)
    texts = zip(parts[::2], parts[1::2], strict=True)
    return {"Summary": summary.strip(), **{title: text.strip() for title, text in texts}}


def measured(name: str) -> dict[str, Any] | None:
    """The committed measurement of a mechanism, with machine, month and commit; None without one.

    Raises ``DataError`` for a file that cannot be read.
    """
    file = resources.files("sparing.mechanisms") / _MEASURED
    if not file.is_file():
        return None
    try:
        record = parse_json(file.read_bytes())
        results = record["mechanisms"].get(name)
        if results is None:
            return None
        return {**{key: results[key] for key in _RESULTS}, **{key: record[key] for key in _ORIGIN}}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{_MEASURED} is damaged: {type(error).__name__} {error}") from error


def _tensors(built: Mechanism) -> list[dict[str, Any]]:
    """Shapes of all parameters and buffers."""
    tensors: dict[str, dict[str, Tensor]] = {
        "parameter": dict(built.named_parameters()),
        "buffer": dict(built.named_buffers()),
    }
    return [
        {"name": name, "kind": kind, "shape": list(tensor.shape), "dtype": str(tensor.dtype)}
        for kind, named in tensors.items()
        for name, tensor in named.items()
    ]


def _costs(built: Mechanism, tokens: int) -> dict[str, dict[str, Any]]:
    """The modelled cost by length, its exponent since half the length, its ratio to softmax."""
    from sparing.core.catalogue import mechanism
    from sparing.core.workload import Workload

    heads = built.heads
    softmax = mechanism("softmax", heads)
    rows = {}
    for length in _lengths(tokens):
        work, half = (Workload(1, heads.count, n, n, heads.dim) for n in (length, length // 2))
        cost, dense = built.cost(work), softmax.cost(work)
        rows[str(length)] = {
            **vars(cost),
            "flops_over_softmax": _flops(cost) / _flops(dense),
            "peak_over_softmax": cost.peak_bytes / dense.peak_bytes,
            "flops_growth": _growth(_flops(built.cost(half)), _flops(cost)),
            "peak_growth": _growth(built.cost(half).peak_bytes, cost.peak_bytes),
        }
    return rows


def product_steps(name: str, heads: int, dim: int, tokens: int) -> dict[str, Any]:
    """The counted matrix products of one call, with their exponent since half the tokens.

    Counted at ``tokens``, at most ``STEPS_TOKENS``. The exponent is None if half the tokens take
    other products.
    """
    from sparing.core.catalogue import mechanism
    from sparing.core.heads import Heads
    from sparing.experiment.cells.probe import attention_call
    from sparing.measure.steps import count_steps

    built = mechanism(name, Heads(heads, dim, tokens=tokens)).eval()
    tokens = min(tokens, STEPS_TOKENS)
    half, whole = (
        count_steps(attention_call(built, 1, length)) for length in (tokens // 2, tokens)
    )
    halves: list[int] = [step.flops for step in half]
    matched = [step.operation for step in half] == [step.operation for step in whole]
    total = sum(step.flops for step in whole)
    return {
        "tokens": tokens,
        "products": [
            {
                "step": step.describe(),
                "matmul_flops": step.flops,
                "share": step.flops / total,
                "growth": _growth(halves[index], step.flops) if matched else None,
            }
            for index, step in enumerate(whole)
        ],
    }


def drawn_products(name: str, heads: int, dim: int, tokens: int) -> Products:
    """The matrix products of a mechanism with its default options.

    Raises ``UsageError`` for a mechanism without a drawing, with the names of those that have one.
    """
    from sparing.core.catalogue import MECHANISMS, mechanism, mechanism_class
    from sparing.core.heads import Heads
    from sparing.core.mechanism import Mechanism

    products = mechanism(name, Heads(heads, dim, tokens=tokens)).products(tokens)
    if products is None:
        kinds = {other: mechanism_class(other) for other in MECHANISMS.names()}
        known = [other for other, kind in kinds.items() if kind.products is not Mechanism.products]
        raise UsageError(f"{name} has no drawing; these have one: {', '.join(known)}")
    return products


def path_facts(name: str, heads: int, dim: int, call: Call) -> dict[str, Any]:
    """Which path a call takes and why; what its form for accelerators launches.

    Raises ``Unsupported`` for a call that the mechanism cannot serve at all.
    """
    import torch

    from sparing.core.catalogue import mechanism
    from sparing.core.execution.path import choose
    from sparing.core.heads import Heads
    from sparing.core.mask import Mask
    from sparing.measure.dispatched import count_dispatched

    built = mechanism(name, Heads(heads, dim, tokens=call.keys)).eval()
    keep = torch.ones(1, call.keys, dtype=torch.bool) if call.padded else None
    built.require_traits(Mask(keep, call.causal), call.queries, call.keys)
    choice = choose(built, call)
    launched = None
    if "accelerator" in built.accelerated:
        counted = count_dispatched(
            built, 1, call.keys, dtype=call.dtype, causal=call.causal, padded=call.padded
        )
        launched = {"operations": counted.count, "passes": counted.passes}
    return {
        **vars(call),
        "dtype": str(call.dtype).removeprefix("torch."),
        "path": choice.path,
        "why": choice.why,
        "refused": dict(choice.refused),
        "visible": call.device == "cpu" or torch.cuda.is_available(),
        "accelerator": launched,
    }


def _lengths(tokens: int) -> list[int]:
    """128, 512, 2048 and so on; ``tokens`` is the last."""
    shorter = [length for length in (128 * 4**step for step in range(20)) if length < tokens]
    return [*shorter, tokens]


def _flops(cost: Cost) -> int:
    return cost.matmul_flops + cost.other_flops


def _growth(half: int, whole: int) -> float | None:
    """1 if twice the tokens cost twice as much, 2 if four times; None if one is free."""
    return math.log2(whole / half) if half and whole else None


def _claims(name: str) -> list[str]:
    """The mechanism's claims in words, without repeats."""
    from sparing.testing.subjects import entries

    claims = (claim.describe() for entry in entries(name) for claim in entry.claims)
    return list(dict.fromkeys(claims))
