"""BERT with random weights, sized for a task, for its factories."""

from __future__ import annotations

from typing import TypeAlias

from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)

from sparing.models.shared.shape import TaskShape, check_kind, check_sizes, label_names

Bert: TypeAlias = (
    BertForSequenceClassification | BertForTokenClassification | BertForQuestionAnswering
)


def bert(
    name: str,
    task: TaskShape,
    *,
    layers: int,
    heads: int,
    width: int,
    feed_forward_dim: int,
    dropout: float,
) -> Bert:
    """A classifier of texts or of tokens, or a model of first and last tokens for spans.

    ``dropout`` acts on hidden states, not on attention weights, which most efficient mechanisms do
    not have. Vocabulary and positions are the task's. Weights start with deviation 1 / sqrt(width);
    transformers' 0.02 suits widths near 768 and costs narrow models many epochs. Raises
    ``UsageError`` for sizes that do not fit each other or the task.
    """
    check_kind(name, "tokens", task)
    check_sizes(name, layers=layers, heads=heads, width=width, feed_forward_dim=feed_forward_dim)
    config = BertConfig(
        vocab_size=task.vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=feed_forward_dim,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=task.tokens,
        type_vocab_size=task.token_types,
        initializer_range=width**-0.5,
        pad_token_id=task.pad_id,
        **label_names(task),
    )
    if task.answer == "span":
        return BertForQuestionAnswering(config)
    if task.answer == "entities":
        return BertForTokenClassification(config)
    return BertForSequenceClassification(config)
