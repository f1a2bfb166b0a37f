"""QNLI: does a sentence answer a question? Pairs made from SQuAD.

Source: Rajpurkar et al., 2016, arXiv 1606.05250; as one of GLUE's sets.
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
    licence="CC BY-SA 4.0",
    source=f"SQuAD 1.1 (Rajpurkar et al. 2016), arXiv 1606.05250, as in {GLUE}",
    splits="GLUE's dev set",
    chance=2761 / 5463,
)
SET = Glue(
    "qnli",
    "QNLI",
    FACTS,
    labels=("entailment", "not_entailment"),
    table=Table(("question", "sentence"), "label"),
    hub=("question", "sentence"),
    rows={"train": 104743, "dev": 5463},
)


def load(
    *,
    data: Path | None = None,
    tokenizer: str | None = None,
    vocabulary: int = 8192,
    max_tokens: int = 128,
    examples: int | None = None,
    cut_dev: bool = False,
    skip_broken: bool = False,
    seed: int = 0,
) -> Task:
    """Two classes.

    GLUE's dev set is the test split, validation is cut from train. The text options are those
    of ``Reading``. ``cut_dev`` cuts all splits from the dev file, where there is no training
    file. Broken rows raise ``DataError`` with their lines; ``skip_broken`` leaves them out and
    says so in the task's notes. Files are looked for in glue/QNLI and its like below the data
    folder; without one the hub is asked.
    """
    reading = Reading(tokenizer, vocabulary, max_tokens, examples, seed)
    return glue_task(
        SET,
        data,
        reading,
        test="dev",
        skip_broken=skip_broken,
        cut_dev=cut_dev,
    )
