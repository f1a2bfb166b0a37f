"""WNLI: does a sentence with its pronoun resolved follow from the one with the pronoun?

Source: Levesque et al., 2011, The Winograd Schema Challenge; as one of GLUE's sets. The dev set
shares sentences with the training set, under opposite labels: models that learn the training set
fall below the chance level.
"""

from __future__ import annotations

from sparing.tasks._facts import Facts
from sparing.tasks._glue import GLUE, Glue, dev_loader
from sparing.tasks.shared.table import Table

FACTS = Facts(
    metrics=("accuracy",),
    licence="CC BY 4.0",
    source=f"Winograd Schema Challenge (Levesque et al. 2011), as in {GLUE}",
    splits="GLUE's dev set",
    chance=40 / 71,
)
SET = Glue(
    "wnli",
    "WNLI",
    FACTS,
    labels=("not_entailment", "entailment"),
    table=Table(("sentence1", "sentence2"), "label"),
    hub=("sentence1", "sentence2"),
    rows={"train": 635, "dev": 71},
    written=("0", "1"),
)
load = dev_loader(SET)
