"""Start child processes: with a safe import path, and never outliving their parent.

``python -P -m sparing.engines.children MODULE PARENT`` is the child. It arranges to end when the
process ``PARENT`` does, and then calls ``MODULE.child()``.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

LOOK_EVERY_S = 0.5  # checks of the parent, where the kernel sends no signal
_environment = threading.Lock()  # it belongs to the whole process
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's prctl


def run_module(
    module: str,
    request: str,
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``child()`` of a module in a fresh Python process: ``request`` is its standard input.

    The child imports from where this process does. The working directory is not put in front (as
    ``python -m`` would): a file there could replace a library. If this process has it in its path,
    it comes last. ``environment`` is added to this one's.

    Raises ``subprocess.TimeoutExpired`` when the child takes longer than ``timeout_s``; it is then
    killed.
    """
    here = [os.getcwd()] if "" in sys.path else []
    paths = [*(path for path in sys.path if path), *here]
    return subprocess.run(
        [sys.executable, "-P", "-m", "sparing.engines.children", module, str(os.getpid())],
        input=request,
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, **(environment or {}), "PYTHONPATH": os.pathsep.join(paths)},
        timeout=timeout_s,
        check=False,
    )


@contextmanager
def variables(given: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for processes that start in the block, which has them to itself."""
    with _environment:
        before = {name: os.environ.get(name) for name in given}
        os.environ.update(given)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def output_of(command: Sequence[str], timeout_s: float = 10.0) -> str:
    """The output of a system command, or nothing when it fails or does not exist."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def end_with(parent: int) -> None:
    """Let this process be killed when its parent process ends."""
    signalled = False
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            prctl = ctypes.CDLL(None).prctl
            signalled = prctl(_SET_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0) == 0
    if os.getppid() != parent:  # the parent has ended already
        os._exit(1)
    if not signalled:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    """For kernels that send no signal when a parent ends."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    os._exit(1)


def main() -> None:
    """Run the child that the command line names."""
    module, parent = sys.argv[1:]
    end_with(int(parent))
    importlib.import_module(module).child()


if __name__ == "__main__":
    main()
