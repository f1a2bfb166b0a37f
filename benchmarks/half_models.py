"""Half of every layer over the dense model, for families that people serve, in every engine.

    python benchmarks/half_models.py --output FILE

Shapes are those of the released base models, with four layers, a small vocabulary and random
weights: times are compared, and nothing is said about answers. A cell is a family, a precision, a
number of tokens and a batch. It times the dense model and its adaptive form with half of all heads
and neurons in all installed engines, in turns on one thread. The factor is the fastest dense form's
time over the fastest form of the half in the same precision, with a 95 % interval over rounds. The
dense DeBERTa is folded (``sparing.fold``); as transformers has it, it is timed in PyTorch beside.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from folding import VERSION_3
from sparing.core.writing import write_atomically
from sparing.experiment.study import base_config
from sparing.export.dense import dense_segment
from sparing.export.engine import Chain
from sparing.export.forms import Forms
from sparing.layers.plan import narrowed
from sparing.measure.latency import PairedLatency, paired_latency
from sparing.measure.statistics import median_ratio
from sparing.report.markdown import plain_table
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.folding.fold import fold_if_possible
from sparing.transfer.freezing import segments

LAYERS, VOCABULARY = 4, 1000
BASE = {"num_hidden_layers": LAYERS, "vocab_size": VOCABULARY}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
SHAPES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "distilbert": ("DistilBert", {"n_layers": LAYERS, "vocab_size": VOCABULARY}),
    "mpnet": ("MPNet", {**BASE, "max_position_embeddings": 514}),
    "deberta-v3": (
        "DebertaV2",
        {
            **BASE,
            "hidden_size": 768,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            **VERSION_3,
        },
    ),
    "modernbert": ("ModernBert", {**BASE, **SPECIAL, "pad_token_id": 0}),
}
HEADS = ("family", "precision", "tokens", "batch", "dense, ms", "half, ms", "times as fast")
Times = Mapping[str, PairedLatency]


def dense_model(family: str) -> Any:
    """A classifier with random weights."""
    name, sizes = SHAPES[family]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**sizes)
    return getattr(transformers, f"{name}ForSequenceClassification")(config).eval()


def inputs(batch: int, tokens: int) -> dict[str, Tensor]:
    """Random texts without pads."""
    generator = torch.Generator().manual_seed(tokens)
    ids = torch.randint(3, VOCABULARY, (batch, tokens), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def chains(family: str, folder: Path) -> dict[tuple[str, str, str], Chain]:
    """All forms of both sides, by side, engine and precision."""
    model = dense_model(family)
    plain = Chain([dense_segment(copy.deepcopy(model)).eval()])
    opened: dict[tuple[str, str, str], Chain] = {}
    if fold_if_possible(model):
        opened["plain", "eager", "float32"] = plain
    half = adapt(model)
    half.plan = narrowed(half.encoder.sizes, 0.5)
    options: dict[str, Any] = {"calibration": [inputs(1, tokens) for tokens in (32, 64, 128, 256)]}
    sides = {"dense": [dense_segment(model).eval()], "half": segments(half)}
    for side, parts in sides.items():
        forms = Forms(parts, inputs(2, 64), folder / side, **options)
        for form in forms:
            opened[side, form.engine, form.precision] = forms[form]
        for absent in forms.missing:
            print(f"{family}, {side}: {absent}")
    return opened


def cells(family: str, folder: Path, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row for each cell of a family."""
    opened = chains(family, folder)
    for precision in ("float32", "bfloat16", "int8"):
        some = {key: chain for key, chain in opened.items() if key[2] == precision}
        for tokens in given.tokens if some else ():
            for batch in given.batches:
                calls = {
                    f"{side} {engine}": partial(chain, inputs(batch, tokens))
                    for (side, engine, _), chain in some.items()
                }
                timed: Times = paired_latency(
                    calls, baseline=next(iter(calls)), rounds=given.rounds, budget_s=given.budget
                )
                yield _row(family, precision, tokens, batch, timed)


def _row(family: str, precision: str, tokens: int, batch: int, timed: Times) -> dict[str, Any]:
    fastest = {side: _fastest(timed, side) for side in ("dense", "half")}
    row: dict[str, Any] = {
        "family": family,
        "precision": precision,
        "tokens": tokens,
        "batch": batch,
        "engines": {side: name.split()[1] for side, name in fastest.items()},
        "median_ms": {name: one.p50_ms for name, one in timed.items()},
        "disturbance": next(iter(timed.values())).disturbance,
    }
    row |= _factor(timed[fastest["dense"]], timed[fastest["half"]], "")
    if "plain eager" in timed:
        row |= _factor(timed["plain eager"], timed["half eager"], "over_plain_")
        row |= _factor(timed["plain eager"], timed["dense eager"], "folded_over_plain_")
    return row


def _fastest(timed: Times, side: str) -> str:
    names = [name for name in timed if name.startswith(f"{side} ")]
    return min(names, key=lambda name: timed[name].p50_ms)


def _factor(dense: PairedLatency, ours: PairedLatency, start: str) -> dict[str, Any]:
    ratio = median_ratio(dense.samples_ms, ours.samples_ms)
    return {f"{start}factor": ratio.value, f"{start}interval": ratio.interval}


def table_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as Markdown, and the geometric mean of each family and precision."""
    lines = []
    for row in rows:
        sides = []
        for side in ("dense", "half"):
            engine = row["engines"][side]
            sides.append(f"{row['median_ms'][f'{side} {engine}']:.1f} ({engine})")
        low, high = row["interval"] or (row["factor"], row["factor"])
        facts = (row["family"], row["precision"], str(row["tokens"]), str(row["batch"]))
        lines.append((*facts, *sides, f"{row['factor']:.2f} ({low:.2f} to {high:.2f})"))
    factors: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        factors.setdefault((row["family"], row["precision"]), []).append(row["factor"])
    means = {key: statistics.geometric_mean(some) for key, some in factors.items()}
    ends = [
        f"- {family}, {kind}: {mean:.2f} times as fast, in the geometric mean"
        for (family, kind), mean in means.items()
    ]
    over = [row for row in rows if "over_plain_factor" in row]
    ends += [
        f"- {row['family']} in PyTorch, {row['tokens']} tokens, batch {row['batch']}: the half is "
        f"{row['over_plain_factor']:.2f} times as fast as transformers' own, folding alone "
        f"{row['folded_over_plain_factor']:.2f} times"
        for row in over
    ]
    return "\n".join([plain_table(HEADS, lines), "", *ends])


def main() -> None:
    """Measure, print the table and write the rows with the machine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--tokens", nargs="+", type=int, default=[64, 128, 512])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds a cell, about")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    rows = []
    for family in given.families:
        with tempfile.TemporaryDirectory() as scratch:
            for row in cells(family, Path(scratch), given):
                rows.append(row)
                print(table_of(rows[-1:]).splitlines()[2], flush=True)
    print(table_of(rows))
    if given.output is not None:
        facts = base_config("half-models", {"layers": LAYERS, "rounds": given.rounds}, [])
        write_atomically(given.output, json.dumps({**facts, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
