"""QQP: do two questions from Quora ask the same? Judged by F1, and accuracy.

Source: Iyer, Dandekar and Csernai, 2017, Quora Question Pairs; as one of GLUE's sets.
"""

from __future__ import annotations

from pathlib import Path

from sparing.tasks._facts import Facts
from sparing.tasks._glue import GLUE, Glue, glue_task
from sparing.tasks._table import Table
from sparing.tasks._task import Task
from sparing.tasks._text import Reading

FACTS = Facts(
    metrics=("f1", "accuracy"),
    licence="Quora's terms of service; none stated by GLUE",
    source=f"Quora Question Pairs (Iyer et al. 2017), as in {GLUE}",
    splits="GLUE's dev set",
    chance=2 * 14885 / (40430 + 14885),
)
SET = Glue(
    "qqp",
    "QQP",
    FACTS,
    labels=("not duplicate", "duplicate"),
    table=Table(("question1", "question2"), "is_duplicate"),
    hub=("question1", "question2"),
    rows={"train": 363846, "dev": 40430},
    written=("0", "1"),
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
    """Two classes, F1 of "duplicate".

    GLUE's dev set is the test split, validation is cut from train. The text options are those
    of ``Reading``. Broken rows raise ``DataError`` with their lines; ``skip_broken`` leaves
    them out and says so in the task's notes. Files are looked for in glue/QQP and its like
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
