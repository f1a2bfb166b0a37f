"""Checks of padding and causality: hidden tokens must not matter."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sparing.core.errors import Unsupported
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.testing.subject import (
    Streams,
    Subject,
    Violation,
    call,
    crop,
    masks,
    require,
    require_close,
    spoil,
    streams,
)

# (first, last) of the real tokens in a row of ROW tokens: right, left, both sides, none.
SPANS = ((0, 23), (9, 40), (5, 31), (0, 40))
ROW = 40
GARBAGE = (math.nan, math.inf, -1e30)
TOGETHER = 15  # rows of one call; their futures begin at different positions


def check_padding_equals_cropping(subject: Subject) -> None:
    """A row padded left or right equals the row without its pads, for any pad values."""
    if not subject.traits.padding:
        return _refuses(subject, Mask(torch.ones(2, ROW, dtype=torch.bool)), "keep")
    made = subject.make()
    tensors, keep = _padded_rows(subject)
    for causal in masks(subject):
        for garbage in GARBAGE:
            output = call(made, spoil(tensors, keep, garbage), Mask(keep, causal))
            for sample, (first, last) in enumerate(SPANS):
                alone = call(made, crop(tensors, sample, first, last), Mask(causal=causal))
                what = f"tokens {first}:{last} of {ROW} against the row cropped, causal={causal}"
                require_close(output[sample : sample + 1, :, first:last], alone, what)
            require(
                bool(torch.isfinite(output).all()), f"padded queries with {garbage}: not finite"
            )
    return None


def check_pads_between_do_not_matter(subject: Subject) -> None:
    """The values of padded slots between real tokens never matter."""
    if not subject.traits.padding:
        return
    made = subject.make()
    tensors = streams(made, 2, ROW)
    keep = torch.ones(2, ROW, dtype=torch.bool)
    keep[0, 3:6] = keep[0, 20] = keep[1, 11:29] = False
    for causal in masks(subject):
        expected = call(made, spoil(tensors, keep, 0.0), Mask(keep, causal))
        for garbage in GARBAGE:
            output = call(made, spoil(tensors, keep, garbage), Mask(keep, causal))
            for sample in range(2):
                real = keep[sample]
                what = f"pads between tokens holding {garbage}, causal={causal}"
                require_close(output[sample][:, real], expected[sample][:, real], what)
    if made.traits.permutable:
        output = call(made, spoil(tensors, keep, math.nan), Mask(keep))
        cropped = tuple(tensor[:1, ..., keep[0], :] for tensor in tensors)
        expected = call(made, cropped)
        require_close(output[:1, :, keep[0]], expected, "pads between, against cropping")


def check_padding_gradients(subject: Subject) -> None:
    """Gradients of real tokens are those of the cropped row; pads get none, and nothing is NaN."""
    if not subject.traits.padding:
        return
    made = subject.make()
    tensors, keep = _padded_rows(subject)
    for causal in masks(subject):
        padded = _gradients(made, spoil(tensors, keep, math.nan), Mask(keep, causal), keep)
        for sample, (first, last) in enumerate(SPANS):
            inner = crop(tensors, sample, first, last)
            alone = _gradients(made, inner, Mask(causal=causal), None)
            for name, whole, part in zip(made.streams, padded, alone, strict=True):
                what = f"gradient of {name}, tokens {first}:{last} of {ROW}, causal={causal}"
                require_close(whole[sample : sample + 1, ..., first:last, :], part, what)
        for name, gradient in zip(made.streams, padded, strict=True):
            pads = ~(keep[:, None, :] if gradient.ndim == 4 else keep)
            outside = gradient.movedim(-2, 2).masked_select(pads[..., None].movedim(-2, 2))
            require_close(outside, torch.zeros_like(outside), f"gradient of {name} at pads")


def check_fully_masked_rows(subject: Subject) -> None:
    """A query that may see no key returns zeros, with finite gradients."""
    if not subject.traits.padding:
        return
    made = subject.make()
    keep = torch.ones(3, 12, dtype=torch.bool)
    keep[0] = False
    keep[2, :5] = False
    for causal in masks(subject):
        tensors = tuple(t.requires_grad_() for t in streams(made, 3, 12))
        out = call(made, tensors, Mask(keep, causal))
        blind = [out[0]] + ([out[2, :, :5]] if causal else [])
        for rows in blind:
            require(bool((rows == 0).all()), f"rows that see no key are not zero, causal={causal}")
        torch.autograd.backward(out.square().sum())
        for name, tensor in zip(made.streams, tensors, strict=True):
            fine = tensor.grad is None or bool(torch.isfinite(tensor.grad).all())
            require(fine, f"gradient of {name} with fully masked rows is not finite")
        for name, parameter in made.named_parameters():
            fine = parameter.grad is None or bool(torch.isfinite(parameter.grad).all())
            require(fine, f"gradient of parameter {name} with fully masked rows is not finite")


def check_causality(subject: Subject) -> None:
    """Changing or removing the future changes nothing before it, over several blocks."""
    if not subject.traits.causal:
        return _refuses(subject, Mask(causal=True), "causal")
    made = subject.make()
    tokens = 3 * 128 + 1
    tensors = streams(made, 1, tokens)
    before = call(made, tensors, Mask(causal=True))
    borders = {border + step for border in range(16, tokens, 16) for step in (-1, 0, 1)}
    cuts = sorted(borders | {1, 2, 7})  # every border of a block of 16 or more
    for first in range(0, len(cuts), TOGETHER):
        group = cuts[first : first + TOGETHER]
        changed = tuple(torch.cat([tensor] * len(group)) for tensor in tensors)
        for tensor in changed:
            for row, cut in zip(tensor, group, strict=True):
                row[..., cut:, :] = row[..., cut:, :] * 50 + 3
        after = call(made, changed, Mask(causal=True))
        for row, cut in zip(after, group, strict=True):
            what = f"outputs before {cut} of {tokens} when only later tokens change"
            require_close(row[None, :, :cut], before[:, :, :cut], what)
    for cut in (1, 65, 200):
        alone = call(made, crop(tensors, 0, 0, cut), Mask(causal=True))
        require_close(before[:, :, :cut], alone, f"the first {cut} of {tokens} against them alone")
    return None


def check_decoding(subject: Subject) -> None:
    """Causal with fewer queries than keys: the queries are the last ones."""
    made = subject.make()
    if not made.traits.causal or "x" in made.streams:
        return None
    if "k" not in made.streams:
        return _refuses_cached_keys(made)
    keep = torch.ones(2, 150, dtype=torch.bool)
    keep[1, :20] = False
    q, k, v = streams(made, 2, 150)
    for mask in [Mask(causal=True)] + ([Mask(keep, True)] if made.traits.padding else []):
        whole = call(made, (q, k, v), mask)
        for queries in (1, 2, 70, 149):
            output = call(made, (q[:, :, -queries:], k, v), mask)
            what = f"the last {queries} of 150 queries against the whole call"
            require_close(output, whole[:, :, -queries:], what)
    return None


def _refuses_cached_keys(made: Mechanism) -> None:
    """If keys are computed from queries, earlier keys need their queries."""
    q, v = streams(made, 1, 20)
    try:
        call(made, (q[:, :, -5:], v), Mask(causal=True))
    except Unsupported:
        return
    raise Violation("accepts fewer queries than values, though keys are computed from queries")


def _padded_rows(subject: Subject) -> tuple[Streams, Tensor]:
    tensors = streams(subject.make(), len(SPANS), ROW)
    keep = torch.zeros(len(SPANS), ROW, dtype=torch.bool)
    for sample, (first, last) in enumerate(SPANS):
        keep[sample, first:last] = True
    return tensors, keep


def _gradients(
    made: torch.nn.Module, tensors: Streams, mask: Mask, keep: Tensor | None
) -> list[Tensor]:
    """Gradients of a fixed function of the real outputs."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    out = made(*leaves, mask=mask)
    if keep is not None:
        out = out.where(keep[:, None, :, None], 0)
    weights = torch.linspace(-1, 2, out.shape[-1], dtype=out.dtype)
    loss = (out.square() * weights).sum()
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [
        torch.zeros_like(leaf) if gradient is None else gradient
        for leaf, gradient in zip(leaves, gradients, strict=True)
    ]


def _refuses(subject: Subject, mask: Mask, option: str) -> None:
    made = subject.make()
    try:
        call(made, streams(made, 2, ROW), mask)
    except Unsupported as error:
        word = {"keep": "keep", "causal": "causal"}[option]
        require(word in str(error), f"the refusal does not name {option}: {error}")
        return
    raise Violation(f"accepts {option} although its traits exclude it")
