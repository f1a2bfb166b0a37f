"""Inputs of models that are named on the command line: random batches and batches of texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.core.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

SHOWN_TEXTS = 64
TEXTS_A_BATCH = 8


def random_inputs(
    model: PreTrainedModel, batch: int, tokens: int, seed: int = 0
) -> dict[str, Tensor]:
    """A batch of random tokens without pads, or of random images for a model that reads those.

    Raises ``UsageError`` when the model reads something else, or fewer tokens.
    """
    import torch

    from sparing.experiment.inputs.fit import token_limit

    generator = torch.Generator().manual_seed(seed)
    config, name = model.config, model.main_input_name
    if name == "pixel_values":
        from sparing.models.shared.shape import image_config

        sizes = image_config(config)
        size = sizes.image_size
        height, width = size if isinstance(size, list | tuple) else (size, size)
        shape = (batch, sizes.num_channels, height, width)
        dtype = next(model.parameters()).dtype
        return {name: torch.randn(shape, generator=generator).to(dtype)}
    if getattr(config, "vision_config", None) is not None:
        raise UsageError(
            f"{type(model).__name__} reads texts and images together; here a model reads one of "
            "them: save its text or vision model by itself, or call sparing.swap on the whole"
        )
    if name != "input_ids" or not getattr(config, "vocab_size", 0):
        raise UsageError(f"{type(model).__name__} reads {name}, neither tokens nor images")
    limit = token_limit(model)
    if limit is not None and tokens > limit:
        raise UsageError(
            f"{tokens} tokens are too many: this {type(model).__name__} reads at most {limit}"
        )
    ids = torch.randint(0, config.vocab_size, (batch, tokens), generator=generator)
    ids[torch.isin(ids, _special(config))] = _plain_token(config)
    if config.eos_token_id is not None and config.is_encoder_decoder:
        ids[:, -1] = config.eos_token_id  # its classifiers read the answer there
    return {name: ids, "attention_mask": torch.ones_like(ids)}


def _special(config: Any) -> Tensor:
    import torch

    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    numbers = [getattr(config, name, None) for name in names]
    return torch.tensor([number for number in numbers if isinstance(number, int)])


def _plain_token(config: Any) -> int:
    special = set(_special(config).tolist())
    return next(number for number in range(config.vocab_size) if number not in special)


def text_batches(
    name: str, model: PreTrainedModel, texts: Path, tokens: int | None = None
) -> list[dict[str, Tensor]]:
    """The first rows of a file of texts as padded batches, cut to what the model reads.

    Raises ``DataError`` for a file that cannot be read and ``UsageError`` where the model comes
    without a tokenizer.
    """
    from sparing.experiment.inputs.fit import token_limit
    from sparing.export.saving import tokenizer_of
    from sparing.tasks.texts import read_texts

    rows = read_texts(texts).rows[:SHOWN_TEXTS]
    tokenizer = tokenizer_of(name)
    if tokenizer is None:
        raise UsageError(f"--texts needs a tokenizer, and {name!r} comes without one")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    limits = [limit for limit in (token_limit(model), tokens) if limit is not None]
    longest = min(limits, default=None)
    starts = range(0, len(rows), TEXTS_A_BATCH)
    return [
        dict(
            tokenizer(
                *map(list, zip(*rows[start : start + TEXTS_A_BATCH], strict=True)),
                padding=True,
                truncation=longest is not None,
                max_length=longest,
                return_tensors="pt",
            )
        )
        for start in starts
    ]


def forward_call(name: str, dense: bool, tokens: int, batch: int) -> Callable[[], object]:
    """For a process of its own: a forward call of a model on random inputs, without gradients.

    ``dense`` gives a swapped model transformers' own attention back.
    """
    from sparing.transfer.opening import open_model
    from sparing.transfer.swap import unswap

    model = open_model(name).eval()
    if dense:
        unswap(model)
    return call_of(model, random_inputs(model, batch, tokens))


def call_of(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Callable[[], object]:
    """A forward call without gradients."""
    import torch

    def call() -> object:
        with torch.inference_mode():
            return model(**inputs)

    return call
