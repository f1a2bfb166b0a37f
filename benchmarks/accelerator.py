"""Efficient attention beside fused dense attention on an accelerator, in about four minutes.

    python -m pip install --target build/device fla-core einops jaxtyping psutil pytest
    PYTHONPATH=src:build/device python benchmarks/accelerator.py --output FILE

Where PyTorch is installed nothing else is needed; no network is used. The tests of paths that need
the device run first, then the cells, most telling first. Each is timed in turns with fused dense
attention under the same mask: forward at 4,096, 16,384 and 65,536 tokens, and training at 16,384.
Batch times tokens is 16,384, and 65,536 is one row. Every finished cell is written at once; the
same command goes on after a stop. ``--table`` prints what is there. A cell that misses its goal is
profiled, and its record has the longest kernels with their times.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sparing.core.catalogue import mechanism, mechanism_class
from sparing.core.errors import Unsupported
from sparing.core.execution.path import call_of, choose, forced
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.writing import append
from sparing.measure.latency import paired_latency
from sparing.measure.machine import commit, machine
from sparing.mechanisms.shared.bands.flex import compilations

ROOT = Path(__file__).parents[1]
LENGTHS = (4096, 16384, 65536)
AT_ONCE = 16384
TRAINED = 16384
LEAST_OF_TRAINING = 0.7
ROUNDS, SAMPLE_MS, BUDGET_S = 10, 3.0, 1.5
KERNELS = 8
TESTS = ("tests/mechanisms/test_accelerator.py", "tests/mechanisms/test_device_paths.py")
Call = Callable[[], object]


@dataclass(frozen=True)
class Cell:
    """A mechanism under one mask on one path, and the least speed over dense at each length."""

    arm: str
    causal: bool = False
    path: str = ""
    goals: tuple[float, float, float] | None = None

    @property
    def name(self) -> str:
        """Such as "linear causal accelerator"."""
        return " ".join([self.arm, *["causal"] * self.causal, *[self.path] * bool(self.path)])


LINEAR, FEATURES, BLOCKS, LOW_RANK = (1.5, 8, 60), (0.6, 3, 20), (0.8, 3, 12), (0.8, 4, 25)
CELLS = (
    Cell("linear", goals=LINEAR),
    Cell("window", goals=(2.5, 9, 60)),
    Cell("linear", causal=True, path="fla", goals=(0.2, 1.2, 5)),
    Cell("linear", causal=True, path="accelerator", goals=(0.1, 0.6, 2.5)),
    Cell("performer", goals=FEATURES),
    Cell("nystrom", goals=LOW_RANK),
    Cell("bigbird", goals=BLOCKS),
    Cell("kerformer", goals=LINEAR),
    Cell("efficient", goals=LINEAR),
    Cell("local", goals=(2.95, 12.2, 104.5)),
    Cell("linformer", goals=(1.8, 8.0, 78.9)),
    Cell("kerformer", causal=True, path="fla", goals=(0.2, 1.2, 5)),
    Cell("kerformer", causal=True, path="accelerator", goals=(0.1, 0.6, 2.5)),
    Cell("window", causal=True, goals=(2.5, 9, 60)),
    Cell("longformer", goals=BLOCKS),
    Cell("strided", goals=BLOCKS),
    Cell("skyformer", goals=LOW_RANK),
    Cell("dct", goals=LOW_RANK),
    Cell("cosformer", goals=FEATURES),
    Cell("random_features", goals=FEATURES),
    Cell("efficient", causal=True, path="accelerator", goals=(0.1, 0.6, 2.5)),
    Cell("cosformer", causal=True),
    Cell("performer", causal=True, path="fla"),
    Cell("performer", causal=True, path="accelerator"),
    Cell("random_features", causal=True),
    Cell("bigbird", causal=True),
    Cell("local", causal=True),
    Cell("strided", causal=True),
    Cell("longformer", causal=True),
    Cell("reformer"),
)


@dataclass(frozen=True)
class Setup:
    """Where and how large; ``path`` is forced in cells that name none."""

    device: str = "cuda"
    dtype: str = "bfloat16"
    lengths: tuple[int, ...] = LENGTHS
    heads: int = 12
    dim: int = 64
    path: str = ""

    @property
    def trained(self) -> int:
        """The length at which training is timed."""
        return TRAINED if TRAINED in self.lengths else max(self.lengths)

    def batch(self, tokens: int) -> int:
        """How many rows hold ``AT_ONCE`` tokens, at least one."""
        return max(1, min(AT_ONCE, max(self.lengths)) // tokens)

    def streams(self, made: Mechanism, tokens: int, *, training: bool) -> list[Tensor]:
        """Normal random inputs on the device."""
        batch, width = self.batch(tokens), self.heads * self.dim
        generator = torch.Generator(self.device).manual_seed(0)
        shapes = {"x": (batch, tokens, width)}
        inside = (batch, self.heads, tokens, self.dim)
        return [
            torch.randn(
                shapes.get(name, inside),
                generator=generator,
                device=self.device,
                dtype=getattr(torch, self.dtype),
                requires_grad=training,
            )
            for name in made.streams
        ]


def measure(cell: Cell, setup: Setup) -> Iterator[dict[str, Any]]:
    """Every length of a cell, then training; what does not fit or is refused says so."""
    for number, tokens in enumerate(setup.lengths):
        goal = cell.goals[number] if cell.goals and setup.lengths == LENGTHS else None
        yield {**one(cell, setup, tokens, goal=goal, training=False), "goal": goal}
    goal = cell.goals[1] * LEAST_OF_TRAINING if cell.goals and setup.lengths == LENGTHS else None
    yield {**one(cell, setup, setup.trained, goal=goal, training=True), "goal": goal}


def one(
    cell: Cell, setup: Setup, tokens: int, *, goal: float | None, training: bool
) -> dict[str, Any]:
    """The speed over fused dense attention at one length, with its interval."""
    row: dict[str, Any] = {"tokens": tokens, "training": training}
    started = time.perf_counter()
    try:
        heads = Heads(setup.heads, setup.dim, width=setup.heads * setup.dim, tokens=tokens)
        made = mechanism(cell.arm, heads).to(setup.device, getattr(torch, setup.dtype))
        made.train(training)
        streams = setup.streams(made, tokens, training=training)
        mask = Mask(causal=cell.causal)
        path = cell.path or setup.path
        with forced(path) if path else nullcontext():
            request = call_of(streams, tokens, causal=cell.causal, padded=False)
            row["path"] = choose(made, request).path
            row |= _timed(cell, made, streams, mask, training=training)
            row["compiled_kernels"] = compilations()
            if goal is not None and row["speed"] < goal and setup.device == "cuda":
                row["kernels"] = _kernels(_call(made, streams, mask, training=training))
    except Unsupported as refusal:
        row["refused"] = str(refusal).rpartition(": ")[2]
    except torch.OutOfMemoryError:
        row["refused"] = "out of memory"
    row["seconds"] = round(time.perf_counter() - started, 1)
    return row


def _timed(
    cell: Cell, made: Mechanism, streams: list[Tensor], mask: Mask, *, training: bool
) -> dict[str, Any]:
    calls = {
        "dense": _dense(streams, causal=cell.causal, training=training),
        "efficient": _call(made, streams, mask, training=training),
    }
    times = paired_latency(
        calls,
        baseline="efficient",
        rounds=ROUNDS,
        min_sample_ms=SAMPLE_MS,
        budget_s=BUDGET_S,
        threads=None,
    )
    ratio = times["dense"].ratio
    return {
        "speed": ratio.value,
        "interval": ratio.interval,
        "rounds": ratio.count,
        "dense_ms": times["dense"].p50_ms,
        "efficient_ms": times["efficient"].p50_ms,
    }


def _call(made: Mechanism, streams: list[Tensor], mask: Mask, *, training: bool) -> Call:
    if not training:

        def forward() -> object:
            with torch.inference_mode():
                return made(*streams, mask=mask)

        return forward
    inputs = [*streams, *made.parameters()]
    return _backward(lambda: made(*streams, mask=mask), inputs)


def _dense(streams: list[Tensor], *, causal: bool, training: bool) -> Call:
    """Fused dense attention with as many heads; q serves as the stream that a mechanism lacks."""
    inside = [stream for stream in streams if stream.ndim == 4]
    q, k, v = (inside * 3)[:3]
    if training:
        attend = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal)  # noqa: E731
        return _backward(attend, list({id(part): part for part in (q, k, v)}.values()))

    def forward() -> object:
        with torch.inference_mode():
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return forward


def _backward(forward: Callable[[], Tensor], inputs: Sequence[Tensor]) -> Call:
    ones = torch.ones_like(forward())

    def call() -> object:
        return torch.autograd.grad(forward(), inputs, ones, allow_unused=True)

    return call


def _kernels(call: Call) -> list[tuple[str, float]]:
    """The longest kernels of one call, in microseconds."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        call()
        torch.cuda.synchronize()
    events = sorted(profile.key_averages(), key=lambda event: -event.device_time_total)
    return [(event.key[:80], round(event.device_time_total, 1)) for event in events[:KERNELS]]


def device_tests(device: str) -> dict[str, Any]:
    """The tests of paths that need the device, in a process of their own."""
    if device != "cuda" or importlib.util.find_spec("pytest") is None:
        return {"cell": "tests", "refused": "they need a CUDA device and pytest"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "gpu", "-p", "no:cacheprovider"]
    ended = subprocess.run([*command, *TESTS], cwd=ROOT, capture_output=True, text=True)
    return {"cell": "tests", "code": ended.returncode, "said": ended.stdout.splitlines()[-12:]}


def finished(file: Path) -> dict[str, dict[str, Any]]:
    """Cells that the file holds already, by name."""
    if not file.exists():
        return {}
    rows = (json.loads(line) for line in file.read_text().splitlines() if line.endswith("}"))
    return {row["cell"]: row for row in rows}


def run(file: Path, setup: Setup, seconds: float, names: Sequence[str]) -> None:
    """Measure what the file lacks until the time is over."""
    started = time.monotonic()
    done = finished(file)
    facts = {"machine": machine(), "commit": commit(), "setup": vars(setup)}
    if "tests" not in done and not names:
        _add(file, device_tests(setup.device) | facts)
    for cell in CELLS:
        if cell.name in done or (names and cell.name not in names):
            continue
        if time.monotonic() - started > seconds:
            print(f"{seconds:g} s are over; the same command goes on with {cell.name!r}")
            return
        rows = list(measure(cell, setup))
        _add(file, {"cell": cell.name, "rows": rows} | facts)
        print(f"{time.monotonic() - started:5.0f} s  {cell.name}: {line_of(rows)}", flush=True)


def _add(file: Path, row: dict[str, Any]) -> None:
    append(file, f"{json.dumps(row)}\n".encode())


def line_of(rows: Sequence[dict[str, Any]]) -> str:
    """Speeds in one line."""
    parts = []
    for row in rows:
        where = f"{row['tokens']}{' training' if row['training'] else ''}"
        value = row.get("refused") or f"{row['speed']:.2f} ({row['path']})"
        parts.append(f"{where}: {value}")
    return "; ".join(parts)


def table_of(done: dict[str, dict[str, Any]]) -> str:
    """Speeds over dense, with intervals; a missed goal has its goal behind it."""
    lines = []
    for name, cell in done.items():
        if name != "tests":
            cells = [_shown(row) for row in cell["rows"]]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    rows = next((cell["rows"] for cell in done.values() if "rows" in cell), [])
    heads = [f"{row['tokens']:,}{' training' if row['training'] else ''}" for row in rows]
    rule = "| --- " * (len(heads) + 1) + "|"
    return "\n".join([f"| cell | {' | '.join(heads)} |", rule, *lines])


def _shown(row: dict[str, Any]) -> str:
    if "refused" in row:
        return "refused"
    text = f"{row['speed']:.2f}"
    if row["interval"]:
        text += f" ({row['interval'][0]:.2f} to {row['interval'][1]:.2f})"
    goal = row["goal"]
    return text if goal is None or row["speed"] >= goal else f"{text}, goal {goal:g}"


def main() -> None:
    """Measure, or print the table of what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--tokens", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--path", default="", help="force a path, such as accelerator on a CPU")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--only", nargs="*", default=[], choices=[cell.name for cell in CELLS])
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.table:
        print(table_of(finished(given.output)))
        return
    for cell in CELLS:
        mechanism_class(cell.arm)  # a missing one is an error before the first minute
    sizes = tuple(given.tokens), given.heads, given.dim
    setup = Setup(given.device, given.dtype, *sizes, given.path)
    run(given.output, setup, given.seconds, given.only)


if __name__ == "__main__":
    main()
