"""MNLI: does a sentence follow from another, contradict it, or neither?

Source: Williams et al., 2018, arXiv 1704.05426; as one of GLUE's sets. Two test splits: matched
(``test``, of the training set's genres) and ``mismatched``.
"""

from __future__ import annotations

from sparing.tasks._facts import Facts
from sparing.tasks._glue import GLUE, Glue, cut_loader
from sparing.tasks.shared.table import Table

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
load = cut_loader(SET)
