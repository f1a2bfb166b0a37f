"""Random tiny classifiers of every family that has an adaptive form, in float64."""

from __future__ import annotations

import torch
import transformers
from transformers.models.modernbert import modeling_modernbert

FAMILIES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "electra": "Electra",
    "distilbert": "DistilBert",
    "mpnet": "MPNet",
    "deberta-v2": "DebertaV2",
    "modernbert": "ModernBert",
    "vit": "ViT",
    "deit": "DeiT",
    "clip": "CLIP",
}
IMAGES = ("vit", "deit", "clip")
# layers that know the distances between tokens: none can be dropped
RELATIVE = ("mpnet", "deberta-v2", "modernbert")
WIDTH, LAYERS, HEADS, NEURONS, CLASSES, VOCABULARY = 16, 4, 4, 24, 3, 50
SIZES = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": NEURONS,
    "num_labels": CLASSES,
}
TEXT = {
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 20,
    "type_vocab_size": 2,
    "embedding_size": WIDTH,
    "pad_token_id": 0,
}
# What a family calls its sizes, and settings that matter for its tiny models.
OWN = {
    "distilbert": {"dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": NEURONS},
    "mpnet": {"max_position_embeddings": 22},
    "deberta-v2": {
        "relative_attention": True,
        "position_buckets": 4,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
    "modernbert": {
        "local_attention": 6,
        **dict.fromkeys(("bos_token_id", "cls_token_id"), 1),
        **dict.fromkeys(("eos_token_id", "sep_token_id"), 2),
    },
}


def dense(family="bert", dtype=torch.float64, seed=0, head="", **changes):
    """A random model in evaluation mode; no weight, bias or norm is trivial.

    ``head`` is the end of its class, that of a classifier unless given.
    """
    input_sizes = {"image_size": 8, "patch_size": 4} if family in IMAGES else TEXT
    name = FAMILIES[family]
    sizes = {**SIZES, **input_sizes, **OWN.get(family, {}), **changes}
    if family == "distilbert":
        sizes = {key: value for key, value in sizes.items() if key not in SIZES or "num_l" in key}
    if family == "clip":
        sizes = {"num_labels": sizes.pop("num_labels"), "vision_config": sizes}
    config = getattr(transformers, f"{name}Config")(**sizes)
    usual = "ForImageClassification" if family in IMAGES else "ForSequenceClassification"
    head = head or usual
    torch.manual_seed(seed)
    model = getattr(transformers, f"{name}{head}")._from_config(config, dtype=dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, dtype=torch.float64), alpha=0.3)
    return model


def _rotated(q, k, cos, sin, unsqueeze_dim=1):
    """As ModernBERT rotates, without its rounding of float64 to float32."""
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    half = modeling_modernbert.rotate_half
    return q * cos + half(q) * sin, k * cos + half(k) * sin


modeling_modernbert.apply_rotary_pos_emb = _rotated


def texts(lengths, longest=0, types=False, seed=1):
    """A batch of texts padded on the right; ``longest`` pads all of them to so many tokens."""
    generator = torch.Generator().manual_seed(seed)
    tokens = max([longest, *lengths])
    keep = (torch.arange(tokens) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(3, VOCABULARY, keep.shape, generator=generator) * keep
    given = {"input_ids": ids, "attention_mask": keep}
    if types:
        given["token_type_ids"] = torch.randint(0, 2, keep.shape, generator=generator)
    return given


def images(count=3, seed=1, size=8):
    """A batch of random pixels."""
    generator = torch.Generator().manual_seed(seed)
    shape = (count, 3, size, size)
    return {"pixel_values": torch.randn(shape, generator=generator, dtype=torch.float64)}


def inputs(family, lengths=(9, 4, 7)):
    """A batch of the family's inputs."""
    return images(len(lengths)) if family in IMAGES else texts(list(lengths))


def alone(given, index):
    """One input of a batch, without its pads."""
    one = {name: value[index : index + 1] for name, value in given.items()}
    if "attention_mask" in one:
        real = one["attention_mask"][0].bool()
        one = {name: value[:, real] for name, value in one.items()}
    return one


def near(output, expected, within=1e-10):
    """Equal within so much, shapes and types included."""
    torch.testing.assert_close(output, expected, rtol=within, atol=within)
