"""SST-2: is a phrase from a film review positive or negative?

Source: Socher et al., 2013; Wang et al., 2018, arXiv 1804.07461 (GLUE). The training set holds
phrases and the sentences that they come from. So validation accuracy, on rows cut from it, is
higher than test accuracy.
"""

from __future__ import annotations

from sparing.tasks._facts import Facts
from sparing.tasks._glue import Glue, Labelled, labelled_loader
from sparing.tasks.shared.table import Table

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
    tokenised=True,
)
load = labelled_loader(SET)
