"""MRPC: do two sentences from the news say the same? Judged by F1, and accuracy.

Source: Dolan and Brockett, 2005, Automatically Constructing a Corpus of Sentential Paraphrases.
"""

from __future__ import annotations

from pathlib import Path

from sparing.tasks._facts import Facts
from sparing.tasks._glue import GLUE, Glue, Labelled, TestSplit, glue_task
from sparing.tasks._table import Table
from sparing.tasks._task import Task
from sparing.tasks._text import Reading

FACTS = Facts(
    metrics=("f1", "accuracy"),
    licence="Microsoft Research's own; none stated by GLUE",
    source=f"Microsoft Research Paraphrase Corpus (Dolan and Brockett 2005), as in {GLUE}",
    splits="GLUE's dev set, or the labelled test set",
    chance=2 * 279 / (408 + 279),
)
TABLE = Table(("#1 String", "#2 String"), "Quality")
SET = Glue(
    "mrpc",
    "MRPC",
    FACTS,
    labels=("not equivalent", "equivalent"),
    table=TABLE,
    hub=("sentence1", "sentence2"),
    rows={"train": 3668, "dev": 408},
    written=("0", "1"),
    labelled=Labelled(("msr_paraphrase_test.txt",), TABLE, rows=1725),
)


def load(
    *,
    data: Path | None = None,
    tokenizer: str | None = None,
    vocabulary: int = 8192,
    max_tokens: int = 128,
    examples: int | None = None,
    test: TestSplit = "dev",
    skip_broken: bool = False,
    seed: int = 0,
) -> Task:
    """Two classes, F1 of "equivalent".

    GLUE's dev set is the test split, validation is cut from train. The text options are those
    of ``Reading``. ``test="labelled"`` takes msr_paraphrase_test.txt, 1,725 pairs, and dev
    becomes the further split ``dev``. Broken rows raise ``DataError`` with their lines;
    ``skip_broken`` leaves them out and says so in the task's notes. Files are looked for in
    glue/MRPC and its like below the data folder; without one the hub is asked.
    """
    reading = Reading(tokenizer, vocabulary, max_tokens, examples, seed)
    return glue_task(
        SET,
        data,
        reading,
        test=test,
        skip_broken=skip_broken,
    )
