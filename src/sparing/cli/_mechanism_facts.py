"""What is known of a mechanism without running it: for ``sparing show`` and generated pages."""

from __future__ import annotations

import inspect
import math
import re
from importlib import resources
from typing import TYPE_CHECKING, Any

from sparing.core.errors import DataError
from sparing.core.reading import parse_json

if TYPE_CHECKING:
    from torch import Tensor

    from sparing.core.mechanism import Mechanism
    from sparing.core.workload import Cost

SECTIONS = ("Formula", "Symbols", "Cost", "Source", "What differs")
STEPS_TOKENS = 512
_SECTION = re.compile(rf"(?:^|(?<=\s))({'|'.join(SECTIONS)}):\s")
_MEASURED = "_measured.json"
_OWN = ("crossover_tokens", "longest_tokens", "speedup", "peak_ratio")
_ORIGIN = ("machine", "month", "commit")


def mechanism_facts(name: str, heads: int, dim: int, tokens: int) -> dict[str, Any]:
    """Everything about a mechanism, as plain data.

    Parameters and costs are those of ``heads`` heads of ``dim`` features, built for ``tokens``
    tokens with the default options.
    """
    from sparing.core.catalogue import mechanism_class
    from sparing.core.heads import Heads
    from sparing.core.options import option_defaults

    found = mechanism_class(name, allowed=(name,))
    shape = Heads(heads, dim, tokens=tokens)
    built = found(shape)
    description = inspect.getdoc(found) or ""
    return {
        "name": name,
        "description": description,
        "sections": sections(description),
        "traits": vars(found.traits),
        "options": {key: repr(value) for key, value in option_defaults(found).items()},
        "built_for": {"heads": heads, "dim": dim, "tokens": tokens},
        "tensors": _tensors(built),
        "cost": _costs(built, tokens),
        "claims": _claims(name),
        "measured": measured(name),
    }


def sections(description: str) -> dict[str, str]:
    """A docstring cut at its fixed words: "Summary" and what it has of ``SECTIONS``."""
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
        own = record["mechanisms"].get(name)
        if own is None:
            return None
        return {**{key: own[key] for key in _OWN}, **{key: record[key] for key in _ORIGIN}}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{_MEASURED} is damaged: {type(error).__name__} {error}") from error


def _tensors(built: Mechanism) -> list[dict[str, Any]]:
    """Shapes of all parameters and buffers."""
    found: dict[str, dict[str, Tensor]] = {
        "parameter": dict(built.named_parameters()),
        "buffer": dict(built.named_buffers()),
    }
    return [
        {"name": name, "kind": kind, "shape": list(tensor.shape), "dtype": str(tensor.dtype)}
        for kind, named in found.items()
        for name, tensor in named.items()
    ]


def _costs(built: Mechanism, tokens: int) -> dict[str, dict[str, Any]]:
    """The modelled cost by length; each doubling's exponent; and its ratio to softmax."""
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
    """Each kind of product of one call, counted, with its exponent since half the tokens.

    At ``tokens``, or ``STEPS_TOKENS`` if that is less. The exponent is None where half the tokens
    are cut into other products.
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
                "growth": _growth(halves[place], step.flops) if matched else None,
            }
            for place, step in enumerate(whole)
        ],
    }


def _lengths(tokens: int) -> list[int]:
    """128 and each fourfold up to ``tokens``, which is the last."""
    shorter = [length for length in (128 * 4**step for step in range(20)) if length < tokens]
    return [*shorter, tokens]


def _flops(cost: Cost) -> int:
    return cost.matmul_flops + cost.other_flops


def _growth(half: int, whole: int) -> float | None:
    """1 where twice the tokens cost twice as much, 2 where four times; None where it is free."""
    return math.log2(whole / half) if half and whole else None


def _claims(name: str) -> list[str]:
    """What the mechanism is held against, in words, each once."""
    from sparing.testing.subjects import entries

    told = (claim.describe() for entry in entries(name) for claim in entry.claims)
    return list(dict.fromkeys(told))
