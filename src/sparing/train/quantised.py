"""Training for INT8: the model computes as dynamic INT8 would, and adapts to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from sparing.core.errors import UsageError, nearest
from sparing.core.processor import int8_sums_overflow
from sparing.layers.elastic import ElasticLayer
from sparing.layers.packing import Layout, Packed, Padded
from sparing.train.objective import Objective

ACTIVATION_STEPS = 255
SCALES = ("tensor", "channel")


@dataclass(frozen=True)
class Int8Rules:
    """The rounding of ONNX Runtime's dynamic INT8 for products with a weight.

    ``scales`` is one for each weight ("tensor") or one for each of its outputs ("channel"). Weights
    are symmetric, in -127 to 127, or with ``reduce_range`` in -64 to 64 (unless given, where ONNX
    Runtime needs it: on x86 without VNNI). Activations are unsigned, 0 to 255 over their own range
    with 0 in it. That is the range of each input, as if it were served alone, or, ``together``, of
    the whole batch without pads.
    """

    scales: str = "channel"
    reduce_range: bool | None = None
    together: bool = False

    def __post_init__(self) -> None:
        if self.scales not in SCALES:
            hint = nearest(self.scales, SCALES)
            raise UsageError(f"INT8 scales must be tensor or channel; got {self.scales!r}{hint}")

    @property
    def largest(self) -> int:
        """The largest whole number of a quantised weight."""
        narrow = int8_sums_overflow() if self.reduce_range is None else self.reduce_range
        return 64 if narrow else 127


class Int8Loss:
    """Another objective, computed while the model imitates INT8; its teacher does not.

    Source: Jacob et al., 2018, arXiv 1712.05877, section 3 (rounded forward, straight-through
    backward). What differs: scales of activations are each input's own instead of learned averages,
    since dynamic INT8 computes them so; scales pass no gradient; biases are not rounded.
    """

    def __init__(self, objective: Objective, rules: Int8Rules | None = None) -> None:
        self.inner, self.rules = objective, rules or Int8Rules()

    @property
    def teacher(self) -> nn.Module | None:
        """The other objective's teacher."""
        return self.inner.teacher

    def __call__(self, model: nn.Module, batch: dict[str, Tensor], step: int) -> Float[Tensor, ""]:
        """The other objective's loss of a batch with ``labels``."""
        with imitating_int8(model, self.rules):
            return self.inner(model, batch, step)

    def describe(self) -> dict[str, Any]:
        """The other objective, and the rules."""
        return {**self.inner.describe(), "int8": asdict(self.rules)}


@contextmanager
def imitating_int8(model: nn.Module, rules: Int8Rules | None = None) -> Iterator[None]:
    """Inside the block every product with a weight is rounded as in INT8.

    Serves an adaptive model of fixed widths (``freeze`` it first: INT8 takes its scales from the
    existing weights) and transformers' own BERT and ViT classifiers. Embeddings, norms, attention
    itself and biases do not change, as in ONNX Runtime. Gradients ignore the rounding.
    """
    rules = rules or Int8Rules()
    seen: list[Bool[Tensor, "batch tokens"] | None] = [None]

    def note(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        mask = named.get("attention_mask")
        seen[0] = None if mask is None else mask.bool()

    inside: set[int] = set()
    changed: list[tuple[nn.Module, str]] = []
    notes = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        for module in model.modules():
            if isinstance(module, ElasticLayer):
                inside |= {id(part) for part in module.modules()}
                for name in ("forward", "forward_scored"):
                    setattr(module, name, _laid_out(getattr(module, name), rules))
                    changed.append((module, name))
            elif isinstance(module, nn.Linear) and id(module) not in inside:
                setattr(module, "forward", _alone(module, rules, seen))  # noqa: B010
                changed.append((module, "forward"))
        yield
    finally:
        notes.remove()
        for module, name in changed:
            delattr(module, name)


def int8_product(
    x: Float[Tensor, "*rows inputs"],
    weight: Float[Tensor, "outputs inputs"],
    bias: Float[Tensor, " outputs"] | None,
    layout: Layout | None = None,
    rules: Int8Rules | None = None,
) -> Float[Tensor, "*rows outputs"]:
    """``F.linear`` as dynamic INT8 computes it, differentiable in ``x``, ``weight`` and ``bias``.

    Formula: y = s_x s_w (round(x / s_x) round(w / s_w)) + b, with s_w = max |w| / 127 and
    s_x = (max(x, 0) - min(x, 0)) / 255.

    Symbols: s_w is one for a weight or one for each output, s_x one for each input (or batch).
    ``layout`` groups the rows by input: without it, each row of a matrix is an input, and each
    matrix of a batch. Whole numbers up to 255 are exact in bfloat16 too, so it may compute their
    products.

    Source: the operators DynamicQuantizeLinear and MatMulInteger of ONNX, and ONNX Runtime's
    ``quantize_dynamic``. What differs: nothing but the order of floating-point sums.
    """
    rules = rules or Int8Rules()
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    low, high = (end.to(wide.dtype) for end in _range(wide.detach(), layout, rules.together))
    step = (high - low) / ACTIVATION_STEPS
    step = torch.where(step > 0, step, torch.ones_like(step))
    zero = (-low / step).round().clamp(0, ACTIVATION_STEPS)
    numbers = _whole(wide / step, -zero, ACTIVATION_STEPS - zero)
    weight_step = _weight_step(weight.detach(), rules)
    limit = torch.full_like(weight_step, rules.largest)
    rounded = _whole(weight / weight_step, -limit, limit)
    product: Tensor = F.linear(numbers, rounded) * (step * weight_step[:, 0])
    return product if bias is None else product + bias


class _Whole(torch.autograd.Function):
    """Rounded to whole numbers between two ends; the gradient is that of the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """The rounded value."""
        return x.round().clamp_(low, high)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """The gradient as it came; none for the ends."""
        return gradient, None, None


def _whole(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    apply: Callable[..., Tensor] = _Whole.apply
    return apply(x, low, high)


class _Rounded(TorchFunctionMode):
    """Inside it every ``F.linear``, of any slice of a weight, is an INT8 product."""

    def __init__(self, layout: Layout, rules: Int8Rules) -> None:
        super().__init__()
        self.layout, self.rules = layout, rules

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is not F.linear:
            return func(*args, **(kwargs or {}))
        return self._product(*args, **(kwargs or {}))

    def _product(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return int8_product(input, weight, bias, self.layout, self.rules)


def _laid_out(method: Callable[..., Any], rules: Int8Rules) -> Callable[..., Any]:
    """A method of a layer that knows its rows' layout, with its products rounded."""

    def rounded(rows: Tensor, layout: Layout, *options: Any) -> Any:
        with _Rounded(layout, rules):
            return method(rows, layout, *options)

    return rounded


def _alone(
    linear: nn.Linear, rules: Int8Rules, seen: list[Bool[Tensor, "batch tokens"] | None]
) -> Callable[[Tensor], Tensor]:
    """The forward of a linear layer used alone: in an exit head or a dense model."""

    def rounded(x: Tensor) -> Tensor:
        mask = seen[0]
        fits = mask is not None and x.shape[:-1] == mask.shape
        layout = Padded(mask) if fits else None
        return int8_product(x, linear.weight, linear.bias, layout, rules)

    return rounded


def _weight_step(
    weight: Float[Tensor, "outputs inputs"], rules: Int8Rules
) -> Float[Tensor, "scales 1"]:
    largest = weight.abs().amax(1, keepdim=True)
    if rules.scales == "tensor":
        largest = largest.amax(0, keepdim=True)
    step = largest / rules.largest
    return torch.where(step > 0, step, torch.ones_like(step))


def _range(x: Tensor, layout: Layout | None, together: bool) -> tuple[Tensor, Tensor]:
    """The ends of the activations' range, including 0, in a shape that fits ``x``."""
    if isinstance(layout, Padded) and layout.keep is not None:
        x = x.masked_fill(~layout.keep[..., None], 0.0)
    if together:
        return x.amin().clamp(max=0), x.amax().clamp(min=0)
    if isinstance(layout, Packed):
        ends = (x.amin(-1), x.amax(-1))
        empty = x.new_zeros(len(layout.lengths))
        low, high = (
            empty.scatter_reduce(0, layout.owner, end, how)
            for end, how in zip(ends, ("amin", "amax"), strict=True)
        )
        return low[layout.owner, None], high[layout.owner, None]
    over = tuple(range(1, x.ndim))
    return x.amin(over, keepdim=True).clamp(max=0), x.amax(over, keepdim=True).clamp(min=0)
