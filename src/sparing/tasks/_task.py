"""What a task is: three splits held in memory, and the facts that models and reports need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from sparing.core.errors import UsageError, nearest

Split = Literal["train", "validation", "test"]


@dataclass(frozen=True, eq=False)
class Examples(Dataset[dict[str, Tensor]]):
    """One split, held in memory: item i is a dictionary of the model's input and its label.

    ``inputs`` are images (count, channels, height, width) as one tensor, or one vector of token
    numbers for each example; ``input_name`` is what the model calls them; ``labels`` are class
    numbers.
    """

    input_name: Literal["pixel_values", "input_ids"]
    inputs: Tensor | Sequence[Tensor]
    labels: Int[Tensor, " count"]

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise UsageError(f"{len(self.inputs)} inputs but {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {self.input_name: self.inputs[index], "labels": self.labels[index]}

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of each example; 1 for images, which are all of one length."""
        if isinstance(self.inputs, Tensor):
            return [1] * len(self)
        return [len(ids) for ids in self.inputs]

    def subset(self, indices: Sequence[int]) -> Examples:
        """The examples with these indices, in this order."""
        chosen = torch.tensor(indices, dtype=torch.long)
        inputs: Tensor | list[Tensor]
        if isinstance(self.inputs, Tensor):
            inputs = self.inputs[chosen]
        else:
            inputs = [self.inputs[index] for index in indices]
        return Examples(self.input_name, inputs, self.labels[chosen])


@dataclass(frozen=True, eq=False)
class Task:
    """A task: data, splits, metric, chance level, licence, and the sizes a model needs.

    ``tokens`` is the longest sequence that a model sees, its class token included. Token tasks
    have a ``vocabulary`` (how many token numbers there are) and a ``pad_id``; image tasks have
    ``image_size``, ``channels`` and ``patch_size``. ``tokenizer`` is a pretrained one where the
    task was loaded with it.
    """

    name: str
    kind: Literal["image", "tokens"]
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
    image_size: int = 0
    channels: int = 0
    patch_size: int = 0
    tokenizer: Any = field(default=None, repr=False)

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.labels)

    @cached_property
    def chance(self) -> float:
        """The chance level: the test accuracy of always answering its most frequent class."""
        return float(torch.bincount(self.test.labels).max()) / len(self.test)

    def split(self, name: str) -> Examples:
        """The split of that name; raises ``UsageError`` with the nearest where there is none."""
        splits = {"train": self.train, "validation": self.validation, "test": self.test}
        if name not in splits:
            raise UsageError(f"unknown split {name!r}{nearest(name, splits)}")
        return splits[name]

    def collate(self, examples: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """One batch: images stacked; tokens padded on the right to the longest of the batch.

        Token batches carry an ``attention_mask`` with 1 for real tokens, as transformers wants it.
        """
        if not examples:
            raise UsageError("a batch needs at least one example")
        labels = torch.stack([example["labels"] for example in examples])
        if self.kind == "image":
            pixels = torch.stack([example["pixel_values"] for example in examples])
            return {"pixel_values": pixels, "labels": labels}
        rows = [example["input_ids"] for example in examples]
        ids = pad_sequence(rows, batch_first=True, padding_value=self.pad_id)
        lengths = torch.tensor([len(row) for row in rows])
        keep = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        return {"input_ids": ids, "attention_mask": keep, "labels": labels}
