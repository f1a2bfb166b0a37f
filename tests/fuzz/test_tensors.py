"""Mechanisms answer tensors of any shape, type and value, or refuse them in a line."""

from __future__ import annotations

from functools import cache

import torch
from hypothesis import strategies as st

import sparing
from sparing.core.options import hints_of
from tests.fuzz.harness import LEAVES, fuzzed, report, survives

DTYPES = st.sampled_from(
    [torch.float32] * 6
    + [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
)
SIZES = st.sampled_from([0, 1, 2, 3, 4, 5, 8, 17])
SHAPES = st.tuples(
    st.sampled_from([1, 2, 2, 3]), st.just(2), st.sampled_from([1, 3, 5, 17]), st.just(8)
) | st.lists(SIZES, max_size=5).map(tuple)
FILLS = st.sampled_from(["normal"] * 5 + ["zero", "nan", "inf", "huge", "strided", "empty"])
MASKS = st.sampled_from(["none", "ones", "some", "nothing", "float", "short", "long", "bad rank"])


@cache
def _mechanism(name):
    return sparing.mechanism(name, sparing.Heads(2, 8, tokens=17))


def _tensor(shape, dtype, fill, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator)
    scale = {"zero": 0.0, "nan": torch.nan, "inf": torch.inf, "huge": 1e30}.get(fill, 1.0)
    values = (values * scale).to(dtype)
    if fill == "strided" and values.ndim > 1:
        return values.transpose(0, -1)
    return values


def _keep(kind, batch, keys):
    if kind == "none":
        return None
    keep = torch.ones(batch, keys, dtype=torch.bool)
    if kind == "some" and keys:
        keep[..., keys // 2 :] = False
    changed = {
        "nothing": torch.zeros_like(keep),
        "float": keep.float(),
        "short": keep[:, 1:],
        "long": torch.cat((keep, keep), -1),
        "bad rank": keep[0] if batch else keep,
    }
    return changed.get(kind, keep)


TENSORS = st.tuples(SHAPES, DTYPES, FILLS)


@fuzzed(
    20,
    0.14,
    name=st.sampled_from(sparing.mechanisms()),
    given=st.lists(TENSORS, min_size=3, max_size=3),
    same=st.sampled_from([True, True, True, False]),
    mask=MASKS,
    causal=st.booleans(),
    cross=st.booleans(),
    x=st.sampled_from(["none", "fits", "fits", "long", "flat", "text"]),
)
def test_tensors_are_mixed_or_refused(folder, name, given, same, mask, causal, cross, x):
    """Any q, k, v, x and mask."""
    if same:
        given = [given[0]] * 3
    q, k, v = (_tensor(*tensor, seed) for seed, tensor in enumerate(given))
    batch, keys = (k.shape[0], k.shape[-2]) if k.ndim > 1 else (1, 1)
    others = {
        "none": None,
        "fits": torch.randn(batch, keys, 16),
        "long": torch.randn(batch, keys + 3, 16),
        "flat": torch.randn(keys),
        "text": "x",
    }

    def call():
        made = sparing.Mask(_keep(mask, batch, keys), causal=causal, cross=cross)
        return _mechanism(name)(q, k, v, others[x], mask=made)

    inputs = {"name": name, "shapes": given, "mask": mask, "causal": causal, "cross": cross, "x": x}
    with torch.no_grad():
        out = survives(call, **inputs)
    if out is None:
        return
    if out.shape[:-1] != q.shape[:-1] or out.dtype != q.dtype:
        report(f"{name} answers {tuple(out.shape)} {out.dtype}", **inputs)
    plain = all(fill in ("normal", "zero", "strided") for _, _, fill in given)
    if plain and out.is_floating_point() and not bool(out.isfinite().all()):
        report(f"{name} answers numbers that are not finite to ordinary ones", **inputs)


@fuzzed(
    10,
    0.06,
    name=st.sampled_from(sparing.mechanisms()) | st.sampled_from(["", "sofmax", "this", "os.path"]),
    sizes=st.tuples(LEAVES, LEAVES, LEAVES) | st.just((2, 8, 17)),
    options=st.dictionaries(st.integers(0, 9), LEAVES, max_size=2),
)
def test_mechanisms_are_built_or_refused(folder, name, sizes, options):
    """Any name, size and option."""
    if name in sparing.mechanisms():
        from sparing.core.catalogue import mechanism_class

        known = [*hints_of(mechanism_class(name).__init__)] or ["seed"]
    else:
        known = ["seed", "radius"]
    chosen = {known[number % len(known)]: value for number, value in options.items()}
    for taken in ("heads", "return"):
        chosen.pop(taken, None)

    def call():
        count, dim, tokens = sizes
        return sparing.mechanism(name, sparing.Heads(count, dim, tokens=tokens), **chosen)

    survives(call, name=name, sizes=sizes, options=chosen)
