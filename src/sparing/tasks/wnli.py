"""WNLI: does a sentence with its pronoun resolved follow from the one with the pronoun?

Source: Levesque et al., 2011, The Winograd Schema Challenge; as one of GLUE's sets. The dev set
shares sentences with the training set, under opposite labels: models that learn the training set
fall below the chance level.
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
    licence="CC BY 4.0",
    source=f"Winograd Schema Challenge (Levesque et al. 2011), as in {GLUE}",
    splits="GLUE's dev set",
    chance=40 / 71,
)
SET = Glue(
    "wnli",
    "WNLI",
    FACTS,
    labels=("not_entailment", "entailment"),
    table=Table(("sentence1", "sentence2"), "label"),
    hub=("sentence1", "sentence2"),
    rows={"train": 635, "dev": 71},
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
    """Two classes.

    GLUE's dev set is the test split, validation is cut from train. The text options are those
    of ``Reading``. Broken rows raise ``DataError`` with their lines; ``skip_broken`` leaves
    them out and says so in the task's notes. Files are looked for in glue/WNLI and its like
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
