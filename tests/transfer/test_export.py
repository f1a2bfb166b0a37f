"""A swapped model exports with padding, at one shape for others; what cannot is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import sparing
from tests.transfer.families import build, inputs, output

pytestmark = pytest.mark.usefixtures("free_sizes")
ANY = torch.export.Dim.AUTO


def _export(model, given):
    shapes = {name: {0: ANY, 1: ANY} for name in given}
    return torch.export.export(model, (), given, dynamic_shapes=shapes).module()


@pytest.mark.parametrize(
    ("family", "mechanism", "layers"),
    [("bert", "softmax", None), ("bert", "kerformer", [0]), ("llama", "linear", None)],
)
def test_export_with_padding(family, mechanism, layers):
    model = build(family, num_hidden_layers=2)
    model.config.use_cache = False
    sparing.swap(model, mechanism, layers)
    exported = _export(model, inputs(family))
    given = inputs(family, "both", batch=4, tokens=13)
    torch.testing.assert_close(
        output(exported, given), output(model, given), rtol=1e-10, atol=1e-10
    )


def test_a_decoder_without_a_mask_is_not_exported_as_packed():
    model = build("gpt2")
    model.config.use_cache = False
    sparing.swap(model, "softmax")
    with pytest.raises(sparing.Unsupported, match="give attention_mask when exporting"):
        _export(model, inputs("gpt2", "none"))


COMPILE = """
import torch
import sparing
from sparing.core.catalogue import MECHANISMS, mechanism_class
from tests.transfer.families import build, inputs, output

for name in MECHANISMS.names():
    families = ("bert", "llama") if mechanism_class(name).traits.causal else ("bert",)
    for family in families:
        model, given = build(family), {**inputs(family), "use_cache": False}
        sparing.swap(model, name, layers=[0, 2])
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        with torch.no_grad():
            torch.testing.assert_close(output(compiled, given), output(model, given))
"""


@pytest.mark.slow
def test_every_mechanism_compiles_into_one_graph():
    """In a process of its own: the checks of annotations cannot be compiled."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
