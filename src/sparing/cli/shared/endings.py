"""How a command ends: signals, closed and full outputs, and one exit code for each."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import IO

from sparing.core.errors import one_line
from sparing.core.interrupts import Terminated, terminations_raised

FAILED, USED_WRONGLY, GOAL_MISSED, CELLS_FAILED = 1, 2, 3, 4
INTERRUPTED = 128 + signal.SIGINT
CLOSED_PIPE = 128 + signal.SIGPIPE


def say(message: str) -> None:
    """Print one line of at most 400 characters on stderr, if stderr is open."""
    note(one_line(f"sparing: {message}"))


def note(text: str = "") -> None:
    """Print on stderr; a stderr that is closed, full or a broken pipe is ignored."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def code_of(stop: KeyboardInterrupt) -> int:
    """130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
    return 128 + (stop.number if isinstance(stop, Terminated) else signal.SIGINT)


def reason_of(stop: KeyboardInterrupt) -> str:
    """The signal that ended a command, in words."""
    if not isinstance(stop, Terminated):
        return "interrupted"
    return f"ended by {signal.Signals(stop.number).name}"


def is_closed_pipe(error: BaseException) -> bool:
    """Whether the error comes from the closed reader of standard output."""
    if not isinstance(error, BrokenPipeError):
        return False
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def exit_code(command: Callable[[], int]) -> int:
    """Run a command, flush its output, and return the exit code."""
    _fill_closed_streams()
    if sys.stdout is None:
        say("standard output is closed: send it to a file or to /dev/null")
        return USED_WRONGLY
    if hasattr(sys.stdout, "reconfigure"):  # paths may be no text, terminals not UTF-8
        sys.stdout.reconfigure(errors="backslashreplace")
    with terminations_raised():
        try:
            code = _guarded(command)
        except KeyboardInterrupt as stop:
            code = code_of(stop)
    return _flushed(code)


def _guarded(command: Callable[[], int]) -> int:
    """The command's exit code, also when its parser cannot print."""
    try:
        return command()
    except KeyboardInterrupt as stop:
        say(reason_of(stop))
        return code_of(stop)
    except SystemExit as leaving:
        # click and rich exit with 1 when the reader of their help has closed the pipe
        if isinstance(leaving.__context__, BrokenPipeError):
            return CLOSED_PIPE
        return leaving.code if isinstance(leaving.code, int) else FAILED
    except OSError as error:
        return _of_output(error)


def _of_output(error: OSError) -> int:
    if is_closed_pipe(error):
        return CLOSED_PIPE
    say(f"cannot write standard output: {error.strerror or error}")
    return FAILED


def _flushed(code: int) -> int:
    """The exit code after both outputs were flushed; what cannot be written is dropped.

    Otherwise the interpreter tries again at its end, prints an error, and exits with 120.
    """
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        _drop(sys.stdout)
        if isinstance(error, BrokenPipeError):
            code = CLOSED_PIPE
        elif isinstance(error, OSError) and code != FAILED:  # a failure has printed its line
            code = _of_output(error)
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        _drop(sys.stderr)
    return code


def _drop(stream: IO[str]) -> None:
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        stream.flush()


def _fill_closed_streams() -> None:
    """Open the null device for a closed standard stream: else a file would get its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # for the process


def silence_others() -> None:
    """Print nothing any more, unless a launcher's variables name this process the first."""
    numbers = [os.environ.get(name, "0") for name in ("RANK", "WORLD_SIZE")]
    if all(text.isdigit() for text in numbers) and 0 < int(numbers[0]) < int(numbers[1]):
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
