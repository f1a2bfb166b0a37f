"""Work for the workers of a test; a function that a process imports must belong to a module."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from sparing.predict import answering
from sparing.predict.inputs import NumberedRow

# What a process that forks others has imported already: that takes longer than the work.
LOADED = ("sparing.predict.study", "transformers.models.bert.modeling_bert", __name__)
TALLY = "SPARING_TEST_TALLY"


def killed_once(plan: answering.Plan, number: int, rows: Sequence[NumberedRow]) -> answering.Shard:
    """Answer a shard; the process is killed at the first try of the third."""
    tally = Path(os.environ[TALLY])
    if number == 2 and not tally.exists():
        tally.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return answering.answer(plan, number, rows)


def command(arguments: Sequence[str]) -> None:
    """The command line in this process, which prints nothing."""
    from sparing.cli import main

    with open(os.devnull, "w") as nowhere:
        sys.stdout = sys.stderr = nowhere
        main(arguments)
