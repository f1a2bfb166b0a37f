"""Every mechanism gives on an accelerator what it gives on the processor."""

from __future__ import annotations

import copy

import pytest
import torch

from sparing.core.catalogue import MECHANISMS, mechanism_class
from sparing.core.mask import Mask
from sparing.testing.subject import TOKENS, call, masks, require_close, streams
from sparing.testing.subjects import subjects

PLACE = "cuda"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def _cases():
    for name in MECHANISMS.names():
        for number, subject in enumerate(subjects(name, mechanism_class(name))):
            for causal in masks(subject):
                told = f"{name}{number or ''}{'-causal' if causal else ''}"
                yield pytest.param(subject, causal, id=told)


def _padded(causal):
    keep = torch.ones(3, TOKENS, dtype=torch.bool)
    keep[1, TOKENS // 3 :] = False
    keep[2] = False
    return Mask(keep=keep, causal=causal)


def _moved(mask):
    return Mask(keep=mask.keep.to(PLACE), causal=mask.causal)


@pytest.mark.parametrize(("subject", "causal"), list(_cases()))
def test_as_on_the_processor(subject, causal):
    here, given, mask = subject.make(), streams(subject.make(), 3, TOKENS), _padded(causal)
    there = copy.deepcopy(here).to(PLACE)
    given = tuple(each.requires_grad_() for each in given)
    sent = tuple(each.detach().to(PLACE).requires_grad_() for each in given)
    wanted, found = call(here, given, mask), call(there, sent, _moved(mask))
    assert found.device.type == PLACE
    require_close(found.detach().cpu(), wanted.detach(), "the output", relative=1e-7, absolute=1e-9)
    if wanted.requires_grad:
        wanted.square().sum().backward()
        found.square().sum().backward()
        for ours, theirs in zip(sent, given, strict=True):
            if theirs.grad is not None:
                require_close(
                    ours.grad.cpu(), theirs.grad, "a gradient", relative=1e-6, absolute=1e-8
                )


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
