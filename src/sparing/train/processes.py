"""Training in several processes: joining those of a launcher, and starting them."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed.rendezvous import rendezvous
from torch.multiprocessing.spawn import (
    ProcessExitedException,
    ProcessRaisedException,
    start_processes,
)

from sparing.core import errors
from sparing.core.errors import Diverged, ProcessLost, SparingError, Unsupported, UsageError
from sparing.core.interrupts import SIGNALS, Terminated, terminations_raised
from sparing.core.ranks import is_first, is_joined, world
from sparing.core.reading import parse_json
from sparing.engines.children import variables

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
PATIENCE = timedelta(hours=24)  # process 0 may evaluate for long; one that ends is noticed at once
ACKNOWLEDGED_S = 5.0
GRACE_S = 15.0
LOOPBACK = "127.0.0.1"
ERROR, HEARD, CODE = "sparing/error", "sparing/heard", "sparing/code"
RESUMES = "the same command resumes from the last checkpoint"
_stores: list[Any] = []
_passed: list[Exception] = []  # those that other processes know already


def environment_world(environment: Mapping[str, str] | None = None) -> int:
    """How many processes the launcher's variables announce; 1 without a launcher.

    Raises ``UsageError`` where they are not whole or accelerate has started one process of several,
    and ``Unsupported`` for a launcher's FSDP or DeepSpeed.
    """
    given = os.environ if environment is None else environment
    processes = _number(given, "WORLD_SIZE", 1)
    if processes == 1:
        _require_whole(given)
        return 1
    missing = [name for name in NEEDED if not given.get(name)]
    if missing:
        raise UsageError(
            f"WORLD_SIZE is {processes}, but {missing[0]} is not set: start with torchrun, "
            "accelerate launch or --processes, or unset WORLD_SIZE"
        )
    number = _number(given, "RANK", 0)
    if not 0 <= number < processes:
        raise UsageError(f"RANK is {number}, but WORLD_SIZE is {processes}: it must be below")
    for name in ("FSDP", "DEEPSPEED"):
        if given.get(f"ACCELERATE_USE_{name}", "").lower() == "true":
            raise Unsupported(
                f"train copies the whole model to each process and does not support {name}: from "
                "about 1 billion parameters on it is needed; below, launch without it"
            )
    return processes


def _require_whole(given: Mapping[str, str]) -> None:
    """Refuse what ``accelerate launch --cpu`` makes of several processes without mpirun."""
    on_cpu = given.get("ACCELERATE_USE_CPU", "").lower() == "true"
    if on_cpu and given.get("MASTER_ADDR") and not given.get("WORLD_SIZE"):
        raise UsageError(
            "accelerate launch --cpu has started one process of several: give --multi_gpu instead, "
            "which needs no GPU, or torchrun"
        )


def _number(given: Mapping[str, str], name: str, otherwise: int) -> int:
    value = given.get(name, str(otherwise))
    if not value.strip().isdigit() or (name == "WORLD_SIZE" and int(value) < 1):
        raise UsageError(f"{name} is {value!r}: a launcher sets it to a whole number")
    return int(value)


def join(*, cpu: bool) -> int:
    """Join the processes of the launcher, once in this process; returns how many there are.

    Raises ``UsageError`` where there are fewer accelerators than processes on this machine.
    """
    processes = environment_world()
    if processes == 1 or is_joined():
        return world()
    if not cpu:
        _take_accelerator(processes)
    backend = "gloo" if cpu else "cpu:gloo,cuda:nccl"
    store, number, _ = next(rendezvous("env://", timeout=PATIENCE))
    if not _stores:
        _stores.append(PrefixStore("sparing", store))
    dist.init_process_group(
        backend, store=store, rank=number, world_size=processes, timeout=PATIENCE
    )
    return processes


def _take_accelerator(processes: int) -> None:
    here = _number(os.environ, "LOCAL_WORLD_SIZE", processes)
    count = torch.cuda.device_count()
    if here > count:
        raise UsageError(
            f"{here} processes for {count} GPUs: start at most one for each, or train on the CPU "
            "with --set recipe.device=cpu"
        )
    torch.cuda.set_device(_number(os.environ, "LOCAL_RANK", 0))


@contextmanager
def errors_shared() -> Iterator[None]:
    """Let every process raise the error of the one that failed, instead of a lost connection.

    One that all raise at the same time changes nothing: they may go on together.
    """
    try:
        yield
    except Exception as error:
        if world() == 1 or error in _passed or isinstance(error, Diverged):
            raise
        _passed.append(_shared(error))
        if _passed[-1] is error:
            raise
        raise _passed[-1] from error


def known_to_all(error: Exception) -> bool:
    """Whether all processes end with this error."""
    return error in _passed


def _shared(error: Exception) -> Exception:
    if not _stores:
        return ProcessLost(_lost()) if _is_lost(error) else error
    store = _stores[0]
    if _is_lost(error):
        heard = _read(store, ERROR, 2.0)
        _write(store, HEARD, "1")
        return ProcessLost(_lost()) if heard is None else read_error(heard)
    _write(store, ERROR, write_error(error))
    if is_first():
        _write(store, HEARD, "1")
        return error
    with suppress(Exception):
        dist.destroy_process_group()  # process 0 may wait for this one: it notices now
    if _read(store, HEARD, ACKNOWLEDGED_S) is None:
        sys.stderr = sys.__stderr__  # process 0 hangs: this one reports, even if it was silenced
    return error


def _lost() -> str:
    return f"another process of this training ended; {RESUMES}"


def _is_lost(error: Exception) -> bool:
    """Whether an exchange failed because another process is gone."""
    if isinstance(error, dist.DistError):
        return True
    signs = ("gloo", "Connection closed", "Connection reset", "NCCL", "Broken pipe")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


def write_error(error: BaseException) -> str:
    """An error as text for another process."""
    known = isinstance(error, SparingError)
    return json.dumps([type(error).__name__ if known else "", str(error) or repr(error)])


def read_error(text: str) -> Exception:
    """An error of ``write_error``; of another kind becomes ``RuntimeError``."""
    kind, message = parse_json(text)
    known = getattr(errors, kind) if kind in vars(errors) else RuntimeError
    made: Exception = known(message)
    return made


def _read(store: Any, key: str, seconds: float) -> str | None:
    """A value of the store, waited for; None where it does not come."""
    try:
        store.wait([key], timedelta(seconds=seconds))
        return bytes(store.get(key)).decode()
    except Exception:
        return None


def _write(store: Any, key: str, value: str) -> None:
    with suppress(Exception):  # its owner may be gone
        store.set(key, value)


def run_in(processes: int, function: Callable[..., int | None], *arguments: Any) -> int:
    """Call a function in ``processes`` new processes of this machine, which train together.

    Returns what it returns in process 0: an exit code, or 0. It must be importable and its
    arguments picklable. Each process has one thread unless ``OMP_NUM_THREADS`` says otherwise.
    Ctrl-C and SIGTERM are passed on to all of them. When one fails, the others end, and its error
    is raised here: ``ProcessLost`` for one that was killed.
    """
    if processes < 1:
        raise UsageError(f"processes must be at least 1; got {processes}")
    store = _store()
    given = {
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    given["TORCH_CPP_LOG_LEVEL"] = os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")
    if sys.platform == "linux":
        given["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    with variables(given):
        context = start_processes(  # type: ignore[no-untyped-call]
            _one, (given, function, arguments), processes, join=False, start_method="spawn"
        )
    with _passed_on(context) as received:
        failed = _wait(context)
    if received:
        raise KeyboardInterrupt if received[0] == signal.SIGINT else Terminated(received[0])
    if failed:
        error = _read(PrefixStore("sparing", store), ERROR, 0.1)
        raise _failure([process.exitcode or 0 for process in context.processes], error)
    return int(_read(PrefixStore("sparing", store), CODE, ACKNOWLEDGED_S) or 0)


def _store() -> TCPStore:
    """The table that processes meet by; it listens on this machine alone, as torch's own does not.

    Raises ``OSError`` where no port is free.
    """
    listening = socket.socket()
    listening.bind((LOOPBACK, 0))
    listening.listen()
    port = listening.getsockname()[1]
    return TCPStore(
        LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach()
    )


def _wait(context: Any) -> bool:
    """Wait for all processes; returns whether one failed, after which the others were ended."""
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
    try:
        while not context.join(timeout=0.5, grace_period=GRACE_S):
            pass
    except (ProcessExitedException, ProcessRaisedException):
        return True
    return False


def _failure(codes: list[int], error: str | None) -> BaseException:
    """What to raise for the exit codes of all processes; a signal's are negative."""
    if error is not None:
        return read_error(error)
    for number, code in enumerate(codes):
        if code in (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS):
            name = signal.Signals(-code).name
            return ProcessLost(f"process {number} of {len(codes)} ended by {name}; {RESUMES}")
    signals = {code - 128 if code > 128 else -code for code in codes}
    for number in SIGNALS:  # processes that it did not reach end as by Ctrl-C
        if number in signals:
            return Terminated(number)
    if signal.SIGINT in signals:
        return KeyboardInterrupt()
    return ProcessLost(f"a process of {len(codes)} ended with exit code {max(codes)}; {RESUMES}")


@contextmanager
def _passed_on(context: Any) -> Iterator[list[int]]:
    """Pass signals on to all processes, which end the step; the list has those that arrived."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def pass_on(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for process in context.processes:
            if process.is_alive():
                with suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _one(
    number: int, given: Mapping[str, str], function: Callable[..., int | None], arguments: Any
) -> None:
    """One process: its variables, its own group so that a terminal's Ctrl-C comes once."""
    os.setpgid(0, 0)
    os.environ.update(given, RANK=str(number), LOCAL_RANK=str(number))
    store = TCPStore(given["MASTER_ADDR"], int(given["MASTER_PORT"]), is_master=False)
    _stores.append(PrefixStore("sparing", store))
    code = 0
    with terminations_raised():
        try:
            with errors_shared():
                done = function(*arguments)
            if number == 0:
                _write(_stores[0], CODE, str(done or 0))
        except KeyboardInterrupt as stop:
            code = 128 + (stop.number if isinstance(stop, Terminated) else signal.SIGINT)
        except Exception as error:
            code = 1
            if not isinstance(error, ProcessLost):
                _write(_stores[0], ERROR, write_error(error))
    sys.stdout.flush()
    sys.exit(code)
