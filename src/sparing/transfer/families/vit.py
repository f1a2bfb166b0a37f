"""Vision transformers: ViT, DeiT, and the images' side of CLIP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from sparing.models.shared.shape import image_config
from sparing.transfer.families.form import Family, Sizes, copy_affine


@dataclass(frozen=True)
class Vision(Family):
    """A family that reads images."""

    def sizes(self, config: Any) -> Sizes:
        """The sizes of the part that reads images."""
        inner = image_config(config)
        # CLIP drops only attention weights, under its own name
        alone = hasattr(inner, "attention_dropout")
        return Sizes(
            inner.hidden_size,
            inner.num_attention_heads,
            inner.num_hidden_layers,
            inner.intermediate_size,
            inner.layer_norm_eps,
            inner.hidden_act,
            getattr(inner, "hidden_dropout_prob", 0.0),
            inner.attention_dropout if alone else inner.attention_probs_dropout_prob,
        )

    def new_embeddings(self, config: Any) -> nn.Module:
        """transformers' own embeddings, and their norm."""
        inner = image_config(config)
        module = super().new_embeddings(inner)
        if not self.embedding_norm:
            return module
        norm = nn.LayerNorm(inner.hidden_size, eps=inner.layer_norm_eps)
        return NormedEmbeddings(module, norm)

    def fill_embeddings(self, ours: nn.Module, base: nn.Module) -> None:
        """Copy the embeddings' weights, and those of their norm."""
        if isinstance(ours, NormedEmbeddings):
            copy_affine(ours.norm, base.get_submodule(self.embedding_norm))
            ours = ours.embeddings
        super().fill_embeddings(ours, base)


class NormedEmbeddings(nn.Module):
    """Embeddings and the norm that a family puts between them and its first layer."""

    def __init__(self, embeddings: nn.Module, norm: nn.LayerNorm) -> None:
        super().__init__()
        self.embeddings, self.norm = embeddings, norm

    @property
    def position_embeddings(self) -> nn.Module:
        """One row for each position of a token."""
        table: nn.Module = self.embeddings.position_embedding  # type: ignore[assignment]
        return table

    def forward(
        self, pixel_values: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch tokens hidden_width"]:
        """The normed embeddings of the class token and the patches."""
        rows: Tensor = self.norm(self.embeddings(pixel_values))
        return rows


def _vit_like(embeddings: str) -> Vision:
    return Vision(
        embeddings=embeddings,
        layers=("layers", "encoder.layer"),
        attention_norm="layernorm_before",
        feed_forward_norm="layernorm_after",
        norm_first=True,
        final_norm="layernorm",
        reads="pixel_values",
    )


VIT = _vit_like("transformers.models.vit.modeling_vit.ViTEmbeddings")
DEIT = _vit_like("transformers.models.deit.modeling_deit.DeiTEmbeddings")
CLIP = Vision(
    embeddings="transformers.models.clip.modeling_clip.CLIPVisionEmbeddings",
    layers=("encoder.layers",),
    attention_norm="layer_norm1",
    feed_forward_norm="layer_norm2",
    norm_first=True,
    embedding_norm="pre_layrnorm",
    pooling="others",
    reads="pixel_values",
    home="vision_model",
)
