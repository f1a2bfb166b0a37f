"""The adaptive form of an embedding model: one checkpoint of vectors for any budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from sparing.core.errors import Unsupported, UsageError
from sparing.foreign.sentences import VECTOR
from sparing.layers.plan import full_plan
from sparing.layers.vectors import ACTIVATIONS, VectorForm, VectorHead
from sparing.transfer.adapting.config import AdaptiveConfig
from sparing.transfer.adapting.conversion import fill
from sparing.transfer.adaptive import ENTRY_VERSION, AdaptiveClassifier
from sparing.transfer.embedding.dense import Embedded, Ids, SentenceEncoder
from sparing.transfer.families.dense import require_encoder
from sparing.transfer.families.forms import layer_sizes
from sparing.transfer.families.known import family_of
from sparing.transfer.registry import NAME
from sparing.transfer.requests import refuse_outputs, refuse_requests


class AdaptiveEmbedder(AdaptiveClassifier):
    """The adaptive form of an embedding model: it runs a plan, and gives vectors.

    Inputs do not exit early: nothing says how near an early vector is. ``last_hidden_state`` are
    the tokens that sentence-transformers pools; the linear layer that the vector also goes through
    is one of that folder's modules. Made by ``adapt_embedder``, read by ``sparing.load``.
    """

    def forward(  # type: ignore[override]
        self,
        input_ids: Ids | None = None,
        attention_mask: Ids | None = None,
        token_type_ids: Ids | None = None,
        return_dict: bool | None = None,
        **requests: Any,
    ) -> Embedded | tuple[Any, ...]:
        """Run the plan; arguments that request other outputs raise ``Unsupported``."""
        refuse_requests("an adaptive model", requests)
        refuse_outputs(self.config)
        rows, layout = self.embed(input_ids, attention_mask, token_type_ids)
        trace = self.encoder.trace(rows, layout, self.plan)
        hidden = layout.to_padded(self.head.normed(trace.states[-1]))
        assert input_ids is not None
        pads = input_ids.shape[1] - hidden.shape[1]
        hidden = nn.functional.pad(hidden, (0, 0, 0, pads))
        output = Embedded(trace.answers[self.plan.layers], hidden)
        named = self.config.return_dict if return_dict is None else return_dict
        return output if named else output.to_tuple()

    @property
    def head(self) -> VectorHead:
        """What makes the vector at the plan's end."""
        head = self.encoder.head(self.plan.layers)
        assert isinstance(head, VectorHead)
        return head


def adapt_embedder(model: SentenceEncoder, depths: Sequence[int] | None = None) -> AdaptiveEmbedder:
    """The adaptive form of a dense embedding model, with the same vectors until a plan is set.

    ``depths`` are the layers at which a plan may end (every layer unless given). The dense model
    does not change. Raises ``Unsupported`` for families without an adaptive form, and for modules
    behind the encoder that it does not have.
    """
    dense = require_embedder(model)
    form = vector_form(model.later, family_of(dense.config).sizes(dense.config).width)
    config = AdaptiveConfig.from_base(dense.config)
    sizes = layer_sizes(config)
    places = sorted({*(depths or range(1, len(sizes) + 1)), len(sizes)})
    entry = {
        "sizes": [size.to_list() for size in sizes],
        "exits": places,
        "plan": full_plan(sizes).to_dict(),
        **form.entry,
    }
    setattr(config, NAME, {"version": ENTRY_VERSION, "adaptive": entry})
    with torch.random.fork_rng(devices=[]):  # initial values are overwritten
        adaptive = AdaptiveEmbedder(config)
    adaptive.to(device=dense.device, dtype=dense.dtype)
    fill(adaptive.embeddings, adaptive.encoder, dense)
    linears = [module.linear for module in _dense_modules(model.later)]
    for number in places:
        head: Any = adaptive.encoder.head(number)
        for ours, theirs in zip(head.linears, linears, strict=True):
            ours.load_state_dict(theirs.state_dict())
    adaptive.train(model.training)
    return adaptive


def require_embedder(model: SentenceEncoder) -> PreTrainedModel:
    """The encoder of a model that has an adaptive form; else ``Unsupported`` with the reason."""
    encoder = require_encoder(model.encoder)
    vector_form(model.later, family_of(encoder.config).sizes(encoder.config).width)
    return encoder


def vector_form(later: Iterable[nn.Module], width: int) -> VectorForm:
    """The form of the modules behind an encoder.

    Raises ``Unsupported``, naming it, for one that an adaptive form does not have.
    """
    later = list(later)
    kinds = [type(module).__name__ for module in later]
    dense = _dense_modules(later)
    unit = kinds[-1:] == ["Normalize"]
    if kinds != ["Pooling", *["Dense"] * len(dense), *["Normalize"] * unit]:
        raise Unsupported(
            f"an adaptive form has a pooling, linear layers and a norm after them; this has {kinds}"
        )
    pooling: Any = later[0]
    if not getattr(pooling, "include_prompt", True):
        raise Unsupported("a pooling that leaves the prompt out has no adaptive form")
    layers = tuple(_layer(module) for module in dense)
    try:
        return VectorForm(width, _pooling_mode(pooling), layers, unit)
    except UsageError as error:
        raise Unsupported(f"the embedding model has no adaptive form: {error}") from error


def _dense_modules(later: Iterable[nn.Module]) -> list[Any]:
    return [module for module in later if type(module).__name__ == "Dense"]


def _pooling_mode(pooling: Any) -> str:
    """Its mode; older releases of sentence-transformers state it in words only."""
    mode = getattr(pooling, "pooling_mode", None)
    return mode if isinstance(mode, str) else str(pooling.get_pooling_mode_str())


def _layer(module: Any) -> tuple[int, str, bool]:
    """Outputs, activation and whether there is a bias."""
    activation = type(module.activation_function).__name__.lower()
    residual = getattr(module, "use_residual", False)
    names = {getattr(module, f"module_{side}_name", VECTOR) for side in ("input", "output")}
    if activation not in ACTIVATIONS or residual or names != {VECTOR}:
        known = " or ".join(ACTIVATIONS)
        raise Unsupported(
            f"a Dense module with {activation}, a residual or other inputs has no adaptive form; "
            f"one with {known} has"
        )
    return module.linear.out_features, activation, module.linear.bias is not None
