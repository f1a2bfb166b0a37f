"""The peak memory of a call: one fresh process for each measurement.

A process keeps the memory that its allocator once took. A second measurement in it would reuse the
memory of the first one and report too little. On a GPU the allocator itself counts.

``child`` runs in the fresh process: a request as JSON on standard input, the answer as JSON on
standard output, and nothing else there, also if the measured code prints.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import mmap
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
import torch.nn.functional as F

from sparing.core.errors import SparingError, UsageError, nearest
from sparing.core.heap import return_freed
from sparing.core.reading import parse_json
from sparing.engines.children import run_module

SAMPLE_EVERY_S = 0.001
LOADING_BYTES = 2 << 20  # memory for loading code in a process's first call
WEIGHT_FILES = (".safetensors", ".bin", ".pt")
_FROM_KERNEL = "the kernel's highest resident set during the call, less the one before it"
_FROM_LIFETIME = "the process's highest resident set ever, less the one before the call"
_FROM_SAMPLES = "resident set sampled every millisecond, less the one before: a lower bound"
_FROM_ALLOCATOR = "the CUDA allocator's peak during a second call, less what was held before it"


class MeasurementError(SparingError):
    """The measured code failed, so there is no number."""


class OutOfMemory(MeasurementError):
    """The measured code needed more memory than was available."""


@dataclass(frozen=True)
class PeakMemory:
    """The peak growth of memory during one call over the state before it.

    Memory that stays from building (weights, inputs) is not included; the call's output is.
    ``method`` states the measurement in a sentence; ``device`` is ``cpu`` (resident memory of the
    process) or ``cuda`` (memory of the device).
    """

    bytes: int
    obtained: Literal["measured"]
    device: str
    method: str


def peak_memory(
    target: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    threads: int = 1,
    timeout_s: float | None = None,
) -> PeakMemory:
    """Run one call in a fresh process and measure the growth of memory.

    ``target`` names a function as ``package.module:function``. Called with ``arguments`` (JSON
    values) it builds model and inputs and returns a call without arguments, which is measured. The
    process has this one's import path and runs on ``threads`` threads.

    Raises ``UsageError`` for a target or arguments that cannot be sent or found. Raises
    ``OutOfMemory`` when memory ran out, also when the kernel killed the process, and
    ``MeasurementError`` for every other failure.
    """
    request = _request(target, arguments or {}, threads)
    count = str(threads)
    environment = {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count}
    try:
        done = run_module(
            "sparing.measure.memory", request, environment=environment, timeout_s=timeout_s
        )
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(f"{target} did not finish within {timeout_s:g} seconds") from error
    return _answer(target, done)


def _request(target: str, arguments: Mapping[str, Any], threads: int) -> str:
    module, colon, function = target.partition(":")
    if not (module and colon and function):
        raise UsageError(f"{target!r} must be of the form 'package.module:function'")
    if threads < 1:
        raise UsageError(f"threads must be at least 1; got {threads}")
    try:
        return json.dumps({"target": target, "arguments": dict(arguments), "threads": threads})
    except (TypeError, ValueError) as error:
        raise UsageError(f"arguments for {target} must be JSON values: {error}") from error


def _answer(target: str, done: subprocess.CompletedProcess[str]) -> PeakMemory:
    try:
        answer = parse_json(done.stdout)
    except ValueError:
        raise _death(target, done) from None
    if "error" not in answer:
        return PeakMemory(**answer)
    kinds = {"usage": UsageError, "memory": OutOfMemory}
    raise kinds.get(answer["kind"], MeasurementError)(f"{target}: {answer['error']}")


def _death(target: str, done: subprocess.CompletedProcess[str]) -> MeasurementError:
    """The error for a process that ended without an answer."""
    if done.returncode == -signal.SIGKILL:
        return OutOfMemory(f"{target}: the process was killed, most likely for lack of memory")
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        return MeasurementError(f"{target}: the process was ended by {name}")
    lines = done.stderr.strip().splitlines() or ["no message"]
    return MeasurementError(f"{target}: the process ended ({done.returncode}): {lines[-1]}")


def child() -> None:
    """Answer the request on standard input; prints of the measured code go to standard error."""
    sys.stdout.flush()
    answer_to = os.dup(1)
    os.dup2(2, 1)
    request = parse_json(sys.stdin.read())
    try:
        answer = _measure(**request)
    except UsageError as error:
        answer = {"error": str(error), "kind": "usage"}
    except BaseException as error:
        answer = {
            "error": f"{type(error).__name__}: {_first_line(error)}",
            "kind": "memory" if _lacked_memory(error) else "other",
        }
    with os.fdopen(answer_to, "w") as file:
        json.dump(answer, file)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _lacked_memory(error: BaseException) -> bool:
    """Whether memory ran out; PyTorch's CPU allocator reports it only in its message."""
    words = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    )


def _measure(target: str, arguments: dict[str, Any], threads: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    build = _find(target)
    call = build(**arguments)
    if not callable(call):
        raise UsageError(f"it must return a call without arguments, not {type(call).__name__}")
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        grown, method, device = _cuda_growth(call), _FROM_ALLOCATOR, "cuda"
    else:
        (grown, method), device = _resident_growth(call), "cpu"
    return {"bytes": grown, "obtained": "measured", "device": device, "method": method}


def _find(target: str) -> Callable[..., Any]:
    name, _, function = target.partition(":")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(f"no module {error.name!r}") from error
    symbol = getattr(module, function, None)
    if not callable(symbol):
        raise UsageError(f"{name} has no function {function!r}{nearest(function, vars(module))}")
    return symbol  # type: ignore[no-any-return]


def _cuda_growth(call: Callable[[], object]) -> int:
    """Growth of the device's memory in a second call: libraries allocate workspace in the first.

    The allocator counts exactly, so memory that it kept from the first call does not matter.
    """
    call()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    output = call()
    torch.cuda.synchronize()
    del output
    return max(0, torch.cuda.max_memory_allocated() - before)


def _resident_growth(call: Callable[[], object]) -> tuple[int, str]:
    """Growth of resident memory in the first call, and the method."""
    _load_kernels()
    _read_mapped_weights()
    gc.collect()
    return_freed()  # the call must not reuse it
    lifetime_before = _lifetime_peak()
    before = psutil.Process().memory_info().rss
    if _reset_kernel_peak():
        output = call()
        peak = _kernel_peak()
        del output
        return max(0, peak - before), _FROM_KERNEL
    sampled = _sampled_peak(call)
    lifetime = _lifetime_peak()
    if lifetime > lifetime_before:
        return max(0, lifetime - before), _FROM_LIFETIME
    return max(0, sampled - before), _FROM_SAMPLES


def _load_kernels() -> None:
    """Let PyTorch load everything that a first call loads, on tensors too small to count."""
    x = torch.ones(1, 2, 8, 8, requires_grad=True)
    mixed = F.scaled_dot_product_attention(x, x, x)
    torch.autograd.grad((F.linear(mixed, torch.ones(8, 8)).softmax(-1) @ x).sum(), x)


def _read_mapped_weights() -> None:
    """Touch every page of weights that are mapped from a file; else the first call reads them.

    transformers maps weights on loading: without this a pretrained model's call would seem to need
    all of its weights once more.
    """
    maps = Path("/proc/self/maps")
    for line in maps.read_text().splitlines() if maps.exists() else ():
        addresses, allowed, *rest = line.split(maxsplit=5)
        if rest[-1].endswith(WEIGHT_FILES) and allowed.startswith("r"):
            start, end = (int(number, 16) for number in addresses.split("-"))
            pages = (ctypes.c_ubyte * (end - start)).from_address(start)
            bytes(memoryview(pages)[:: mmap.PAGESIZE])


def _reset_kernel_peak() -> bool:
    """Reset the kernel's record of the highest resident set to the present one, where allowed."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _kernel_peak() -> int:
    """The highest resident set since the reset, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise MeasurementError("/proc/self/status has no VmHWM")


def _lifetime_peak() -> int:
    """The highest resident set since the process began, in bytes; macOS counts in bytes itself."""
    peak = int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return peak if sys.platform == "darwin" else 1024 * peak


def _sampled_peak(call: Callable[[], object]) -> int:
    """The highest resident set that a sampling thread measured during the call, in bytes."""
    process, done = psutil.Process(), threading.Event()
    seen: list[int] = [process.memory_info().rss]

    def sample() -> None:
        while not done.is_set():
            seen.append(process.memory_info().rss)
            time.sleep(SAMPLE_EVERY_S)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        output = call()
        seen.append(process.memory_info().rss)
        del output
    finally:
        done.set()
        sampler.join()
    return max(seen)
