"""Calls to be timed, or run in a process of their own: built here from plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from sparing.core.catalogue import mechanism
from sparing.core.errors import Unsupported
from sparing.core.heads import Heads
from sparing.core.mechanism import Mechanism
from sparing.tasks import Task

Call = Callable[[], object]


@dataclass(frozen=True)
class Shape:
    """The sizes of a model's attention and of the layers around it."""

    layers: int
    heads: int
    width: int
    feed_forward_dim: int

    @property
    def dim(self) -> int:
        """Features of one head."""
        return self.width // self.heads


def shape_of(config: Any) -> Shape:
    """The sizes in a transformers configuration; ``Unsupported`` for one without attention."""
    if not hasattr(config, "num_attention_heads"):
        raise Unsupported(f"a model of type {config.model_type} has no attention to compare")
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    return Shape(
        config.num_hidden_layers, config.num_attention_heads, config.hidden_size, int(inner)
    )


def build_core(name: str, options: dict[str, Any], shape: Shape, tokens: int) -> Mechanism:
    """A mechanism of the model's shape, ready to be called."""
    heads = Heads(shape.heads, shape.dim, width=shape.width, tokens=tokens)
    return mechanism(name, heads, **options).eval()


def attention_call(
    built: Mechanism,
    batch: int,
    tokens: int,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> Call:
    """A forward call of a mechanism on normal random inputs, without gradients."""
    generator = torch.Generator().manual_seed(0)
    heads = built.heads
    inside, around = (batch, heads.count, tokens, heads.dim), (batch, tokens, heads.width or 0)
    streams = [
        torch.randn(around if name == "x" else inside, generator=generator).to(device, dtype)
        for name in built.streams
    ]

    def call() -> object:
        with torch.inference_mode():
            return built(*streams)

    return call


def attention(
    name: str, options: dict[str, Any], shape: list[int], tokens: int, batch: int
) -> Call:
    """For a process of its own: ``shape`` is layers, heads, width and feed-forward width."""
    return attention_call(build_core(name, options, Shape(*shape), tokens), batch, tokens)


def model_call(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> Call:
    """A forward call of a model, without gradients."""
    model.eval()

    def call() -> object:
        with torch.inference_mode():
            return model(**inputs)

    return call


@dataclass(frozen=True)
class Text:
    """The least that a text model needs to know of a task."""

    tokens: int
    name: str = "probe"
    kind: Literal["image", "tokens"] = "tokens"
    answer: Literal["class", "labels", "number", "entities", "span", "vector"] = "class"
    labels: tuple[str, ...] = ("a", "b")
    token_types: int = 1
    vocabulary: int = 16
    pad_id: int = 0
    image_size: int = 0
    channels: int = 0
    patch_size: int = 0
    tokenizer: Any = None


def encoder_call(shape: Shape, tokens: int) -> Call:
    """A dense BERT encoder of the given sizes on one sequence: the whole around the core."""
    from sparing.models import build_model

    model = build_model("bert", Text(tokens), seed=0, **_sizes(shape))
    return model_call(model, {"input_ids": torch.zeros(1, tokens, dtype=torch.long)})


def _sizes(shape: Shape) -> dict[str, int]:
    return {
        "layers": shape.layers,
        "heads": shape.heads,
        "width": shape.width,
        "feed_forward_dim": shape.feed_forward_dim,
    }


def task_inputs(task: Task, batch: int) -> dict[str, torch.Tensor]:
    """The first test examples as a batch, without labels; repeated where there are too few."""
    chosen = [task.test[index % len(task.test)] for index in range(batch)]
    inputs = task.collate(chosen)
    inputs.pop("labels")
    return inputs
