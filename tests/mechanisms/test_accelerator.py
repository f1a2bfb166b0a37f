"""Every mechanism gives on an accelerator what it gives on the processor.

What needs a CUDA device is held there; without one, tensors of the device "meta", which have no
values, show every tensor that was made on the processor instead of where the inputs are.
"""

from __future__ import annotations

import copy

import pytest
import torch

from sparing.core.catalogue import MECHANISMS, mechanism_class
from sparing.core.mask import Mask
from sparing.testing.subject import TOKENS, call, masks, require_close, streams
from sparing.testing.subjects import subjects

DEVICE = "cuda"


def _on_accelerator(test):
    """Run where there is a CUDA device."""
    reason = "needs a CUDA device"
    return pytest.mark.gpu(pytest.mark.skipif(not torch.cuda.is_available(), reason=reason)(test))


def _cases():
    for name in MECHANISMS.names():
        for number, subject in enumerate(subjects(name, mechanism_class(name))):
            for causal in masks(subject):
                case_id = f"{name}{number or ''}{'-causal' if causal else ''}"
                yield pytest.param(subject, causal, id=case_id)


def _padded(causal):
    keep = torch.ones(3, TOKENS, dtype=torch.bool)
    keep[1, TOKENS // 3 :] = False
    keep[2] = False
    return Mask(keep=keep, causal=causal)


def _moved(mask):
    return Mask(keep=mask.keep.to(DEVICE), causal=mask.causal)


@pytest.mark.parametrize(("subject", "causal"), list(_cases()))
def test_no_tensor_is_left_on_the_processor(subject, causal):
    made = subject.make().to("meta")
    given = tuple(stream.to("meta").requires_grad_() for stream in streams(made, 3, TOKENS))
    output = call(made, given, Mask(causal=causal))
    assert (output.device.type, output.shape) == ("meta", (3, 2, TOKENS, 8))
    if output.requires_grad:
        output.sum().backward()
        assert {stream.grad.device.type for stream in given if stream.grad is not None} <= {"meta"}


@_on_accelerator
@pytest.mark.parametrize(("subject", "causal"), list(_cases()))
def test_as_on_the_processor(subject, causal):
    on_processor, given, mask = subject.make(), streams(subject.make(), 3, TOKENS), _padded(causal)
    on_device = copy.deepcopy(on_processor).to(DEVICE)
    given = tuple(stream.requires_grad_() for stream in given)
    sent = tuple(stream.detach().to(DEVICE).requires_grad_() for stream in given)
    expected, output = call(on_processor, given, mask), call(on_device, sent, _moved(mask))
    assert output.device.type == DEVICE
    # Rows at pads are undefined: on a processor some mechanisms need not clean them first.
    expected, output = (
        tensor.where(mask.keep[:, None, :, None].to(tensor.device), 0)
        for tensor in (expected, output)
    )
    require_close(
        output.detach().cpu(), expected.detach(), "the output", relative=1e-7, absolute=1e-9
    )
    if expected.requires_grad:
        expected.square().sum().backward()
        output.square().sum().backward()
        for stream_on_device, stream in zip(sent, given, strict=True):
            if stream.grad is not None:
                require_close(
                    stream_on_device.grad.cpu(),
                    stream.grad,
                    "a gradient",
                    relative=1e-6,
                    absolute=1e-8,
                )


@_on_accelerator
@pytest.mark.parametrize(("subject", "causal"), list(_cases()))
def test_in_bfloat16(subject, causal):
    made = subject.make(dtype=torch.float32).to(DEVICE)
    drawn = streams(made, 3, TOKENS, dtype=torch.float32)
    given = tuple(stream.to(DEVICE).requires_grad_() for stream in drawn)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        output = call(made, given, _moved(_padded(causal)))
    assert torch.isfinite(output).all()
    if output.requires_grad:
        output.float().square().sum().backward()
        assert all(torch.isfinite(stream.grad).all() for stream in given if stream.grad is not None)
