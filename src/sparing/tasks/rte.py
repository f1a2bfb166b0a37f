"""RTE: does a sentence follow from a text?

Source: Dagan et al., 2006, and the later RTE challenges; as one of GLUE's sets.
"""

from __future__ import annotations

from sparing.tasks._facts import Facts
from sparing.tasks._glue import GLUE, Glue, dev_loader
from sparing.tasks.shared.table import Table

FACTS = Facts(
    metrics=("accuracy",),
    licence="none stated",
    source=f"RTE 1, 2, 3 and 5 (Dagan et al. 2006 and others), as in {GLUE}",
    splits="GLUE's dev set",
    chance=146 / 277,
)
SET = Glue(
    "rte",
    "RTE",
    FACTS,
    labels=("entailment", "not_entailment"),
    table=Table(("sentence1", "sentence2"), "label"),
    hub=("sentence1", "sentence2"),
    rows={"train": 2490, "dev": 277},
)
load = dev_loader(SET)
