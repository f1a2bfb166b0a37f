"""Whether attention fits the free memory, checked before the first step.

Memory that runs out on a CPU ends the process, and at times others, without a message. A GPU's
allocator raises a clear error, so it is not checked here.
"""

from __future__ import annotations

import psutil
import torch
from torch import nn
from transformers import PreTrainedModel

from sparing.core.catalogue import mechanism
from sparing.core.errors import UsageError
from sparing.core.heads import Heads
from sparing.core.mechanism import Mechanism
from sparing.core.workload import Workload
from sparing.tasks import Examples, Task
from sparing.train.recipe import Recipe

# Changes of a model besides a swap: dropped tokens, heads or layers change its cost.
PLAIN = {"version", "swap"}
EASY_SHARE = 0.5
GIB = 2**30


def predicted_bytes(model: nn.Module, batch: int, tokens: int, *, training: bool = False) -> int:
    """The memory of attention, at least, for a batch of ``batch`` examples of ``tokens`` tokens.

    From the mechanisms' closed forms (``cost``), counted as for 2-byte numbers. Without gradients
    it is the largest layer's peak. With them it is half of every layer's peak plus half of the
    largest, as scores and weights are alive together and the weights stay for the backward pass. Of
    a transformers model with ``eager`` attention one layer's square counts; fused attention has
    none. It is 0 where tokens, heads or layers may drop out, and no other memory counts: a lower
    bound.
    """
    config = getattr(model, "config", None)
    if not tokens or set(getattr(config, "sparing", None) or PLAIN) - PLAIN:
        return 0
    peaks = [
        _peak(module, batch, tokens) for module in model.modules() if isinstance(module, Mechanism)
    ]
    heads = 0 if peaks else _eager_heads(model)
    if heads:
        return _peak(mechanism("eager", Heads(heads, 1)), batch, tokens)
    if training and _keeps_all(model):
        return (sum(peaks) + max(peaks, default=0)) // 2
    return max(peaks, default=0)


def require_room(model: nn.Module, task: Task, recipe: Recipe) -> None:
    """Raise ``UsageError`` where training by the recipe on a CPU cannot fit the free memory.

    The message has both sizes and a remedy. Tasks of pictures and values are not checked.
    """
    batch, tokens = _longest(task.train, recipe.batch_size)
    needed = predicted_bytes(model, batch, tokens, training=True)
    if on_cpu(recipe) and needed > free_bytes():
        smaller = "smaller batches (recipe.batch_size), " if batch > 1 else ""
        raise UsageError(_shortage(task.name, batch, tokens, needed, "training on", smaller))


def on_cpu(recipe: Recipe) -> bool:
    """Whether a training by this recipe runs on the CPU."""
    return recipe.device == "cpu" or not torch.accelerator.is_available()


def fitting_batch(model: nn.Module, task: Task, examples: Examples, batch_size: int) -> int:
    """The batch size, halved until attention takes at most half of the free memory.

    Answers depend on it only by rounding. Raises ``UsageError`` where one example alone cannot fit.
    """
    size, tokens = _longest(examples, batch_size)
    rows = max(map(len, examples.rows), default=1) if tokens else 1
    free = free_bytes()
    if predicted_bytes(model, size * rows, tokens) <= EASY_SHARE * free:
        return batch_size
    while size > 1 and predicted_bytes(model, size * rows, tokens) > EASY_SHARE * free:
        size //= 2
    needed = predicted_bytes(model, size * rows, tokens)
    if needed > free:
        raise UsageError(_shortage(task.name, size, tokens, needed, "evaluating", ""))
    return size


def free_bytes() -> int:
    """Memory that a process may still take: available memory and free swap."""
    return int(psutil.virtual_memory().available + psutil.swap_memory().free)


def _peak(built: Mechanism, batch: int, tokens: int) -> int:
    heads = built.heads
    cost = built.cost(Workload(batch, heads.count, tokens, tokens, heads.dim, torch.bfloat16))
    return 0 if cost.upper_bound else cost.peak_bytes


def _keeps_all(model: nn.Module) -> bool:
    """Whether the backward pass needs every layer's results: none is frozen or recomputed."""
    recomputed = any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    return not recomputed and all(parameter.requires_grad for parameter in model.parameters())


def _eager_heads(model: nn.Module) -> int:
    """The heads of transformers' unfused attention, where it was chosen; 0 where it was not.

    A model without a fused form may be called eager and have no square at all.
    """
    if not isinstance(model, PreTrainedModel) or not model._supports_sdpa:
        return 0
    eager = model.config._attn_implementation == "eager"
    return int(getattr(model.config, "num_attention_heads", 0)) if eager else 0


def _longest(examples: Examples, batch_size: int) -> tuple[int, int]:
    """Examples in a full batch, and tokens of the longest row; none of pictures and values."""
    texts = examples.input_name == "input_ids"
    return min(batch_size, len(examples)), max(map(max, examples.rows), default=0) if texts else 0


def _shortage(name: str, batch: int, tokens: int, needed: int, doing: str, smaller: str) -> str:
    many = f"a batch of {batch} examples" if batch > 1 else "one example"
    return (
        f"task {name}: {doing} {many} of {tokens:,} tokens needs at least {needed / GIB:.1f} GiB "
        f"for attention, but {free_bytes() / GIB:.1f} GiB are free: take fewer tokens, {smaller}or "
        "a mechanism that stores no square of weights, such as softmax, which is fused, or linear"
    )
