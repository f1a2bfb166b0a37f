"""``sparing show NAME``: what a mechanism is, supports and costs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparing.cli.shared.common import Json, emit, verb
from sparing.cli.shared.mechanism_facts import mechanism_facts, path_facts, product_steps

if TYPE_CHECKING:
    from sparing.core.execution.path import Call

EXAMPLE = "sparing show linformer --tokens 4096 --device cuda"
DEVICES = ("cpu", "cuda", "mps", "xpu")
DTYPES = ("float32", "bfloat16", "float16", "float64")


@verb
def run(
    name: Annotated[str, typer.Argument(help="A mechanism, or a module such as my_lab.attention.")],
    heads: Annotated[int, typer.Option(help="Heads for shapes and cost.")] = 12,
    dim: Annotated[int, typer.Option(help="Features of one head for shapes and cost.")] = 64,
    tokens: Annotated[int, typer.Option(min=2, help="The longest input.")] = 8192,
    device: Annotated[str, typer.Option(help="Show the path of a call on cpu, cuda, ...")] = "",
    dtype: Annotated[str, typer.Option(help="The type of that call's tensors.")] = "",
    causal: Annotated[bool, typer.Option("--causal", help="That call is causal.")] = False,
    padded: Annotated[bool, typer.Option("--padded", help="It has pads.")] = False,
    training: Annotated[bool, typer.Option("--training", help="It records gradients.")] = False,
    draw: Annotated[bool, typer.Option("--draw", help="Draw the shapes of its products.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write that to a .png or .svg.")] = None,
    as_json: Json = False,
) -> None:
    """Show a mechanism: formula, options, traits, path and cost."""
    if draw or output is not None:
        _draw(name, (heads, dim, tokens), output, as_json)
        return
    call = _call(device, dtype, tokens, dim, (causal, padded, training))
    facts = mechanism_facts(name, heads, dim, tokens)
    facts["path"] = path_facts(name, heads, dim, call)
    facts["steps"] = product_steps(name, heads, dim, tokens)
    if as_json:
        emit(facts)
    else:
        _print_facts(name, facts)


def _print_facts(name: str, facts: dict[str, Any]) -> None:
    """Print everything as text."""
    heads, dim, tokens = facts["built_for"].values()
    print(f"{name}\n\n{facts['description']}")
    traits = facts["traits"]
    print(f"\nPaper:   {traits['paper']} ({traits['year']})")
    print(f"Family:  {traits['family']}{', a variant of every study' * traits['arm']}")
    print("Traits:  " + _traits(traits))
    options = ", ".join(f"{key}={value}" for key, value in facts["options"].items())
    print(f"Options: {options or 'none'}")
    _print_claims(facts["claims"])
    print(f"Measured: {_measured(facts['measured'])}")
    print(f"\nTensors for {heads} heads of {dim}, up to {tokens} tokens:")
    for tensor in facts["tensors"]:
        print(f"  {tensor['name']}  {tuple(tensor['shape'])}  {tensor['kind']}")
    if not facts["tensors"]:
        print("  none")
    _print_path(facts["path"])
    _print_steps(facts["steps"])
    _print_cost(facts["cost"], f"{heads} heads of {dim}")


def _draw(name: str, sizes: tuple[int, int, int], output: Path | None, as_json: bool) -> None:
    """Print the products of a call as boxes, or write them as a figure."""
    from sparing.cli.shared.mechanism_facts import drawn_products

    heads, dim, tokens = sizes
    products = drawn_products(name, heads, dim, tokens)
    if output is not None:
        from sparing.report.figures.shapes import save_products

        save_products(products, output)
    if as_json:
        emit({**asdict(products), "heads": heads, "output": str(output) if output else None})
    elif output is not None:
        print(output)
    else:
        from sparing.report.shapes import drawn

        print(drawn(products))


def _call(device: str, dtype: str, tokens: int, dim: int, flags: tuple[bool, bool, bool]) -> Call:
    """The call that the options describe: where there is a CUDA device, one on it."""
    import torch

    from sparing.core.errors import require_choice
    from sparing.core.execution.path import Call

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    require_choice("show", "device", device, DEVICES)
    dtype = dtype or ("float32" if device == "cpu" else "bfloat16")
    require_choice("show", "dtype", dtype, DTYPES)
    causal, padded, training = flags
    return Call(device, getattr(torch, dtype), tokens, tokens, dim, causal, padded, training)


def _print_path(facts: dict[str, Any]) -> None:
    """Print the path of a call, why, and what its form for accelerators launches."""
    flags = [flag for flag in ("causal", "padded") if facts[flag]]
    flags += ["with gradients"] * facts["recorded"]
    described = ", ".join([facts["dtype"], f"{facts['keys']} tokens", *flags])
    print(f"\nPath on {facts['device']}, {described}: {facts['path']} ({facts['why']})")
    for path, reason in facts["refused"].items():
        print(f"  not {path}: {reason}")
    if not facts["visible"]:
        print(f"  No {facts['device']} device is visible here; one would take this path.")
    if facts["accelerator"]:
        count, passes = facts["accelerator"]["operations"], facts["accelerator"]["passes"]
        print(
            f"  Its accelerator form launches {count} operation{'s' * (count > 1)}, moving "
            f"{passes:.1f} times the bytes of inputs and output (counted)."
        )


def _traits(traits: dict[str, Any]) -> str:
    from sparing.core.traits import FLAGS

    supported = ", ".join(flag for flag in FLAGS if traits[flag])
    missing = ", ".join(flag for flag in FLAGS if not traits[flag])
    return supported + (f"; not {missing}" if missing else "")


def _print_claims(claims: list[str]) -> None:
    print("Claims:" + ("" if claims else "  none"))
    for claim in claims:
        print(f"  - {claim}")


def _measured(record: dict[str, Any] | None) -> str:
    """The length from which the mechanism was faster than softmax, on which machine and when."""
    if record is None:
        return "not measured"
    if record["crossover_tokens"] is None:
        line = f"not faster than softmax up to {record['longest_tokens']} tokens"
    else:
        line = f"faster than softmax from {record['crossover_tokens']} tokens on"
    ratios = ", ".join(f"{n}: {value:.3g}" for n, value in record["speedup"].items())
    if ratios:
        line += f"; times as fast by tokens: {ratios}"
    return f"{line} ({record['machine']}, {record['month']}, commit {record['commit']})"


def _print_steps(steps: dict[str, Any]) -> None:
    """Print the counted products of one call, in order."""
    from rich.console import Console
    from rich.table import Table

    print(f"\nMatrix products of one call, counted, {steps['tokens']} tokens, batch 1:")
    if not steps["products"]:
        print("  none")
        return
    table = Table("step", "MFLOP", "share", "^", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for step in steps["products"]:
        growth = "" if step["growth"] is None else f"{step['growth']:.2f}"
        flops = f"{step['matmul_flops'] / 1e6:.4g}"
        table.add_row(step["step"], flops, f"{step['share']:.0%}", growth)
    Console(width=110, highlight=False).print(table)


def _print_cost(costs: dict[str, dict[str, Any]], shape: str) -> None:
    """Print one line a length; growth is the exponent since half the length."""
    from rich.console import Console
    from rich.table import Table

    print(f"\nModelled cost, {shape}; x is the ratio to softmax, ^ the growth with the tokens:")
    heads = ("tokens", "matmul GFLOP", "other GFLOP", "x", "^", "peak MiB", "x", "^", "params")
    table = Table(*heads, box=None, pad_edge=False)
    for column in table.columns:
        column.justify = "right"
    for tokens, cost in costs.items():
        table.add_row(
            tokens,
            f"{cost['matmul_flops'] / 1e9:.4g}",
            f"{cost['other_flops'] / 1e9:.4g}",
            f"{cost['flops_over_softmax']:.3g}",
            _growth(cost["flops_growth"]),
            f"{cost['peak_bytes'] / 2**20:.4g}",
            f"{cost['peak_over_softmax']:.3g}",
            _growth(cost["peak_growth"]),
            f"{cost['params']:,}",
        )
    Console().print(table, highlight=False)


def _growth(exponent: float | None) -> str:
    return "-" if exponent is None else f"{exponent:.2f}"
