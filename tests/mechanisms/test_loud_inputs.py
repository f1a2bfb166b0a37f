"""Large inputs and low precision against float64: rounding alone, never another answer."""

from __future__ import annotations

import pytest
import torch

from sparing import Heads, Mask, UsageError, mechanism
from sparing.core.catalogue import MECHANISMS, mechanism_class

TOKENS = 512
READS_X = [name for name in MECHANISMS.names() if "x" in mechanism_class(name).streams]
# Its Gaussian weights are not normalised: at such distances they, and the answer, vanish.
VANISHING = ("skyformer",)
CASES = [
    (name, causal, dtype)
    for name in MECHANISMS.names()
    if name not in VANISHING
    for causal in [False] + [True] * mechanism_class(name).traits.causal
    for dtype in (torch.float32, torch.bfloat16, torch.float16)
]


def given(made, scale, dtype):
    generator = torch.Generator().manual_seed(0)
    shapes = {"x": (1, TOKENS, 64)}
    return [
        (torch.randn(shapes.get(name, (1, 2, TOKENS, 32)), generator=generator) * scale).to(dtype)
        for name in made.streams
    ]


@torch.no_grad()
@pytest.mark.parametrize(("name", "causal", "dtype"), CASES)
def test_large_inputs_stay_right(name, causal, dtype):
    made, exact = (mechanism(name, Heads(2, 32, tokens=TOKENS)).to(dtype) for _ in range(2))
    made, exact, mask = made.eval(), exact.double().eval(), Mask(causal=causal)
    bound = {torch.float32: 2e-4, torch.bfloat16: 4e-3, torch.float16: 6e-4}[dtype]
    for scale in (10.0, 100.0):
        streams = given(made, scale, dtype)
        expected = exact(*(stream.double() for stream in streams), mask=mask)
        away = (made(*streams, mask=mask).double() - expected).norm() / expected.norm()
        assert away < bound, f"scale {scale:g}: {away:.1e}"


@pytest.mark.parametrize("name", READS_X)
@pytest.mark.parametrize("tokens", [4, 9])
@pytest.mark.parametrize("padded", [False, True])
def test_x_of_another_length_than_the_keys_is_refused(name, tokens, padded):
    made = mechanism(name, Heads(2, 8, tokens=64))
    if "k" not in made.streams:
        pytest.skip("its keys are made of x")
    q, x = torch.randn(1, 2, 5, 8), torch.randn(1, tokens, 16)
    mask = Mask(torch.ones(1, 5, dtype=torch.bool) if padded else None)
    streams = [x if stream == "x" else q for stream in made.streams]
    with pytest.raises(UsageError, match=f"{name}: x must have a token for each key, 5; got "):
        made(*streams, mask=mask)
