"""CoLA: is a sentence good English? Judged by Matthews correlation.

Source: Warstadt et al., 2018, arXiv 1805.12471; as one of GLUE's sets.
"""

from __future__ import annotations

from pathlib import Path

from sparing.tasks._facts import Facts
from sparing.tasks._glue import GLUE, Glue, glue_task
from sparing.tasks._table import Table
from sparing.tasks._task import Task
from sparing.tasks._text import Reading

FACTS = Facts(
    metrics=("matthews", "accuracy"),
    licence="none stated; sentences from published linguistics texts",
    source="Corpus of Linguistic Acceptability (Warstadt et al. 2018), arXiv 1805.12471, "
    f"as in {GLUE}",
    splits="GLUE's dev set",
    chance=0.0,
)
SET = Glue(
    "cola",
    "CoLA",
    FACTS,
    labels=("unacceptable", "acceptable"),
    table=Table(("sentence",), "label", names=("source", "label", "star", "sentence")),
    hub=("sentence",),
    rows={"train": 8551, "dev": 1043},
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
    """Two classes, two thirds of them acceptable.

    GLUE's dev set is the test split, validation is cut from train. The text options are those
    of ``Reading``. Broken rows raise ``DataError`` with their lines; ``skip_broken`` leaves
    them out and says so in the task's notes. Files are looked for in glue/CoLA and its like
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
