"""Every path of a mechanism gives what the others give, and launches no more than it should."""

from __future__ import annotations

import pytest
import torch

from sparing.core.catalogue import MECHANISMS, mechanism_class
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.measure.dispatched import count_dispatched
from sparing.testing.paths import on_path, written_out
from sparing.testing.subject import call, masks, require_close, streams
from sparing.testing.subjects import subjects

TOKENS = 75
MOST = 120
MOST_FIRST_TIER = 60
LINEAR = ("cosformer", "efficient", "kerformer", "linear", "performer", "random_features")
MOST_PASSES = 8.0
NOT_COUNTED = ("additive", "difference")
SIZES = ((2, 12, 1536), (3, 12, 1536), (2, 6, 1536), (2, 12, 6144))


def _accelerated():
    names = [name for name in MECHANISMS.names() if mechanism_class(name).accelerated]
    return [name for name in names if "accelerator" in mechanism_class(name).accelerated]


def _cases(written=False):
    for name in _accelerated():
        for number, subject in enumerate(subjects(name, mechanism_class(name))):
            if written and written_out(subject.make()) is None:
                continue
            for causal in masks(subject):
                case_id = f"{name}{number or ''}{'-causal' if causal else ''}"
                yield pytest.param(subject, causal, id=case_id)


def _masks(made, causal, tokens):
    yield Mask(causal=causal)
    if made.traits.padding:
        keep = torch.ones(3, tokens, dtype=torch.bool)
        keep[0, : tokens // 5] = False
        keep[1, tokens // 3 :] = False
        keep[2] = False
        yield Mask(keep, causal)


def _real(tensor, mask):
    """Rows at pads are undefined."""
    return tensor if mask.keep is None else tensor.where(mask.keep[:, None, :, None], 0)


def _both(made, given, mask, path):
    given = tuple(stream.clone().requires_grad_() for stream in given)
    with on_path(path):
        output = call(made, given, mask)
    gradients = [None] * len(given)
    if output.requires_grad:
        weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
        taken = torch.autograd.grad((_real(output, mask) * weights).sum(), given, allow_unused=True)
        gradients = list(taken)
    return output.detach(), gradients


@pytest.mark.parametrize("tokens", [1, 2, TOKENS, 260])
@pytest.mark.parametrize(("subject", "causal"), list(_cases()))
def test_the_accelerator_path_gives_what_the_processor_path_gives(subject, causal, tokens):
    made = subject.make(512)
    given = streams(made, 3, tokens)
    for mask in _masks(made, causal, tokens):
        expected, known_gradients = _both(made, given, mask, "cpu")
        output, gradients = _both(made, given, mask, "accelerator")
        require_close(_real(output, mask), _real(expected, mask), "the output")
        for name, got, known in zip(made.streams, gradients, known_gradients, strict=True):
            assert (got is None) == (known is None)
            if got is not None:
                require_close(got, known, f"the gradient of {name}", relative=1e-7, absolute=1e-9)
        with torch.no_grad(), on_path("accelerator"):
            require_close(_real(call(made, given, mask), mask), _real(output, mask), "no gradients")


@pytest.mark.parametrize(("subject", "causal"), list(_cases(written=True)))
def test_paths_match_the_form_written_out(subject, causal):
    made = subject.make(512)
    given = streams(made, 3, 23)
    for mask in _masks(made, causal, 23):
        with on_path("reference"):
            expected = call(made, given, mask)
        for path in ("cpu", "accelerator"):
            with on_path(path):
                require_close(_real(call(made, given, mask), mask), _real(expected, mask), path)


@pytest.mark.parametrize(("subject", "causal"), list(_cases()))
def test_half_precision_loses_at_most_twice_as_much_as_the_processor_path(subject, causal):
    made, half = subject.make(512), subject.make(512, torch.bfloat16)
    with torch.no_grad():
        for exact, rounded in zip(made.parameters(), half.parameters(), strict=True):
            exact.copy_(rounded)
        for exact, rounded in zip(made.buffers(), half.buffers(), strict=True):
            exact.copy_(rounded)
    given = streams(half, 3, 260, dtype=torch.bfloat16)
    widened = tuple(stream.double() for stream in given)
    for mask in _masks(made, causal, 260):
        expected = _real(call(made, widened, mask), mask)
        errors = {}
        for path in ("cpu", "accelerator"):
            with on_path(path):
                output = _real(call(half, given, mask), mask)
            assert output.dtype == torch.bfloat16
            errors[path] = (output.double() - expected).square().mean().sqrt().item()
        assert errors["accelerator"] <= 2 * errors["cpu"] + 1e-6


@pytest.mark.parametrize(("subject", "causal"), list(_cases()))
def test_gradients_in_half_precision_keep_their_digits(subject, causal):
    made, half = subject.make(512), subject.make(512, torch.bfloat16)
    for exact, rounded in zip(made.state_dict().values(), half.state_dict().values(), strict=True):
        exact.copy_(rounded)
    given = streams(half, 3, 260, dtype=torch.bfloat16)
    mask = Mask(causal=causal)
    _, known_gradients = _both(made, tuple(stream.double() for stream in given), mask, "cpu")
    errors = {}
    for path in ("cpu", "accelerator"):
        pairs = zip(_both(half, given, mask, path)[1], known_gradients, strict=True)
        errors[path] = [
            ((got - exact).norm() / exact.norm().clamp_min(1e-3)).item()
            for got, exact in pairs
            if exact is not None
        ]
    for ours, plain in zip(errors["accelerator"], errors["cpu"], strict=True):
        assert ours <= max(3 * plain, 2.0**-6)


def _counted():
    for name in _accelerated():
        if name not in NOT_COUNTED:
            causal = [False, True] if mechanism_class(name).traits.causal else [False]
            for kind in causal:
                yield pytest.param(name, kind, id=f"{name}{'-causal' if kind else ''}")


@pytest.mark.parametrize(("name", "causal"), list(_counted()))
def test_operations_depend_on_no_size(name, causal):
    counts = []
    for batch, heads, tokens in SIZES:
        made = mechanism_class(name)(Heads(heads, 64, tokens=tokens)).eval()
        counts.append(count_dispatched(made, batch, tokens, causal=causal))
    assert len({counted.count for counted in counts}) == 1
    assert counts[0].count <= (MOST_FIRST_TIER if made.traits.arm else MOST)
    if name in LINEAR and not causal:
        assert max(counted.passes for counted in counts) <= MOST_PASSES
