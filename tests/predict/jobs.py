"""Work for the workers of a test; a function that a process imports must belong to a module."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from sparing.predict import answering
from sparing.predict.inputs import NumberedRow

TALLY = "SPARING_TEST_TALLY"


def killed_once(plan: answering.Plan, number: int, rows: Sequence[NumberedRow]) -> answering.Shard:
    """Answer a shard; the process is killed at the first try of the third."""
    tally = Path(os.environ[TALLY])
    if number == 2 and not tally.exists():
        tally.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return answering.answer(plan, number, rows)
