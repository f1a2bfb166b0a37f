"""MNLI: does a sentence follow from another, contradict it, or neither?

Source: Williams et al., 2018, arXiv 1704.05426; as one of GLUE's sets. Two test splits: matched
(``test``, of the training set's genres) and ``mismatched``.
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
    licence="OANC and others, by genre",
    source=f"MultiNLI (Williams et al. 2018), arXiv 1704.05426, as in {GLUE}",
    splits="GLUE's dev set, matched",
    chance=3479 / 9815,
)
SET = Glue(
    "mnli",
    "MNLI",
    FACTS,
    labels=("entailment", "neutral", "contradiction"),
    table=Table(("sentence1", "sentence2"), "gold_label"),
    hub=("premise", "hypothesis"),
    rows={"train": 392702, "dev": 9815, "mismatched": 9832},
    dev=("dev_matched.tsv", "dev_matched_1k.tsv"),
    more={"mismatched": ("dev_mismatched.tsv", "dev_mismatched_1k.tsv")},
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
    """Three classes; the matched set is the test split, ``mismatched`` a further one.

    Validation is cut from train. The text options are those of ``Reading``. ``cut_dev`` cuts
    all splits from the dev file, where there is no training file. Broken rows raise
    ``DataError`` with their lines; ``skip_broken`` leaves them out and says so in the task's
    notes. Files are looked for in glue/MNLI and its like below the data folder; without one the
    hub is asked.
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
