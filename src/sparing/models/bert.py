"""A small BERT with random weights: transformers' own class."""

from __future__ import annotations

from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
)

from sparing.models._shape import TaskShape, check_kind, check_sizes, label_names


def build(
    task: TaskShape,
    *,
    layers: int = 2,
    heads: int = 4,
    width: int = 64,
    feed_forward_dim: int | None = None,
    dropout: float = 0.0,
) -> BertForSequenceClassification | BertForQuestionAnswering:
    """A sequence classifier of ``layers`` blocks, ``width`` features and ``heads`` heads.

    Where the task asks for a stretch of a text, it gives first and last tokens instead.
    ``feed_forward_dim`` is twice the width unless given; ``dropout`` acts on hidden states, not on
    attention weights, which most efficient mechanisms do not have. Vocabulary and positions are the
    task's. Weights start with deviation 1 / sqrt(width); transformers' 0.02 is made for widths near
    768 and costs narrow models many epochs. Raises ``UsageError`` for sizes that do not fit each
    other or the task.
    """
    check_kind("bert", "tokens", task)
    inner = 2 * width if feed_forward_dim is None else feed_forward_dim
    check_sizes("bert", layers=layers, heads=heads, width=width, feed_forward_dim=inner)
    config = BertConfig(
        vocab_size=task.vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
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
    return BertForSequenceClassification(config)
