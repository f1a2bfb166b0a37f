"""The dense embedding model: an encoder of transformers and the modules behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import ModelOutput

from sparing.core.errors import UsageError
from sparing.core.paths import expanded
from sparing.foreign.sentences import sentences_in, vector_of
from sparing.transfer.importance import Importance, importance
from sparing.transfer.opening import is_folder, open_model

Ids = Int[Tensor, "batch tokens"]


@dataclass
class Embedded(ModelOutput):  # type: ignore[misc]  # transformers is untyped
    """The vector of each text, its tokens after the last layer, and those before.

    ``logits`` are the vectors, under the name that other answers of models have.
    """

    logits: Float[Tensor, "batch numbers"] | None = None
    last_hidden_state: Float[Tensor, "batch tokens width"] | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class SentenceEncoder(nn.Module):
    """A dense embedding model: an encoder of transformers and the modules behind it.

    ``later`` are those of sentence-transformers, such as pooling: see ``foreign.sentences``.
    """

    main_input_name = "input_ids"

    def __init__(self, encoder: PreTrainedModel, later: Sequence[nn.Module]) -> None:
        super().__init__()
        self.encoder, self.later = encoder, nn.ModuleList(later)

    @property
    def config(self) -> Any:
        """The encoder's configuration."""
        return self.encoder.config

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        device: torch.device = self.encoder.device
        return device

    def forward(
        self,
        input_ids: Ids,
        attention_mask: Ids | None = None,
        token_type_ids: Ids | None = None,
        **requests: Any,
    ) -> Embedded:
        """The vectors; the hidden states of all layers with ``output_hidden_states=True``."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        more = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        made = self.encoder(input_ids=input_ids, attention_mask=mask, **more, **requests)
        hidden = made.last_hidden_state
        return Embedded(vector_of(self.later, hidden, mask), hidden, made.hidden_states)


def open_sentences(name: str) -> SentenceEncoder:
    """The embedding model of a folder of sentence-transformers.

    Raises ``UsageError`` where it is none, and what ``open_model`` and ``sentences_in`` raise.
    """
    inside = sentences_in(expanded(name)) if is_folder(name) else None
    if inside is None:
        raise UsageError(f"{name} is not a folder of sentence-transformers: it has no modules.json")
    return SentenceEncoder(open_model(name), inside.open()).eval()


def vector_importance(
    model: SentenceEncoder, batches: Iterable[Mapping[str, Any]], seed: int
) -> Importance:
    """The importance of heads and neurons for a model's vectors: see ``importance``.

    The loss of a text is its vector's coordinate in a random direction. Against the model's own
    vector a loss would have no gradient; over texts and directions the mean of this one's squares
    is the squared size of the vector's derivative.
    """
    generator = torch.Generator().manual_seed(seed)

    def loss(output: Any, batch: Mapping[str, Any]) -> Tensor:
        vector = vector_of(model.later, output.last_hidden_state, batch["attention_mask"])
        drawn = torch.randn(vector.shape, generator=generator)
        return (vector * drawn.to(vector)).sum()

    inputs = ({name: x for name, x in batch.items() if name != "labels"} for batch in batches)
    return importance(model.encoder, inputs, loss=loss)
