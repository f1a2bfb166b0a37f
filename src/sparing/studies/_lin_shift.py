"""Another domain: trained on long film reviews, asked of products and of single sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from sparing.core.errors import DataError
from sparing.core.record import Record
from sparing.studies._lin_options import SHIFT, Options
from sparing.studies._long_train import Judge, Labels
from sparing.studies._long_work import LongWork, _evenly
from sparing.tasks import Examples, Task
from sparing.tasks._files import find, given_folder
from sparing.tasks._table import Row, Table, classes, read_table
from sparing.tasks._words import CLASS, FIRST_BYTE, spaced
from sparing.train import evaluate

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ALL = "all domains"
_SENTENCES = Table(("text",), "label", names=("label", "text"), separator=" ", encoding="latin-1")
_PRODUCTS = Table(("text",), "label", names=("text", "label"))


@dataclass(frozen=True)
class Domain:
    """A file of labelled texts below the data folder, and what stands in it."""

    folder: str
    file: str
    table: Table
    what: str


DOMAINS: Mapping[str, Domain] = {
    "SST-2": Domain("sent-conv", "stsa.binary.test", _SENTENCES, "sentences of film reviews"),
    "movie reviews": Domain("sent-conv", "rt-polarity.all", _SENTENCES, "sentences of reviews"),
    "products": Domain("sent-conv", "custrev.all", _SENTENCES, "sentences on products of Amazon"),
    "Amazon": Domain("amazon", "amazon_cells_labelled.txt", _PRODUCTS, "sentences on phones"),
}


def domains_of(
    task: Task, options: Options, data: Path | None
) -> tuple[dict[str, Task], list[str]]:
    """The task with each domain's texts as its test split, and notes on those that are missing."""
    found: dict[str, Task] = {}
    notes = []
    root = given_folder(data)
    for name, domain in DOMAINS.items():
        if root is None:
            break
        try:
            path = find(SHIFT, root / domain.folder, (domain.file,))
        except DataError as error:
            notes.append(f"{name} is left out: {error}")
            continue
        rows, _ = read_table(path, domain.table, classes(("0", "1")), skip_broken=True)
        test = _encoded(task, options, rows)
        most = options.shift_examples
        found[name] = replace(task, test=_evenly(test, most) if len(test) > most else test)
    return found, notes


def _encoded(task: Task, options: Options, rows: list[Row]) -> Examples:
    """Texts as the task's own are read: in its words, in bytes, or with its tokenizer."""
    texts = [row.texts[0] for row in rows]
    labels = torch.tensor([int(row.label) for row in rows])
    if task.tokenizer is not None:
        read = task.tokenizer(texts, truncation=True, max_length=task.tokens)["input_ids"]
    elif options.texts.task_options.get(task.name, {}).get("tokenizer") == "bytes":
        read = [[CLASS, *(byte + FIRST_BYTE for byte in text.encode())] for text in texts]
    else:
        assert task.words is not None
        read = [task.words.tokens(spaced(text)) for text in texts]
    return Examples("input_ids", [torch.tensor(ids[: task.tokens]) for ids in read], labels)


def by_domain(options: Options, data: Path | None) -> Judge:
    """A judge of arms that were trained on reviews: the score at home, elsewhere, and the drop."""
    kept: dict[str, Task] = {}

    def judge(model: PreTrainedModel, work: LongWork, labels: Labels) -> list[Record]:
        if not kept:
            kept.update(domains_of(work.task, options, data)[0])
        home = evaluate(model, work.task, batch_size=32)
        own: Labels = {**labels, "question": SHIFT}
        found = [Record("score", home.score, "share", "measured", own, count=home.count)]
        drops = []
        for name, task in kept.items():
            judged = evaluate(model, task, batch_size=32)
            there: Labels = {**own, "domain": name}
            drops.append(home.score - judged.score)
            found += [
                Record(
                    "domain_score", judged.score, "share", "measured", there, count=judged.count
                ),
                Record("domain_drop", drops[-1], "share", "measured", there),
                Record("domain_chance", task.chance, "share", "measured", there),
            ]
        if drops:
            mean: Labels = {**own, "domain": ALL}
            found.append(Record("domain_drop", sum(drops) / len(drops), "share", "measured", mean))
        return found

    return judge
