"""The inputs of a chain: cast where nothing is lost, and refused by name otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparing.core.errors import UsageError, nearest

MASK, TYPES = "attention_mask", "token_type_ids"
# The sizes of an input in the export of a segment, by name; None where free.
Sizes = Mapping[str, Sequence[int | None]]


def checked(
    inputs: Mapping[str, Any],
    takes: Sequence[str],
    needs: Sequence[str],
    sizes: Sizes,
    longest: int | None,
) -> tuple[dict[str, Tensor], NDArray[np.bool_] | None]:
    """The inputs as tensors, and the real tokens (batch, tokens), None if not given.

    Whole numbers of any width and booleans become int64. Token types that are all 0 are left out
    where the model takes none: tokenizers give them for single texts. Raises ``UsageError`` naming
    the input that is missing, unknown, empty, too long, of another shape or kind, without a real
    token at its start, or with impossible values.
    """
    if not isinstance(inputs, Mapping):
        raise UsageError(f"inputs are a mapping of names to arrays; got {type(inputs).__name__}")
    given = {str(name): _tensor(str(name), value) for name, value in inputs.items()}
    if TYPES in given and TYPES not in takes and not bool(given[TYPES].any()):
        del given[TYPES]
    for name in given:
        if name not in takes:
            raise UsageError(f"the model takes no input {name[:40]!r}{nearest(name, takes)}")
    missing = [name for name in needs if name not in given]
    if missing or not given:
        raise UsageError(f"inputs are missing: {', '.join(missing or takes)}")
    first = next(iter(given))
    shape = tuple(given[first].shape)
    if 0 in shape:
        raise UsageError(f"there are no inputs in shape {shape}")
    for name, value in given.items():
        _require_shape(name, value, sizes.get(name))
        if value.shape[:2] != shape[:2]:
            raise UsageError(
                f"{name} is of shape {tuple(value.shape)}, not of {shape} as {first} is"
            )
        given[name] = _require_values(name, value)
    return given, _real_tokens(given, longest)


def _tensor(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    if not isinstance(value, np.ndarray):
        raise UsageError(
            f"{name[:40]} is a {type(value).__name__}; give an array of NumPy or a tensor"
        )
    if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
        raise UsageError(f"{name[:40]} is of {value.dtype}, which no model reads")
    if value.dtype.kind == "u" and value.dtype.itemsize == 8 and value.size:
        # torch has few operations on these; values that do not fit are in no table either
        value = np.minimum(value, np.iinfo(np.int64).max).astype(np.int64)
    native = value.astype(value.dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(np.array(native, order="C"))  # a copy: some arrays are read-only


def _require_shape(name: str, value: Tensor, sizes: Sequence[int | None] | None) -> None:
    """Raise ``UsageError`` unless an input has the sizes of its kind or of the export."""
    if sizes is None:
        rank = {"pixel_values": 4, "hidden": 3}.get(name, 2)
        sizes = [None] * rank
    fits = value.ndim == len(sizes) and all(
        size in (None, side) for side, size in zip(value.shape, sizes, strict=True)
    )
    if not fits:
        names = ("batch", "tokens") if len(sizes) < 4 else ("batch",)
        free = [*names, *["*"] * len(sizes)]
        expected = ", ".join(str(size or free[index]) for index, size in enumerate(sizes))
        raise UsageError(f"{name} is of shape {tuple(value.shape)}; the model reads ({expected})")


def _require_values(name: str, value: Tensor) -> Tensor:
    """Raise ``UsageError`` unless an input's values are of the kind that its name implies."""
    if name in ("pixel_values", "hidden"):
        if not value.is_floating_point():
            raise UsageError(f"{name} must be fractions; {_kind(value)}")
        if not bool(value.isfinite().all()):
            raise UsageError(f"{name} holds numbers that are not finite")
        return value
    if value.is_floating_point() or value.is_complex():
        raise UsageError(f"{name} must be whole numbers; {_kind(value)}")
    value = value.long()
    least, most = int(value.min()), int(value.max())
    if name == MASK and (least < 0 or most > 1):
        raise UsageError(f"{name} must be 1 for real tokens and 0 for pads; got {least} to {most}")
    if least < 0:
        raise UsageError(f"{name} must not be negative; got {least}")
    return value


def _kind(value: Tensor) -> str:
    return f"got {str(value.dtype).removeprefix('torch.')}"


def _real_tokens(given: Mapping[str, Tensor], longest: int | None) -> NDArray[np.bool_] | None:
    mask = given.get(MASK)
    if mask is None:
        ids = given.get("input_ids")
        if ids is not None and longest is not None and ids.shape[1] > longest:
            _refuse_length(ids.shape[1], longest)
        return None
    keep: NDArray[np.bool_] = mask.cpu().numpy() != 0
    if not keep[:, 0].all():
        raise UsageError("every input must begin with a real token: pads go to the right")
    if longest is not None and keep.shape[1] > longest and keep[:, longest:].any():
        _refuse_length(length_of(keep), longest)
    return keep


def _refuse_length(tokens: int, longest: int) -> None:
    raise UsageError(f"an input has {tokens} tokens; this model takes at most {longest}")


def length_of(keep: NDArray[np.bool_]) -> int:
    """Tokens up to the last real one of any row."""
    return int(np.flatnonzero(keep.any(0))[-1]) + 1


def explained(error: Exception, given: Mapping[str, Any]) -> UsageError:
    """An engine's error on inputs, in one line that names the likely input."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if "out of" in reason and "input_ids" in given:
        most = int(np.max(np.asarray(given["input_ids"])))
        reason = f"token {most} or a token type is outside the model's vocabulary"
    return UsageError(f"the model cannot run these inputs: {reason[:250]}")
