"""Other measurements of a trained encoder: scores under noise, and the weight of neighbours."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.record import Labels, Record, measured
from sparing.tasks import Examples, Task
from sparing.train import evaluate
from sparing.transfer.swap import is_swapped, swap
from sparing_papers.long_range.answers import NOISY_ANSWERS, score_records
from sparing_papers.long_range.arms import DENSE

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DISTANCES = (0, 1, 2, 4, 8, 16, 32, 64, 128)
COMPUTED = ("listops",)
TINY = 1e-6
LONGEST = 512  # most tokens of an input to write the weights of
Seen = list[tuple[Mechanism, dict[str, Tensor], Mask]]


@runtime_checkable
class Measured(Protocol):
    """What a measurement needs to know of the task that a model was trained on."""

    @property
    def name(self) -> str:
        """The task's name."""

    @property
    def task(self) -> Task:
        """The task itself."""


class Noise:
    """Scores where so many of the test texts' tokens are replaced by ones sampled at random."""

    def __init__(self, shares: Sequence[float]) -> None:
        self.shares = shares

    def __call__(self, model: PreTrainedModel, work: Measured, labels: Labels) -> list[Record]:
        """``noisy_score`` and which were right, by share; the same noise for every variant and
        seed.

        Not of expressions, which have another value, or none, with another token.
        """
        if work.task.kind != "tokens" or work.name in COMPUTED:
            return []
        records: list[Record] = []
        for share in self.shares:
            evaluation = evaluate(model, noisy(work.task, share), batch_size=32)
            noisy_labels: Labels = {**labels, "noise": share}
            records += score_records(evaluation, noisy_labels, "noisy_score", NOISY_ANSWERS)
        return records


def noisy(task: Task, share: float) -> Task:
    """The task with that share of its test tokens replaced by ones of other places or texts.

    Every token that occurs in the test texts is sampled as often; class, pad and other marks stay.
    """
    generator, test = torch.Generator().manual_seed(0), task.test
    marks = torch.tensor(sorted(_marks(task)))
    words = torch.unique(torch.cat([*test.inputs]))
    words = words[~torch.isin(words, marks)]
    if not len(words):
        return task
    inputs = []
    for ids in test.inputs:
        drawn = words[torch.randint(len(words), ids.shape, generator=generator)]
        hit = torch.rand(ids.shape, generator=generator) < share
        inputs.append(torch.where(hit & ~torch.isin(ids, marks), drawn, ids))
    changed = Examples(test.input_name, inputs, test.labels, test.token_types)
    return replace(task, test=changed)


def _marks(task: Task) -> set[int]:
    """Tokens that are no words: a tokenizer's own, else pad and class, which are the first two."""
    if task.tokenizer is None:
        return {*range(max(task.pad_id + 1, 2))}
    return {*task.tokenizer.all_special_ids} - {task.tokenizer.unk_token_id}


class Neighbours:
    """The mean weight of keys by their distance from the query, over each key's own mean.

    A key that weighs much for all queries says nothing of distance. One form of Kerformer learns
    such a weight for each position, which would otherwise look like a preference for neighbours.
    """

    def __init__(self, looked_at: int) -> None:
        self.looked_at = looked_at

    def __call__(self, model: PreTrainedModel, work: Measured, labels: Labels) -> list[Record]:
        """``weight_at_distance`` over layers, heads and test inputs at even distances.

        None for a mechanism with weights that may be negative: they have no share of a mean.
        """
        if work.task.kind != "tokens":
            return []
        shown = copy.deepcopy(model).eval()
        if labels["arm"] == DENSE and not is_swapped(shown):
            swap(shown, DENSE, tokens=work.task.tokens)
        sums, counts = torch.zeros(len(DISTANCES)), torch.zeros(len(DISTANCES))
        count = min(self.looked_at, len(work.task.test))
        for number in range(count):
            example = work.task.test[number * len(work.task.test) // count]
            for weights in implied_weights(shown, example):
                if bool((weights < -TINY).any()):
                    return []
                weight_sums, seen = by_distance(weights)
                sums, counts = sums + weight_sums, counts + seen
        records: list[Record] = []
        for least, total, pairs in zip(DISTANCES, sums.tolist(), counts.tolist(), strict=True):
            if pairs:
                at: Labels = {**labels, "distance": least}
                weight, count = total / pairs, max(1, round(pairs))
                records += measured(at, "ratio", count, weight_at_distance=weight)
        return records


@torch.no_grad()
def implied_weights(
    model: nn.Module, example: Mapping[str, Tensor]
) -> list[Float[Tensor, "heads n n"]]:
    """The weights of every swapped layer on one text, up to ``LONGEST``, whatever the mechanism.

    An output is linear in the values: those that are unit vectors, a few columns at a time, give
    the weights of these columns.
    """
    device = next(model.parameters()).device
    row = {name: x[None, :LONGEST].to(device) for name, x in example.items() if name != "labels"}
    with _listening(model) as seen:
        model(**row)
    return [_weights(mechanism, streams, mask) for mechanism, streams, mask in seen]


def _weights(mechanism: Mechanism, streams: dict[str, Tensor], mask: Mask) -> Tensor:
    values = streams["v"]
    _, heads, tokens, dim = values.shape
    columns = []
    for first in range(0, tokens, dim):
        unit = torch.zeros_like(values)
        places = torch.arange(first, min(tokens, first + dim))
        unit[:, :, places, places - first] = 1
        out = mechanism(*(unit if name == "v" else x for name, x in streams.items()), mask=mask)
        columns.append(out[0, :, :, : len(places)])
    return torch.cat(columns, -1).reshape(heads, tokens, tokens).cpu()


@contextmanager
def _listening(model: nn.Module) -> Iterator[Seen]:
    """What every mechanism of the model is called with."""
    seen: Seen = []

    def note(module: Any, args: tuple[Tensor, ...], kwargs: dict[str, Any]) -> None:
        streams = dict(zip(module.streams, args, strict=True))
        seen.append((module, streams, kwargs.get("mask", Mask())))

    hooks = [
        module.register_forward_pre_hook(note, with_kwargs=True)
        for module in model.modules()
        if isinstance(module, Mechanism)
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def by_distance(
    weights: Float[Tensor, "heads n n"],
) -> tuple[Float[Tensor, " distances"], Float[Tensor, " distances"]]:
    """The sums of weights over their key's mean, and how many there are, by distance.

    Each query's weights sum to 1 first. A distance counts for the largest of ``DISTANCES`` that it
    reaches; keys that no query looks at count for nothing.
    """
    tokens = weights.shape[-1]
    places = torch.arange(tokens)
    gaps = (places[:, None] - places[None]).abs().flatten()
    bounds = torch.tensor(DISTANCES)
    bucket = torch.bucketize(gaps, bounds, right=True) - 1
    shares = weights.double() / weights.double().sum(-1, keepdim=True)
    means = shares.mean(-2, keepdim=True)
    seen = (means > TINY / tokens).expand_as(shares).double()
    over = torch.where(seen > 0, shares / means, 0.0)
    sums, counts = torch.zeros(len(DISTANCES)), torch.zeros(len(DISTANCES))
    sums.index_add_(0, bucket, over.mean(0).flatten().float())
    counts.index_add_(0, bucket, seen.mean(0).flatten().float())
    return sums, counts
