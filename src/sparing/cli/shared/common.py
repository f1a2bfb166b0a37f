"""What all verbs share: errors in one line, JSON on stdout, progress on stderr."""

from __future__ import annotations

import functools
import json
import logging
import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, ParamSpec, TypeVar

import typer

from sparing.cli.shared.endings import (
    CLOSED_PIPE,
    FAILED,
    USED_WRONGLY,
    code_of,
    is_closed_pipe,
    note,
    reason_of,
    say,
)
from sparing.core.errors import (
    SparingError,
    UsageError,
    is_full,
    lacks_memory,
    one_line,
    option_form,
)

# Options that several verbs have.
Data = Annotated[Path | None, typer.Option(help="Folder of the task's data.")]
Overwrite = Annotated[bool, typer.Option(help="Delete the folder's run and start again.")]
Plan = Annotated[
    bool, typer.Option("--plan", help="Show the steps and how long they take; run nothing.")
]
TaskSettings = Annotated[
    list[str] | None, typer.Option("--set", help="An option of the task, such as patch_size=2.")
]
MechanismSettings = Annotated[
    list[str] | None, typer.Option("--set", help="An option of the mechanism, such as slots=32.")
]
Processes = Annotated[
    int,
    typer.Option(min=0, help="Cells side by side, not one training; 0: one, or a cluster's all."),
]
Engine = Annotated[str, typer.Option(help="Where cells run: local or ray.")]
Address = Annotated[str, typer.Option(help="A Ray cluster: auto, local or HOST:PORT.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
QUOTED = 300  # characters of an internal error
DETAIL_SECONDS = 10.0  # between two log lines on the progress of one cell
RESUMES = "resumes"  # the argument of KeyboardInterrupt in verbs that can resume only sometimes
# How a verb takes a task's options, if not by --set task_options.NAME=VALUE.
TASK_OPTIONS = {
    "agree": "--{}",
    "evaluate": "--set {}",
    "predict": "--{}",
    "prune": "--set {}",
}
RESUMABLE = ("compare", "predict", "search", "slim", "study", "train")
LEAST_SECONDS, LEAST_SHARE = 5.0, 0.01  # no estimate before
P = ParamSpec("P")
R = TypeVar("R")


def verb(function: Callable[P, R]) -> Callable[P, R]:
    """Turn the errors of a verb into one line on stderr and an exit code."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        verb_name = function.__module__.rpartition(".")[2]
        try:
            with spoken(verb_name):
                return function(*args, **kwargs)
        except KeyboardInterrupt as stop:
            hint = "; finished work is saved: the same command resumes it"
            resumable = verb_name in RESUMABLE or RESUMES in stop.args
            say(reason_of(stop) + (hint if resumable else ""))
            raise typer.Exit(code_of(stop)) from None
        except (typer.Exit, SystemExit):
            raise
        except Exception as error:
            if is_closed_pipe(error):
                raise typer.Exit(CLOSED_PIPE) from None
            message, code = _described(error)
            say(message)
            raise typer.Exit(code) from None

    return guarded


@contextmanager
def spoken(verb_name: str) -> Iterator[None]:
    """Messages inside name options as the command line writes them; notes on files are printed."""
    with option_form(TASK_OPTIONS.get(verb_name, "--set task_options.{}")), _source_notes():
        yield


class _Notes(logging.Handler):
    """Prints the notes on a task's files, without repeats."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print the line, unless it was printed before."""
        line = record.getMessage()
        if line not in self.printed:
            self.printed.add(line)
            note(one_line(line))


@contextmanager
def _source_notes() -> Iterator[None]:
    """Print on stderr what the tasks log about their files."""
    logger, notes = logging.getLogger("sparing.tasks"), _Notes()
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(notes)
    try:
        yield
    finally:
        logger.removeHandler(notes)
        logger.setLevel(before)


def _described(error: Exception) -> tuple[str, int]:
    """The message for an error, and the exit code."""
    if isinstance(error, UsageError):
        return str(error), FAILED if is_full(error.__cause__) else USED_WRONGLY
    if lacks_memory(error):
        return f"there is not enough memory: {_first_line(error)}", FAILED
    if isinstance(error, SparingError):
        return str(error), FAILED
    if isinstance(error, OSError):
        return _first_line(error), FAILED
    if os.environ.get("SPARING_LOG_LEVEL", "").lower() == "debug":
        note(traceback.format_exc())
    kind = type(error).__name__
    hint = "(SPARING_LOG_LEVEL=debug shows more)"
    return f"internal error, {kind}: {_first_line(error)[:QUOTED]} {hint}", FAILED


def _first_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        path = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{path}"
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def emit(value: object) -> None:
    """Print one JSON object on stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=str))


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Callable[[float, str], None]]:
    """A bar on stderr; plain lines if stderr is not a terminal; nothing if quiet."""
    if quiet:
        yield lambda fraction, text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    left = TimeLeft()
    console = Console(stderr=True)
    if not console.is_terminal:
        yield left.added_to(_plain_lines())
        return
    columns = (
        TextColumn("{task.description:<32.32}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
    )
    rest = (TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, *rest, console=console) as bar:
        task = bar.add_task("", total=1.0, left="")
        yield lambda fraction, text: bar.update(
            task, completed=fraction, description=text, left=left(fraction)
        )


class TimeLeft:
    """Called with the progress from 0 to 1: the time left in words, or nothing yet.

    Work before the first call does not count: it took this process no time.
    """

    def __init__(self) -> None:
        self._start, self._first, self._last = time.monotonic(), -1.0, 0.0

    def __call__(self, fraction: float) -> str:
        """Words such as ``about 3 min left``."""
        if self._first < 0 or fraction < self._last:
            self._start, self._first = time.monotonic(), fraction
        self._last = fraction
        elapsed, done = time.monotonic() - self._start, fraction - self._first
        if elapsed < LEAST_SECONDS or done < LEAST_SHARE or fraction >= 1:
            return ""
        return f"about {in_words(elapsed * (1 - fraction) / done)} left"

    def added_to(self, show: Callable[[float, str], None]) -> Callable[[float, str], None]:
        """The same progress, with the time left in brackets after every text."""
        last = ""

        def shown(fraction: float, text: str) -> None:
            nonlocal last
            left = self(fraction)
            if text != last:
                show(fraction, f"{text} [{left}]" if left else text)
            last = text

        return shown


def in_words(seconds: float) -> str:
    """Seconds in words: 40 s, 3 min, 2.5 h."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _plain_lines() -> Callable[[float, str], None]:
    """One line a cell, and its progress every ``DETAIL_SECONDS``: for logs."""
    last, printed_at = "", 0.0

    def show(fraction: float, text: str) -> None:
        nonlocal last, printed_at
        now = time.monotonic()
        detail = ": " in text and text.partition(": ")[0] == last.partition(": ")[0]
        if text == last or (detail and now - printed_at < DETAIL_SECONDS):
            return
        note(f"{fraction:4.0%} {text}")
        last, printed_at = text, now

    return show


def numbers(text: str, option: str) -> list[int]:
    """Whole numbers separated by commas; ``UsageError`` with the option otherwise."""
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise UsageError(
            f"{option} takes whole numbers separated by commas; got {text!r}"
        ) from error


def words(text: str) -> list[str]:
    """Names separated by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def seed_list(text: str) -> tuple[int, ...]:
    """The seeds: ``5`` is the first five; ``0,3`` (or ``3,``) names them."""
    seeds = numbers(text, "--seeds")
    if len(seeds) == 1 and "," not in text:
        seeds = list(range(seeds[0]))
    if not seeds or min(seeds) < 0:
        raise UsageError(f"--seeds takes a number of seeds, or seeds from 0 on; got {text!r}")
    if len(set(seeds)) != len(seeds):
        raise UsageError(f"--seeds names a seed twice: {text!r}")
    return tuple(seeds)
