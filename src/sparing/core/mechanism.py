"""The contract of a mechanism: its inputs, its duties, and the shared checks."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.errors import DeviceFull, NotFinite, Unsupported, UsageError, quoted
from sparing.core.execution.fusing import compiled_rows
from sparing.core.execution.path import (
    Call,
    Path,
    PathFailed,
    call_of,
    choose,
    forced_path,
    give_up,
    reference_form,
)
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.options import option_defaults
from sparing.core.products import Products
from sparing.core.tracing import is_traced
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload

NO_MASK = Mask()


class Mechanism(nn.Module, abc.ABC):
    """Mixes tokens inside heads: after the projections, before the output projection.

    A subclass sets ``traits`` on the class (the abilities of its defaults) and, where options
    change them, again on the instance. It stores each keyword-only option under its own name, and
    defines ``mix`` and ``cost``. ``streams`` names its inputs: q and any of k, v and x, the layer's
    input. ``ignores_pads`` says that pads get a weight of exactly zero for any values, so they need
    not be cleaned unless those are not finite. ``spreads_nan`` says that NaN in a real token always
    shows in the output, so checking the output is enough. ``gains_by_compiling`` says when
    ``sparing.compiled`` makes it faster: always, while training (when gradients are recorded), or,
    empty, never. ``compiled`` says that this instance is to be compiled. ``accelerated`` lists its
    forms for accelerators, best first: ``mix_accelerator``, ``mix_flex`` (FlexAttention) and
    ``mix_fla`` (flash-linear-attention). ``takes_bias`` says that it has ``mix_biased``, and
    ``bounded_by`` names the option that bounds the distance from a query to its keys, if one does.
    Everything common to all mechanisms is done here, once.
    """

    traits: Traits
    streams: ClassVar[tuple[str, ...]] = ("q", "k", "v")
    ignores_pads: ClassVar[bool] = False
    spreads_nan: ClassVar[bool] = False
    gains_by_compiling: ClassVar[Literal["", "always", "training"]] = ""
    accelerated: ClassVar[tuple[Path, ...]] = ()
    takes_bias: ClassVar[bool] = False
    bounded_by: ClassVar[str] = ""
    compiled: bool = False

    def __init__(self, heads: Heads) -> None:
        super().__init__()
        self.heads = heads

    @final  # type: ignore[misc]  # nn.Module declares forward as an attribute
    def forward(self, *streams: Tensor, mask: Mask = NO_MASK, bias: Tensor | None = None) -> Tensor:
        """Check, clean the pads, mix, and return zeros for queries that may see no key.

        Each stream is (batch, heads, tokens, dim), or (batch, tokens, width) for x; the result is
        shaped like q. ``bias`` (batch or 1, heads, queries, keys) is added to the scores. Raises
        ``Unsupported`` for a mask that the traits exclude and for a bias that the class does not
        take. Raises ``UsageError`` for wrong shapes, mixed types, or (on CPU) NaN in real tokens.
        Infinite numbers are named where they make the output infinite or NaN.
        """
        tensors = self._named(streams, mask)
        q = tensors["q"]
        queries, keys = q.shape[2], _keys(tensors)
        self.require_traits(mask, queries, keys)
        self._check_bias(bias, q, keys)
        if q.numel() == 0 or keys == 0:
            return torch.zeros_like(q)
        if mask.keep is not None and not (self.ignores_pads and _all_finite(tensors.values())):
            tensors = {name: _clean(name, tensor, mask) for name, tensor in tensors.items()}
        with without_autocast(q.device.type):
            mixed = self._mixed(tensors, mask, bias)
        sees_any = mask.sees_any(queries)
        if sees_any is not None and not _surely_all(sees_any):
            mixed = mixed.where(sees_any[:, None, :, None], 0)
        tensors |= {} if bias is None else {"bias": bias}
        _check_finite(tensors, mixed, ("mixed",) if self.spreads_nan else ("q", "k", "mixed"))
        return mixed

    @abc.abstractmethod
    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """The mechanism itself; one with other ``streams`` takes those, in their order.

        It may rely on these facts: shapes, types and traits are checked, and nothing is empty. At
        pads k, v and x are zero, and so is q where queries and keys are one sequence. Where the
        class ``ignores_pads``, they are finite instead. Queries that ``mask`` lets see no key may
        get any finite value: they are set to zero afterwards.
        """

    def mix_biased(self, *streams: Tensor, bias: Tensor, mask: Mask) -> Tensor:
        """``mix`` with a bias on the scores, in the type of q, where the class ``takes_bias``.

        Its smallest finite number hides a pair. Every query sees a key, or its row may be anything
        finite, as in ``mix``.
        """
        del streams, bias, mask
        raise Unsupported(f"{_name(self)} takes no bias on its scores")

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """``mix`` in plain PyTorch, without a loop over heads, rows or blocks of tokens."""
        return self.mix(*streams, mask=mask)

    def limits(self, path: Path, call: Call) -> str:
        """Why a form of ``accelerated`` cannot serve a call; empty if it can."""
        del path, call
        return ""

    @abc.abstractmethod
    def cost(self, work: Workload) -> Cost:
        """The closed-form cost of one call, in whole numbers."""

    def products(self, tokens: int) -> Products | None:
        """The matrix products of a call on so many tokens, to draw; None where there is no drawing.

        A mechanism that overrides this has one.
        """
        del tokens
        return None

    def init_from(self, weights: dict[str, Tensor]) -> None:
        """Start own projections from the layer's, named q, k, v (weights) and q_bias, ...

        A mechanism without own projections does nothing.
        """
        del weights

    @final
    def require_traits(self, mask: Mask, queries: int, keys: int) -> None:
        """Raise ``Unsupported`` or ``UsageError`` for a mask that the traits exclude."""
        if mask.causal and not self.traits.causal:
            raise Unsupported(f"{_name(self)} cannot be causal: every output mixes all positions")
        if mask.causal and queries > keys:
            raise UsageError(
                f"{_name(self)}: causal needs at least as many keys as queries; got {queries} "
                f"queries and {keys} keys"
            )
        if mask.keep is not None and not self.traits.padding:
            raise Unsupported(f"{_name(self)} cannot honour padding: Mask.keep must be None")
        if mask.is_cross(queries, keys) and not self.traits.cross:
            raise Unsupported(
                f"{_name(self)} cannot do cross-attention: queries and keys must be one sequence"
            )

    @final
    def options(self) -> dict[str, object]:
        """The keyword options that this instance was built with."""
        names = option_defaults(type(self))
        return {name: getattr(self, name) for name in names}

    @final
    def extra_repr(self) -> str:
        """Heads and options, for ``print``."""
        shown = ", ".join(f"{name}={value!r}" for name, value in self.options().items())
        heads = f"{self.heads.count} heads of {self.heads.dim}"
        return f"{heads}, {shown}" if shown else heads

    def _mixed(self, tensors: dict[str, Tensor], mask: Mask, bias: Tensor | None = None) -> Tensor:
        streams = list(tensors.values())
        if bias is not None:
            return self.mix_biased(*streams, bias=bias, mask=mask)
        with compiled_rows() if self._runs_compiled(streams) else nullcontext():
            if streams[0].device.type == "cpu" and forced_path() is None:
                return self.mix(*streams, mask=mask)
            return self._mixed_on_path(streams, mask, _keys(tensors))

    def _mixed_on_path(self, streams: list[Tensor], mask: Mask, keys: int) -> Tensor:
        """Mix by the path that serves best; one that fails here is left for the next."""
        self._check_weights(streams[0].device)
        call = call_of(streams, keys, causal=mask.causal, padded=mask.keep is not None)
        path = choose(self, call).path
        if path == "reference":
            written_out = reference_form(self)
            assert written_out is not None
            return written_out(self, *streams, mask=mask)
        if path == "cpu":
            return self.mix(*streams, mask=mask)
        try:
            mixed: Tensor = getattr(self, f"mix_{path}")(*streams, mask=mask)
            return mixed
        except PathFailed as failure:
            give_up(path, failure.__cause__ or failure)
            return self._mixed_on_path(streams, mask, keys)
        except torch.OutOfMemoryError as error:
            raise DeviceFull(self._too_large(streams[0], keys, causal=mask.causal)) from error

    def _too_large(self, q: Tensor, keys: int, *, causal: bool) -> str:
        """What a call needs by its cost model, what is free, and how many rows would fit."""
        batch, heads, queries, dim = q.shape
        cost = self.cost(Workload(batch, heads, queries, keys, dim, q.dtype, causal=causal))
        text = (
            f"{_name(self)}: no memory is left on {q.device}: {batch} rows of {keys} tokens need "
            f"about {cost.peak_bytes / 2**30:.3g} GiB beside their inputs"
        )
        if q.device.type != "cuda":
            return text
        free = torch.cuda.mem_get_info(q.device)[0]
        rows = free * batch // max(1, cost.peak_bytes)
        return f"{text}, {free / 2**30:.3g} GiB are free: about {rows} such rows would fit"

    def _check_weights(self, device: torch.device) -> None:
        weight = next(self.parameters(), None)
        if weight is not None and weight.device != device:
            raise UsageError(
                f"{_name(self)}: its weights are on {weight.device}, the inputs on {device}: move "
                "one of them with .to(...)"
            )

    def _runs_compiled(self, tensors: Iterable[Tensor]) -> bool:
        if not self.compiled or is_traced():
            return False
        recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        return recorded or self.gains_by_compiling == "always"

    def _check_bias(self, bias: Tensor | None, q: Tensor, keys: int) -> None:
        if bias is None:
            return
        if not self.takes_bias:
            raise Unsupported(f"{_name(self)} takes no bias on its scores")
        if forced_path() not in (None, "cpu"):
            raise Unsupported(f"{_name(self)}: the path {forced_path()!r} cannot add a bias")
        batch, heads, queries, _ = q.shape
        if bias.shape not in ((batch, heads, queries, keys), (1, heads, queries, keys)):
            raise UsageError(
                f"{_name(self)}: bias must be (batch or 1, heads, queries, keys) = ({batch}, "
                f"{heads}, {queries}, {keys}); got {tuple(bias.shape)}"
            )
        if bias.dtype != q.dtype or bias.device != q.device:
            raise UsageError(
                f"{_name(self)}: bias must be as q, {q.dtype} on {q.device}; got {bias.dtype} on "
                f"{bias.device}"
            )

    def _named(self, streams: tuple[Tensor, ...], mask: Mask) -> dict[str, Tensor]:
        if not isinstance(mask, Mask):
            raise UsageError(f"{_name(self)}: mask must be a sparing.Mask; got {quoted(mask)}")
        if len(streams) != len(self.streams):
            expected = ", ".join(self.streams)
            raise UsageError(f"{_name(self)} takes the streams {expected}; got {len(streams)}")
        tensors = dict(zip(self.streams, streams, strict=True))
        q = tensors["q"]
        for name, tensor in tensors.items():
            self._check_stream(name, tensor, q)
        keys = _keys(tensors)
        if {"k", "v"} <= tensors.keys() and tensors["v"].shape != tensors["k"].shape:
            k, v = tuple(tensors["k"].shape), tuple(tensors["v"].shape)
            raise UsageError(f"{_name(self)}: k and v differ in shape: {k} and {v}")
        if "x" in tensors and tensors["x"].shape[1] != keys:
            raise UsageError(
                f"{_name(self)}: x must have a token for each key, {keys}; got "
                f"{tensors['x'].shape[1]}"
            )
        if mask.keep is not None and tuple(mask.keep.shape) != (q.shape[0], keys):
            raise UsageError(
                f"{_name(self)}: Mask.keep must be (batch, keys) = ({q.shape[0]}, {keys}); got "
                f"{tuple(mask.keep.shape)}"
            )
        return tensors

    def _check_stream(self, name: str, tensor: Tensor, q: Tensor) -> None:
        heads = self.heads
        if not isinstance(tensor, Tensor):
            raise UsageError(f"{_name(self)}: {name} must be a tensor, not {type(tensor).__name__}")
        if name == "x":
            fits = tensor.ndim == 3 and tensor.shape[2] == heads.width
            expected = f"(batch, tokens, {heads.width})"
        else:
            fits = tensor.ndim == 4 and (tensor.shape[1], tensor.shape[3]) == (
                heads.count,
                heads.dim,
            )
            expected = f"(batch, {heads.count}, tokens, {heads.dim})"
        if not fits:
            raise UsageError(f"{_name(self)}: {name} must be {expected}; got {tuple(tensor.shape)}")
        if tensor.shape[0] != q.shape[0]:
            raise UsageError(
                f"{_name(self)}: {name} has batch {tensor.shape[0]}, q has {q.shape[0]}"
            )
        if tensor.dtype != q.dtype or not tensor.is_floating_point():
            raise UsageError(
                f"{_name(self)}: q, k, v must share one floating type; q is {q.dtype}, {name} is "
                f"{tensor.dtype}"
            )
        if tensor.device != q.device:
            raise UsageError(f"{_name(self)}: q is on {q.device}, {name} on {tensor.device}")


def without_autocast(device_type: str) -> AbstractContextManager[object]:
    """Let a part compute in its own types.

    Autocast would turn a product of tensors widened to float32 back into half precision. Entered
    only where autocast is on: an exported graph would include the region.
    """
    known = torch.amp.is_autocast_available(device_type)  # the meta device has none
    if known and torch.is_autocast_enabled(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()


def _name(mechanism: Mechanism) -> str:
    return type(mechanism).__module__.rpartition(".")[2]


def _clean(name: str, tensor: Tensor, mask: Mask) -> Tensor:
    """Zero the padded slots: by selection, not by a product, since 0 x NaN is NaN."""
    keep = mask.keep
    if name == "q":
        keep = mask.keep_queries(tensor.shape[2])
    if keep is None:
        return tensor
    return tensor.where(keep[:, :, None] if name == "x" else keep[:, None, :, None], 0)


def _keys(tensors: dict[str, Tensor]) -> int:
    """How many tokens are attended to."""
    for name in ("k", "v"):
        if name in tensors:
            return tensors[name].shape[2]
    return tensors["x"].shape[1] if "x" in tensors else tensors["q"].shape[2]


def _surely_all(flags: Tensor) -> bool:
    """Whether all flags are true, where reading them is cheap: on CPU, and not while tracing."""
    if flags.device.type != "cpu" or is_traced():
        return False
    return bool(flags.all())


def _all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether a sum shows only finite numbers; False where reading it would cost too much.

    That is everywhere but on CPU, where it would stall the device, and while tracing.
    """
    total = 0.0
    for tensor in tensors:
        if tensor.device.type != "cpu" or is_traced():
            return False
        total += tensor.detach().sum(dtype=torch.float32).item()
    return math.isfinite(total)


def _check_finite(tensors: dict[str, Tensor], mixed: Tensor, looked_at: Iterable[str]) -> None:
    """Name the input that is not finite. On CPU only: elsewhere reading would stall the device.

    Sums detect it cheaply; only then are the inputs searched. (Some kernels give zeros where all
    scores are NaN, so the output alone does not always show it.)
    """
    if mixed.device.type != "cpu" or is_traced():
        return
    if _all_finite(tensors.get(name, mixed) for name in looked_at):
        return
    for name, tensor in tensors.items():
        bad = (~torch.isfinite(tensor)).nonzero()
        if len(bad):
            index = tuple(bad[0].tolist())
            raise NotFinite(f"{name} is not finite in a real token: first at {index}")
