"""Encoders to analyse the attention of: the dense ones trained here, and a pretrained one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sparing.transfer.opening import open_model
from sparing_papers.linformer.lengths import rows_of, spread_out, trained_tokens, whole_texts
from sparing_papers.linformer.longer import LinWork, lengthened
from sparing_papers.linformer.options import Options
from sparing_papers.long_range.arms import DENSE

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PRETRAINED = "pretrained"


@dataclass(frozen=True)
class Source:
    """A model to analyse: ``name`` on the page, and a function that gives model and rows by length.

    ``longest`` is the longest input that the model was trained on, ``limit`` the longest that it
    can be given.
    """

    name: str
    seed: int
    longest: int
    limit: int
    at: Callable[[int, int, int], tuple[PreTrainedModel, Tensor]]

    def lengths(self, requested: tuple[int, ...], within: int) -> list[int]:
        """The wanted lengths that the model can be given, and at least ``within`` it learned on.

        Where too few of those are wanted, its own length is added, then the half of it, and on.
        """
        chosen = {tokens for tokens in requested if tokens <= self.limit}
        length = self.longest
        while sum(tokens <= self.longest for tokens in chosen) < within and length > 1:
            chosen.add(length)
            length //= 2
        return sorted(chosen)


def trained_source(work: LinWork, seed: int, options: Options, data: Path | None) -> Source:
    """The dense encoder that was trained with a seed; beyond its length it is made longer."""
    trained = trained_tokens(work)

    def at(tokens: int, count: int, other: int) -> tuple[PreTrainedModel, Tensor]:
        model = work.open(DENSE, seed)
        if tokens > work.task.tokens:
            model = lengthened(work, DENSE, seed, model, tokens)
        return model, rows_of(work, tokens, count, data, seed=other)

    return Source(work.name, seed, trained, trained * max(options.factors), at)


def pretrained_source(options: Options, data: Path | None) -> Source:
    """The pretrained encoder on film reviews, read with its own tokenizer."""
    name = options.pretrained
    config = open_model(name).config
    limit = int(getattr(config, "max_position_embeddings", 512))

    def at(tokens: int, count: int, other: int) -> tuple[PreTrainedModel, Tensor]:
        test = whole_texts("imdb", json.dumps({"tokenizer": name}), data)
        enough = [row for row, n in zip(test.inputs, test.lengths, strict=True) if n >= tokens]
        chosen = spread_out(enough, count, other, f"reviews of {tokens} tokens")
        rows = [torch.cat((row[: tokens - 1], row[-1:])) for row in chosen]
        return open_model(name), torch.stack(rows)

    return Source(PRETRAINED, 0, limit, limit, at)
