"""On a CUDA device every path gives what the processor gives, forward and backward."""

from __future__ import annotations

import copy

import pytest
import torch

from sparing.core.catalogue import MECHANISMS, mechanism_class
from sparing.core.execution.path import call_of, refusal
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.testing.paths import on_path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
BATCH, HEADS, TOKENS, DIM = 2, 3, 700, 64
MOST = {torch.bfloat16: 2.0**-6, torch.float32: 1e-4}


def _cases():
    for name in MECHANISMS.names():
        kind = mechanism_class(name)
        for path in kind.accelerated:
            for causal in [False, True] if kind.traits.causal else [False]:
                for padded in (False, True):
                    case_id = f"{name}-{path}{'-causal' * causal}{'-padded' * padded}"
                    yield pytest.param(name, path, causal, padded, id=case_id)


def _mask(causal, padded, device):
    keep = torch.ones(BATCH, TOKENS, dtype=torch.bool, device=device)
    keep[1, 500:] = False
    keep[0, :30] = False
    return Mask(keep if padded else None, causal)


def _both(made, given, mask, path):
    given = [stream.detach().requires_grad_() for stream in given]
    with on_path(path):
        output = made(*given, mask=mask)
    if mask.keep is not None:
        output = output.where(mask.keep[:, None, :, None], 0)
    if not output.requires_grad:
        return [output.detach()]
    weights = torch.linspace(-1, 1, output.numel(), device=output.device).view_as(output)
    gradients = torch.autograd.grad((output * weights).sum(), given, allow_unused=True)
    return [output.detach(), *(part for part in gradients if part is not None)]


def _error(got, exact):
    exact = exact.to(got.device)
    return ((got.double() - exact).norm() / exact.norm().clamp_min(1e-6)).item()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("name", "path", "causal", "padded"), list(_cases()))
def test_a_path_gives_what_the_processor_gives(name, path, causal, padded, dtype):
    torch.manual_seed(0)
    heads = Heads(HEADS, DIM, width=HEADS * DIM, tokens=TOKENS)
    exact = mechanism_class(name)(heads).eval()
    if padded and not exact.traits.padding:
        pytest.skip("it takes no pads")
    made = copy.deepcopy(exact).to("cuda", dtype)
    shapes = {"x": (BATCH, TOKENS, HEADS * DIM)}
    inside = (BATCH, HEADS, TOKENS, DIM)
    given = [torch.randn(shapes.get(stream, inside)).to("cuda", dtype) for stream in made.streams]
    request = call_of(
        [part.requires_grad_() for part in given], TOKENS, causal=causal, padded=padded
    )
    if reason := refusal(made, path, request):
        pytest.skip(reason)
    widened = [stream.detach().cpu().double() for stream in given]
    expected = _both(exact.double(), widened, _mask(causal, padded, "cpu"), "cpu")
    errors = {}
    for tried in dict.fromkeys(("cpu", path)):
        parts = _both(made, given, _mask(causal, padded, "cuda"), tried)
        errors[tried] = [_error(*pair) for pair in zip(parts, expected, strict=True)]
    for ours, plain in zip(errors[path], errors["cpu"], strict=True):
        assert ours <= max(2 * plain, MOST[dtype])
