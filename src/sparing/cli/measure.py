"""``sparing measure NAME``: what a mechanism or a model costs, beside the dense baseline."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sparing.cli.shared.common import Json, MechanismSettings, emit, progress_bar, verb
from sparing.cli.shared.settings import apply
from sparing.core.errors import UsageError
from sparing.experiment.measuring.quantities import measure
from sparing.experiment.measuring.subject import How, find_subject, require_counts

EXAMPLE = "sparing measure linformer --tokens 1024 --set slots=128"


@verb
def run(
    name: Annotated[str, typer.Argument(help="A mechanism, a model's folder or a hub name.")],
    tokens: Annotated[
        int | None, typer.Option(help="Tokens of an input; default: 512, or the model's limit.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Inputs in a batch.")] = 1,
    against: Annotated[str, typer.Option(help="A model as the baseline.")] = "",
    heads: Annotated[
        int | None, typer.Option(help="Heads of a mechanism; default: 12.", show_default=False)
    ] = None,
    dim: Annotated[
        int | None,
        typer.Option(help="Features of one head of a mechanism; default: 64.", show_default=False),
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads to measure on.")] = 1,
    rounds: Annotated[int, typer.Option(help="Rounds of paired latency.")] = 20,
    energy_seconds: Annotated[float, typer.Option(help="Seconds of one energy window.")] = 0.5,
    settings: MechanismSettings = None,
    as_json: Json = False,
) -> None:
    """Measure latency, memory, FLOPs and energy beside dense attention.

    A mechanism is measured beside fused softmax, a swapped model beside its dense form.
    """
    sizes = {"tokens": tokens, "heads": heads, "dim": dim}
    chosen = {name: count for name, count in sizes.items() if count is not None}
    require_counts(batch=batch, threads=threads, rounds=rounds, **chosen)
    if not 0 < energy_seconds < float("inf"):
        raise UsageError(f"--energy-seconds must be above 0; got {energy_seconds}")
    how = How(batch, threads, rounds, energy_seconds)
    options = apply(dict[str, Any](), settings or [])
    subject = find_subject(name, against, options, (heads, dim), tokens, how)
    with progress_bar(quiet=as_json) as show:
        facts = measure(subject, how, show)
    if as_json:
        emit(facts)
    else:
        _print(facts)


def _print(facts: dict[str, Any]) -> None:
    """Print the table, and below it how memory and energy were measured."""
    from rich.console import Console
    from rich.table import Table

    if facts["disturbance"]:
        print(facts["disturbance"])
    sizes = f"{facts['tokens']} tokens, batch {facts['batch']}, {facts['threads']} thread(s)"
    print(f"{facts['scope']}, {sizes}; ratios are over {facts['baseline']}, below 1 is less")
    table = Table("", *facts["arms"], box=None)
    columns = [_column(arm) for arm in facts["arms"].values()]
    for label in columns[0] | columns[-1]:
        table.add_row(label, *(column.get(label, "") for column in columns))
    Console().print(table)
    if "attention_share" in facts and not facts["disturbance"]:
        print(_limit(facts))
    for line in _sources(facts):
        print(line)


def _limit(facts: dict[str, Any]) -> str:
    """The speed-up of an attention that takes no time at all: no attention exceeds it."""
    from sparing.measure.gains import LARGEST_SHARE, share_decimals

    share, gain = facts["attention_share"], facts["largest_gain"]
    value = share["value"]
    decimals = share_decimals(value, lambda factor: f"{factor:.2f}")
    words = f"attention takes {value:.{decimals}%} of {facts['baseline']} at this length"
    if gain["interval"] is None or share["interval"][1] >= LARGEST_SHARE:
        return words
    low, high = gain["interval"]
    return (
        f"{words}: no attention can make the whole more than {gain['value']:.2f} times as fast "
        f"(95 % interval {low:.2f} to {high:.2f})"
    )


def _column(arm: dict[str, Any]) -> dict[str, str]:
    """The cells of one variant by their label."""
    latency = arm["latency_ms"]
    cells = {
        "latency p50, ms": f"{latency['p50']:.3f}",
        "latency p90, ms": f"{latency['p90']:.3f}",
        "latency p99, ms": f"{latency['p99']:.3f}",
        "latency ratio": _ratio(arm.get("latency_ratio")),
        "examples/s": f"{arm['examples_per_s']:.4g}",
        "tokens/s": f"{arm['tokens_per_s']:.4g}",
        "peak memory, MiB": f"{arm['peak_bytes'] / 2**20:.2f}",
        "peak memory ratio": _number(arm.get("peak_ratio")),
        "GFLOP": f"{arm['flops']['total'] / 1e9:.4g}",
        "GFLOP of attention": _number(arm["flops"].get("attention"), 1e9),
        "FLOP ratio": _number(arm.get("flops_ratio")),
    }
    for part, energy in arm["energy_j"].items():
        cells[f"energy of {part}, J ({energy['obtained']})"] = f"{energy['value']:.4g}"
        ratio = _ratio(arm.get("energy_ratio", {}).get(part))
        cells[f"energy ratio of {part}"] = ratio
    return {label: cell for label, cell in cells.items() if cell}


def _number(value: float | int | None, unit: float = 1.0) -> str:
    return "" if value is None else f"{value / unit:.4g}"


def _ratio(ratio: dict[str, Any] | None) -> str:
    """A ratio with its interval, or nothing for the baseline itself."""
    if ratio is None:
        return ""
    if ratio["interval"] is None:
        return f"{ratio['value']:.3f} (no interval)"
    low, high = ratio["interval"]
    return f"{ratio['value']:.3f} ({low:.3f} to {high:.3f})"


def _sources(facts: dict[str, Any]) -> list[str]:
    """How memory and energy were measured, without repeats."""
    lines = [f"memory: {arm['peak_method']}" for arm in facts["arms"].values()]
    for part, energy in facts["arms"][facts["baseline"]]["energy_j"].items():
        lines.append(f"energy of {part} for {facts['baseline']}: {energy['method']}")
    return [*dict.fromkeys(lines), *facts["notes"]]
