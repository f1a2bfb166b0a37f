"""Examples as batches of a model's inputs and as texts, and a model's answers to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from sparing.tasks import Examples, Task
from sparing.tasks.shared.windows import cut_item
from sparing.train.answers import outputs_of

if TYPE_CHECKING:
    from typing import TypeAlias

    from transformers import PreTrainedModel

    from sparing.transfer.embedding.dense import SentenceEncoder

    Dense: TypeAlias = PreTrainedModel | SentenceEncoder

BATCH = 64


@torch.inference_mode()
def answers_to(task: Task, examples: Examples, model: Dense) -> Tensor:
    """A model's answers to all examples (count, width), in their order, on the CPU."""
    answers = torch.zeros(len(examples), task.width)
    for indices, inputs in inputs_of(task, examples, BATCH):
        given = {name: value.to(model.device) for name, value in inputs.items()}
        outputs = outputs_of(model(**given)).float().cpu()
        answers[indices] = task.read(outputs, examples, indices)
    return answers


def inputs_of(task: Task, examples: Examples, batch: int) -> list[tuple[list[int], dict[str, Any]]]:
    """Every example once, in batches of similar length: indices and inputs."""
    order = sorted(range(len(examples)), key=lambda index: (examples.lengths[index], index))
    batches = []
    for part in _parts(order, batch):
        inputs = task.collate([examples[index] for index in part])
        inputs.pop("labels")
        batches.append((part, inputs))
    return batches


def alone(
    task: Task, examples: Examples, call: Callable[[dict[str, Any]], Tensor], at_once: int = 1
) -> Iterator[Tensor]:
    """What a call gives for each example, in their order; every window of a passage runs alone.

    INT8 scales that a whole batch shares would make an answer depend on its neighbours. Of an
    example in windows there are as many rows, padded to the longest. ``at_once`` calls run side by
    side in threads, on one example each.
    """

    def answer(number: int) -> Tensor:
        item = examples[number]
        parts = cut_item(item) if "windows" in item else [item]
        made = []
        for part in parts:
            inputs = task.collate([{**part, "labels": item["labels"]}])
            inputs.pop("labels")
            made.append(call(inputs))
        most = max(one.shape[-2] for one in made) if len(made) > 1 else 0
        padded = (F.pad(one, (0, 0, 0, most - one.shape[-2])) if most else one for one in made)
        return torch.cat([*padded])

    if at_once == 1:
        yield from map(answer, range(len(examples)))
        return
    pool = ThreadPoolExecutor(at_once)
    try:
        yield from pool.map(answer, range(len(examples)))
    finally:  # an error, or Ctrl-C, leaves the rest undone
        pool.shutdown(cancel_futures=True)


def _parts(indices: list[int], size: int) -> list[list[int]]:
    return [indices[start : start + size] for start in range(0, len(indices), size)]


def texts_of(task: Task, examples: Examples, row: int) -> tuple[str, ...]:
    """The input as text, without the marks of the tokenizer; a pair is two texts."""
    if examples.input_name != "input_ids":
        return ()
    ids = examples.inputs[row]
    if task.tokenizer is None:
        return (" ".join(task.texts(ids.tolist())),)
    parts = [ids]
    if examples.token_types is not None:
        second = examples.token_types[row] == 1
        parts = [ids[~second], ids[second]] if bool(second.any()) else parts
    decode = task.tokenizer.decode
    return tuple(str(decode(part.tolist(), skip_special_tokens=True)) for part in parts)


def tokenizer_call(task: Task) -> Callable[[Sequence[tuple[str, ...]]], Any] | None:
    """What makes a batch of texts, or pairs of them, into a model's inputs; None without one."""
    if task.tokenizer is None or task.kind != "tokens":
        return None
    options = {"padding": True, "truncation": True, "max_length": task.tokens}
    tokenize: Any = task.tokenizer

    def call(rows: Sequence[tuple[str, ...]]) -> Any:
        return tokenize(*map(list, zip(*rows, strict=True)), **options, return_tensors="pt")

    return call
