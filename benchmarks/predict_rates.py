"""Rows a second of ``sparing predict``, beside a plain loop, and the memory of a million rows.

    sparing export MODEL --to onnx --output-dir EXPORTED
    python benchmarks/predict_rates.py EXPORTED --dense MODEL --output FILE

MODEL is an embedding model, such as all-MiniLM-L6-v2. Every round has four ways to answer short
texts. ``predict`` has one process, and two. A plain loop has the same session in one process.
sentence-transformers' pool has two processes with the dense model. The start of processes is left
out everywhere. The texts are SST-2's sentences below SPARING_DATA, repeated, or generated ones
where it is not set. The last two ways answer 10,000 of them.

Then a tiny model answers ``--many`` rows with two processes, while the memory of all processes is
sampled. The peak of the last quarter of the time is compared with that of the first.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

from sparing.agree.model import open_text_model
from sparing.agree.outputs import Encoder, outputs_of
from sparing.core.writing import write_atomically
from sparing.experiment.study import base_config
from sparing.report.markdown import plain_table
from sparing.tasks.texts import Texts
from sts import data_root, rows_of

BATCH, SAMPLE_S, SHARD = 8, 0.25, 5_000
OTHERS = 10_000  # texts of the ways beside predict, with a rate that is the same for more
SHAPE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
PROGRAM = "import sys; sys.argv[0] = 'sparing'; from sparing.cli import main; main()"
HEADS = ("what", "processes", "rows a second", "over one process")


def sentences(count: int) -> tuple[str, list[str]]:
    """Short texts, and what they are."""
    if os.environ.get("SPARING_DATA"):
        path = data_root() / "glue" / "SST-2" / "train.tsv.gz"
        listed = [row[0].strip() for row in rows_of(path, (0,), head=True)]
        return "SST-2", [*itertools.islice(itertools.cycle(listed), count)]
    chance = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(5000)]
    listed = [" ".join(chance.choices(words, k=chance.randint(3, 30))) for _ in range(count)]
    return "generated", listed


def write_texts(path: Path, texts: Iterator[str]) -> Path:
    """One JSON object a line."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    return path


def start(model: Path, texts: Path, folder: Path, processes: int, shard: int) -> Any:
    """``sparing predict`` in a process of its own."""
    given = ["predict", model, "--texts", texts, "--output-dir", folder, "--json"]
    given += ["--processes", processes, "--batch", BATCH, "--rows-a-shard", shard]
    command = [sys.executable, "-c", PROGRAM, *map(str, given)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def result_of(process: Any) -> dict[str, Any]:
    """The JSON object that it prints; raises where it failed."""
    printed = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"sparing predict ended with {process.returncode}")
    content: dict[str, Any] = json.loads(printed)
    return content


def loop_rate(model: Path, texts: list[str]) -> float:
    """Rows a second of a plain loop: batches in the order of the file, one process, one thread."""
    opened = open_text_model(str(model), threads=1)
    encoder = Encoder(opened, Texts("texts", tuple((text,) for text in texts)))
    outputs_of(encoder, [encoder.encode(0)], batch=BATCH)
    begun = time.perf_counter()
    for first in range(0, len(texts), BATCH):
        some = range(first, min(first + BATCH, len(texts)))
        outputs_of(encoder, [encoder.encode(index) for index in some], batch=BATCH)
    return len(texts) / (time.perf_counter() - begun)


def pool_rate(dense: Path, texts: list[str]) -> float:
    """Rows a second of sentence-transformers' pool of two processes on the CPU."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(dense), device="cpu")
    pool = model.start_multi_process_pool(["cpu", "cpu"])
    try:
        model.encode(texts[:BATCH], pool=pool, batch_size=BATCH)
        begun = time.perf_counter()
        model.encode(texts, pool=pool, batch_size=BATCH)
        return len(texts) / (time.perf_counter() - begun)
    finally:
        model.stop_multi_process_pool(pool)


def rates(given: argparse.Namespace, scratch: Path) -> Iterator[dict[str, Any]]:
    """The rate of every way, in turns."""
    source, texts = sentences(given.rows)
    path, shard = write_texts(scratch / "texts.jsonl", iter(texts)), min(SHARD, given.rows // 4)
    for number in range(given.rounds):
        for processes in (1, 2):
            folder = scratch / f"out-{number}-{processes}"
            done = result_of(start(given.model, path, folder, processes, shard))
            yield _row("predict", processes, number, done["rows_per_s"], source)
        fewer = texts[:OTHERS]
        yield _row("plain loop", 1, number, loop_rate(given.model, fewer), source)
        if given.dense:
            rate = pool_rate(given.dense, fewer)
            yield _row("sentence-transformers' pool", 2, number, rate, source)


def _row(what: str, processes: int, number: int, rate: float, source: str) -> dict[str, Any]:
    row = {"what": what, "processes": processes, "round": number, "rows_per_s": rate}
    return row | {"texts": source}


def tiny_model(folder: Path) -> Path:
    """A classifier of one narrow layer: reading and writing are most of its time."""
    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz0123456789"]
    words += [f"##{word}" for word in words[5:]]
    BertTokenizer({word: number for number, word in enumerate(words)}).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(words), intermediate_size=16, **SHAPE)
    BertForSequenceClassification(config).eval().save_pretrained(folder)
    return folder


def memory(count: int, scratch: Path) -> dict[str, Any]:
    """The peak of the memory in the first and in the last quarter of the time, in bytes."""
    texts = (f"row {number} of {count}" for number in range(count))
    path = write_texts(scratch / "many.jsonl", texts)
    shard = min(SHARD, count // 40)
    process = start(tiny_model(scratch / "tiny"), path, scratch / "many", 2, shard)
    driver, samples = psutil.Process(process.pid), list[tuple[int, int]]()
    while process.poll() is None:
        if any((scratch / "many").glob("part-*")):  # the start is left out
            samples.append((_resident(driver), max(map(_resident, driver.children()), default=0)))
        time.sleep(SAMPLE_S)
    done = result_of(process)
    quarter = max(1, len(samples) // 4)
    peaks = {
        f"{who}_{when}": max((one[index] for one in some), default=0)
        for index, who in enumerate(("driver", "worker"))
        for when, some in (("first", samples[:quarter]), ("last", samples[-quarter:]))
    }
    return {
        "rows": done["rows"],
        "rows_per_s": done["rows_per_s"],
        "samples": len(samples),
        **peaks,
    }


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:  # it has just ended
        return 0


def table_of(content: Mapping[str, Any]) -> str:
    """The rates as Markdown, each over those of one process in the same round, and the memory."""
    by_way: dict[tuple[str, int], list[float]] = {}
    for row in content["rows"]:
        by_way.setdefault((row["what"], row["processes"]), []).append(row["rows_per_s"])
    base = by_way["predict", 1]
    lines = []
    for (what, processes), values in by_way.items():
        ratios = [value / one for value, one in zip(values, base, strict=True)]
        times = "1" if values is base else f"{min(ratios):.2f} to {max(ratios):.2f}"
        lines.append((what, str(processes), f"{sum(values) / len(values):,.0f}", times))
    used = {name: value / 2**20 for name, value in content["memory"].items() if "_" in name}
    parts = [
        f"{who} {used[f'{who}_first']:,.0f} MiB in the first quarter of the time, "
        f"{used[f'{who}_last']:,.0f} in the last"
        for who in ("driver", "worker")
    ]
    return f"{plain_table(HEADS, lines)}\n\nMemory of a million rows: {'; '.join(parts)}."


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="the exported model")
    parser.add_argument("--dense", type=Path, help="the model for sentence-transformers' pool")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--many", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--output", type=Path, help="write the rows and the machine as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = list(rates(given, Path(folder)))
        used = memory(given.many, Path(folder))
    print(table_of({"rows": rows, "memory": used}))
    if given.output is not None:
        config = base_config("predict rates", {"rows": given.rows, "rows_a_shard": SHARD}, [], [])
        content = {"config": config, "rows": rows, "memory": used}
        write_atomically(given.output, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
