"""TREC-QA: which of the candidate sentences answer the question? Scored by their ranking.

Source: Wang et al., 2007, as Yao et al., 2013, cut it. A question counts if it has sentences that
answer it and others.
"""

from __future__ import annotations

from pathlib import Path

from sparing.tasks._facts import Facts
from sparing.tasks.shared.files import data_folder, find
from sparing.tasks.shared.table import Row, Table, number_between, read_table
from sparing.tasks.shared.task import Task
from sparing.tasks.shared.text import Corpus, Reading, text_task

FACTS = Facts(
    metrics=("map", "mrr", "ndcg@10"),
    licence="none stated",
    source="TREC QA (Wang et al. 2007; Yao et al. 2013), github brmson/dataset-sts",
    splits="the published test set",
)
FORMAT = Table(("qtext", "atext"), "label", separator=",")
PUBLISHED = {"train": 4718, "dev": 1148, "test": 1517}


def load(
    *,
    data: Path | None = None,
    tokenizer: str | None = None,
    vocabulary: int = 8192,
    max_tokens: int = 128,
    examples: int | None = None,
    seed: int = 0,
) -> Task:
    """Questions with candidate sentences; the answer is a number, the relevance of a sentence.

    The options are those of ``Reading``. Files are train.csv, dev.csv and test.csv (or .gz) in
    trec-qa/ below the data folder or in it.
    """
    needed = "train.csv, dev.csv and test.csv (or .gz)"
    folder = data_folder("trec-qa", data, ("trec-qa",), needed)
    rows = {part: _rows(find("trec-qa", folder, (f"{part}.csv",))) for part in PUBLISHED}
    notes = tuple(
        f"subset: {part} holds {len(rows[part])} of {count} published rows"
        for part, count in PUBLISHED.items()
        if len(rows[part]) < count
    )
    corpus = Corpus(rows["train"], rows["test"], rows["dev"], subset=bool(notes), notes=notes)
    reading = Reading(tokenizer, vocabulary, max_tokens, examples, seed, tokenised=True)
    return text_task("trec-qa", FACTS, ("relevance",), corpus, reading, "ranking")


def _rows(path: Path) -> list[Row]:
    return read_table(path, FORMAT, number_between(0.0, 1.0))[0]
