"""``sparing show NAME``: what a mechanism is, can do and costs."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

from sparing.cli._shared import Json, emit, verb


@verb
def run(
    name: Annotated[str, typer.Argument(help="A mechanism's name, or the path of your own.")],
    heads: Annotated[int, typer.Option(help="Heads for the cost.")] = 12,
    dim: Annotated[int, typer.Option(help="Features of one head for the cost.")] = 64,
    as_json: Json = False,
) -> None:
    """Show a mechanism: formula, source, traits, options and cost by length."""
    from sparing.core.catalogue import mechanism_class
    from sparing.core.heads import Heads
    from sparing.core.mechanism import option_defaults
    from sparing.core.traits import FLAGS
    from sparing.core.workload import Workload

    found = mechanism_class(name)
    built = found(Heads(heads, dim, tokens=8192))
    lengths = (128, 512, 2048, 8192)
    costs = {n: built.cost(Workload(1, heads, n, n, dim)) for n in lengths}
    facts = {
        "name": name,
        "traits": vars(found.traits),
        "options": {key: repr(value) for key, value in option_defaults(found).items()},
        "description": inspect.getdoc(found),
        "cost": {str(n): vars(cost) for n, cost in costs.items()},
    }
    if as_json:
        emit(facts)
        return
    print(f"{name}\n\n{facts['description']}\n")
    print("Traits:  " + ", ".join(flag for flag in FLAGS if getattr(found.traits, flag)))
    options = ", ".join(f"{key}={value}" for key, value in option_defaults(found).items())
    print(f"Options: {options or 'none'}\n")
    print(f"Modelled cost, {heads} heads of {dim}:")
    for n, cost in costs.items():
        memory = cost.peak_bytes / 2**20
        print(f"  {n:>5} tokens  {cost.matmul_flops / 1e9:9.3f} GFLOP  {memory:9.1f} MiB")
