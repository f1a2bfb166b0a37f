"""MRPC: do two sentences from the news say the same? Evaluated by F1, and accuracy.

Source: Dolan and Brockett, 2005, Automatically Constructing a Corpus of Sentential Paraphrases.
"""

from __future__ import annotations

from sparing.tasks._facts import Facts
from sparing.tasks._glue import GLUE, Glue, Labelled, labelled_loader
from sparing.tasks.shared.table import Table

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
load = labelled_loader(SET)
