"""What PyTorch's exporter to ONNX makes of a mechanism: the eager answers, as the trait says."""

from __future__ import annotations

import pytest
import torch

from sparing import Heads, Mask, mechanism
from sparing.core.catalogue import MECHANISMS, mechanism_class

onnxruntime = pytest.importorskip("onnxruntime")
FREE = torch.export.Dim.DYNAMIC
FAST = ("linear", "linformer", "softmax", "window")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.usefixtures("unchecked_shapes"),
]


class Padded(torch.nn.Module):
    """A mechanism as a module that takes tensors alone."""

    def __init__(self, made, causal):
        super().__init__()
        self.made, self.causal = made, causal

    def forward(self, streams, keep):
        return self.made(*streams, mask=Mask(keep, self.causal))


def inputs(made, batch, tokens):
    generator = torch.Generator().manual_seed(tokens)
    shapes = {"x": (batch, tokens, 16)}
    streams = [
        torch.randn(shapes.get(name, (batch, 2, tokens, 8)), generator=generator)
        for name in made.streams
    ]
    keep = torch.ones(batch, tokens, dtype=torch.bool)
    keep[0, :3] = keep[1, tokens - 5 :] = keep[1, 4] = False
    return streams, keep


def gap(name, causal, path):
    """The largest difference to the eager answer, exported unpadded at 24 tokens."""
    module = Padded(mechanism(name, Heads(2, 8, tokens=512)), causal).eval()
    streams, keep = inputs(module.made, 2, 24)
    sizes = ([{0: FREE, stream.ndim - 2: FREE} for stream in streams], {0: FREE, 1: FREE})
    given = (streams, torch.ones_like(keep))
    program = torch.onnx.export(module, given, dynamo=True, dynamic_shapes=sizes, verbose=False)
    program.save(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    worst = 0.0
    for tokens in (24, 37, 200):
        streams, keep = inputs(module.made, 3, tokens)
        fed = zip(session.get_inputs(), [*streams, keep], strict=True)
        (answer,) = session.run(None, {one.name: stream.numpy() for one, stream in fed})
        away = (torch.from_numpy(answer) - module(streams, keep)).abs()
        worst = max(worst, (away * keep[:, None, :, None]).max().item())
    return worst


def cases():
    for name in MECHANISMS.names():
        for causal in [False] + [True] * mechanism_class(name).traits.causal:
            marks = () if name in FAST and not causal else (pytest.mark.slow,)
            yield pytest.param(name, causal, marks=marks, id=f"{name}-{causal}")


@torch.no_grad()
@pytest.mark.parametrize(("name", "causal"), list(cases()))
def test_onnx_gives_the_eager_answers_as_declared(name, causal, tmp_path):
    path = str(tmp_path / "mechanism.onnx")
    if mechanism_class(name).traits.onnx:
        assert gap(name, causal, path) < 2e-5
        return
    try:
        worst = gap(name, causal, path)
    except Exception:
        return
    assert worst >= 2e-5, f"{name} declares onnx=False, but all is right"
