"""Batches without pads beside batches with them: paired times, and the answers.

    python benchmarks/packing.py --output FILE

The model has MiniLM's shape and random weights. Its texts have random tokens, and lengths as those
of short reviews: the logarithm is normal. They come in order of arrival, or sorted by length.
All ways of an engine run in turns on the same batches, on one thread. In PyTorch these are
transformers' own model, the segment that ``slim`` times for it with the pads computed, and the
segment as it is. In ONNX Runtime they are a file that computes the pads and one that skips them.
The ratio is the first one's time over the last one's, with a 95 % interval over rounds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from sparing.core.writing import write_atomically
from sparing.experiment.study import base_config
from sparing.export.dense import dense_segment
from sparing.export.folder import export_chain
from sparing.export.int8 import quantise
from sparing.export.onnx import open_session
from sparing.measure.latency import PairedLatency, paired_latency
from sparing.report.markdown import plain_table
from sparing.slim.engines import without_pads

TEXTS, BATCHES, ROUNDS = 256, (1, 8, 32), 5
MEAN_LENGTH, SPREAD, LENGTHS = 22, 0.45, (4, 64)
SHAPE = {
    "vocab_size": 1000,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
HEADS = (
    *("engine", "precision", "order", "batch", "pads", "transformers, ms", "padded, ms"),
    *("packed, ms", "times as fast", "difference"),
)
Inputs = dict[str, Tensor]


def texts(count: int) -> list[Tensor]:
    """Random tokens of random lengths."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(count, generator=generator).mul(SPREAD).exp().mul(MEAN_LENGTH)
    lengths = drawn.round().long().clamp(*LENGTHS).tolist()
    return [torch.randint(1, SHAPE["vocab_size"], (n,), generator=generator) for n in lengths]


def batched(chosen: list[Tensor], size: int) -> list[Inputs]:
    """Batches of so many texts, padded to the longest of each."""
    batches = []
    for start in range(0, len(chosen), size):
        part = chosen[start : start + size]
        ids = torch.nn.utils.rnn.pad_sequence(part, batch_first=True)
        batches.append({"input_ids": ids, "attention_mask": (ids > 0).long()})
    return batches


def calls_of(model: Any, segment: Any, batches: list[Inputs]) -> dict[str, Callable[[], Tensor]]:
    """All batches, answered in three ways; padded ones by the same segment."""

    def transformers() -> Tensor:
        with torch.inference_mode():
            return torch.cat([model(**given).logits for given in batches])

    def packed() -> Tensor:
        with torch.inference_mode():
            return torch.cat([segment(**given)[1] for given in batches])

    def padded() -> Tensor:
        with patch("sparing.transfer.freezing.worth_packing", lambda keep: False):
            return packed()

    return {"transformers": transformers, "padded": padded, "packed": packed}


def files_of(model: Any, folder: Path) -> dict[str, dict[str, Any]]:
    """The sessions of ONNX Runtime by precision, with pads computed and without."""
    example = batched(texts(2), 2)[0]
    sessions = dict[str, dict[str, Any]]()
    for way, skips in (("padded", False), ("packed", True)):
        paths = export_chain([dense_segment(model)], example, folder / way, skips_pads=skips)
        small = quantise(paths, folder / f"{way}-int8")
        for precision, (path,) in (("float32", paths), ("int8", small)):
            sessions.setdefault(precision, {})[way] = open_session(path)
    return sessions


def calls_of_files(
    sessions: dict[str, Any], batches: list[Inputs]
) -> dict[str, Callable[[], Tensor]]:
    """All batches, answered by each session."""
    arrays = [{name: value.numpy() for name, value in given.items()} for given in batches]

    def call(session: Any) -> Tensor:
        made = [session.run(["logits"], given)[0] for given in arrays]
        return torch.from_numpy(np.concatenate(made))

    return {way: partial(call, session) for way, session in sessions.items()}


def measured(count: int, rounds: int) -> Iterator[dict[str, Any]]:
    """A row for each engine, precision, order and batch size."""
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**SHAPE)).eval()
    with tempfile.TemporaryDirectory() as folder:
        for precision, sessions in files_of(model, Path(folder)).items():
            labels = {"engine": "ONNX Runtime", "precision": precision}
            yield from compared(partial(calls_of_files, sessions), count, rounds, labels)
    for precision in ("float32", "bfloat16"):
        cast = model.to(getattr(torch, precision))
        (segment,) = without_pads(cast)
        labels = {"engine": "PyTorch", "precision": precision}
        yield from compared(partial(calls_of, cast, segment), count, rounds, labels)


def compared(
    calls_for: Callable[[list[Inputs]], dict[str, Callable[[], Tensor]]],
    count: int,
    rounds: int,
    labels: dict[str, str],
) -> Iterator[dict[str, Any]]:
    """A row for each order and batch size; the first call is compared with the last."""
    given = texts(count)
    for order, chosen in {"arrival": given, "sorted": sorted(given, key=len)}.items():
        for size in BATCHES:
            if size == 1 and order == "sorted":
                continue
            batches = batched(chosen, size)
            calls = calls_for(batches)
            first, last = next(iter(calls)), "packed"
            gap = (calls[first]().float() - calls[last]().float()).abs().max()
            times = paired_latency(calls, baseline=last, rounds=rounds, warmup=1)
            real = sum(int(one["attention_mask"].sum()) for one in batches)
            pads = 1 - real / sum(one["input_ids"].numel() for one in batches)
            facts = {**labels, "order": order, "batch": size, "pads": pads}
            yield row(times, first, **facts, difference=float(gap))


def row(times: dict[str, PairedLatency], first: str, **labels: Any) -> dict[str, Any]:
    """The times of all ways and the ratio of the first."""
    ratio = times[first].ratio
    return {
        **labels,
        **{f"{name}_ms": one.p50_ms for name, one in times.items()},
        "ratio": ratio.value,
        "interval": ratio.interval,
        "rounds": ratio.count,
        "disturbance": times["packed"].disturbance,
    }


def table_of(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = []
    for one in rows:
        low, high = one["interval"] or (one["ratio"], one["ratio"])
        ways = (one.get(f"{name}_ms") for name in ("transformers", "padded", "packed"))
        lines.append(
            (
                *(str(one[name]) for name in ("engine", "precision", "order", "batch")),
                f"{100 * one['pads']:.0f} %",
                *("–" if way is None else f"{way:.0f}" for way in ways),
                f"{one['ratio']:.2f} ({low:.2f} to {high:.2f})",
                f"{one['difference']:.0e}",
            )
        )
    return plain_table(HEADS, lines)


def main() -> None:
    """Time all ways and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=TEXTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--output", type=Path, help="write the rows and the machine as JSON")
    options = parser.parse_args()
    if options.texts < 1 or options.rounds < 2:
        parser.error("it needs at least one text and two rounds")
    rows = []
    for one in measured(options.texts, options.rounds):
        rows.append(one)
        print(json.dumps(one), flush=True)
    print(table_of(rows))
    if options.output is not None:
        settings = {"texts": options.texts, "rounds": options.rounds}
        content = {"config": base_config("packing", settings, [], []), "rows": rows}
        write_atomically(options.output, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
