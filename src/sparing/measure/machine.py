"""The origin of a number: the machine, its versions, the code, the thread count."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import torch

from sparing.core.errors import UsageError
from sparing.core.processor import instruction_sets
from sparing.core.version import __version__
from sparing.engines.children import output_of

Facts = dict[str, str | int | float]


def machine() -> Facts:
    """The fingerprint that is stored with every number.

    ``instructions`` are the instruction sets that matter to speed: "AMD EPYC" alone, the name in
    virtual machines, may have AVX2 or AVX-512. ``cores`` are physical cores and ``threads`` the
    logical processors that this process may use (the limit of a container or an affinity mask).
    ``accelerator`` is empty without one. It holds no host name, user name or path.
    """
    return {
        "cpu": _cpu_name(),
        "instructions": " ".join(instruction_sets()),
        "cores": psutil.cpu_count(logical=False) or psutil.cpu_count() or 1,
        "threads": usable_processors(),
        "memory_bytes": int(psutil.virtual_memory().total),
        "accelerator": _accelerator_name(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": _version("torch"),
        "transformers": _version("transformers"),
        "sparing": __version__,
    }


def machine_id(facts: Facts) -> str:
    """Eight hexadecimal digits: the same only for the same hardware and the same versions.

    Memory counts in whole gibibytes, since the kernel's own share changes from start to start.
    """
    rounded = {**facts, "memory_bytes": round(float(facts.get("memory_bytes", 0)) / 2**30)}
    text = json.dumps(rounded, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def commit() -> str:
    """The commit of the running code, with ``+`` when tracked files differ from it.

    Empty when the code is not in a git checkout: for example when installed, even if the
    environment is inside another project's checkout.
    """
    source = Path(__file__).resolve()
    if not _git(source.parent, "ls-files", "--error-unmatch", source.name):
        return ""
    revision = _git(source.parent, "rev-parse", "--short=12", "HEAD")
    changed = _git(source.parent, "status", "--porcelain", "--untracked-files=no", "--", ":/")
    return revision + ("+" if revision and changed else "")


def version_here() -> str:
    """The version of sparing in this process, with its commit where it is a checkout."""
    return version_text(__version__, commit())


def version_text(version: str, revision: str) -> str:
    """A version in words."""
    return f"sparing {version} ({revision})" if revision else f"sparing {version}"


def facts_of_node() -> Callable[[], tuple[str, str, str]]:
    """A function to send to other machines: their host name, processor and version of sparing.

    It is sent as code, since another machine may have no sparing, or another one.
    """

    def facts() -> tuple[str, str, str]:
        import socket

        try:
            from sparing.measure.machine import machine, version_here
        except ImportError:
            return socket.gethostname(), "", "no sparing like this one"
        return socket.gethostname(), str(machine()["cpu"]), version_here()

    return facts


@contextmanager
def threads(count: int | None) -> Iterator[int]:
    """Pin PyTorch's thread count inside the block, and return the count in effect.

    ``None`` leaves it. Raises ``UsageError`` for a count below one.
    """
    if count is not None and count < 1:
        raise UsageError(f"threads must be at least 1; got {count}")
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def synchronize() -> None:
    """Wait for the accelerator, if this process has used one: its calls return before they end."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    elif torch.backends.mps.is_available():
        torch.mps.synchronize()


def _cpu_name() -> str:
    """The processor's name; the kernel's name first, since Python's is often empty."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model") and value.strip():
            return value.strip()
    if platform.system() == "Darwin":
        brand = output_of(["sysctl", "-n", "machdep.cpu.brand_string"])
        if brand:
            return brand
    return platform.processor() or platform.machine() or "unknown"


def usable_processors() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _accelerator_name() -> str:
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return ", ".join(names)
    return "Apple MPS" if torch.backends.mps.is_available() else ""


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _git(folder: Path, *arguments: str) -> str:
    return output_of(["git", "-C", str(folder), *arguments])
