"""FLOPs of a call or a model: matrix products, a multiply-add counted as two.

PyTorch's counter has no formula for fused attention on CPU, so it silently counts nothing there.
Elsewhere it counts the hidden half of causal attention. Here every fused attention operator gets
one formula. A limit remains: of a ``torch.cond`` the counter takes the costlier branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.workload import Workload

Formula = Callable[..., int]

_FUSED = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_attention_math_for_mps",
)
_BATCHED_PRODUCTS = (torch.ops.aten.bmm, torch.ops.aten.baddbmm)


@dataclass(frozen=True)
class ModelFlops:
    """The matrix FLOPs of one forward pass.

    ``attention`` is the attention core (scores and mixing, without the projections), ``other`` the
    rest, ``total`` their sum.
    """

    total: int
    attention: int
    other: int


def count_flops(call: Callable[[], object]) -> int:
    """The matrix FLOPs that one call executes, fused attention included.

    A causal flag counts the visible pairs only, as the kernels compute them. A mask given as a
    tensor hides nothing from a kernel and counts in full. Backward passes inside the call count
    too: a fused kernel recomputes the scores there, one product more than unfused attention.
    PyTorch's own encoder layers and LSTMs run as one operator without a formula; meanwhile they run
    step by step. Products of quantised numbers are not counted.
    """
    with no_shortcuts(), FlopCounterMode(display=False, custom_mapping=_fused_formulas()) as count:
        call()
    return int(count.get_total_flops())


@contextmanager
def no_shortcuts() -> Iterator[None]:
    """PyTorch's layers without the operators that compute a whole layer, or network, at once."""
    fast, library = torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = library
        torch.backends.mha.set_fastpath_enabled(fast)


def model_flops(model: nn.Module, inputs: Mapping[str, Tensor]) -> ModelFlops:
    """Split the FLOPs of ``model(**inputs)`` into the attention core and the rest.

    Runs the model once, in evaluation mode and without gradients, and restores its mode. Each call
    of a mechanism counts by the mechanism's closed form, not by its real operations. Fused
    attention outside mechanisms counts as transformers' own attention. So do batched products in
    which no operand is a parameter.
    """
    tally = _Tally(storages={_storage(tensor) for tensor in model.parameters()})
    formulas = {op: tally.sorting(op, formula) for op, formula in all_formulas().items()}
    with ExitStack() as stack:
        stack.enter_context(_evaluation_mode(model))
        for module in model.modules():
            if isinstance(module, Mechanism):
                tally.watch(module, stack)
        stack.enter_context(torch.no_grad())
        stack.enter_context(no_shortcuts())
        counter = FlopCounterMode(display=False, custom_mapping=formulas)
        with counter:
            model(**inputs)
    other = int(counter.get_total_flops()) - tally.executed_inside - tally.outside
    attention = tally.modelled + tally.outside
    return ModelFlops(attention + other, attention, other)


@dataclass
class _Tally:
    """The FLOPs counted during one pass; ``depth`` is above zero inside a mechanism.

    ``outside`` are those of attention outside mechanisms.
    """

    storages: set[int]
    depth: int = 0
    modelled: int = 0
    executed_inside: int = 0
    outside: int = 0

    def watch(self, mechanism: Mechanism, stack: ExitStack) -> None:
        """Count a mechanism's calls by its closed form, until the stack is closed."""

        def enter(module: nn.Module, streams: tuple[Any, ...], options: dict[str, Any]) -> None:
            self.depth += 1
            work = _workload(mechanism, streams, options.get("mask") or Mask())
            if self.depth == 1:
                self.modelled += mechanism.cost(work).matmul_flops

        def leave(*_: object) -> None:
            self.depth -= 1

        stack.callback(mechanism.register_forward_pre_hook(enter, with_kwargs=True).remove)
        stack.callback(mechanism.register_forward_hook(leave, always_call=True).remove)

    def sorting(self, op: Any, formula: Formula) -> Formula:
        """The formula, which also notes which part its operation belongs to."""

        def counted(*operands: Any, **options: Any) -> int:
            flops = formula(*operands, **options)
            if self.depth:
                self.executed_inside += flops
            elif op in _fused_formulas() or (
                op in _BATCHED_PRODUCTS and not self._has_parameter(operands)
            ):
                self.outside += flops
            return flops

        return raw(counted)

    def _has_parameter(self, operands: tuple[Any, ...]) -> bool:
        tensors = (operand for operand in operands if isinstance(operand, Tensor))
        return any(_storage(tensor) in self.storages for tensor in tensors)


def _workload(mechanism: Mechanism, streams: tuple[Any, ...], mask: Mask) -> Workload:
    named = dict(zip(mechanism.streams, streams, strict=True))
    q = named["q"]
    keys = next(named[name] for name in ("k", "v", "q") if name in named)
    return Workload(
        batch=q.shape[0],
        heads=q.shape[1],
        queries=q.shape[2],
        keys=keys.shape[2],
        dim=q.shape[3],
        dtype=q.dtype,
        causal=mask.causal,
    )


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def all_formulas() -> dict[Any, Formula]:
    """A formula for each operator that multiplies matrices, for PyTorch's counter."""
    return {**flop_registry, **_fused_formulas()}


@cache
def _fused_formulas() -> dict[Any, Formula]:
    """A formula for each fused attention operator of this PyTorch, forward and backward."""
    formulas: dict[Any, Formula] = {}
    for name in _FUSED:
        for suffix, products in (("", (1, 1)), ("_backward", (3, 2))):
            op = getattr(torch.ops.aten, name + suffix, None)
            if op is not None:
                formulas[op] = _fused_formula(op, *products)
    return formulas


def _fused_formula(op: Any, key_products: int, value_products: int) -> Formula:
    """Visible pairs times the products over the key width and over the value width.

    Forward: scores, mixing. Backward: scores again, queries, keys; values, weights.
    """
    indices = {argument.name: index for index, argument in enumerate(op.default._schema.arguments)}

    def formula(*operands: Any, **options: Any) -> int:
        def given(name: str) -> Any:
            index = indices[name]
            return operands[index] if index < len(operands) else options.get(name)

        query, key, value = (given(name).shape for name in ("query", "key", "value"))
        queries, keys = int(query[-2]), int(key[-2])
        pairs = _causal_pairs(queries, keys) if given("is_causal") else queries * keys
        widths = key_products * int(query[-1]) + value_products * int(value[-1])
        return 2 * int(query[:-2].numel()) * pairs * widths

    return raw(formula)


def _causal_pairs(queries: int, keys: int) -> int:
    """Pairs in which the key does not come after the query, both counted from the first."""
    shared = min(queries, keys)
    return shared * (shared + 1) // 2 + (queries - shared) * keys


def raw(formula: Formula) -> Formula:
    """Make the counter pass tensors, not their shapes."""
    formula._get_raw = True  # type: ignore[attr-defined]
    return formula
