"""Another domain: trained on film reviews, evaluated on products and on single sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import torch

from sparing.core.errors import DataError
from sparing.core.record import Labels, Record, measured
from sparing.tasks import Examples, Task
from sparing.tasks.shared.files import find, given_folder
from sparing.tasks.shared.table import Row, Table, classes, read_table
from sparing.tasks.shared.words import CLASS, FIRST_BYTE, spaced
from sparing.train import evaluate
from sparing_papers.linformer.options import SHIFT, Options
from sparing_papers.long_range.answers import answers_record
from sparing_papers.long_range.measurements import Measured
from sparing_papers.long_range.work import evenly

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ALL = "other domains"
_SENTENCES = Table(("text",), "label", names=("label", "text"), separator=" ", encoding="latin-1")
_PRODUCTS = Table(("text",), "label", names=("text", "label"))


@dataclass(frozen=True)
class Domain:
    """A file of labelled texts below the data folder, and its contents.

    ``elsewhere``: the texts are not about films. Sentences on films are of the same domain and show
    the effect of their length alone.
    """

    folder: str
    file: str
    table: Table
    what: str
    elsewhere: bool = False


DOMAINS: Mapping[str, Domain] = {
    "SST-2": Domain("sent-conv", "stsa.binary.test", _SENTENCES, "sentences of film reviews"),
    "movie reviews": Domain("sent-conv", "rt-polarity.all", _SENTENCES, "sentences of reviews"),
    "products": Domain(
        "sent-conv", "custrev.all", _SENTENCES, "products of Amazon", elsewhere=True
    ),
    "Amazon": Domain("amazon", "amazon_cells_labelled.txt", _PRODUCTS, "sentences on phones", True),
}


def domains_of(
    task: Task, options: Options, data: Path | None
) -> tuple[dict[str, Task], list[str]]:
    """The task with each domain's texts as its test split, and notes on those that are missing."""
    tasks: dict[str, Task] = {}
    paths, notes = _places(data)
    for name, path in paths.items():
        rows, _ = read_table(path, DOMAINS[name].table, classes(("0", "1")), skip_broken=True)
        test = _encoded(task, options, rows)
        most = options.shift_examples
        tasks[name] = replace(task, test=evenly(test, most) if len(test) > most else test)
    return tasks, notes


def missing_domains(data: Path | None) -> list[str]:
    """Notes on the domains that the data folder does not have."""
    return _places(data)[1]


def _places(data: Path | None) -> tuple[dict[str, Path], list[str]]:
    """The files that there are, and notes on those that are missing."""
    root, paths, notes = given_folder(data), dict[str, Path](), list[str]()
    for name, domain in DOMAINS.items():
        if root is None:
            break
        try:
            paths[name] = find(SHIFT, root / domain.folder, (domain.file,))
        except DataError as error:
            notes.append(f"{name} is left out: {error}")
    return paths, notes


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


def swapped_name(task: str) -> str:
    """The task's name in records of a swapped pretrained encoder."""
    return f"{task}, swapped"


def by_domain(
    options: Options, data: Path | None, *, swapped: bool = False
) -> Callable[[PreTrainedModel, Measured, Labels], list[Record]]:
    """A measurement of variants trained on reviews: the score at home, elsewhere, and the drop."""
    tasks: dict[str, Task] = {}

    def measure(model: PreTrainedModel, work: Measured, labels: Labels) -> list[Record]:
        if not tasks:
            tasks.update(domains_of(work.task, options, data)[0])
        home = evaluate(model, work.task, batch_size=32)
        name = swapped_name(work.name) if swapped else work.name
        of_arm: Labels = {"question": SHIFT, "task": name, "arm": labels["arm"]}
        of_arm["seed"] = labels["seed"]
        scores = {"score": home.score, "home_chance": work.task.chance}
        records = measured(of_arm, "share", home.count, **scores)
        for domain, task in tasks.items():
            evaluation = evaluate(model, task, batch_size=32)
            there: Labels = {**of_arm, "domain": domain}
            if evaluation.right is not None:
                records.append(answers_record(evaluation.right, there))
            drop = home.score - evaluation.score
            values = {"domain_score": evaluation.score, "domain_drop": drop}
            records += measured(
                there, "share", evaluation.count, **values, domain_chance=task.chance
            )
        return [*records, *_elsewhere(records, of_arm)]

    return measure


def _elsewhere(records: Sequence[Record], labels: Labels) -> Iterator[Record]:
    """The means over the domains that speak of something else; each counts as much."""
    other = [
        r for r in records if "domain" in r.labels and DOMAINS[str(r.labels["domain"])].elsewhere
    ]
    for name in ("domain_score", "domain_drop", "domain_chance"):
        alike = [r for r in other if r.name == name]
        if alike:
            mean = fmean(float(r.value or 0.0) for r in alike)
            everywhere: Labels = {**labels, "domain": ALL}
            yield from measured(everywhere, "share", min(r.count for r in alike), **{name: mean})
