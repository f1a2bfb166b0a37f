"""STS 2012 to 2015: how alike are two sentences, from 0 to 5? Scored by correlation.

Source: Agirre et al., 2012 to 2015, SemEval's shared tasks. STS-B was made from them, so rows of it
that hold a test pair are neither trained on nor validated with.
"""

from __future__ import annotations

import re
from pathlib import Path

from sparing.core.errors import DataError
from sparing.tasks._facts import Facts
from sparing.tasks._glue import ALIKE, ALIKE_VALUES
from sparing.tasks.shared.files import data_folder, find
from sparing.tasks.shared.table import Row, Table, number_between, read_table
from sparing.tasks.shared.task import Task
from sparing.tasks.shared.text import Corpus, Reading, text_task

FACTS = Facts(
    metrics=("spearman", "pearson"),
    licence="the tasks' own terms; STS-B's LICENSE.txt",
    source="SemEval STS 2012 to 2015 (Agirre et al.), github brmson/dataset-sts; STS-B to train on",
    splits="all test sets together; each year is a split too",
    chance=0.0,
)
FORMAT = Table(("first", "second"), "score", names=("score", "first", "second"))
ANSWER = number_between(*ALIKE_VALUES)
YEARS = ("2012", "2013", "2014", "2015")
PUBLISHED = 10608
ENDINGS = (".tsv", ".tsv.gz")
WANTED = "YEAR-NAME.tsv files of 2012 to 2015 (or .gz)"
TO_TRAIN = "GLUE's train.tsv and dev.tsv (or .gz)"


def load(
    *,
    data: Path | None = None,
    tokenizer: str | None = None,
    vocabulary: int = 8192,
    max_tokens: int = 128,
    examples: int | None = None,
    seed: int = 0,
) -> Task:
    """Pairs of sentences with a score, tested on SemEval's sets and trained on the rest of STS-B.

    The options are those of ``Reading``. Files of test pairs are in sts/ below the data folder;
    train.tsv and dev.tsv of STS-B (or .gz) are in glue/STS-B/. Raises ``DataError`` where one of
    them is missing or broken.
    """
    by_year = _tests(data_folder("sts", data, ("sts",), WANTED))
    test = [row for rows in by_year.values() for row in rows]
    tested = {_key(row) for row in test}
    folder = data_folder("sts", data, ("glue/STS-B", "STS-B"), TO_TRAIN)
    notes, parts = [], {}
    for part in ("train", "dev"):
        rows = read_table(find("sts", folder, (f"{part}.tsv",)), ALIKE, ANSWER)[0]
        parts[part] = [row for row in rows if _key(row) not in tested]
        left_out = len(rows) - len(parts[part])
        notes.append(f"{part}: {left_out} of {len(rows)} rows of STS-B hold a test pair: left out")
        if not parts[part]:
            raise DataError(f"task sts: all rows of {part}.tsv hold a test pair")
    if len(test) < PUBLISHED:
        notes.append(f"subset: test holds {len(test)} of {PUBLISHED} published pairs")
    corpus = Corpus(
        parts["train"], test, parts["dev"], by_year, len(test) < PUBLISHED, tuple(notes)
    )
    reading = Reading(tokenizer, vocabulary, max_tokens, examples, seed)
    return text_task("sts", FACTS, ("similarity",), corpus, reading, "number")


def _tests(folder: Path) -> dict[str, list[Row]]:
    """The test pairs of every year."""
    by_year = {}
    for year in YEARS:
        paths = [path for end in ENDINGS for path in sorted(folder.glob(f"{year}-*{end}"))]
        if not paths:
            raise DataError(f"task sts: put {year}-NAME.tsv (or .gz) into {folder}")
        by_year[year] = [row for path in paths for row in read_table(path, FORMAT, ANSWER)[0]]
    return by_year


def _key(row: Row) -> frozenset[str]:
    """A pair in either order, without case, quotes and marks: both sources spell them otherwise."""
    return frozenset(" ".join(re.findall(r"\w+", text.lower())) for text in row.texts)
