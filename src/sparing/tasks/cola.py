"""CoLA: is a sentence good English? Evaluated by Matthews correlation.

Source: Warstadt et al., 2018, arXiv 1805.12471; as one of GLUE's sets.
"""

from __future__ import annotations

from sparing.tasks._facts import Facts
from sparing.tasks._glue import GLUE, Glue, dev_loader
from sparing.tasks.shared.table import Table

FACTS = Facts(
    metrics=("matthews", "accuracy"),
    licence="none stated; sentences from published linguistics texts",
    source="Corpus of Linguistic Acceptability (Warstadt et al. 2018), arXiv 1805.12471, "
    f"as in {GLUE}",
    splits="GLUE's dev set",
    chance=0.0,
)
SET = Glue(
    "cola",
    "CoLA",
    FACTS,
    labels=("unacceptable", "acceptable"),
    table=Table(("sentence",), "label", names=("source", "label", "star", "sentence")),
    hub=("sentence",),
    rows={"train": 8551, "dev": 1043},
    written=("0", "1"),
)
load = dev_loader(SET)
