"""Models, tokenizers and data sets that are given as objects, written where a run can read them.

Cells run in other processes and on other days, so an object is written into the run's folder:
below ``.given``, in a folder named by the digest of its content. Another object is another run.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.core.errors import DataError, UsageError, quoted
from sparing.core.scratch import scratch_inside
from sparing.core.writing import write_atomically
from sparing.experiment.run import refuse_strangers
from sparing.foreign.pretrained import write_pretrained

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from sparing.tasks import Task

GIVEN = ".given"
TEXTS = "texts.jsonl"
LABELS = ("label", "labels")
WORDS = ("tokens", "words")
LISTS = ("Sequence", "List", "LargeList")
SPLITS = {"train": "train", "validation": "validation", "valid": "validation", "test": "test"}
UNLABELLED = (-1, None)


def is_data(value: object) -> bool:
    """Whether this is a ``datasets.Dataset`` or ``DatasetDict``."""
    return any(
        base.__module__.partition(".")[0] == "datasets"
        and base.__name__ in ("Dataset", "DatasetDict")
        for base in type(value).__mro__
    )


def names_labels(task: Any) -> bool:
    """Whether a task may have several labels a row, or one for each word: a data set's may not."""
    if isinstance(task, str | Path) or not is_data(task):
        return bool(task)
    first = next(iter(task.values())) if isinstance(task, Mapping) else task
    return any(type(feature).__name__ in LISTS for feature in first.features.values())


def given_model(model: PreTrainedModel, tokenizer: Any, folder: Path) -> str:
    """Write a model, and its tokenizer where there is one, and return the folder's path.

    Raises ``UsageError`` for a run's folder that holds something else.
    """
    from sparing.models.shared.quiet import quiet

    name = Path(model.name_or_path or "").name or type(model).__name__

    def write(path: Path) -> None:
        with quiet():
            write_pretrained(model, path)
            if tokenizer is not None:
                write_pretrained(tokenizer, path)

    return _written(folder, name, write, ("*.safetensors", "config.json", "tokenizer.json"))


def given_data(data: Any, folder: Path, *, label: str = "", alone: bool = False) -> str:
    """Write a ``Dataset`` or ``DatasetDict`` of texts or images, and return the path.

    ``label`` names the column of labels (``label`` or ``labels`` unless given). ``alone`` takes a
    data set of one split as the rows to test on. Lists of words with lists of their labels become
    files in CoNLL's form, and texts with lists of labels lines of JSON. Raises ``UsageError`` for
    data that is neither texts nor images with labels, and for a run's folder that holds something
    else.
    """
    splits = _splits(data, alone)
    first = next(iter(splits.values()))
    words = next((name for name in WORDS if type(first.features.get(name)).__name__ in LISTS), "")
    if words:
        return _given_words(splits, words, label, folder)
    chosen = label or next((name for name in LABELS if name in first.column_names), "")
    if chosen not in first.column_names:
        have = ", ".join(first.column_names)
        raise UsageError(f"the data set has no column {label or 'label'!r}; it has {have[:200]}")
    kinds = {name: type(kind).__name__ for name, kind in first.features.items()}
    images = [name for name, kind in kinds.items() if kind == "Image"]
    texts = [n for n, f in first.features.items() if getattr(f, "dtype", "") == "string"]
    texts = [name for name in texts if name != chosen]
    if not images and not texts:
        hint = "; give the one before it was tokenized" if "input_ids" in kinds else ""
        raise UsageError(f"the data set has no column of texts or images{hint}")

    def write(path: Path) -> None:
        path.mkdir(parents=True)
        for split, rows in splits.items():
            if images:
                part = "val" if split == "validation" else split
                _write_images(path / part, rows, images[0], chosen)
            elif type(first.features[chosen]).__name__ in LISTS:
                _write_lists(path / f"{split}.jsonl", rows, texts, chosen)
            else:
                _write_texts(path / f"{split}.csv", rows, texts, chosen)

    name = str(getattr(first.info, "dataset_name", None) or "dataset")
    return _written(folder, name, write, ("*.csv", "*.jsonl", "*/*/*.png"))


def _given_words(splits: Mapping[str, Any], words: str, label: str, folder: Path) -> str:
    """Write lists of words with their labels as files in CoNLL's form, and return the path."""
    from sparing.tasks.entities import lines_of

    def write(path: Path) -> None:
        path.mkdir(parents=True)
        for split, rows in splits.items():
            content = lines_of({split: rows}, split, words, label)
            write_atomically(path / f"{split}.conll", content)

    return _written(folder, "texts", write, ("*.conll",))


def given_texts(texts: Any, folder: Path) -> str:
    """Write texts, or pairs of texts, with their labels if they have some, and return the path.

    ``texts`` are those of ``tasks.texts.read_texts``, which raises the errors.
    """
    from sparing.tasks.texts import read_texts

    read = read_texts(texts)
    labels = read.labels or (None,) * len(read)
    # as the reader knows them: it would leave a column of another name out
    names = ("sentence1", "sentence2") if read.are_pairs else ("text",)

    def write(path: Path) -> None:
        path.mkdir(parents=True)
        lines = [
            json.dumps(
                dict(zip(names, row, strict=True)) | ({} if label is None else {"label": label})
            )
            for row, label in zip(read.rows, labels, strict=True)
        ]
        write_atomically(path / TEXTS, "\n".join(lines) + "\n")

    return str(Path(_written(folder, "texts", write, ("*.jsonl",))) / TEXTS)


def given_tokenizer(tokenizer: Any, folder: Path) -> str:
    """Write a tokenizer and return the folder's path."""

    def write(path: Path) -> None:
        write_pretrained(tokenizer, path)

    return _written(folder, "tokenizer", write, ("*",))


def label_names(data: Any, label: str = "") -> tuple[str, ...]:
    """The names of a data set's classes in the order of their numbers; none where it has none."""
    first = next(iter(data.values())) if isinstance(data, Mapping) else data
    chosen = label or next((name for name in LABELS if name in first.column_names), "")
    return tuple(getattr(first.features.get(chosen), "names", None) or ())


def _splits(data: Any, alone: bool) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        return {"train": data, "test": data} if alone else {"train": data}
    splits = {SPLITS[name]: rows for name, rows in data.items() if name in SPLITS}
    if "train" not in splits:
        have = ", ".join(map(str, data))
        raise UsageError(f"the data has no split 'train'; it has {have[:200]}")
    return {name: rows for name, rows in splits.items() if len(rows)}


def _label(feature: Any) -> Callable[[Any], str]:
    """How a label is written: as its name where names sort as their numbers do, else as it is."""
    names = list(getattr(feature, "names", None) or ())
    if names and sorted(names) == names and not all(map(str.isdecimal, names)):
        return lambda value: names[value] if isinstance(value, int) else str(value)
    return str


def _labelled(rows: Any, label: str) -> list[int]:
    """The rows that have a label: published test splits often have none."""
    return [index for index, value in enumerate(rows[label]) if value not in UNLABELLED]


def _write_texts(path: Path, rows: Any, texts: list[str], label: str) -> None:
    read, labelled = _label(rows.features[label]), _labelled(rows, label)
    if not labelled:
        return
    chosen = rows.select(labelled)
    lines = io.StringIO(newline="")
    writer = csv.writer(lines)
    writer.writerow([*texts, "label"])
    for row in chosen:
        writer.writerow([*(row[name] for name in texts), read(row[label])])
    write_atomically(path, lines.getvalue())


def _write_lists(path: Path, rows: Any, texts: list[str], label: str) -> None:
    """Rows with several labels each, as lines of JSON."""
    names = getattr(rows.features[label].feature, "names", None)
    lines = []
    for row in rows:
        labels = [names[number] if names else str(number) for number in row[label] or ()]
        lines.append(json.dumps({**{name: row[name] for name in texts}, "label": labels}))
    write_atomically(path, "\n".join(lines) + "\n")


def _write_images(split_dir: Path, rows: Any, image: str, label: str) -> None:
    feature = rows.features[label]
    read, count = _label(feature), len(str(len(getattr(feature, "names", None) or "0" * 99)))
    for index in _labelled(rows, label):
        row = rows[index]
        name = read(row[label])
        folder = split_dir / _folder_name(name, count)
        folder.mkdir(parents=True, exist_ok=True)
        row[image].convert("RGB").save(folder / f"{index:08}.png")


def _folder_name(label: str, digits: int) -> str:
    """A label as the name of a folder; raises ``DataError`` for one that cannot be a name."""
    if label.isdecimal():
        return label.zfill(digits)
    if "/" in label or "\0" in label or label.startswith(".") or not label:
        raise DataError(f"the label {quoted(label)} cannot name a folder of pictures: rename it")
    return label


def _written(
    folder: Path, name: str, write: Callable[[Path], None], digested: Iterable[str]
) -> str:
    """Write into a folder named by the digest of its content, and return the path."""
    refuse_strangers(folder)
    given = folder / GIVEN
    try:
        given.mkdir(parents=True, exist_ok=True)
        with scratch_inside(given, "given") as scratch:
            write(scratch / "new")
            digest = _digest(scratch / "new", digested)
            path = given / digest / (re.sub(r"[^\w-]+", "-", name).strip("-")[:60] or "given")
            if not path.exists():
                path.parent.mkdir(exist_ok=True)
                (scratch / "new").rename(path)
    except OSError as error:
        raise DataError(f"cannot write to {given}: {error.strerror or error}") from error
    return str(path)


def _digest(folder: Path, patterns: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=6)
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        digest.update(str(path.relative_to(folder)).encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()


def opened_model(model: Any, verb: str) -> tuple[Any, str, str]:
    """The model, its name, and the folder that it was read from, if there is one."""
    from sparing.transfer.opening import open_model
    from sparing.transfer.unwrapping import require_transformers

    if isinstance(model, str | Path):
        return open_model(str(model)), str(model), str(model)
    inner = require_transformers(model, verb)
    origin = inner.name_or_path if Path(inner.name_or_path or " ").is_dir() else ""
    return inner, Path(origin).name or type(inner).__name__, origin


class Given:
    """A task, a model and a tokenizer as names and paths; objects are written to files.

    ``task`` and ``model`` are the names, once ``load`` or ``write`` has been called.
    """

    def __init__(
        self, task: Any, model: Any, tokenizer: Any, folder: Path, options: Mapping[str, Any]
    ) -> None:
        self.given, self.wrapper, self.tokenizer, self.folder = task, model, tokenizer, folder
        self.options = dict(options)
        self.task, self.model = str(task) if isinstance(task, str | Path) else "", ""
        if not self.task and not is_data(task):
            raise UsageError(
                "a task is a name, a path, a datasets.Dataset or a DatasetDict; got "
                f"{type(task).__name__}"
            )

    def load(self, origin: str, data: Path | None, *, alone: bool = False) -> tuple[Task, Any]:
        """The task in memory and its options, for a model that was read from ``origin``."""
        from sparing.experiment.inputs.task import load_for

        self._write_tokenizer(self._reader(origin) if not origin else self.tokenizer)
        self._write_data(alone=alone)
        return load_for(self.task, self.options, origin, data)

    def write(self) -> Given:
        """Write the objects for a run, after a check that they fit."""
        from sparing.models.shared.labels import require_order
        from sparing.transfer.unwrapping import unwrapped

        if isinstance(self.wrapper, str | Path):
            self.model = str(self.wrapper)
            self._write_tokenizer(self.tokenizer)
        else:
            inner, name, origin = opened_model(unwrapped(self.wrapper, merged=True), "a run")
            if not self.task:
                named = label_names(self.given, str(self.options.get("label", "")))
                require_order(inner.config.id2label, named, name)
            self.model = given_model(inner, self._reader(origin), self.folder)
        self._write_data()
        return self

    def _reader(self, origin: str) -> Any:
        """The tokenizer that was given, else the wrapper's, else the one beside the model."""
        from sparing.tasks.shared.text import fast_tokenizer, has_vocabulary
        from sparing.transfer.unwrapping import tokenizer_in

        if self.tokenizer is not None:
            return self.tokenizer
        if origin and has_vocabulary(Path(origin)):
            return fast_tokenizer(origin)
        return tokenizer_in(self.wrapper)

    def _write_data(self, *, alone: bool = False) -> None:
        """Write a data set that was given as an object; ``task`` is its path then."""
        if not self.task:
            label = str(self.options.pop("label", ""))
            self.task = given_data(self.given, self.folder, label=label, alone=alone)
            if any(Path(self.task).glob("*.jsonl")):
                self.options.setdefault("answer", "labels")

    def _write_tokenizer(self, tokenizer: Any) -> None:
        """Write a tokenizer that is not in the model's folder, for the task to read with."""
        if tokenizer is not None:
            self.options["tokenizer"] = given_tokenizer(tokenizer, self.folder)
