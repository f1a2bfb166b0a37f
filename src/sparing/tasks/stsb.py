"""STS-B: how alike are two sentences, from 0 to 5? Evaluated by Pearson and Spearman correlation.

Source: Cer et al., 2017, arXiv 1708.00055; as one of GLUE's sets. The answer is a number.
"""

from __future__ import annotations

from sparing.tasks._facts import Facts
from sparing.tasks._glue import ALIKE, ALIKE_VALUES, GLUE, Glue, Labelled, labelled_loader
from sparing.tasks.shared.table import Table

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
    table=ALIKE,
    hub=("sentence1", "sentence2"),
    rows={"train": 5749, "dev": 1500},
    values=ALIKE_VALUES,
    labelled=Labelled(
        ("original_sts-test.tsv", "sts-test.csv"),
        # some lines name the sources of both sentences in two more columns
        Table(("sentence1", "sentence2"), "score", names=ORIGINAL, widths=(7, 9)),
        rows=1379,
    ),
)
load = labelled_loader(SET)
