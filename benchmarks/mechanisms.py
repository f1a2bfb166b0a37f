"""Every mechanism beside fused softmax, and beside the package one would install otherwise.

    python benchmarks/mechanisms.py

The attention core alone, 12 heads of 64, float32, random inputs, batch 1 unless said, taking turns
with ``softmax``. Cells are forward calls without gradients at 64 to 16,384 tokens on one thread,
also causal and padded (a batch of four with mixed lengths). Others are forward and backward on two
threads, and 65,536 tokens, without a partner, for what grows linearly. What grows quadratically
runs on one head where twelve would take minutes, and is multiplied by twelve; records say so
(``heads``, ``scaled``). Other packages are measured as whole modules and as cores (see
packages.py). Peak memory is what one call adds, each in a fresh process. What gains by
``sparing.compiled`` is measured beside its plain form.

About 45 minutes on two cores, scaled by ``--budget-minutes``. Finished cells stay in the output
folder: the same command goes on after any interruption, and ``--only`` with ``--overwrite``
measures parts again. The machine should have nothing else to do.

The process starts itself once more with the allocator pinned. Otherwise glibc moves its threshold
for fresh pages with what a process has freed, and timings depend on what ran before. It is set to
where that movement ends, 32 MiB, as in a process that has run for a while. In processes that
measure memory it stays where it starts, 128 KiB, so that freed blocks go back and only need counts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import date
from fnmatch import fnmatch
from pathlib import Path

from mechanism_cells import MOST_ROUNDS, Cell, Setup, plan
from sparing.core.errors import SparingError, Unsupported
from sparing.core.folder import Folder
from sparing.core.record import Record
from sparing.experiment.run import Run, open_run, write_atomically
from sparing.experiment.study import base_config
from sparing.measure.machine import machine, machine_id

MEMORY_THRESHOLD = str(128 * 2**10)
PINNED = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(64 * 2**20),
    "MALLOC_TOP_PAD_": "0",
    "OMP_NUM_THREADS": "2",
    "MKL_NUM_THREADS": "2",
    "MKL_DYNAMIC": "FALSE",
}


def do(run: Run, cells: Sequence[Cell], every: Sequence[Cell], minutes: float, stop: float) -> None:
    """Do the cells that are not finished, each written when it ends; say what is left."""
    finished = run.finished()
    todo = [cell for cell in cells if cell.key not in finished]
    scale = 60 * minutes / sum(cell.seconds for cell in every)
    start, done, failed = time.monotonic(), 0.0, []
    for number, cell in enumerate(todo):
        left = sum(later.seconds for later in todo[number:]) * scale
        elapsed = time.monotonic() - start
        if done:
            left *= elapsed / (done * scale)
        if elapsed > 60 * stop:
            print(
                f"stopped after {stop:g} minutes: {len(todo) - number} cells left", file=sys.stderr
            )
            break
        say = f"{number + 1}/{len(todo)} {cell.key}, about {left / 60:.0f} min left"
        print(say, file=sys.stderr, flush=True)
        try:
            records = cell.work(cell.seconds * scale)
        except Unsupported as error:
            records = [Record("skipped", None, "", "measured", {"reason": str(error)})]
        except (SparingError, RuntimeError, ValueError, TypeError, AttributeError) as error:
            line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            failed.append({"cell": cell.key, "error": line})
            print(f"  failed: {line}", file=sys.stderr)
            continue
        run.keep(cell.key, records)
        done += cell.seconds
    write_atomically(run.folder / "failed.json", json.dumps(failed, indent=1) + "\n")


def chosen(cells: Sequence[Cell], only: Sequence[str], lengths: Sequence[int]) -> list[Cell]:
    """The chosen cells: by a part of the key, a pattern, or the length it ends with."""
    selected = []
    for cell in cells:
        parts = cell.key.split("/")
        named = any(text in parts or fnmatch(cell.key, text) for text in only)
        if (named or not only) and (not lengths or int(parts[-1]) in lengths):
            selected.append(cell)
    return selected


def forget(run: Run, keys: set[str]) -> None:
    """Drop the records of these cells."""
    others = [record for record in run.log.read() if record.cell not in keys]
    write_atomically(run.log.path, "".join(record.to_json() + "\n" for record in others))


def pin() -> None:
    """Start this process once more with the allocator and the threads pinned."""
    if os.environ.get("SPARING_BENCHMARK_PINNED") != "1":
        environment = {**os.environ, **PINNED, "SPARING_BENCHMARK_PINNED": "1"}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    for name in PINNED:
        if name.startswith("MALLOC_"):
            os.environ.pop(name, None)
    os.environ["MALLOC_MMAP_THRESHOLD_"] = MEMORY_THRESHOLD  # for the processes started from here


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], help="linear, package, forward/*/512")
    parser.add_argument("--lengths", nargs="+", type=int, default=[], help="only these tokens")
    parser.add_argument("--budget-minutes", type=float, default=45.0, help="for all cells together")
    parser.add_argument("--stop-minutes", type=float, default=60.0, help="no cell begins later")
    parser.add_argument("--rounds", type=int, default=MOST_ROUNDS, help="at most, per cell")
    parser.add_argument("--overwrite", action="store_true", help="measure the chosen cells again")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument(
        "--output-dir", type=Path, help="default: benchmarks/results/mechanisms-..."
    )
    return parser.parse_args()


def folder_of(options: argparse.Namespace) -> Path:
    """Where the records go: one folder for a machine and a month."""
    if options.output_dir:
        return options.output_dir
    kind = "" if options.device == "cpu" else f"-{options.device}-{options.dtype}"
    name = f"mechanisms-{machine_id(machine())}{kind}-{date.today():%Y-%m}"
    return Path(__file__).parent / "results" / name


def earlier(folder: Path) -> list[dict[str, str]]:
    """Commit and start of each earlier run with records in the folder."""
    try:
        config = json.loads((folder / "config.json").read_text())
    except FileNotFoundError:
        return []
    this_run = {"commit": config["commit"], "started": config["started"]}
    return [*config.get("earlier", []), this_run]


def main() -> None:
    """Measure what is not measured yet."""
    options = arguments()
    pin()
    folder = folder_of(options)
    setup = Setup(options.device, options.dtype, rounds=options.rounds)
    arms = Folder("sparing.mechanisms", "mechanism").names()
    every = plan(setup, arms)
    cells = chosen(every, options.only, options.lengths)
    identity = {"heads": 12, "dim": 64, "device": options.device, "dtype": options.dtype}
    config = base_config("mechanisms", {**identity, "machine_id": machine_id(machine())})
    config["command"] = " ".join(["python", "benchmarks/mechanisms.py", *sys.argv[1:]])
    config["earlier"] = earlier(folder)
    config["allocator"] = {name: PINNED[name] for name in PINNED if name.startswith("MALLOC_")}
    config["allocator_for_memory"] = {"MALLOC_MMAP_THRESHOLD_": MEMORY_THRESHOLD}
    with open_run(folder, config) as run:
        if options.overwrite:
            forget(run, {cell.key for cell in cells})
        do(run, cells, every, options.budget_minutes, options.stop_minutes)
    (folder / ".lock").unlink(missing_ok=True)
    print(folder)


if __name__ == "__main__":
    main()
