"""SST-2: is a phrase from a film review positive or negative?

Source: Socher et al., 2013; Wang et al., 2018, arXiv 1804.07461 (GLUE). The training set holds
phrases and the sentences that they come from, so that validation accuracy, on rows cut from it, is
higher than test accuracy.
"""

from __future__ import annotations

from pathlib import Path

from sparing.tasks._facts import Facts
from sparing.tasks._glue import Glue, Labelled, TestSplit, glue_task
from sparing.tasks._table import Table
from sparing.tasks._task import Task
from sparing.tasks._text import Reading

FACTS = Facts(
    metrics=("accuracy",),
    licence="none stated by GLUE; cite Socher et al. 2013",
    source="Stanford Sentiment Treebank (Socher et al. 2013) as GLUE's SST-2, arXiv 1804.07461",
    splits="GLUE's dev set, or the labelled test set",
    chance=444 / 872,
)
SET = Glue(
    "sst2",
    "SST-2",
    FACTS,
    labels=("negative", "positive"),
    table=Table(("sentence",), "label"),
    hub=("sentence",),
    rows={"train": 67349, "dev": 872},
    written=("0", "1"),
    labelled=Labelled(
        ("stsa.binary.test",),
        Table(
            ("sentence",),
            "label",
            names=("label", "sentence"),
            separator=" ",
            encoding="latin-1",
        ),
        rows=1821,
        folders=("sent-conv",),
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
    """Two classes; GLUE's dev set is the test split, validation is cut from its training set.

    Validation takes 2,000 rows (at most a tenth), with the classes in proportion; the sentence
    decides, not its row. The text options are those of ``Reading``. ``test="labelled"`` takes the
    treebank's own test set, stsa.binary.test (1,821 sentences, "label text" lines in latin-1, in
    sent-conv/ or beside the others), and dev becomes the further split ``dev``. Broken rows raise
    ``DataError`` with their lines; ``skip_broken`` leaves them out and says so in the task's notes.
    The files are GLUE's tsv, packed or not, in glue/SST-2 or SST-2 below the data folder, or in it;
    without a data folder the set is fetched from the hub.
    """
    reading = Reading(tokenizer, vocabulary, max_tokens, examples, seed, tokenised=True)
    return glue_task(SET, data, reading, test=test, skip_broken=skip_broken)
