"""Any text is a sum, which is answered, or no sum, which is refused in a line."""

from __future__ import annotations

import json
from functools import cache

from hypothesis import strategies as st

from sparing.calculator.checking import checked
from tests.fuzz.harness import TEXTS, command, fuzzed, report, survives

PARTS = st.sampled_from(
    [
        *("1", "23", "007", "9" * 300, "+", "-", "--", "*", " ", "  ", "\t", "\n", "(", ")", "1.5"),
        *("1e5", "１２", "²", "٣", "−", "+-", "x", "0x1", "_", "1_000", "/", "0", "\u00a0", "-0"),
    ]
)
SUMS = st.lists(PARTS, max_size=12).map("".join)
REAL = st.lists(st.integers(-99_999, 99_999), min_size=1, max_size=8).map(
    lambda numbers: " + ".join(map(str, numbers))
)


@cache
def _network():
    from sparing.calculator import Calculator
    from sparing.calculator.network import SHIPPED

    return Calculator.load(SHIPPED)


@fuzzed(10, 0.09, text=SUMS | REAL | TEXTS)
def test_texts_are_answered_or_refused(folder, text):
    """As a Python call: what passes the check is answered."""
    if survives(lambda: checked(text), text=text) is not None:
        survives(lambda: _network().answer([text]), text=text)


@fuzzed(2, 0.04, texts=st.lists(SUMS | REAL | TEXTS, min_size=1, max_size=3), as_json=st.booleans())
def test_the_command_answers_or_refuses(folder, texts, as_json):
    """As a command, on its arguments and on its input."""
    given = [text for text in texts if not text.startswith("--")]
    options = ["--json"] if as_json else []
    ended = command(["calculate", *options, "--", *given], folder, stdin="\n".join(texts))
    if as_json and ended.code == 0:
        for line in ended.out.splitlines():
            try:
                json.loads(line)
            except ValueError:
                report("a line of --json that is no JSON", texts=texts, line=line)


@fuzzed(3, 0.03, text=st.text(st.characters(), max_size=60) | SUMS)
def test_lines_of_the_input_are_answered_or_refused(folder, text):
    """Read from standard input, one a line."""
    command(["calculate", "-"], folder, stdin=text)
