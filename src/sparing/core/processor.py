"""The abilities of the processor; its name alone, as in virtual machines, does not show them."""

from __future__ import annotations

import torch

# Those that PyTorch's kernels use, as ``torch.cpu.get_capabilities`` names them.
INSTRUCTION_SETS = (
    "avx2",
    "avx512_f",
    "avx512_vnni",
    "avx512_bf16",
    "amx_bf16",
    "amx_int8",
    "neon",
    "bf16",
    "i8mm",
    "sve",
)
BFLOAT16_SETS = ("avx512_bf16", "amx_bf16", "bf16")


def instruction_sets() -> tuple[str, ...]:
    """The instruction sets of this processor that matter to speed."""
    capabilities = torch.cpu.get_capabilities()
    return tuple(name for name in INSTRUCTION_SETS if capabilities.get(name, False))


def int8_sums_overflow() -> bool:
    """Whether products of 8-bit numbers are summed in 16 bits, which saturate: x86 without VNNI.

    Sums with weights of 7 bits do not saturate 16 bits.
    """
    capabilities = torch.cpu.get_capabilities()
    sums_in_32_bits = ("avx512_vnni", "avx_vnni", "amx_int8")
    x86 = capabilities.get("architecture") in ("x86_64", "x86")
    return x86 and not any(capabilities.get(name, False) for name in sums_in_32_bits)


def multiplies_bfloat16() -> bool:
    """Whether the processor multiplies in bfloat16 itself.

    Where it does not, training in bfloat16 takes tens of times as long as in float32.
    """
    return any(name in BFLOAT16_SETS for name in instruction_sets())
