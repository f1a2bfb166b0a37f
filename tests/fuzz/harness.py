"""What must hold for any input whatever, and how many inputs are tried.

A bad input ends in one line: in Python a ``SparingError``, on the command line a known exit code.
``SPARING_FUZZ`` is how many inputs the slow tests try in all (10,000 unless set). With
``SPARING_FUZZ_LOG=FILE`` findings are appended to the file, and the tests go on and pass: that
lists many at once.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sparing.core.errors import SparingError

INPUTS = int(os.environ.get("SPARING_FUZZ", "10000"))
LOG = os.environ.get("SPARING_FUZZ_LOG", "")
# Of the processor, since other programs may be at work; and by the clock, for what only waits.
SECONDS, WAITING = 20, 120
# Above what is in use when an input is tried: a size that a file claims must not fill the machine.
MORE_MEMORY = 3 * 2**30
CODES = {0, 1, 2, 3, 4, 130, 141, 143}
LONGEST = 400
ROOT = Path(__file__).resolve().parents[2]


class Finding(AssertionError):
    """An input that breaks the property."""


class Hang(BaseException):
    """Raised in the tried code when its time is over."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: object
    out: str
    err: str


def fuzzed(few: int, share: float, **strategies: Any) -> Callable[[Any], Any]:
    """Make a function that checks one input a test: fast with few inputs, slow with a share.

    Its first argument is an empty folder of the test; the strategies give the others.
    """

    def decorate(check: Callable[..., None]) -> Any:
        many = pytest.param(max(1, round(INPUTS * share)), marks=pytest.mark.slow, id="many")

        # a file that a library leaves open after an error is no finding
        @pytest.mark.filterwarnings(
            "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
        )
        @pytest.mark.parametrize("count", [pytest.param(few, id="few"), many])
        def test(count: int, tmp_path: Path) -> None:
            @settings(
                max_examples=count,
                derandomize=True,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
                phases=(Phase.generate,) if LOG else (Phase.generate, Phase.shrink),
            )
            @given(**strategies)
            def run(**values: Any) -> None:
                check(tmp_path, **values)

            run()

        test.__doc__ = check.__doc__
        return test

    return decorate


def report(message: str, **inputs: object) -> None:
    """Raise a finding, or note it where a log is wanted."""
    if not LOG:
        raise Finding(message)
    shown = {name: repr(value)[:2000] for name, value in inputs.items()}
    with Path(LOG).open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(json.dumps({"finding": message, **shown}) + "\n")


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Bounds on time and memory, no warnings that are errors, and no log lines of libraries."""

    def late(signum: int, frame: object) -> None:
        raise Hang

    before = [signal.signal(number, late) for number in (signal.SIGALRM, signal.SIGPROF)]
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MORE_MEMORY, hard))
    signal.setitimer(signal.ITIMER_REAL, WAITING)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before[0])
        signal.signal(signal.SIGPROF, before[1])
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        logging.disable(logging.NOTSET)


def survives(call: Callable[[], object], **inputs: object) -> object:
    """What a call of the library gives; None where it refuses, as it may, in one line."""
    stray = io.StringIO()
    with WRITES.watched(), contextlib.redirect_stdout(stray), contextlib.redirect_stderr(stray):
        try:
            with bounded():
                return call()
        except SparingError as error:
            problem = wrong_line(str(error))
        except Hang:
            problem = f"takes more than {SECONDS} s"
        except Exception as error:
            problem = f"{type(error).__name__} {_innermost_frame(error)}: {str(error)[:200]}"
    if problem:
        report(problem, **inputs)
    return None


def wrong_line(message: str) -> str:
    """What is wrong with the text of an error; empty where nothing is."""
    if len(message.splitlines()) != 1:
        return f"a message of {len(message.splitlines())} lines: {message[:300]!r}"
    if len(message) > LONGEST:
        return f"a message of {len(message)} characters: {message[:300]!r}"
    return ""


def _innermost_frame(error: BaseException) -> str:
    """The last line of the library that an error passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    library_frames = [frame for frame in frames if "/sparing/" in frame.filename]
    if not library_frames:
        return "outside sparing"
    last = library_frames[-1]
    return f"at {last.filename.partition('/sparing/')[2]}:{last.name}"


def command(arguments: list[str], folder: Path, stdin: str = "", **inputs: object) -> Ended:
    """Run the command line in this process, in a folder, and check how it ends.

    ``inputs`` are what a finding shows besides the arguments: what the folder holds.
    """
    from sparing.cli import main

    out, err, problem = io.StringIO(), io.StringIO(), ""
    code: object = None
    with (
        WRITES.watched(),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        _input(stdin),
    ):
        try:
            with bounded():
                main(arguments)
        except SystemExit as left:
            code = left.code
        except Hang:
            problem = f"takes more than {SECONDS} s"
        except Exception as error:
            problem = f"{type(error).__name__} {_innermost_frame(error)}: {str(error)[:200]}"
    ended = Ended(code, out.getvalue(), err.getvalue())
    problem = problem or wrong_end(ended, arguments)
    if problem:
        report(problem, arguments=arguments, stdin=stdin, **inputs)
    return ended


@contextlib.contextmanager
def _input(text: str) -> Iterator[None]:
    before, sys.stdin = sys.stdin, io.StringIO(text)
    try:
        yield
    finally:
        sys.stdin = before


def wrong_end(ended: Ended, arguments: list[str]) -> str:
    """What is wrong with how a command ended; empty where nothing is."""
    if ended.code not in CODES:
        return f"exit code {ended.code!r}: {ended.err[-300:]!r}"
    for sign in ("Traceback (most recent call last)", "internal error", "Exception ignored"):
        if sign in ended.err or sign in ended.out:
            at = ended.err.find(sign)
            return f"shows {sign!r}: {ended.err[max(0, at) :][:300]!r}"
    said = [line for line in ended.err.splitlines() if line.startswith("sparing: ")]
    long = [line for line in said if len(line) > LONGEST + len("sparing: ")]
    if long:
        return f"a message of {len(long[0])} characters: {long[0][:300]!r}"
    if ended.code in (1, 2) and arguments and not _explains(ended):
        return f"ends with {ended.code} and no line that says why: {ended.err[-300:]!r}"
    return ""


def _explains(ended: Ended) -> bool:
    """Whether the last line of standard error is the error's, or results or a page explain it."""
    lines = ended.err.splitlines()
    if lines:
        return lines[-1].startswith("sparing: ")
    return bool(ended.out.strip())


class Writes:
    """Notes every file that this process writes, removes or makes while it is watched."""

    EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.link")
    IGNORED = ("/dev/", "/proc/")

    def __init__(self) -> None:
        self.allowed: tuple[str, ...] = ()
        self.strays: list[str] = []
        self._on = False
        self._hooked = False

    def allow(self, *folders: Path) -> None:
        """Say where may be written."""
        if not self._hooked:
            sys.addaudithook(self._hook)  # for good: there is no way to take it back
            self._hooked = True
        self.allowed = tuple(os.path.realpath(folder) for folder in folders)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Report what is written elsewhere."""
        self.strays, self._on = [], bool(self.allowed)
        try:
            yield
        finally:
            self._on = False
        if self.strays:
            report(f"writes outside its folder: {self.strays[0]}")

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._on:
            return
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
            paths = [path]
        elif event in self.EVENTS:
            paths = [a for a in arguments[:2] if isinstance(a, str | bytes | os.PathLike)]
        else:
            return
        for path in paths:
            if isinstance(path, str | bytes | os.PathLike):
                self._check(os.fsdecode(path))

    def _check(self, path: str) -> None:
        if "__pycache__" in path or path.startswith(self.IGNORED) or "\0" in path:
            return
        real = os.path.realpath(path)
        if not real.startswith(self.allowed):
            self.strays.append(path)


WRITES = Writes()

# What a file or a command line may hold that nobody expects.
ODD_TEXTS = st.sampled_from(
    [
        *("", " ", "-", "--", "-1", "0", "1", "nan", "inf", "1e400", "9" * 5000, "x" * 5000),
        *("../../outside", "/nonexistent/x", "~nouser/x", "a/b/c", ".", "..", "con\nline", "%s"),
        *("{}", "[]", "null", "true", "'", '"', "\\", "é", "日本", "\u202e", "\x1b[31m", "a,b"),
        *("softmax", "linear", "digits", "bert", "vit", "this.x", "os.system", "__class__"),
    ]
)
TEXTS = ODD_TEXTS | st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=30)
NUMBERS = st.sampled_from([0, 1, -1, 2, 3, 7, 10**6, -(10**6), 2**63, 10**400, 0.5, -0.5, 1e-30])
FLOATS = st.sampled_from([1e308, -1e308, float("nan"), float("inf"), float("-inf"), 1e30])
LEAVES = st.none() | st.booleans() | NUMBERS | FLOATS | TEXTS
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
CUTS = st.tuples(
    st.sampled_from(["flip", "drop", "double", "insert", "cut", "nest"]),
    st.floats(0, 1, exclude_max=True),
    st.binary(min_size=1, max_size=8),
)


def spoilt_bytes(content: bytes, cuts: list[tuple[str, float, bytes]]) -> bytes:
    """The content after some small damages, each at a share of its length."""
    for kind, share, given_bytes in cuts:
        at = int(share * len(content))
        if kind == "flip":
            content = content[:at] + given_bytes[:1] + content[at + 1 :]
        elif kind == "drop":
            content = content[:at] + content[at + len(given_bytes) :]
        elif kind == "double":
            content = content[:at] + content[at : at + 64] + content[at:]
        elif kind == "insert":
            content = content[:at] + given_bytes + content[at:]
        elif kind == "nest":
            content = content[:at] + b"[" * 2000 + content[at:]
        else:
            content = content[:at]
    return content


CHANGES = st.lists(
    st.tuples(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.booleans(), VALUES),
    min_size=1,
    max_size=3,
)


def spoilt_tree(tree: Any, changes: list[tuple[list[int], bool, Any]]) -> Any:
    """JSON after some values were replaced or taken out, each reached by a path of numbers."""
    tree = json.loads(json.dumps(tree))
    for path, drop, value in changes:
        holder: Any = {"": tree}
        key: Any = ""
        for step in path:
            inside = holder[key]
            if not isinstance(inside, dict | list) or not inside:
                break
            keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
            holder, key = inside, keys[step % len(keys)]
        if drop and key != "":
            del holder[key]
        elif key != "":
            holder[key] = value
        tree = tree if key != "" else value
    return tree


def text_of(tree: Any) -> str:
    """JSON as Python writes it, NaN and surrogates included."""
    return json.dumps(tree)
