"""A vision transformer that predicts one class and one box for an image."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn
from transformers import ViTConfig, ViTModel, ViTPreTrainedModel
from transformers.utils import ModelOutput

from sparing.models._vit import vit_config
from sparing.models.shared.shape import TaskShape

BOX_LAYERS = 3


@dataclass
class DetectorOutput(ModelOutput):  # type: ignore[misc]  # transformers is untyped
    """``logits`` of the classes; ``boxes`` as centre, width and height, in shares of the image."""

    logits: Tensor | None = None
    boxes: Tensor | None = None


class ViTDetector(ViTPreTrainedModel):  # type: ignore[misc]
    """transformers' ViT with two heads on its class token: classes, and a box by a small network.

    Source: the box head of Carion et al., 2020 (DETR), arXiv 2005.12872, section 3.2: three linear
    layers and a sigmoid. What differs: an image has one object, so there is one query, the class
    token, and no matching.
    """

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.vit = ViTModel(config, add_pooling_layer=False)
        self.classifier = nn.Linear(width, config.num_labels)
        hidden = [
            part for _ in range(BOX_LAYERS - 1) for part in (nn.Linear(width, width), nn.ReLU())
        ]
        self.box_head = nn.Sequential(*hidden, nn.Linear(width, 4), nn.Sigmoid())
        self.post_init()

    def forward(
        self,
        pixel_values: Float[Tensor, "batch channels height width"],
        boxes: Float[Tensor, "batch 4"] | None = None,
    ) -> DetectorOutput:
        """Classes and boxes; the true ``boxes`` of a batch are ignored."""
        states = self.vit(pixel_values=pixel_values).last_hidden_state[:, 0]
        return DetectorOutput(logits=self.classifier(states), boxes=self.box_head(states))


def build(
    task: TaskShape,
    *,
    layers: int = 2,
    heads: int = 2,
    width: int = 32,
    feed_forward_dim: int | None = None,
    dropout: float = 0.0,
) -> ViTDetector:
    """A detector with the sizes of ``vit``, for a task with boxes."""
    return ViTDetector(
        vit_config("vit_detector", task, layers, heads, width, feed_forward_dim, dropout)
    )
