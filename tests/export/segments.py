"""Small encoders of random weights, cut into segments that can be run one after another."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, CLASSES, TOKENS, VOCABULARY = 32, 4, 3, 24, 50


class Layer(nn.Module):
    """Attention and feed-forward, with a norm after each."""

    def __init__(self):
        super().__init__()
        self.projection = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)
        self.rise, self.fall = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])

    def forward(self, rows, visible):
        split = self.projection(rows).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(3 * q, k, v, attn_mask=visible)
        rows = self.norms[0](rows + self.output(mixed.transpose(1, 2).flatten(2)))
        return self.norms[1](rows + self.fall(F.gelu(self.rise(rows))))


class Segment(nn.Module):
    """Some layers and a head on the first token, sharp enough that some inputs are sure."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.head = nn.Linear(WIDTH, CLASSES)
        nn.init.normal_(self.head.weight, std=0.4)

    def finish(self, rows, mask):
        visible = None if mask is None else mask.bool()[:, None, None, :]
        for layer in self.layers:
            rows = layer(rows, visible)
        return rows, self.head(rows[:, 0])


class TextSegment(Segment):
    """The first segment for texts."""

    def __init__(self, layers):
        super().__init__(layers)
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(TOKENS, WIDTH)
        self.kinds = nn.Embedding(2, WIDTH)

    def forward(self, input_ids, attention_mask, token_type_ids=None):
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        rows = self.words(input_ids) + self.places(places)
        if token_type_ids is not None:
            rows = rows + self.kinds(token_type_ids)
        return self.finish(rows, attention_mask)


class ImageSegment(Segment):
    """The first segment for images of 16 x 16, in patches of 4 x 4."""

    def __init__(self, layers):
        super().__init__(layers)
        self.patches = nn.Conv2d(1, WIDTH, 4, 4)

    def forward(self, pixel_values):
        return self.finish(self.patches(pixel_values).flatten(2).transpose(1, 2), None)


class LaterSegment(Segment):
    """A segment that goes on from hidden states."""

    def forward(self, hidden, attention_mask=None):
        return self.finish(hidden, attention_mask)


class Answers(nn.Module):
    """A dense model: a segment of which only the logits are wanted."""

    def __init__(self, layers):
        super().__init__()
        self.segment = TextSegment(layers)

    def forward(self, input_ids, attention_mask):
        return self.segment(input_ids, attention_mask)[1]


def text_segments(layers=(1, 1), seed=0):
    torch.manual_seed(seed)
    kinds = [TextSegment, *[LaterSegment] * (len(layers) - 1)]
    return [kind(count).eval() for kind, count in zip(kinds, layers, strict=True)]


def image_segments(layers=(1, 1), seed=0):
    torch.manual_seed(seed)
    kinds = [ImageSegment, *[LaterSegment] * (len(layers) - 1)]
    return [kind(count).eval() for kind, count in zip(kinds, layers, strict=True)]


def texts(batch=40, tokens=TOKENS, seed=1, pairs=False):
    """Random texts of different lengths, padded on the right; the first is the longest."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, tokens + 1, (batch,), generator=generator)
    lengths[0] = tokens
    mask = (torch.arange(tokens) < lengths[:, None]).long()
    ids = torch.randint(1, VOCABULARY, (batch, tokens), generator=generator) * mask
    given = {"input_ids": ids, "attention_mask": mask}
    if pairs:
        given["token_type_ids"] = (torch.arange(tokens) > lengths[:, None] // 2).long() * mask
    return given


def images(batch=20, seed=1):
    return {"pixel_values": torch.randn(batch, 1, 16, 16, generator=_generator(seed))}


def one(inputs, number):
    """A single input, without its pads."""
    row = {name: value[number : number + 1] for name, value in inputs.items()}
    if "attention_mask" not in row:
        return row
    length = int(row["attention_mask"].sum())
    return {name: value[:, :length] for name, value in row.items()}


def _generator(seed):
    return torch.Generator().manual_seed(seed)
