"""The adaptive form of a model that answers for each token: one checkpoint for any budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForTokenClassification,
    PreTrainedModel,
)
from transformers.modeling_outputs import QuestionAnsweringModelOutput, TokenClassifierOutput

from sparing.core.errors import UsageError
from sparing.foreign.kinds import by_token
from sparing.layers.plan import full_plan
from sparing.transfer.adapting.config import AdaptiveConfig
from sparing.transfer.adapting.conversion import fill
from sparing.transfer.adaptive import ENTRY_VERSION, AdaptiveClassifier
from sparing.transfer.families.dense import require_token_model
from sparing.transfer.families.forms import layer_sizes
from sparing.transfer.importance import Importance, importance
from sparing.transfer.registry import NAME
from sparing.transfer.requests import refuse_outputs, refuse_requests

Ids = Int[Tensor, "batch tokens"]
IGNORED = -100


class _TokenModel(AdaptiveClassifier):
    """What both kinds share. Inputs do not exit early: every token has an answer at the end."""

    def token_logits(
        self,
        input_ids: Ids | None,
        attention_mask: Ids | None,
        token_type_ids: Ids | None,
        requests: Mapping[str, Any],
    ) -> Float[Tensor, "batch tokens outputs"]:
        """The logits of every token; 0 at pads. Other ``requests`` raise ``Unsupported``."""
        refuse_requests("an adaptive model", requests)
        refuse_outputs(self.config)
        rows, layout = self.embed(input_ids, attention_mask, token_type_ids)
        assert input_ids is not None
        answers = self.encoder.trace(rows, layout, self.plan).answers[self.plan.layers]
        if attention_mask is None:
            return answers.view(*input_ids.shape, answers.shape[-1])
        logits = answers.new_zeros(*input_ids.shape, answers.shape[-1])
        logits[attention_mask.bool()] = answers
        return logits

    def _given(self, output: Any, return_dict: bool | None) -> Any:
        named = self.config.return_dict if return_dict is None else return_dict
        return output if named else output.to_tuple()


class AdaptiveForTokenClassification(_TokenModel):
    """The adaptive form of a ...ForTokenClassification: it runs a plan, and labels every token.

    Made by ``adapt_tokens``, read by ``sparing.load``.
    """

    def forward(  # type: ignore[override]
        self,
        input_ids: Ids | None = None,
        attention_mask: Ids | None = None,
        token_type_ids: Ids | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        **requests: Any,
    ) -> TokenClassifierOutput | tuple[Any, ...]:
        """Run the plan; ``labels`` of -100 have no loss. Other requests raise ``Unsupported``."""
        logits = self.token_logits(input_ids, attention_mask, token_type_ids, requests)
        loss = None if labels is None else self._loss(logits, labels)
        return self._given(TokenClassifierOutput(loss=loss, logits=logits), return_dict)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        if labels.shape != logits.shape[:2] or labels.is_floating_point():
            raise UsageError(
                f"labels must be one class number a token, {tuple(logits.shape[:2])}; got "
                f"{labels.dtype} of shape {tuple(labels.shape)}"
            )
        outside = labels[(labels != IGNORED) & ((labels < 0) | (labels >= logits.shape[-1]))]
        if outside.numel():
            last = logits.shape[-1] - 1
            raise UsageError(f"labels must be from 0 to {last}, or -100; got {int(outside[0])}")
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten().long())


class AdaptiveForQuestionAnswering(_TokenModel):
    """The adaptive form of a ...ForQuestionAnswering: the ends of an answer in a passage.

    Made by ``adapt_tokens``, read by ``sparing.load``.
    """

    def forward(  # type: ignore[override]
        self,
        input_ids: Ids | None = None,
        attention_mask: Ids | None = None,
        token_type_ids: Ids | None = None,
        start_positions: Int[Tensor, " batch"] | None = None,
        end_positions: Int[Tensor, " batch"] | None = None,
        return_dict: bool | None = None,
        **requests: Any,
    ) -> QuestionAnsweringModelOutput | tuple[Any, ...]:
        """Run the plan; the loss is the mean over both ends. Other requests are refused."""
        logits = self.token_logits(input_ids, attention_mask, token_type_ids, requests)
        start, end = logits.unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            pairs = ((start, start_positions), (end, end_positions))
            # an answer that was cut off has no loss
            losses = [
                functional.cross_entropy(
                    made, position.reshape(-1).clamp(0, made.shape[1]), ignore_index=made.shape[1]
                )
                for made, position in pairs
            ]
            loss = torch.stack(losses).mean()
        output = QuestionAnsweringModelOutput(loss=loss, start_logits=start, end_logits=end)
        return self._given(output, return_dict)


AdaptiveTokenModel = AdaptiveForTokenClassification | AdaptiveForQuestionAnswering
CLASSES: Mapping[str, type[AdaptiveTokenModel]] = {
    "entities": AdaptiveForTokenClassification,
    "span": AdaptiveForQuestionAnswering,
}


def adapt_tokens(model: nn.Module, depths: Sequence[int] | None = None) -> AdaptiveTokenModel:
    """The adaptive form of a dense model that answers for each token, with the same answers.

    ``depths`` are the layers at which a plan may end (every layer unless given); their heads begin
    with the weights of the model's own. The dense model does not change. Raises ``Unsupported`` for
    families without an adaptive form and for other models.
    """
    dense = require_token_model(model)
    answer = by_token(type(dense).__name__)
    assert answer is not None
    config = AdaptiveConfig.from_base(dense.config)
    sizes = layer_sizes(config)
    entry = {
        "sizes": [size.to_list() for size in sizes],
        "exits": sorted({*(depths or range(1, len(sizes) + 1)), len(sizes)}),
        "plan": full_plan(sizes).to_dict(),
        "tokens": answer,
    }
    setattr(config, NAME, {"version": ENTRY_VERSION, "adaptive": entry})
    with torch.random.fork_rng(devices=[]):  # initial values are overwritten
        adaptive = CLASSES[answer](config)
    adaptive.to(device=dense.device, dtype=dense.dtype)
    fill(adaptive.embeddings, adaptive.encoder, dense)
    adaptive.train(dense.training)
    return adaptive


def token_importance(
    model: PreTrainedModel, batches: Iterable[Mapping[str, Any]], seed: int
) -> Importance:
    """The importance of heads and neurons for the answers of a model: see ``importance``.

    The loss of a text is the cross-entropy against labels of its tokens that are sampled from the
    model's own probabilities; of a span, against both ends. Against its own answers a loss would
    have no gradient.
    """
    generator = torch.Generator().manual_seed(seed)

    def loss(output: Any, batch: Mapping[str, Any]) -> Tensor:
        keep = batch["attention_mask"].bool()
        if by_token(type(model).__name__) == "span":
            ends = (output.start_logits, output.end_logits)
            return torch.stack([_sampled_loss(z.masked_fill(~keep, -1e4)) for z in ends]).sum()
        return _sampled_loss(output.logits[keep])

    def _sampled_loss(logits: Tensor) -> Tensor:
        chances = logits.detach().float().softmax(-1).cpu()
        labels = torch.multinomial(chances, 1, generator=generator)[:, 0]
        return functional.cross_entropy(logits, labels.to(logits.device), reduction="sum")

    inputs = ({name: x for name, x in batch.items() if name != "labels"} for batch in batches)
    return importance(model, inputs, loss=loss)


for _auto, _kind in (
    (AutoModelForTokenClassification, AdaptiveForTokenClassification),
    (AutoModelForQuestionAnswering, AdaptiveForQuestionAnswering),
):
    _auto.register(AdaptiveConfig, _kind, exist_ok=True)
