"""Exits inside one ONNX file beside a loop over its segments: the same answers, paired times.

    python benchmarks/joined_exits.py --output FILE

The model has MiniLM's shape at half the heads and neurons, six layers of random weights, and exits
after the second and the third. Texts of 8 to 60 random tokens run in ONNX Runtime, in float32 and
INT8, in batches of 1, 8 and 32. Thresholds let none, half or nine tenths of the texts exit first.
Both forms run in turns on the same inputs, in the loop that ``slim`` times and serves with. The
ratio is the time of the segments over that of the one file, with a 95 % interval over batches.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from sparing.core.writing import write_atomically
from sparing.experiment.study import base_config
from sparing.export.engine import Chain
from sparing.export.folder import export_chain
from sparing.export.int8 import quantise
from sparing.export.joined import join
from sparing.layers.plan import narrowed
from sparing.measure.inputs import speed_up, time_inputs
from sparing.report.markdown import plain_table
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.freezing import segments

BATCHES, SHARES, TEXTS, ROUNDS, BLOCK = (1, 8, 32), (0.0, 0.5, 0.9), 320, 5, 10
HEADS = (
    "precision",
    "batch",
    "exit first",
    "segments, ms",
    "one file, ms",
    "faster by",
)
SHAPE = {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}
Inputs = dict[str, Tensor]


def model() -> Any:
    """A random encoder; its confidence differs from text to text."""
    torch.manual_seed(0)
    config = BertConfig(num_hidden_layers=6, initializer_range=0.1, **SHAPE)
    made = adapt(BertForSequenceClassification(config).eval(), exits=(2, 3))
    made.plan = replace(narrowed(made.encoder.sizes, 0.5), exits=(2, 3), threshold=0.9)
    return made


def batches(size: int) -> list[Inputs]:
    """Random texts of 8 to 60 tokens, padded to the longest of their batch."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(8, 61, (TEXTS,), generator=generator)
    made = []
    for some in lengths.split(size):
        mask = (torch.arange(int(some.max())) < some[:, None]).long()
        ids = torch.randint(1000, 30000, mask.shape, generator=generator) * mask
        made.append({"input_ids": ids, "attention_mask": mask, "token_type_ids": 0 * mask})
    return made


def measured(name: str, parts: list[Path], one: Path) -> Iterator[dict[str, Any]]:
    """A row for each batch size and share of early exits."""
    chain, joined = Chain(parts), Chain([one])
    for size in BATCHES:
        inputs = batches(size)
        known = torch.cat([chain.every_exit(given)[:, 0] for given in inputs])
        sure = known.softmax(-1).amax(-1)
        for share in SHARES:
            chain.threshold = joined.threshold = float(sure.quantile(1 - share)) if share else 1.0
            calls = {"segments": chain, "joined": joined}
            times = time_inputs(calls, inputs, rounds=ROUNDS, block=BLOCK)
            ratio = speed_up(times["joined"], times["segments"])
            yield {
                "precision": name,
                "batch": size,
                "share": share,
                "segments_ms": float(times["segments"].typical_ms.mean()),
                "joined_ms": float(times["joined"].typical_ms.mean()),
                "ratio": ratio.value,
                "interval": ratio.interval,
            }


def table_of(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = []
    for row in rows:
        low, high = (100 * (end - 1) for end in row["interval"])
        gain = f"{100 * (row['ratio'] - 1):.1f} % ({low:.1f} to {high:.1f})"
        times = (f"{row['segments_ms']:.2f}", f"{row['joined_ms']:.2f}")
        lines.append(
            (row["precision"], str(row["batch"]), f"{100 * row['share']:.0f} %", *times, gain)
        )
    return plain_table(HEADS, lines)


def main() -> None:
    """Export both forms, time them and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="write the rows and the machine as JSON")
    output = parser.parse_args().output
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        parts = export_chain(segments(model()), batches(2)[0], folder / "float32")
        forms = {"float32": parts, "int8": quantise(parts, folder / "int8")}
        rows = []
        for name, paths in forms.items():
            rows += measured(name, paths, join(paths, folder / f"{name}.onnx"))
    print(table_of(rows))
    if output is not None:
        content = {"config": base_config("joined exits", {}, [], []), "rows": rows}
        write_atomically(output, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
