"""Every way a command can end: one documented exit code, at most one line, never a traceback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparing.cli import EPILOGUE
from sparing.core.errors import LINE_CHARACTERS, DataError, UsageError, one_line
from sparing.core.interrupts import Terminated, raise_terminated, terminations_raised
from sparing.train.surroundings import interrupts_to
from tests.cli.conftest import run_command

RUN = "import sys; sys.argv[0] = 'sparing'; from sparing.cli import main; main()"
FULL = "/dev/full"
DOCS = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"


def _shell(line, **environment):
    """A shell's exit code and stderr; ``$S`` is the command line, ``$?`` that of its last part."""
    started = f"{sys.executable} -c '{RUN.replace(chr(39), chr(34))}'"
    done = subprocess.run(
        ["bash", "-c", line.replace("$S", started)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    return done


def test_the_codes_that_the_help_lists_are_those_of_the_documentation():
    table = DOCS.read_text().partition("| Code |")[2].partition("\n\n")[0]
    documented = re.findall(r"^\| (\d+) \|", table, re.MULTILINE)
    assert re.findall(r"\b(\d+) ", EPILOGUE.partition(":")[2]) == documented
    assert documented == ["0", "1", "2", "3", "4", "129", "130", "141", "143"]


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (signal.SIGHUP, 129, "ended by SIGHUP"),
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "ended by SIGTERM"),
    ],
)
def test_a_signal_ends_a_verb_in_one_line(tmp_path, monkeypatch, number, code, words):
    def stopped(folder):
        os.kill(os.getpid(), number)
        raise AssertionError("the signal was lost")

    before = signal.getsignal(number)
    monkeypatch.setattr("sparing.report.page.write_report", stopped)
    monkeypatch.setattr("sparing.report.write_report", stopped, raising=False)
    ended = run_command("report", tmp_path)
    assert (ended.code, ended.error, ended.out) == (code, f"sparing: {words}", "")
    assert signal.getsignal(number) is before


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminations_raised():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGTERM) is raise_terminated
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_training_finishes_its_step_and_a_second_signal_does_not_wait(number):
    class Training:
        interrupted = False

    training, kind = Training(), KeyboardInterrupt if number == signal.SIGINT else Terminated
    steps = []

    def train(signals):
        with terminations_raised(), interrupts_to(training):
            for step in range(2):
                for _ in range(signals):
                    os.kill(os.getpid(), number)
                steps.append(step)
                if training.interrupted:
                    break

    with pytest.raises(kind):
        train(1)
    assert steps == [0]
    with pytest.raises(kind):
        train(2)
    assert steps == [0]


# PyTorch, which calculate imports, takes seconds: the light verbs stand for both ways to buffer.
LIGHT = [(verb, buffered) for verb in ("list", "--help") for buffered in ("", "1")]


@pytest.mark.parametrize(
    ("arguments", "buffered"),
    [*LIGHT, ("show --help", ""), ("show --help", "1"), ("calculate 1+1", "")],
)
def test_a_full_output_is_one_line(arguments, buffered):
    done = _shell(f"$S {arguments} > {FULL}", PYTHONUNBUFFERED=buffered)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "buffered"), [*LIGHT, ("list bad", ""), ("list bad", "1"), ("calculate -", "")]
)
def test_a_closed_pipe_is_silence(arguments, buffered):
    # the reader has gone before the first line, whatever the machine is busy with
    gone = f"yes 1+1 | {{ exec 3> >(:); sleep 0.3; $S {arguments} >&3; }}"
    done = _shell(gone, PYTHONUNBUFFERED=buffered)
    if arguments == "list bad":
        assert done.returncode == 2
        return
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("$S calculate - <&-", 2, "standard input is closed"),
        ("$S calculate - 0>/dev/null", 2, "cannot read standard input"),
        ("$S calculate - < /dev/zero", 2, "longer than 1,048,576"),
        ("$S list >&-", 2, "standard output is closed"),
        ("$S list bad 2>&-", 2, ""),
        (f"$S list bad 2> {FULL}", 2, ""),
        ("$S list 2>&-", 0, ""),
    ],
)
def test_closed_streams(line, code, words):
    done = _shell(line)
    assert done.returncode == code
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == bool(words)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (MemoryError(), 1, "there is not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: x"), 1, "not enough memory"),
        (RuntimeError("CUDA out of memory. Tried"), 1, "not enough memory"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (DataError("no\ngood\x1b[2J " + "x" * 5000), 1, "no good"),
        (UsageError("not\nso"), 2, "not so"),
    ],
)
def test_an_error_is_one_line_of_bounded_length(tmp_path, monkeypatch, error, code, words):
    def failing(folder):
        raise error

    monkeypatch.setattr("sparing.report.page.write_report", failing)
    monkeypatch.setattr("sparing.report.write_report", failing, raising=False)
    ended = run_command("report", tmp_path)
    assert ended.code == code
    assert words in ended.error
    assert ended.err.count("\n") == 1
    assert "\x1b" not in ended.err
    assert len(ended.error) <= LINE_CHARACTERS


def test_what_is_not_text_can_be_printed():
    assert one_line("a\n\n b\tc") == "a b c"
    done = _shell("cd /tmp; $S calculate $'1+\\xff'", PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
