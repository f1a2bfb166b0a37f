"""RTE: does a sentence follow from a text?

Source: Dagan et al., 2006, and the later RTE challenges; as one of GLUE's sets.
"""

from __future__ import annotations

from pathlib import Path

from sparing.tasks._facts import Facts
from sparing.tasks._glue import GLUE, Glue, glue_task
from sparing.tasks._table import Table
from sparing.tasks._task import Task
from sparing.tasks._text import Reading

FACTS = Facts(
    metrics=("accuracy",),
    licence="none stated",
    source=f"RTE 1, 2, 3 and 5 (Dagan et al. 2006 and others), as in {GLUE}",
    splits="GLUE's dev set",
    chance=146 / 277,
)
SET = Glue(
    "rte",
    "RTE",
    FACTS,
    labels=("entailment", "not_entailment"),
    table=Table(("sentence1", "sentence2"), "label"),
    hub=("sentence1", "sentence2"),
    rows={"train": 2490, "dev": 277},
)


def load(
    *,
    data: Path | None = None,
    tokenizer: str | None = None,
    vocabulary: int = 8192,
    max_tokens: int = 128,
    examples: int | None = None,
    skip_broken: bool = False,
    seed: int = 0,
) -> Task:
    """Two classes.

    GLUE's dev set is the test split, validation is cut from train. The text options are those
    of ``Reading``. Broken rows raise ``DataError`` with their lines; ``skip_broken`` leaves
    them out and says so in the task's notes. Files are looked for in glue/RTE and its like
    below the data folder; without one the hub is asked.
    """
    reading = Reading(tokenizer, vocabulary, max_tokens, examples, seed)
    return glue_task(
        SET,
        data,
        reading,
        test="dev",
        skip_broken=skip_broken,
    )
