"""What the test of memory growth measures, in a process of its own."""

from __future__ import annotations

import torch

from sparing.core.catalogue import mechanism
from sparing.core.heads import Heads
from sparing.core.mask import Mask


def attention(name, tokens, causal):
    """A call of a mechanism with its defaults on eight heads of 64."""
    made = mechanism(name, Heads(8, 64, tokens=tokens)).eval()
    inside, around = (1, 8, tokens, 64), (1, tokens, 512)
    streams = [torch.ones(around if stream == "x" else inside) for stream in made.streams]
    for number, stream in enumerate(streams):
        stream.normal_(generator=torch.Generator().manual_seed(number))
    mask = Mask(causal=causal)

    def call():
        with torch.inference_mode():
            return made(*streams, mask=mask)

    return call
