"""What a swap itself costs: a model swapped to ``softmax`` beside the same model on sdpa.

    python benchmarks/swap_overhead.py

Both run the same kernel on the same weights, so every difference is the swap's own: dispatch, the
contract's checks, and on padded batches the cleaning of pads. Models are random BERT and Llama ones
of 12 layers, small (64 wide, where nothing hides the overhead) and of BERT base's size. Calls are
on one thread, in float32, forward without gradients, in turns. That takes about four minutes on a
two-core machine. ``latency_ratio`` is swapped over sdpa for the whole model, median over rounds
with bootstrap interval; ``overhead_us`` is what that ratio makes for one layer. The goal is at most
100 microseconds a layer. The machine should have nothing else to do. Where it has, ``--clock cpu``
counts the thread's processor time instead of the wall time, and the records say so.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import torch
import transformers

import sparing
from sparing.core.record import Record
from sparing.measure.latency import paired_latency
from sparing.measure.machine import commit, machine, machine_id

LAYERS = 12
GOAL_US = 100.0
CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}


@dataclass(frozen=True)
class Cell:
    """One model and batch; ``padding`` is none, ones (a mask that hides nothing) or half."""

    family: str
    width: int
    tokens: int
    padding: str


CELLS = [
    *(Cell("bert", 64, 128, padding) for padding in ("none", "ones", "half")),
    *(Cell("llama", 64, 128, padding) for padding in ("none", "half")),
    *(Cell("bert", 768, 128, padding) for padding in ("none", "ones", "half")),
    Cell("bert", 768, 512, "none"),
]


def build(cell: Cell) -> transformers.PreTrainedModel:
    """A random model on transformers' sdpa."""
    sizes = {
        "vocab_size": 1000,
        "hidden_size": cell.width,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": max(4, cell.width // 64),
        "intermediate_size": 4 * cell.width,
    }
    torch.manual_seed(0)
    if cell.family == "bert":
        return transformers.BertModel(transformers.BertConfig(**sizes)).eval()
    config = transformers.LlamaConfig(**sizes, num_key_value_heads=2, use_cache=False)
    return transformers.LlamaModel(config).eval()


def calls(cell: Cell) -> dict[str, Callable[[], object]]:
    """The two models on one batch of two rows; with padding, the second is half pads."""
    dense = build(cell)
    swapped = copy.deepcopy(dense)
    sparing.swap(swapped, "softmax")
    generator = torch.Generator().manual_seed(0)
    given = {"input_ids": torch.randint(1000, (2, cell.tokens), generator=generator)}
    if cell.padding != "none":
        given["attention_mask"] = torch.ones(2, cell.tokens, dtype=torch.long)
    if cell.padding == "half":
        given["attention_mask"][1, cell.tokens // 2 :] = 0

    @torch.inference_mode()
    def call(model: transformers.PreTrainedModel) -> object:
        return model(**given)

    return {"sdpa": lambda: call(dense), "swapped": lambda: call(swapped)}


def measure(cell: Cell, rounds: int, clock: str) -> list[Record]:
    """Ratio and overhead of one cell, with their intervals."""
    latencies = paired_latency(
        calls(cell), baseline="sdpa", rounds=rounds, threads=1, clock=CLOCKS[clock]
    )
    labels = {**asdict(cell), "clock": clock}
    records = [
        Record("latency_ms", result.p50_ms, "ms", "measured", {**labels, "arm": arm})
        for arm, result in latencies.items()
    ]
    ratio, base_us = latencies["swapped"].ratio, 1e3 * latencies["sdpa"].p50_ms / LAYERS
    low, high = ratio.interval or (ratio.value, ratio.value)
    records.append(
        Record("latency_ratio", ratio.value, "ratio", "measured", labels, (low, high), ratio.count)
    )
    overhead = ((value - 1) * base_us for value in (ratio.value, low, high))
    value, *interval = overhead
    records.append(
        Record("overhead_us", value, "us", "measured", labels, tuple(interval), ratio.count)
    )
    return records


def table(records: list[Record]) -> str:
    """One line a cell, as Markdown."""
    lines = [
        "| model | width | tokens | padding | clock | ratio | microseconds a layer | at most 100 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    ratios = [record for record in records if record.name == "latency_ratio"]
    overheads = [record for record in records if record.name == "overhead_us"]
    for ratio, overhead in zip(ratios, overheads, strict=True):
        cell = [str(value) for value in ratio.labels.values()]
        shown = "{:.3f} [{:.3f}, {:.3f}]".format(ratio.value, *ratio.interval)
        cost = "{:.0f} [{:.0f}, {:.0f}]".format(overhead.value, *overhead.interval)
        low, high = overhead.interval
        met = "yes" if high <= GOAL_US else "no" if low > GOAL_US else "undecided"
        lines.append("| " + " | ".join([*cell, shown, cost, met]) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure every cell, write the records, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    parser.add_argument("--machine", default="", help="name of the machine in the file's name")
    parser.add_argument("--output-dir", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    records = []
    for cell in CELLS:
        print(cell, file=sys.stderr)
        records += measure(cell, options.rounds, options.clock)
    facts = machine()
    name = f"swap-overhead-{options.machine or machine_id(facts)}-{date.today():%Y-%m}.json"
    options.output_dir.mkdir(parents=True, exist_ok=True)
    result = {
        "machine": facts,
        "commit": commit(),
        "date": date.today().isoformat(),
        "goal_us": GOAL_US,
        "records": [asdict(record) for record in records],
    }
    (options.output_dir / name).write_text(json.dumps(result, indent=1) + "\n")
    print(table(records))


if __name__ == "__main__":
    main()
