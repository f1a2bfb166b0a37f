"""The weights that a constant was computed from: whether they are still the same, and as built."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor, nn

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


class Sources:
    """The weights behind constants, as they were; a copy or a pickle of it knows none.

    Their memory is held, so that no other tensor gets the same address meanwhile.
    """

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        self._seen = [(tensor.detach(), tensor._version) for tensor in tensors]

    def __reduce__(self) -> tuple[type[Sources], tuple[()]]:
        return Sources, ()

    def are(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these are the same tensors with the same contents."""
        return len(tensors) == len(self._seen) and all(
            tensor.data_ptr() == seen.data_ptr()
            and tensor._version == version
            and tensor.dtype == seen.dtype
            for tensor, (seen, version) in zip(tensors, self._seen, strict=True)
        )

    def unchanged(self) -> bool:
        """Whether there are any, and nothing was written into them."""
        # a detached tensor counts the writes into the original too
        return bool(self._seen) and all(seen._version == version for seen, version in self._seen)


def weights_of(*modules: tuple[nn.Module, type[nn.Module]]) -> list[Tensor] | None:
    """The parameters of modules that are exactly of these classes; None if one computes otherwise.

    A hook, a forward of its own, an adapter or a parametrisation could change an output in ways
    that weights do not show.
    """
    tensors: list[Tensor] = []
    for module, kind in modules:
        parts: dict[str, Any] = vars(module)
        hooked = any(parts[name] for name in _HOOKS)
        if type(module) is not kind or hooked or "forward" in parts:
            return None
        tensors += [tensor for tensor in module._parameters.values() if tensor is not None]
    return tensors
