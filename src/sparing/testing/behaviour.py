"""Checks of behaviour: lengths, batches, types, randomness, refusals, saving, exporting."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

import jaxtyping
import torch
from torch import Tensor, nn

from sparing.core.errors import Unsupported, UsageError
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.options import option_defaults
from sparing.core.tolerance import tolerance
from sparing.testing.subject import (
    DIM,
    HEADS,
    SEED,
    TOKENS,
    Subject,
    Violation,
    call,
    crop,
    masks,
    require,
    require_close,
    streams,
)

LENGTHS = (1, 2, 7, 63, 64, 65, 200, 257)
FEW = 70  # more than one block


def check_lengths(subject: Subject) -> None:
    """Every length works, primes included, and gives the same as inside a longer row."""
    made = subject.make()
    for causal in masks(subject):
        for tokens in LENGTHS:
            tensors = streams(made, 1, tokens)
            alone = call(made, tensors, Mask(causal=causal))
            require(bool(torch.isfinite(alone).all()), f"{tokens} tokens: not finite")
            if not made.traits.padding:
                continue
            longer = tuple(nn.functional.pad(t, (0, 0, 0, 11), value=7.0) for t in tensors)
            keep = torch.arange(tokens + 11)[None] < tokens
            output = call(made, longer, Mask(keep, causal))[:, :, :tokens]
            require_close(output, alone, f"{tokens} tokens inside {tokens + 11}, causal={causal}")


def check_layouts(subject: Subject) -> None:
    """Streams may be views: of a fused projection, or with a head's numbers not contiguous."""
    made = subject.make()
    tensors = streams(made, 2, FEW)
    keep = torch.ones(2, FEW, dtype=torch.bool)
    keep[0, -FEW // 4 :] = False
    for causal in masks(subject):
        mask = Mask(keep if made.traits.padding else None, causal)
        real = keep[:, None, :, None] if made.traits.padding else 1  # outputs at pads are free
        straight = call(made, tensors, mask) * real
        for name, lay in (("of a fused projection", _as_part), ("separate in memory", _apart)):
            for learns in (False, True):
                views = tuple(lay(tensor.detach()).requires_grad_(learns) for tensor in tensors)
                with torch.set_grad_enabled(learns):
                    output = call(made, views, mask) * real
                require_close(output.detach(), straight, f"streams {name}, causal={causal}")


def _as_part(stream: Tensor) -> Tensor:
    """The middle third of a (batch, tokens, 3, heads, dim) tensor; x unchanged."""
    if stream.ndim == 3:
        return stream
    return torch.stack([stream.transpose(1, 2)] * 3, 2)[:, :, 1].transpose(1, 2)


def _apart(stream: Tensor) -> Tensor:
    """The same numbers with the last dimension outside."""
    return stream.transpose(-1, -2).contiguous().transpose(-1, -2)


def check_empty(subject: Subject) -> None:
    """Empty batches and empty sequences give empty or zero results of the right shape."""
    made = subject.make()
    for batch, tokens in ((0, 5), (2, 0)):
        out = call(made, streams(made, batch, tokens))
        require(tuple(out.shape) == (batch, HEADS, tokens, DIM), f"batch {batch}, tokens {tokens}")


def check_batch_invariance(subject: Subject) -> None:
    """A sample gives the same alone as in a batch with rows of other lengths."""
    made = subject.make()
    for causal in masks(subject):
        tensors = streams(made, 3, 33)
        loud = tuple(t.clone() for t in tensors)
        for tensor in loud:
            tensor[2] *= 100
        keep = torch.ones(3, 33, dtype=torch.bool)
        keep[1, 17:] = False
        for mask in [Mask(causal=causal)] + ([Mask(keep, causal)] if made.traits.padding else []):
            together = call(made, loud, mask)
            for sample in range(2):
                row_keep = None if mask.keep is None else mask.keep[sample : sample + 1]
                alone = call(made, crop(loud, sample, 0, 33), Mask(row_keep, causal))
                real = 17 if mask.keep is not None and sample == 1 else 33
                what = f"sample {sample} in a batch against alone, causal={causal}"
                require_close(together[sample : sample + 1, :, :real], alone[:, :, :real], what)


def check_heads_are_apart(subject: Subject) -> None:
    """Heads do not mix: changing one head's input changes no other head's output."""
    made = subject.make()
    if "x" in made.streams:
        return
    tensors = streams(made, 1, 20)
    before = call(made, tensors)
    for tensor in tensors:
        tensor[:, 1] = tensor[:, 1] * 3 + 1
    require_close(call(made, tensors)[:, 0], before[:, 0], "head 0 when only head 1 changes")


def check_half_precision(subject: Subject) -> None:
    """float16 and bfloat16 stay near float64, and finite for inputs of standard deviation 10."""
    exact = subject.make()
    for dtype in (torch.float16, torch.bfloat16):
        made = subject.make().to(dtype)
        for causal in masks(subject):
            tensors = streams(made, 2, 65, dtype=dtype)
            expected = call(exact, tuple(t.double() for t in tensors), Mask(causal=causal))
            output = call(made, tensors, Mask(causal=causal))
            require(output.dtype == dtype, f"{dtype} in, {output.dtype} out")
            _require_near(output, expected, f"{dtype} against float64, causal={causal}")
            loud = call(made, streams(made, 2, 65, dtype=dtype, scale=10.0), Mask(causal=causal))
            require(bool(torch.isfinite(loud).all()), f"{dtype}, standard deviation 10: not finite")


def _require_near(output: Tensor, expected: Tensor, what: str) -> None:
    """Half precision near float64, by twice its tolerance of the values and of their mean size."""
    bound, typical = tolerance(output.dtype), expected.abs().mean().item()
    absolute = bound.absolute + 2 * bound.relative * typical
    require_close(output.double(), expected, what, relative=bound.relative * 2, absolute=absolute)


def check_autocast(subject: Subject) -> None:
    """Under autocast, with parameters in float32, half inputs give the same as without it."""
    for dtype in (torch.float16, torch.bfloat16):
        exact, made = subject.make(), subject.make().float()
        for causal in masks(subject):
            tensors = tuple(t.requires_grad_() for t in streams(made, 1, 65, dtype=dtype))
            expected = call(exact, tuple(t.detach().double() for t in tensors), Mask(causal=causal))
            with torch.autocast("cpu", dtype):
                output = call(made, tensors, Mask(causal=causal))
            require(output.dtype == dtype, f"{dtype} in, {output.dtype} out")
            _require_near(output, expected, f"{dtype} under autocast, causal={causal}")
            if output.requires_grad:
                used = [t for t in (*tensors, *made.parameters()) if t.requires_grad]
                slopes = torch.autograd.grad(output.float().sum(), used, allow_unused=True)
                finite = all(bool(torch.isfinite(s).all()) for s in slopes if s is not None)
                require(finite, f"{dtype} under autocast: gradients are not finite")


def check_single_precision(subject: Subject) -> None:
    """float32 agrees with float64 within the tolerance table."""
    made, exact = subject.make().float(), subject.make()
    bound = tolerance(torch.float32)
    tensors = streams(made, 2, 200, dtype=torch.float32)
    for causal in masks(subject):
        expected = call(exact, tuple(t.double() for t in tensors), Mask(causal=causal))
        output = call(made, tensors, Mask(causal=causal)).double()
        what = f"float32 against float64, causal={causal}"
        require_close(output, expected, what, relative=bound.relative, absolute=bound.absolute * 5)


def check_determinism(subject: Subject) -> None:
    """Two calls are bit-identical, also on memory that held NaN; input tensors stay untouched."""
    made = subject.make()
    before = torch.are_deterministic_algorithms_enabled()
    tensors = streams(made, 2, 65)
    copies = tuple(tensor.clone() for tensor in tensors)
    try:
        torch.use_deterministic_algorithms(True)  # fills fresh memory with NaN
        first, second = call(made, tensors), call(made, tensors)
    finally:
        torch.use_deterministic_algorithms(before)
    require(torch.equal(first, second), "two calls in evaluation mode differ")
    require(bool(torch.isfinite(first).all()), "reads memory that was never written")
    require(torch.equal(first, call(made, tensors)), "deterministic mode changes the result")
    for name, tensor, copy in zip(made.streams, tensors, copies, strict=True):
        require(torch.equal(tensor, copy), f"writes into its input {name}")


def check_private_randomness(subject: Subject) -> None:
    """Global generators do not change, at construction and at calls, and have no effect."""
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        made = subject.build(Heads(HEADS, DIM, tokens=TOKENS), **subject.options).double().eval()
        call(made, streams(made, 1, 9))
        require(
            torch.equal(before, torch.get_rng_state()), "samples from the global random generator"
        )
        states.append(made.state_dict())
    for name, value in states[0].items():
        require(torch.equal(value, states[1][name]), f"{name} depends on the global generator")


def check_random_trait(subject: Subject) -> None:
    """``random`` says whether a seed changes the result of the mechanism."""
    made = subject.make()
    tensors = streams(made, 1, 100)
    if "seed" not in option_defaults(type(made)):
        require(not made.traits.random, "declares random=True but takes no seed")
        return
    same = torch.equal(call(made, tensors), call(subject.make(seed=12345), tensors))
    if made.traits.random:
        require(not same, "declares random=True, but another seed changes nothing")
    else:
        require(same, "declares random=False, but another seed changes the result")


def check_any_length(subject: Subject) -> None:
    """Longer than ``Heads.tokens`` works, or is refused with the possible length."""
    made = subject.make(tokens=20)
    call(made, streams(made, 1, 20))
    tensors = streams(made, 1, 21)
    if made.traits.any_length:
        call(made, tensors)
        return
    try:
        call(made, tensors)
    except Unsupported as error:
        require("20" in str(error), f"the refusal does not name the maximum: {error}")
        return
    raise Violation("declares any_length=False but accepts a longer sequence")


def check_cross(subject: Subject) -> None:
    """Cross-attention works with other numbers of queries than keys, or is refused."""
    made = subject.make()
    if made.traits.cross:
        tensors = streams(made, 2, 5, 31)
        keep = torch.ones(2, 31, dtype=torch.bool)
        keep[1, 20:] = False
        output = call(made, tensors, Mask(keep) if made.traits.padding else Mask())
        require(tuple(output.shape) == (2, HEADS, 5, DIM), "cross-attention gives a wrong shape")
        if made.traits.padding:
            q, k, v = (tensor[1:] for tensor in tensors)
            alone = call(made, (q, k[:, :, :20], v[:, :, :20]))
            require_close(output[1:], alone, "padded cross-attention against cropped keys")
        same = streams(made, 2, 31)
        call(made, same, Mask(keep if made.traits.padding else None, cross=True))
        return
    if "x" in made.streams:
        return
    for tensors, mask in (
        (streams(made, 1, 5, 7), Mask()),
        (streams(made, 1, 5), Mask(cross=True)),
    ):
        try:
            call(made, tensors, mask)
        except Unsupported:
            continue
        raise Violation("declares cross=False but accepts other queries than keys")


def check_refusals(subject: Subject) -> None:
    """Wrong shapes, mixed types and unknown options are refused."""
    made = subject.make()
    good = streams(made, 2, 6)
    wrong: list[tuple[str, tuple[Tensor, ...]]] = [
        ("one stream too few", good[:-1]),
        ("mixed types", (good[0].float(), *good[1:])),
        ("another head width", tuple(tensor[..., :-1] for tensor in good)),
        ("another batch", (good[0][:1], *good[1:])),
    ]
    for what, tensors in wrong:
        try:
            call(made, tensors)
        except UsageError:
            continue
        raise Violation(f"accepts {what}")
    try:
        subject.make(no_such_option=1)
    except TypeError:
        return
    raise Violation("accepts an option that it does not have")


def check_not_finite_is_named(subject: Subject) -> None:
    """NaN in a real token is an error that names the tensor, if the tensor is used at all."""
    made = subject.make()
    leaves = tuple(tensor.requires_grad_() for tensor in streams(made, 1, 6))
    used = torch.autograd.grad(call(made, leaves).sum(), leaves, allow_unused=True)
    for index, name in enumerate(made.streams):
        if used[index] is None:
            continue
        tensors = streams(made, 1, 6)
        tensors[index][0, ..., 2, 3] = torch.nan
        try:
            call(made, tensors)
        except UsageError as error:
            require(str(error).startswith(f"{name} "), f"NaN in {name} is blamed on: {error}")
            continue
        raise Violation(f"NaN in {name} passes silently")


def check_state_round_trip(subject: Subject) -> None:
    """A state dict restores everything that matters, random numbers included."""
    made = subject.make()
    file = io.BytesIO()
    torch.save(made.state_dict(), file)
    file.seek(0)
    options = {"seed": 4711} if made.traits.random else {}
    other = subject.build(
        Heads(HEADS, DIM, tokens=TOKENS), **{**subject.options, **options}
    ).double()
    other.load_state_dict(torch.load(file, weights_only=True), strict=True)
    tensors = streams(made, 1, 65)
    same = torch.equal(call(made, tensors), call(other.eval(), tensors))
    require(same, "a restored copy computes something else")


class _Exported(nn.Module):
    """A mechanism as the module that is exported: tensors in, an answer for every mode out."""

    def __init__(self, mechanism: nn.Module, modes: list[bool]) -> None:
        super().__init__()
        self.mechanism = mechanism
        self.modes = modes

    def forward(self, tensors: list[Tensor], keep: Tensor) -> tuple[Tensor, ...]:
        """Call with padding, causal or not."""
        return tuple(self.mechanism(*tensors, mask=Mask(keep, causal)) for causal in self.modes)


@contextmanager
def unchecked_shapes() -> Iterator[None]:
    """Turn off shape annotations, which would tie symbolic sizes together in export."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


def check_export(subject: Subject) -> None:
    """``torch.export`` at one length runs at another, with the eager answer, as declared."""
    made = subject.make().float()
    if not made.traits.padding:
        return
    if not made.traits.exportable:
        try:
            _exports(made, masks(subject))
        except Exception:
            return
        raise Violation("declares exportable=False but exports")
    _exports(made, masks(subject))


def _exports(made: Mechanism, modes: list[bool]) -> None:
    """Hold one program of all modes against the mechanism: they share much of a tracing."""
    batch, tokens = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("tokens", max=TOKENS)
    module = _Exported(made, modes)
    tensors = list(streams(made, 2, 24, dtype=torch.float32))
    keep = torch.ones(2, 24, dtype=torch.bool)
    shapes = {
        "tensors": [{0: batch, t.ndim - 2: tokens} for t in tensors],
        "keep": {0: batch, 1: tokens},
    }
    with unchecked_shapes():
        program = torch.export.export(module, (tensors, keep), dynamic_shapes=shapes).module()
    for length in (24, 61):
        again = list(streams(made, 3, length, seed=SEED % 97, dtype=torch.float32))
        keep = torch.ones(3, length, dtype=torch.bool)
        keep[1, length // 2 :] = False
        keep[2, :5] = False
        answers = zip(modes, module(again, keep), program(again, keep), strict=True)
        for causal, expected, output in answers:
            real = keep[:, None, :, None].expand_as(expected)
            what = f"exported at 24 tokens, run at {length}, causal={causal}"
            require_close(output[real], expected[real], what, relative=1e-4, absolute=1e-5)
