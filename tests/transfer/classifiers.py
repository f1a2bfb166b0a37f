"""Random tiny classifiers of every family that has an adaptive form, in float64."""

from __future__ import annotations

import torch
import transformers

FAMILIES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "electra": "Electra",
    "vit": "ViT",
    "deit": "DeiT",
    "clip": "CLIP",
}
IMAGES = ("vit", "deit", "clip")
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


def dense(family="bert", dtype=torch.float64, seed=0, **changes):
    """A random classifier in evaluation mode; no weight, bias or norm is trivial."""
    input_sizes = {"image_size": 8, "patch_size": 4} if family in IMAGES else TEXT
    name = FAMILIES[family]
    sizes = {**SIZES, **input_sizes, **changes}
    if family == "clip":
        sizes = {"num_labels": sizes.pop("num_labels"), "vision_config": sizes}
    config = getattr(transformers, f"{name}Config")(**sizes)
    head = "ForImageClassification" if family in IMAGES else "ForSequenceClassification"
    torch.manual_seed(seed)
    model = getattr(transformers, f"{name}{head}")._from_config(config, dtype=dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, dtype=torch.float64), alpha=0.3)
    return model


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
