"""QNLI: does a sentence answer a question? Pairs made from SQuAD.

Source: Rajpurkar et al., 2016, arXiv 1606.05250; as one of GLUE's sets.
"""

from __future__ import annotations

from sparing.tasks._facts import Facts
from sparing.tasks._glue import GLUE, Glue, cut_loader
from sparing.tasks.shared.table import Table

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
load = cut_loader(SET)
