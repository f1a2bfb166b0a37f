"""Random elastic layers and encoders in float64, and ragged rows for them."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from sparing.layers.elastic import ElasticLayer, LayerForm
from sparing.layers.encoder import AdaptiveEncoder
from sparing.layers.heads import BodyForm, HeadForm
from sparing.layers.packing import Packed
from sparing.layers.plan import LayerSizes, full_plan

WIDTH, CLASSES = 12, 3
SIZES = LayerSizes(heads=4, query_dim=3, value_dim=5, neurons=16)


def form(norm_first=False, **changes):
    """What the layers share; a scale that no width implies."""
    common = {"width": WIDTH, "scale": 0.7, "norm_epsilon": 1e-6, "activation": F.gelu}
    return LayerForm(**{**common, "norm_first": norm_first, **changes})


def _perturbed(module, seed):
    """No weight, bias or norm is trivial."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(noise, alpha=0.4)
    return module


def layer(norm_first=False, seed=0, **changes):
    """One random layer in evaluation mode."""
    torch.manual_seed(seed)
    return _perturbed(ElasticLayer(SIZES, form(norm_first, **changes)).double(), seed).eval()


def encoder(layers=4, exits=(1, 2, 3), norm_first=False, seed=0):
    """A random encoder in evaluation mode; its heads differ."""
    torch.manual_seed(seed)
    body = BodyForm(WIDTH, "" if norm_first else "tanh", 1e-6 if norm_first else None)
    head = HeadForm(body, CLASSES)
    built = AdaptiveEncoder([SIZES] * layers, form(norm_first), head, exits)
    return _perturbed(built.double(), seed).eval()


def packed(lengths, seed=1):
    """Random rows of sequences of these lengths, and their layout."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(sum(lengths), WIDTH, generator=generator, dtype=torch.float64)
    return rows, Packed(torch.tensor(lengths, dtype=torch.long))


def apart(rows, lengths):
    """The same sequences, each by itself."""
    return [(part, Packed(torch.tensor([len(part)]))) for part in rows.split(list(lengths))]


def whole(built):
    """The plan that runs everything."""
    return full_plan(built.sizes)


def near(output, expected, within=1e-12):
    """Equal within so much, shapes and types included."""
    torch.testing.assert_close(output, expected, rtol=within, atol=within)
