"""Advice on CLIP: its image classifier is measured, its two towers together are refused."""

from __future__ import annotations

import pytest
from transformers import CLIPConfig, CLIPForImageClassification, CLIPModel

from sparing.advise.model import open_subject, random_inputs, resolve_tokens
from sparing.core.errors import Unsupported

SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
CONFIG = CLIPConfig(
    text_config={**SIZES, "vocab_size": 50, "max_position_embeddings": 20},
    vision_config={**SIZES, "image_size": 8, "patch_size": 4},
    projection_dim=8,
)


def test_its_image_classifier_is_given_images():
    subject = open_subject(CLIPForImageClassification(CONFIG))
    assert (subject.reads, resolve_tokens(subject, None)) == ("images", 5)
    given = random_inputs(subject, 3, 5)
    assert given["pixel_values"].shape == (3, 3, 8, 8)
    assert subject.model(**given).logits.shape[0] == 3


def test_both_towers_at_once_are_refused():
    with pytest.raises(Unsupported, match="CLIPModel reads texts and images together"):
        open_subject(CLIPModel(CONFIG))
