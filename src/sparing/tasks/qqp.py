"""QQP: do two questions from Quora mean the same? Evaluated by F1, and accuracy.

Source: Iyer, Dandekar and Csernai, 2017, Quora Question Pairs; as one of GLUE's sets.
"""

from __future__ import annotations

from sparing.tasks._facts import Facts
from sparing.tasks._glue import GLUE, Glue, dev_loader
from sparing.tasks.shared.table import Table

FACTS = Facts(
    metrics=("f1", "accuracy"),
    licence="Quora's terms of service; none stated by GLUE",
    source=f"Quora Question Pairs (Iyer et al. 2017), as in {GLUE}",
    splits="GLUE's dev set",
    chance=2 * 14885 / (40430 + 14885),
)
SET = Glue(
    "qqp",
    "QQP",
    FACTS,
    labels=("not duplicate", "duplicate"),
    table=Table(("question1", "question2"), "is_duplicate"),
    hub=("question1", "question2"),
    rows={"train": 363846, "dev": 40430},
    written=("0", "1"),
)
load = dev_loader(SET)
