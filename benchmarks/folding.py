"""A folded DeBERTa beside the plain one: paired times in PyTorch and ONNX Runtime, and the answers.

    python benchmarks/folding.py --output FILE

The model has the base shape of DeBERTa-v3 with four layers of random weights. Both forms run in
turns on the same random tokens, in float32 on one thread: in eager PyTorch, and in ONNX Runtime
from the default export of each. The ratio is the plain form's time over the folded one's in the
same engine, the median over rounds with a 95 % interval. ``difference`` is the largest of any
hidden state. With ``--clock cpu`` the thread's processor time is counted instead of the wall time,
for a machine that has other work.
"""

from __future__ import annotations

import argparse
import copy
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import DebertaV2Config, DebertaV2Model

import sparing
from sparing.core.writing import write_atomically
from sparing.experiment.study import base_config
from sparing.export.dense import dense_segment
from sparing.export.onnx import export_onnx, open_session
from sparing.measure.latency import PairedLatency, paired_latency
from sparing.report.markdown import plain_table

LENGTHS, BATCHES, ROUNDS, LAYERS = (32, 64, 128, 256, 512), (1, 8), 11, 4
# Eight long texts take seconds a call; they are measured in PyTorch only.
MOST_TOKENS = 1024
CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}
SHAPE = {
    "vocab_size": 1000,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
}
VERSION_3 = {
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}
HEADS = ("engine", "tokens", "batch", "plain, ms", "folded, ms", "times as fast", "difference")
Inputs = dict[str, Tensor]


def models() -> dict[str, Any]:
    """The same random encoder as transformers computes it, and folded."""
    torch.manual_seed(0)
    plain = DebertaV2Model(DebertaV2Config(num_hidden_layers=LAYERS, **SHAPE, **VERSION_3)).eval()
    folded = copy.deepcopy(plain)
    print(sparing.fold(folded))
    return {"plain": plain, "folded": folded}


def texts(tokens: int, batch: int) -> Inputs:
    """Random tokens, none of them a pad."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, SHAPE["vocab_size"], (batch, tokens), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def sessions(forms: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Each form in ONNX Runtime, from an export with free batch and length."""
    paths = {
        name: export_onnx(dense_segment(model), texts(48, 2), folder / f"{name}.onnx")
        for name, model in forms.items()
    }
    return {name: open_session(path) for name, path in paths.items()}


def eager(model: Any, given: Inputs) -> Callable[[], Tensor]:
    """A call of the model without gradients."""

    def call() -> Tensor:
        with torch.inference_mode():
            hidden: Tensor = model(**given)[0]
            return hidden

    return call


def session_call(session: Any, given: Inputs) -> Callable[[], Tensor]:
    """A call of an exported form."""
    names = {one.name for one in session.get_inputs()}
    feed = {name: value.numpy() for name, value in given.items() if name in names}
    return lambda: torch.from_numpy(session.run(None, feed)[0])


def measured(
    forms: dict[str, Any], exported: dict[str, Any], clock: str
) -> Iterator[dict[str, Any]]:
    """A row for each engine, length and batch."""
    for tokens in LENGTHS:
        for batch in BATCHES:
            given = texts(tokens, batch)
            engines = {"pytorch": {n: eager(model, given) for n, model in forms.items()}}
            if tokens * batch <= MOST_TOKENS:
                engines["onnxruntime"] = {n: session_call(s, given) for n, s in exported.items()}
            for engine, calls in engines.items():
                difference = float((calls["plain"]() - calls["folded"]()).abs().max())
                times = paired_latency(
                    calls, baseline="folded", rounds=ROUNDS, warmup=1, clock=CLOCKS[clock]
                )
                yield row(times, engine=engine, tokens=tokens, batch=batch, difference=difference)


def row(times: dict[str, PairedLatency], **labels: Any) -> dict[str, Any]:
    """The times of both forms and their ratio."""
    ratio = times["plain"].ratio
    return {
        **labels,
        "plain_ms": times["plain"].p50_ms,
        "folded_ms": times["folded"].p50_ms,
        "ratio": ratio.value,
        "interval": ratio.interval,
        "rounds": ratio.count,
        "disturbance": times["plain"].disturbance,
    }


def table_of(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = []
    for one in rows:
        low, high = one["interval"] or (one["ratio"], one["ratio"])
        lines.append(
            (
                *(str(one[name]) for name in ("engine", "tokens", "batch")),
                *(f"{one[name]:.1f}" for name in ("plain_ms", "folded_ms")),
                f"{one['ratio']:.2f} ({low:.2f} to {high:.2f})",
                f"{one['difference']:.0e}",
            )
        )
    return plain_table(HEADS, lines)


def main() -> None:
    """Time both forms and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    parser.add_argument("--output", type=Path, help="write the rows and the machine as JSON")
    options = parser.parse_args()
    forms, rows = models(), []
    with tempfile.TemporaryDirectory() as folder:
        for one in measured(forms, sessions(forms, Path(folder)), options.clock):
            rows.append(one)
            print(json.dumps(one), flush=True)
    print(table_of(rows))
    if options.output is not None:
        config = base_config("folding", {"clock": options.clock}, [], [])
        content = {"config": config, "rows": rows}
        write_atomically(options.output, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
