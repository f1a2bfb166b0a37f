"""Time and memory of mechanisms beside fused softmax attention: the attention core alone.

    python benchmarks/core_latency.py linear linformer linformer:slots=256 window nystrom

Batch 1, 12 heads of 64, one thread, 512 to 16,384 tokens, forward without gradients, float32,
random inputs. All mechanisms and ``softmax`` take turns in every round (about ten minutes in all on
a two-core machine, most of it softmax at 16,384 tokens). ``latency_ratio`` is time over softmax's
time in the same round, median with bootstrap interval, below 1 is faster; ``speedup`` is its
inverse, with quartiles over the rounds. Memory is what one call adds at its peak, each cell in a
fresh process. What fails is recorded as failed. The machine should have nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import date
from pathlib import Path

import numpy as np
import torch

from sparing import Heads, mechanism
from sparing.core.errors import SparingError
from sparing.core.record import Record
from sparing.measure.latency import paired_latency
from sparing.measure.machine import commit, machine, machine_id
from sparing.measure.memory import peak_memory

BASELINE = "softmax"
DEFAULT = ("linear", "kerformer", "linformer", "linformer:slots=256", "nystrom", "window")


def build(arm: str, tokens: int, heads: int, dim: int) -> Callable[[], torch.Tensor]:
    """A call of ``name`` or ``name:option=value,option=value`` on inputs of its own."""
    name, _, text = arm.partition(":")
    options = dict(part.split("=", 1) for part in text.split(",")) if text else {}
    made = mechanism(
        name,
        Heads(heads, dim, tokens=tokens),
        **{option: _value(value) for option, value in options.items()},
    ).eval()
    generator = torch.Generator().manual_seed(0)
    shapes = {"x": (1, tokens, heads * dim)}
    streams = [
        torch.randn(shapes.get(stream, (1, heads, tokens, dim)), generator=generator)
        for stream in made.streams
    ]

    @torch.inference_mode()
    def call() -> torch.Tensor:
        return made(*streams)

    return call


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def latency(arms: list[str], tokens: int, options: argparse.Namespace) -> list[Record]:
    """All arms at one length, in turns with the baseline."""
    calls = {arm: build(arm, tokens, options.heads, options.dim) for arm in arms}
    measured = paired_latency(
        calls,
        baseline=BASELINE,
        rounds=options.rounds,
        threads=options.threads,
        budget_s=options.budget_s,
    )
    records = []
    for arm, found in measured.items():
        labels = {"arm": arm, "tokens": tokens}
        count = len(found.samples_ms)

        def add(name, value, unit, interval=None, labels=labels, count=count, **more):
            entry = Record(name, value, unit, "measured", {**labels, **more}, interval, count)
            records.append(entry)

        for statistic in ("p50", "p90"):
            add("latency_ms", getattr(found, f"{statistic}_ms"), "ms", statistic=statistic)
        add("latency_ratio", found.ratio.value, "ratio", found.ratio.interval)
        speedups = np.array(measured[BASELINE].samples_ms) / np.array(found.samples_ms)
        for percent in (25, 50, 75):
            value = float(np.percentile(speedups, percent))
            add("speedup", value, "ratio", statistic=f"p{percent}")
    return records


def memory(arm: str, tokens: int, options: argparse.Namespace) -> Record:
    """What one call adds at its peak, in a process of its own."""
    arguments = {"arm": arm, "tokens": tokens, "heads": options.heads, "dim": options.dim}
    found = peak_memory("core_latency:build", arguments, threads=options.threads)
    return Record(
        "peak_bytes", found.bytes, "bytes", found.obtained, {"arm": arm, "tokens": tokens}
    )


def measure(arms: list[str], options: argparse.Namespace) -> tuple[list[Record], list[dict]]:
    """Every cell; an arm that cannot be built at a length is left out there and listed."""
    records, failed = [], []
    for tokens in options.tokens:
        able = []
        for arm in arms:
            print(f"{tokens} tokens, {arm}: memory", file=sys.stderr)
            try:
                records.append(memory(arm, tokens, options))
            except SparingError as error:
                failed.append({"cell": f"{arm} at {tokens} tokens", "error": str(error)})
            else:
                able.append(arm)
        print(f"{tokens} tokens: latency", file=sys.stderr)
        records += latency(able, tokens, options)
    return records, failed


def table(records: list[Record], arms: list[str], lengths: list[int]) -> str:
    """Speed-up over softmax, median and quartiles, and peak extra memory, as Markdown."""
    cells = {
        (r.name, r.labels["arm"], r.labels["tokens"], r.labels.get("statistic")): r.value
        for r in records
    }
    lines = ["| mechanism | " + " | ".join(f"{n}" for n in lengths) + " |"]
    lines.append("|---" * (len(lengths) + 1) + "|")
    for arm in arms:
        row = []
        for n in lengths:
            parts = [cells.get(("speedup", arm, n, f"p{p}")) for p in (50, 25, 75)]
            peak = cells.get(("peak_bytes", arm, n, None))
            if peak is None or None in parts:
                row.append("failed")
            else:
                row.append("{:.2f} [{:.2f}-{:.2f}]".format(*parts) + f", {peak / 2**20:.1f} MiB")
        lines.append(f"| {arm} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("arms", nargs="*", default=list(DEFAULT), metavar="NAME[:OPTION=VALUE,...]")
    parser.add_argument(
        "--tokens", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192, 16384]
    )
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--budget-s", type=float, default=180.0, help="per length, beyond 5 rounds")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--machine", default="", help="name of the machine in the file's name")
    parser.add_argument("--output-dir", type=Path, default=Path(__file__).parent / "results")
    return parser.parse_args()


def main() -> None:
    """Measure, write the records, print the table."""
    options = arguments()
    arms = [BASELINE, *(arm for arm in options.arms if arm != BASELINE)]
    records, failed = measure(arms, options)
    facts = machine()
    today = date.today()
    name = f"core-latency-{options.machine or machine_id(facts)}-{today:%Y-%m}.json"
    options.output_dir.mkdir(parents=True, exist_ok=True)
    result = {
        "name": "core_latency",
        "command": " ".join(["python", "benchmarks/core_latency.py", *sys.argv[1:]]),
        "commit": commit(),
        "machine": facts,
        "heads": options.heads,
        "dim": options.dim,
        "batch": 1,
        "threads": options.threads,
        "dtype": "float32",
        "failed": failed,
        "records": [asdict(record) for record in records],
    }
    (options.output_dir / name).write_text(json.dumps(result, indent=1) + "\n")
    print(table(records, arms, options.tokens))
    print(options.output_dir / name)


if __name__ == "__main__":
    main()
