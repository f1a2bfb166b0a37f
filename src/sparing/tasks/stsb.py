"""STS-B: how alike are two sentences, from 0 to 5? Judged by Pearson and Spearman correlation.

Source: Cer et al., 2017, arXiv 1708.00055; as one of GLUE's sets. The answer is a number.
"""

from __future__ import annotations

from pathlib import Path

from sparing.tasks._facts import Facts
from sparing.tasks._glue import GLUE, Glue, Labelled, TestSplit, glue_task
from sparing.tasks._table import Table
from sparing.tasks._task import Task
from sparing.tasks._text import Reading

FACTS = Facts(
    metrics=("pearson", "spearman"),
    licence="mixed, by source; see the set's own LICENSE.txt",
    source=f"STS Benchmark (Cer et al. 2017), arXiv 1708.00055, as in {GLUE}",
    splits="GLUE's dev set, or the labelled test set",
    chance=0.0,
)
ORIGINAL = ("genre", "file", "year", "id", "score", "sentence1", "sentence2")
SET = Glue(
    "stsb",
    "STS-B",
    FACTS,
    labels=("similarity",),
    table=Table(("sentence1", "sentence2"), "score"),
    hub=("sentence1", "sentence2"),
    rows={"train": 5749, "dev": 1500},
    values=(0.0, 5.0),
    labelled=Labelled(
        ("original_sts-test.tsv", "sts-test.csv"),
        # some lines name the sources of both sentences in two more columns
        Table(("sentence1", "sentence2"), "score", names=ORIGINAL, widths=(7, 9)),
        rows=1379,
    ),
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
    """One number, trained by squared error.

    GLUE's dev set is the test split, validation is cut from train. The text options are those
    of ``Reading``. ``test="labelled"`` takes original_sts-test.tsv, 1,379 pairs, and dev
    becomes the further split ``dev``. Broken rows raise ``DataError`` with their lines;
    ``skip_broken`` leaves them out and says so in the task's notes. Files are looked for in
    glue/STS-B and its like below the data folder; without one the hub is asked.
    """
    reading = Reading(tokenizer, vocabulary, max_tokens, examples, seed)
    return glue_task(
        SET,
        data,
        reading,
        test=test,
        skip_broken=skip_broken,
    )
