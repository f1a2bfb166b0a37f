"""What the processor says of itself."""

import pytest
import torch

from sparing.core.processor import (
    instruction_sets,
    int8_sums_overflow,
    multiplies_bfloat16,
)


@pytest.mark.parametrize(
    ("capabilities", "sets", "native"),
    [
        ({"avx2": True, "avx512_f": False, "sse": True}, ("avx2",), False),
        ({"avx2": True, "avx512_f": True}, ("avx2", "avx512_f"), False),
        ({"avx512_f": True, "avx512_bf16": True}, ("avx512_f", "avx512_bf16"), True),
        ({"neon": True, "bf16": True}, ("neon", "bf16"), True),
        ({}, (), False),
    ],
)
def test_instruction_sets_that_matter(capabilities, sets, native, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert instruction_sets() == sets
    assert multiplies_bfloat16() is native


@pytest.mark.parametrize(
    ("capabilities", "overflow"),
    [
        ({"architecture": "x86_64", "avx2": True}, True),
        ({"architecture": "x86_64", "avx512_f": True, "avx512_vnni": False}, True),
        ({"architecture": "x86_64", "avx512_vnni": True}, False),
        ({"architecture": "x86_64", "avx_vnni": True}, False),
        ({"architecture": "aarch64", "neon": True}, False),
        ({}, False),
    ],
)
def test_where_8_bit_products_overflow(capabilities, overflow, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert int8_sums_overflow() is overflow
