"""Checks of mathematics: the claimed limit, exactness, row sums, gradients, cost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from sparing.core.errors import Unsupported
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.options import option_defaults
from sparing.core.workload import Workload
from sparing.testing.references import dense_softmax
from sparing.testing.subject import (
    DIM,
    HEADS,
    SEED,
    Streams,
    Subject,
    Violation,
    call,
    masks,
    require,
    require_close,
    streams,
)


def check_claims(subject: Subject) -> None:
    """The mechanism equals something known in each limit that is claimed for it."""
    require(bool(subject.claims), "states no limit in which it equals something known")
    for claim in subject.claims:
        claim.check(subject)


def check_exact_trait(subject: Subject) -> None:
    """``exact`` says whether the result is softmax attention."""
    made = subject.make()
    if made.streams != ("q", "k", "v"):
        return
    keep = torch.ones(2, 40, dtype=torch.bool)
    keep[1, 29:] = False
    tensors = streams(made, 2, 40)
    gaps = []
    for causal in masks(subject):
        mask = Mask(keep if made.traits.padding else None, causal)
        real = keep if made.traits.padding else torch.ones_like(keep)
        output = call(made, tensors, mask).transpose(1, 2)[real]
        expected = dense_softmax(*tensors, mask=mask).transpose(1, 2)[real]
        if made.traits.exact:
            require_close(output, expected, f"exact, against softmax attention, causal={causal}")
        gaps.append((output - expected).abs().max().item())
    if not made.traits.exact:
        require(max(gaps) > 1e-6, "declares exact=False but equals softmax attention")


def check_row_sums(subject: Subject) -> None:
    """If the weights of a row are claimed to sum to one, values of one give one."""
    if not subject.row_sums:
        return
    made = subject.make()
    ones = torch.ones(2, HEADS, 65, DIM, dtype=torch.float64)
    drawn = zip(made.streams, streams(made, 2, 65), strict=True)
    tensors = tuple(ones if name == "v" else tensor for name, tensor in drawn)
    for causal in masks(subject):
        output = call(made, tensors, Mask(causal=causal))
        require_close(output, ones, f"row sums, causal={causal}", absolute=1e-5)


def check_permutable(subject: Subject) -> None:
    """``permutable`` says whether the order of the keys matters."""
    made = subject.make()
    if made.streams != ("q", "k", "v"):
        return
    q, k, v = streams(made, 1, 37)
    order = torch.randperm(37, generator=torch.Generator().manual_seed(SEED))
    gap = (call(made, (q, k[:, :, order], v[:, :, order])) - call(made, (q, k, v))).abs().max()
    if made.traits.permutable:
        require(gap.item() < 1e-9, f"declares permutable=True; the order matters by {gap:.3g}")
    else:
        require(gap.item() > 1e-9, "declares permutable=False but the order of keys has no effect")


def check_bias(subject: Subject) -> None:
    """``takes_bias`` says whether a bias is added to the scores: q . d_j moves key j by d_j.

    That holds wherever scores are products of queries and keys, and needs no slow form.
    """
    made = subject.make()
    tensors = streams(made, 2, 41)
    if not made.takes_bias:
        try:
            made(*tensors, bias=tensors[0].new_zeros(2, HEADS, 41, 41))
        except Unsupported:
            return
        raise Violation("declares takes_bias=False but accepts a bias")
    keep = torch.ones(2, 41, dtype=torch.bool)
    keep[0, :3] = keep[1, 33:] = keep[1, 7] = False
    for causal, real in itertools.product(masks(subject), (None, keep)):
        for queries in (41, 6) if causal else (41,):
            for rows in (2, 1):
                _require_bias(made, tensors, Mask(real, causal), queries, rows)


def _require_bias(made: Mechanism, tensors: Streams, mask: Mask, queries: int, rows: int) -> None:
    """One comparison, with a bias for each sample or (one of ``rows``) the same one for all."""
    q, k, v = tensors
    shift = streams(made, rows, 41, seed=1)[1]
    q = q[:rows, :, 41 - queries :].expand(2, -1, -1, -1)
    bias = q[:rows] @ shift.mT / math.sqrt(DIM)
    output = made(q, k, v, mask=mask, bias=bias)
    expected = call(made, (q, k + shift, v), mask)
    if mask.keep is not None:
        real = mask.keep[:, 41 - queries :]
        output, expected = (part.transpose(1, 2)[real] for part in (output, expected))
    what = f"bias of {rows} rows, {queries} queries, causal={mask.causal}"
    require_close(output, expected, f"{what}, padded={mask.keep is not None}")


def check_gradients(subject: Subject) -> None:
    """Gradients are the true ones in float64, or at least finite where that is declared."""
    made = subject.make()
    for causal in masks(subject):
        tensors = tuple(t.requires_grad_() for t in streams(made, 1, 5))
        if made.traits.differentiable:
            passed = torch.autograd.gradcheck(
                lambda *leaves, causal=causal: made(*leaves, mask=Mask(causal=causal)),
                tensors,
                raise_exception=False,
                fast_mode=True,
            )
            require(passed, f"gradients differ from finite differences, causal={causal}")
        out = call(made, tensors, Mask(causal=causal))
        torch.autograd.backward(out.square().sum())
        parameters = dict(made.named_parameters())
        named = [*zip(made.streams, tensors, strict=True), *parameters.items()]
        for name, leaf in named:
            fine = leaf.grad is None or bool(torch.isfinite(leaf.grad).all())
            require(fine, f"gradient of {name} is not finite, causal={causal}")
        for name, parameter in parameters.items():
            learns = parameter.grad is not None or not parameter.requires_grad
            require(learns, f"parameter {name} gets no gradient, causal={causal}")


def check_traits_of_defaults(subject: Subject) -> None:
    """The class declares the traits of its defaults."""
    made = subject.build(_plain_heads())
    require(type(made).traits == made.traits, "traits of the class are not those of its defaults")
    for name in option_defaults(type(made)):
        require(hasattr(made, name), f"option {name} is not stored under its own name")


def check_cost(subject: Subject) -> None:
    """Matrix products equal PyTorch's count, or bound it; parameters equal the real ones."""
    made = subject.make().float()
    trainable = sum(p.numel() for p in made.parameters() if p.requires_grad)
    for batch, tokens in ((1, 64), (2, 96), (1, 257)):
        work = Workload(batch, HEADS, tokens, tokens, DIM)
        cost = made.cost(work)
        tensors = streams(made, batch, tokens, dtype=torch.float32)
        with (
            torch.no_grad(),
            sdpa_kernel(SDPBackend.MATH),
            FlopCounterMode(display=False) as counter,
        ):
            call(made, tensors)
        counted = counter.get_total_flops()
        what = f"batch {batch}, {tokens} tokens: states {cost.matmul_flops}, counted {counted}"
        within = cost.upper_bound and 0 < counted <= cost.matmul_flops
        require(within or cost.matmul_flops == counted, what)
        require(cost.params == trainable, f"states {cost.params} parameters, has {trainable}")
        whole = all(isinstance(value, int) for value in vars(cost).values())
        require(whole and cost.other_flops >= 0 and cost.peak_bytes > 0, "costs are whole numbers")


class _LargestTensor(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers the largest number of elements that any operation returns."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            stored = tensor.untyped_storage().nbytes() // max(1, tensor.element_size())
            self.elements = max(self.elements, min(tensor.numel(), stored))
        return result


def _tensors(result: object) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for part in result:
            yield from _tensors(part)


def check_no_square(subject: Subject) -> None:
    """A mechanism of linear cost stores nothing of size queries x keys, not even a mask."""
    made = subject.make(tokens=2048)
    once, twice = (
        made.cost(Workload(1, HEADS, tokens, tokens, DIM)).matmul_flops for tokens in (1024, 2048)
    )
    if once and math.log2(twice / once) > 1.5:
        return
    tokens = 2048
    keep = torch.ones(1, tokens, dtype=torch.bool)
    keep[0, -5:] = False
    for causal in masks(subject):
        for mask in [Mask(None, causal)] + ([Mask(keep, causal)] if made.traits.padding else []):
            with torch.no_grad(), _LargestTensor() as largest:
                call(made, streams(made, 1, tokens), mask)
            share = largest.elements / tokens**2
            require(share < 1, f"stores {share:.2g} of queries x keys at {tokens}, causal={causal}")


def _plain_heads() -> Heads:
    return Heads(HEADS, DIM, tokens=64)
