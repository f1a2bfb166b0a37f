"""A task: splits held in memory, and the facts that models and reports need."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from sparing.core.errors import DataError, UsageError, nearest, quoted
from sparing.tasks._pictures import Pictures
from sparing.tasks.shared.compared import Compared
from sparing.tasks.shared.rankings import any_counts
from sparing.tasks.shared.scores import metric
from sparing.tasks.shared.spans import TEXT_METRICS, Passages
from sparing.tasks.shared.tokens import row_of, row_of_labels, row_of_windows
from sparing.tasks.shared.windows import STRIDE, cut, cut_item
from sparing.tasks.shared.words import Words

# The label of a row without one: PyTorch's cross-entropy ignores it.
UNLABELLED = -100
DIGESTED = 256  # pictures, which need not all be in memory
Split = Literal["train", "validation", "test"]


@dataclass(frozen=True, eq=False)
class Examples(Dataset[dict[str, Tensor]]):
    """One split: item i is a dictionary of the model's input and its label.

    ``inputs`` are images (count, channels, height, width) as one tensor or read one by one, one
    vector of token numbers for each example, or rows of values. ``input_name`` is the model's name
    for them. ``labels`` are class numbers, or values where the answer is a number. Of several
    labels they are 1 where one holds, else 0. Of entities they are the label of the first token of
    each word, and ``UNLABELLED`` for other tokens and pads. Of a span of a text they are its first
    and last token, and ``passages`` hold the questions.

    ``token_types`` separate a pair's first text (0) from its second (1), where the tokenizer makes
    them. ``boxes`` locate the object in an image: centre, width and height, in shares of the
    image's sides. ``words`` are the numbers of the tokens' words, where models answer for each
    token: see ``tasks.shared.tokens``. ``queries`` are the numbers of the queries that documents,
    the examples, are ranked for. ``pairs`` are both texts of each example as they were read, where
    a pretrained tokenizer made one input of them: an embedding model reads each alone.
    ``windows`` are the first position and the one past the last of what a model reads at once of a
    passage. Then an example is the whole row, and a batch has all of its windows. ``compared`` are
    pairs of the examples that are scored by the cosine of their vectors; a part of a split has
    none.
    """

    input_name: Literal["pixel_values", "input_ids", "values"]
    inputs: Tensor | Sequence[Tensor]
    labels: Int[Tensor, " count"] | Float[Tensor, "count ..."] | Int[Tensor, "count _"]
    token_types: Sequence[Tensor] | None = None
    passages: Passages | None = None
    boxes: Float[Tensor, "count 4"] | None = None
    words: Sequence[Tensor] | None = None
    queries: Int[Tensor, " count"] | None = None
    pairs: Sequence[tuple[str, ...]] | None = None
    windows: Sequence[Int[Tensor, "windows 2"]] | None = None
    compared: Compared | None = None

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise UsageError(f"{len(self.inputs)} inputs but {len(self.labels)} labels")
        if self.token_types is not None and len(self.token_types) != len(self.labels):
            raise UsageError(f"{len(self.token_types)} token types but {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        item = {self.input_name: self.inputs[index], "labels": self.labels[index]}
        if self.token_types is not None:
            item["token_type_ids"] = self.token_types[index]
        if self.boxes is not None:
            item["boxes"] = self.boxes[index]
        if self.windows is not None:
            item["windows"] = self.windows[index]
        return item

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of each example, in all of its windows; 1 for images and values."""
        return [sum(sizes) for sizes in self.rows]

    @cached_property
    def rows(self) -> list[list[int]]:
        """Tokens of each row that a model reads of an example: its windows, or the whole.

        1 for images and values, which are all of one length.
        """
        if self.input_name != "input_ids":
            return [[1]] * len(self)
        if self.windows is None:
            return [[len(ids)] for ids in self.inputs]
        pairs = zip(self.inputs, self.windows, strict=True)
        return [[len(row) for row in cut(ids, windows)] for ids, windows in pairs]

    @cached_property
    def digest(self) -> str:
        """A hash that identifies the data; of pictures a few, coarsely.

        Their pixels were scaled by the processor, and the last bit depends on it.
        """
        digest_so_far = hashlib.blake2b(self.labels.contiguous().numpy().tobytes(), digest_size=8)
        coarse = self.input_name == "pixel_values"
        for index in range(min(len(self), DIGESTED) if coarse else len(self)):
            row = self.inputs[index]
            seen = (20 * row.mean((-2, -1))).round().to(torch.int16) if coarse else row
            digest_so_far.update(
                str(tuple(row.shape)).encode() + seen.contiguous().numpy().tobytes()
            )
        if self.boxes is not None:
            digest_so_far.update(self.boxes.contiguous().numpy().tobytes())
        for windows in self.windows or ():
            digest_so_far.update(windows.contiguous().numpy().tobytes())
        return digest_so_far.hexdigest()

    def subset(self, indices: Sequence[int]) -> Examples:
        """The examples with these indices, in this order."""
        chosen = torch.tensor(indices, dtype=torch.long)
        inputs: Tensor | Sequence[Tensor]
        if isinstance(self.inputs, Tensor):
            inputs = self.inputs[chosen]
        elif isinstance(self.inputs, Pictures):
            inputs = self.inputs.subset(indices)
        else:
            inputs = [self.inputs[index] for index in indices]
        types = self.token_types
        token_types = None if types is None else [types[index] for index in indices]
        passages = None if self.passages is None else self.passages.subset(indices)
        boxes = None if self.boxes is None else self.boxes[chosen]
        words = None if self.words is None else [self.words[index] for index in indices]
        labels = self.labels[chosen]
        queries = None if self.queries is None else self.queries[chosen]
        pairs = None if self.pairs is None else [self.pairs[index] for index in indices]
        windows = None if self.windows is None else [self.windows[index] for index in indices]
        more = (token_types, passages, boxes, words, queries, pairs, windows)
        return Examples(self.input_name, inputs, labels, *more)


@dataclass(frozen=True, eq=False)
class Task:
    """A task: data, splits, metrics, chance level, licence, and the sizes a model needs.

    ``answer`` is the model's output: a class, several labels, a number, a label for each token that
    makes entities, a span of a text, or a vector. Several labels have a probability each. A number
    is one output, trained by squared error, and ``labels`` holds its name alone. A span is given by
    its first and last token, the two ``labels``. A vector has a label for each of its numbers; its
    examples have another model's vector, or ``UNLABELLED``.

    The task is evaluated by ``metric``; ``metrics`` are all of them. ``more_tests`` are further
    splits by name. Where ``unlabelled``, a split may have no label at all (only ``UNLABELLED``); it
    then has no score. ``tokens`` is the longest sequence that a model sees, its class token
    included; for a task of values, how many numbers each example has. Token tasks have a
    ``vocabulary`` (the number of token numbers) and a ``pad_id``. Windows of a passage share
    ``stride`` tokens. Image tasks have ``image_size``,
    ``channels`` and ``patch_size``; their pixels are (raw - ``pixel_mean``) / ``pixel_deviation``
    of raw ones from 0 to 1. ``tokenizer`` is a pretrained one where the task was loaded with it,
    ``words`` the vocabulary made from the training texts. ``subset`` says that the data is a part
    of the published data, and ``notes`` which part; they also name everything that was cut or left
    out. ``source_note`` summarises in one line how your own files were read: columns, separator,
    encoding, held-out part. Raises ``DataError`` for labels that are not among the classes, and for
    numbers that are not finite.
    """

    name: str
    kind: Literal["image", "tokens", "values"]
    train: Examples
    validation: Examples
    test: Examples
    labels: tuple[str, ...]
    tokens: int
    licence: str
    source: str
    metric: str = "accuracy"
    vocabulary: int = 0
    pad_id: int = 0
    stride: int = STRIDE
    image_size: int = 0
    channels: int = 0
    patch_size: int = 0
    pixel_mean: float = 0.5
    pixel_deviation: float = 0.5
    tokenizer: Any = field(default=None, repr=False)
    words: Words | None = field(default=None, repr=False)
    metrics: tuple[str, ...] = ()
    answer: Literal["class", "labels", "number", "entities", "span", "vector"] = "class"
    more_tests: Mapping[str, Examples] = field(default_factory=dict)
    subset: bool = False
    notes: tuple[str, ...] = ()
    source_note: str = ""
    unlabelled: bool = False

    def __post_init__(self) -> None:
        for split, examples in self.splits.items():
            self._require_labels(split, examples.labels)
        if self.metric not in self.metrics:
            object.__setattr__(self, "metrics", (self.metric, *self.metrics))
        for name in self.metrics:
            if self.answer != "span" or name not in TEXT_METRICS:
                metric(name)

    def _require_labels(self, split: str, labels: Tensor) -> None:
        if self.answer == "number":
            bad = labels[~labels.isfinite()]
        elif self.answer == "class" and labels.ndim == 1 and len(self.labels) > 1:
            # with one class labels may be row numbers, with answers stored elsewhere
            missing = labels == UNLABELLED
            # a split is evaluated on all its rows or on none
            unlabelled = missing & bool(split == "train" or (self.unlabelled and missing.all()))
            bad = labels[((labels < 0) | (labels >= len(self.labels))) & ~unlabelled]
        elif self.answer == "entities" and not labels.is_floating_point():
            bad = labels[((labels < 0) & (labels != UNLABELLED)) | (labels >= len(self.labels))]
        elif self.answer == "labels" and labels.ndim == 2:
            bad = labels[(labels < 0) | (labels > 1)]
        else:
            return
        if len(bad):
            raise DataError(
                f"task {self.name}: {split} holds the label {quoted(bad[0].item())}, and there are "
                f"{len(self.labels)} classes"
            )

    @property
    def classes(self) -> int:
        """How many outputs there are: 1 of a number, 2 of a span, else one for each label."""
        return len(self.labels)

    @property
    def by_token(self) -> bool:
        """Whether models answer for each token, and ``read`` makes one answer of it."""
        return self.answer in ("entities", "span") and self.train.words is not None

    @property
    def width(self) -> int:
        """How many numbers an answer has that ``read`` makes."""
        return self.tokens if self.by_token else self.classes

    def read(
        self, outputs: Float[Tensor, "rows ..."], examples: Examples, indices: Sequence[int]
    ) -> Float[Tensor, "batch width"]:
        """The answers to examples with these indices: a model's outputs, or rows made of them.

        Of an example in windows there are as many outputs, and the best answer of all counts.
        """
        if not self.by_token:
            return outputs
        assert self.answer in ("entities", "span")
        if examples.windows is not None:
            windows = [examples.windows[index] for index in indices]
            made = torch.split(outputs.float().cpu(), [len(ranges) for ranges in windows])
            pairs = zip(made, windows, strict=True)
            return torch.stack(
                [row_of_windows([*one], ranges, self.width) for one, ranges in pairs]
            )
        assert examples.words is not None
        rows = [
            row_of(self.answer, logits, examples.words[index], self.labels, self.width)
            for logits, index in zip(outputs.float().cpu(), indices, strict=True)
        ]
        return torch.stack(rows)

    def truth(self, examples: Examples) -> Shaped[Tensor, "count ..."]:
        """What the answers to examples are compared with: their labels, entities as ``read``.

        Documents that are ranked have their queries beside.
        """
        labels = examples.labels
        if examples.queries is not None:
            return torch.stack((labels.double(), examples.queries.double()), 1)
        if self.answer != "entities" or labels.ndim == 1 or labels.is_floating_point():
            return labels
        assert examples.words is not None
        rows = [
            row_of_labels(chosen, words, self.labels, self.width)
            for chosen, words in zip(labels, examples.words, strict=True)
        ]
        return torch.stack(rows) if rows else torch.zeros(0, self.width)

    @cached_property
    def digest(self) -> str:
        """A hash that separates the task from the same task on other data."""
        parts = "".join(split.digest for split in self.splits.values())
        return hashlib.blake2b(parts.encode(), digest_size=8).hexdigest()

    @cached_property
    def chance(self) -> float:
        """The chance level: the metric of the best constant answer on the test split.

        0 where answers are spans of texts: no text answers many questions.
        """
        return self.chance_on("test")

    def chance_on(self, split: str) -> float:
        """The same of another split."""
        if self.answer == "span":
            return 0.0
        self.require_labels(split)
        return metric(self.metric).chance(self.truth(self.split(split)))

    def require_labels(self, split: str) -> None:
        """Raise ``UsageError`` for a split without labels, or nothing to rank: it has no score."""
        examples = self.split(split)
        labels = examples.labels
        if examples.queries is not None and not any_counts(self.truth(examples)):
            raise UsageError(
                f"the split {split} of task {self.name} has no query with relevant documents and "
                "others, so no score"
            )
        whole = self.answer != "span" and not labels.is_floating_point()
        if whole and len(labels) and bool((labels == UNLABELLED).all()):
            raise UsageError(f"the split {split} of task {self.name} has no labels, so no score")

    @property
    def token_types(self) -> int:
        """How many token types there are: 2 where a pair's second text has its own."""
        return 1 if self.train.token_types is None else 2

    @property
    def splits(self) -> dict[str, Examples]:
        """All splits by name."""
        splits = {"train": self.train, "validation": self.validation, "test": self.test}
        return {**splits, **self.more_tests}

    def split(self, name: str) -> Examples:
        """The split of that name; raises ``UsageError`` with the nearest where there is none."""
        splits = self.splits
        if name not in splits:
            raise UsageError(f"unknown split {quoted(name)}{nearest(name, splits)}")
        return splits[name]

    def texts(self, ids: Sequence[int]) -> list[str]:
        """Each token as readable text; its number where the task has no words for it."""
        if self.tokenizer is not None:
            return [str(token) for token in self.tokenizer.convert_ids_to_tokens(list(ids))]
        if self.words is None:
            return [str(number) for number in ids]
        return self.words.texts(ids)

    def collate(self, examples: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """One batch: images or values stacked; tokens padded on the right to the longest of them.

        Token batches carry an ``attention_mask`` with 1 for real tokens, as transformers expects,
        and ``token_type_ids`` where the examples have them. An example in windows has as many rows.
        """
        if not examples:
            raise UsageError("a batch needs at least one example")
        labels = torch.stack([example["labels"] for example in examples])
        if self.kind == "image":
            names = ("pixel_values", "boxes") if "boxes" in examples[0] else ("pixel_values",)
            images = {name: torch.stack([one[name] for one in examples]) for name in names}
            return {**images, "labels": labels}
        if self.kind == "values":
            values = torch.stack([one["values"] for one in examples])
            return {"values": values, "labels": labels}
        if "windows" in examples[0]:
            examples = [part for example in examples for part in cut_item(example)]
        rows = [example["input_ids"] for example in examples]
        ids = pad_sequence(rows, batch_first=True, padding_value=self.pad_id)
        lengths = torch.tensor([len(row) for row in rows])
        keep = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        if self.answer == "entities" and labels.ndim == 2 and not labels.is_floating_point():
            labels = labels[:, : ids.shape[1]].contiguous()
        batch = {"input_ids": ids, "attention_mask": keep, "labels": labels}
        if "token_type_ids" in examples[0]:
            types = [example["token_type_ids"] for example in examples]
            batch["token_type_ids"] = pad_sequence(types, batch_first=True)
        return batch
