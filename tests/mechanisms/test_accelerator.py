"""Every mechanism gives on an accelerator what it gives on the processor.

What needs a CUDA device is held there; without one, tensors of the device "meta", which have no
values, tell of every tensor that was made on the processor instead of where the inputs are.
"""

from __future__ import annotations

import copy

import pytest
import torch

from sparing.core.catalogue import MECHANISMS, mechanism_class
from sparing.core.mask import Mask
from sparing.testing.subject import TOKENS, call, masks, require_close, streams
from sparing.testing.subjects import subjects

PLACE = "cuda"
# Which keys its strides leave is looked up, and tensors without values cannot be asked.
ASKS_FOR_VALUES = ("strided2", "strided2-causal", "strided3", "strided3-causal")


def _there(test):
    """Run where there is a CUDA device."""
    reason = "needs a CUDA device"
    return pytest.mark.gpu(pytest.mark.skipif(not torch.cuda.is_available(), reason=reason)(test))


def _cases():
    for name in MECHANISMS.names():
        for number, subject in enumerate(subjects(name, mechanism_class(name))):
            for causal in masks(subject):
                told = f"{name}{number or ''}{'-causal' if causal else ''}"
                yield pytest.param(subject, causal, id=told)


def _cases_without_values():
    refused = pytest.mark.xfail(raises=NotImplementedError, strict=True)
    for case in _cases():
        marks = (refused,) if case.id in ASKS_FOR_VALUES else ()
        yield pytest.param(*case.values, id=case.id, marks=marks)


def _padded(causal):
    keep = torch.ones(3, TOKENS, dtype=torch.bool)
    keep[1, TOKENS // 3 :] = False
    keep[2] = False
    return Mask(keep=keep, causal=causal)


def _moved(mask):
    return Mask(keep=mask.keep.to(PLACE), causal=mask.causal)


@pytest.mark.parametrize(("subject", "causal"), list(_cases_without_values()))
def test_no_tensor_is_left_on_the_processor(subject, causal):
    made = subject.make().to("meta")
    given = tuple(each.to("meta").requires_grad_() for each in streams(made, 3, TOKENS))
    found = call(made, given, Mask(causal=causal))
    assert (found.device.type, found.shape) == ("meta", (3, 2, TOKENS, 8))
    if found.requires_grad:
        found.sum().backward()
        assert {each.grad.device.type for each in given if each.grad is not None} <= {"meta"}


@_there
@pytest.mark.parametrize(("subject", "causal"), list(_cases()))
def test_as_on_the_processor(subject, causal):
    here, given, mask = subject.make(), streams(subject.make(), 3, TOKENS), _padded(causal)
    there = copy.deepcopy(here).to(PLACE)
    given = tuple(each.requires_grad_() for each in given)
    sent = tuple(each.detach().to(PLACE).requires_grad_() for each in given)
    wanted, found = call(here, given, mask), call(there, sent, _moved(mask))
    assert found.device.type == PLACE
    # What stands at pads is not told: on a processor some mechanisms need not clean them first.
    wanted, found = (
        each.where(mask.keep[:, None, :, None].to(each.device), 0) for each in (wanted, found)
    )
    require_close(found.detach().cpu(), wanted.detach(), "the output", relative=1e-7, absolute=1e-9)
    if wanted.requires_grad:
        wanted.square().sum().backward()
        found.square().sum().backward()
        for ours, theirs in zip(sent, given, strict=True):
            if theirs.grad is not None:
                require_close(
                    ours.grad.cpu(), theirs.grad, "a gradient", relative=1e-6, absolute=1e-8
                )


@_there
@pytest.mark.parametrize(("subject", "causal"), list(_cases()))
def test_in_bfloat16(subject, causal):
    made = subject.make(dtype=torch.float32).to(PLACE)
    drawn = streams(made, 3, TOKENS, dtype=torch.float32)
    given = tuple(each.to(PLACE).requires_grad_() for each in drawn)
    with torch.autocast(PLACE, dtype=torch.bfloat16):
        found = call(made, given, _moved(_padded(causal)))
    assert torch.isfinite(found).all()
    if found.requires_grad:
        found.float().square().sum().backward()
        assert all(torch.isfinite(each.grad).all() for each in given if each.grad is not None)
