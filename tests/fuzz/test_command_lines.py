"""Command lines of any words end with a known code, and a line that says why."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest
from hypothesis import strategies as st

from tests.fuzz.harness import (
    ROOT,
    SECONDS,
    TEXTS,
    Ended,
    command,
    fuzzed,
    report,
    wrong_end,
)

# Verbs that may work for long, with arguments that keep them from it.
REFUSED = {
    "advise": ["no-such-model"],
    "check": ["no-such-mechanism"],
    "compare": ["no-such-task"],
    "evaluate": ["no-such-model"],
    "measure": ["no-such-mechanism"],
    "prune": ["no-such-model", "--task", "digits", "--heads", "0.5", "--output-dir", "o"],
    "search": ["no-such-predictor"],
    "slim": ["no-such-model"],
    "study": ["no-such-study"],
    "swap": ["no-such-model", "--output-dir", "o"],
    "train": ["no-such-task", "--output-dir", "o"],
}
# Verbs that are quick whatever they are given; calculate has a test of its own.
QUICK = {
    "list": ["mechanisms", "tasks", "models", "predictors", "studies"],
    "merge": ["folder", "other", "empty"],
    "pack": ["folder", "empty"],
    "patches": ["picture.png", "folder", "empty"],
    "report": ["folder", "empty"],
    "show": ["softmax", "linear", "adaptive", "linformer"],
}
SETS = st.sampled_from(["a=1", "=", "a", "a.b.c=2", "recipe.epochs=x", "x=[", "x={'a':1}", "x==="])


@cache
def _options(verb):
    """The options of a verb, as its help lists them."""
    from typer.main import get_command

    from sparing.cli import application

    commands = get_command(application()).commands
    return [name for p in commands[verb].params for name in p.opts if name.startswith("--")]


def _words(verb, draws):
    """Random options of a verb, some with values, some misspelled."""
    words = []
    for number, value, with_value, odd in draws:
        known = [o for o in _options(verb) if o not in ("--help", "--all")]
        option = known[number % len(known)]
        words.append(f"{option}x" if odd else option)
        if with_value:
            words.append(value)
    return words


DRAWS = st.lists(
    st.tuples(
        st.integers(0, 30),
        TEXTS | SETS,
        st.booleans(),
        st.sampled_from([False] * 5 + [True]),
    ),
    max_size=4,
)


def _folder(folder):
    """What the quick verbs may be pointed at."""
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "folder").mkdir(exist_ok=True)
    (folder / "folder" / "config.json").write_text("{}")
    (folder / "picture.png").write_bytes(b"\x89PNG")


@fuzzed(
    6, 0.12, verb=st.sampled_from(sorted(REFUSED)), draws=DRAWS, more=st.lists(TEXTS, max_size=2)
)
def test_verbs_that_are_refused(folder, verb, draws, more):
    """A verb with a first argument that does not exist, and any options."""
    given = REFUSED[verb]
    command([verb, given[0], *given[1:], *_words(verb, draws), *more], folder)


@fuzzed(
    4,
    0.07,
    verb=st.sampled_from(sorted(QUICK)),
    position=st.integers(0, 5),
    word=st.none() | TEXTS,
    draws=DRAWS,
)
def test_verbs_that_are_quick(folder, verb, position, word, draws):
    """A verb that may succeed, with any options."""
    _folder(folder)
    first = QUICK[verb][position % len(QUICK[verb])] if word is None else word
    command([verb, first, *_words(verb, draws)], folder)


@fuzzed(4, 0.02, words=st.lists(TEXTS | st.sampled_from(["--help", "--version", "-h"]), max_size=4))
def test_words_that_are_no_verb(folder, words):
    """Any words at all."""
    if not words or words[0] not in (*REFUSED, *QUICK, "calculate", "doctor"):
        command(words, folder)


def _children():
    """Arguments and input of one child process; about as many bytes as a terminal would send."""
    bytes_of = st.binary(max_size=30).map(lambda b: b.replace(b"\0", b"")) | TEXTS.map(str.encode)
    verbs = st.sampled_from(sorted({**REFUSED, **QUICK, "calculate": [], "nosuch": []}))
    return {"verb": verbs, "words": st.lists(bytes_of, max_size=3), "stdin": st.binary(max_size=60)}


@pytest.mark.slow
@fuzzed(1, 0.02, **_children())
def test_child_processes(folder, verb, words, stdin):
    """The same from outside: arguments and input of any bytes."""
    _folder(folder)
    long = {b"web", b"train", b"prove", b"--all"}
    given = [word for word in words if word not in long]
    first = [os.fsencode(word) for word in REFUSED.get(verb, QUICK.get(verb, ["--"])[:1])]
    if verb == "calculate":
        first = [b"--"]
    try:
        ended = subprocess.run(
            [os.fsencode(sys.executable), b"-m", b"sparing", verb.encode(), *first, *given],
            cwd=folder,
            input=stdin,
            capture_output=True,
            timeout=3 * SECONDS,  # a process begins with imports, on a machine that may be busy
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1"},
        )
    except subprocess.TimeoutExpired:
        report("a process that does not end", verb=verb, words=words, stdin=stdin)
        return
    texts = (ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace"))
    problem = wrong_end(Ended(ended.returncode, *texts), [verb])
    if problem:
        report(problem, verb=verb, words=words, stdin=stdin)
