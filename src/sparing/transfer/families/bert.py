"""BERT, and the families that differ from it in names only."""

from __future__ import annotations

from sparing.transfer.families.form import Family


def bert_like(
    kind: str,
    head_dense: str = "classifier.dense",
    head_activation: str = "tanh",
    classifier: str = "classifier.out_proj",
) -> Family:
    """A family with BERT's layers; its names follow from ``kind``, that of its module."""
    name = "".join(part.title() for part in kind.split("_")).replace("Xlm", "XLM")
    return Family(
        embeddings=f"transformers.models.{kind}.modeling_{kind}.{name}Embeddings",
        layers=("encoder.layer",),
        attention_norm="attention.output.LayerNorm",
        feed_forward_norm="output.LayerNorm",
        classifier=classifier,
        head_dense=head_dense,
        head_activation=head_activation,
    )


BERT = bert_like("bert", "bert.pooler.dense", classifier="classifier")
ROBERTA = bert_like("roberta")
XLM_ROBERTA = bert_like("xlm_roberta")
CAMEMBERT = bert_like("camembert")
ELECTRA = bert_like("electra", head_activation="gelu")
