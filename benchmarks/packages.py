"""Other packages' attention beside sparing's at equal hyper-parameters.

Each form is measured as a module (projections and core, width 768) and as the core alone. The core
is the same module with its projections replaced by given tensors, so both sides read (batch,
tokens, width) and write it. A package that is not installed is skipped, with that reason.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from attention_calls import Call
from sparing import Attention

Built = Callable[[int, int, int], nn.Module]
SIDES = ("softmax", "sparing", "package")
SCOPES = ("core", "module")
OWN_PROJECTIONS = {"q_projection": 1, "k_projection": 1, "v_projection": 1}


@dataclass(frozen=True)
class Package:
    """One package's class beside one of sparing's mechanisms.

    ``build`` gives the module for (tokens, width, heads); ``projections`` names its projections and
    how many widths each gives. ``output`` names its output projection, empty where it has none
    (then sparing's is measured without one). ``note`` says what is equal and what is not.
    """

    package: str
    mechanism: str
    options: dict[str, Any]
    build: Built
    projections: dict[str, int]
    output: str
    note: str

    def missing(self) -> str:
        """Why it cannot be measured here; empty where it can."""
        try:
            importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return f"{self.package} is not installed"
        return ""

    @property
    def version(self) -> str:
        """The installed version."""
        return importlib.metadata.version(self.package)


class _Given(nn.Module):
    """A projection that has been computed already."""

    def __init__(self, tensor: torch.Tensor, width: int) -> None:
        super().__init__()
        self.tensor = tensor
        self.in_features = width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The given tensor, whatever ``x`` is."""
        return self.tensor


def call_of(name: str, side: str, scope: str, tokens: int, width: int = 768) -> Call:
    """A call of one side (softmax, sparing, package), as a module or its core alone."""
    form, heads = PACKAGES[name], width // 64
    torch.manual_seed(0)
    if side == "package":
        module, projections, output = (
            form.build(tokens, width, heads),
            form.projections,
            form.output,
        )
    else:
        arm, options = ("softmax", {}) if side == "softmax" else (form.mechanism, form.options)
        module = Attention(width, heads, arm, bias=False, tokens=tokens, **options)
        projections, output = OWN_PROJECTIONS, "output_projection"
    module.eval()
    if scope == "core":
        for projection, widths in projections.items():
            module.set_submodule(projection, _Given(torch.randn(1, tokens, widths * width), width))
    if output and (scope == "core" or not form.output):
        module.set_submodule(output, nn.Identity())
    x = torch.randn(1, tokens, width)

    def call() -> object:
        with torch.inference_mode():
            return module(x)

    if name == "flex" and side == "package":
        call()  # compiles: that is not part of a call
    return call


def _linformer(slots: int) -> Built:
    def build(tokens: int, width: int, heads: int) -> nn.Module:
        from linformer import LinformerSelfAttention

        return LinformerSelfAttention(width, tokens, k=slots, heads=heads)

    return build


def _performer(features: int) -> Built:
    def build(tokens: int, width: int, heads: int) -> nn.Module:
        from performer_pytorch import SelfAttention

        return SelfAttention(width, causal=False, heads=heads, nb_features=features)

    return build


def _nystrom(residual: bool) -> Built:
    def build(tokens: int, width: int, heads: int) -> nn.Module:
        from nystrom_attention import NystromAttention

        return NystromAttention(
            width,
            dim_head=width // heads,
            heads=heads,
            num_landmarks=64,
            pinv_iterations=6,
            residual=residual,
        )

    return build


def _reformer(tokens: int, width: int, heads: int) -> nn.Module:
    from reformer_pytorch import LSHSelfAttention

    return LSHSelfAttention(width, heads=heads, bucket_size=64, n_hashes=4)


def _linear_transformer(tokens: int, width: int, heads: int) -> nn.Module:
    from linear_attention_transformer.linear_attention_transformer import SelfAttention

    return SelfAttention(width, heads)


def _local(exact: bool) -> Built:
    def build(tokens: int, width: int, heads: int) -> nn.Module:
        from local_attention import LocalMHA

        return LocalMHA(
            dim=width,
            window_size=128,
            dim_head=width // heads,
            heads=heads,
            exact_windowsize=exact,
            use_rotary_pos_emb=False,
        )

    return build


class _BigBird(nn.Module):
    """transformers' block-sparse attention with the masks that its encoder prepares once."""

    def __init__(self, tokens: int, width: int, heads: int) -> None:
        super().__init__()
        from transformers import BigBirdConfig
        from transformers.models.big_bird.modeling_big_bird import (
            BigBirdBlockSparseAttention,
            BigBirdModel,
        )

        config = BigBirdConfig(
            hidden_size=width,
            num_attention_heads=heads,
            block_size=64,
            num_random_blocks=3,
            max_position_embeddings=max(4096, tokens),
            use_bias=False,
        )
        self.attention = BigBirdBlockSparseAttention(config, seed=0)
        masks = BigBirdModel.create_masks_for_block_sparse_attn(torch.ones(1, tokens), 64)
        self.blocked, self.band, self.rows, self.columns = masks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The mixed tokens."""
        return self.attention(
            x,
            band_mask=self.band,
            from_mask=self.rows,
            to_mask=self.columns,
            from_blocked_mask=self.blocked,
            to_blocked_mask=self.blocked,
        )[0]


class _Longformer(nn.Module):
    """transformers' sliding window with its first token global."""

    def __init__(self, tokens: int, width: int, heads: int) -> None:
        super().__init__()
        from transformers import LongformerConfig
        from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

        config = LongformerConfig(
            hidden_size=width, num_attention_heads=heads, attention_window=[256]
        )
        self.attention = LongformerSelfAttention(config, 0)
        self.is_global = torch.zeros(1, tokens, dtype=torch.bool)
        self.is_global[:, 0] = True
        self.mask = torch.where(self.is_global, 10000.0, 0.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The mixed tokens."""
        return self.attention(
            x,
            attention_mask=self.mask,
            is_index_masked=torch.zeros_like(self.is_global),
            is_index_global_attn=self.is_global,
            is_global_attn=True,
        )[0]


class _Flex(nn.Module):
    """PyTorch's compiled flex_attention under a window's mask."""

    def __init__(self, tokens: int, width: int, heads: int) -> None:
        super().__init__()
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        def near(batch: Any, head: Any, query: Any, key: Any) -> Any:
            return (query - key).abs() <= 128

        self.heads = heads
        for name in ("to_q", "to_k", "to_v", "to_out"):
            self.add_module(name, nn.Linear(width, width, bias=False))
        self.mask = create_block_mask(near, None, None, tokens, tokens, device="cpu")
        self.attend = torch.compile(flex_attention)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The mixed tokens."""
        q, k, v = (
            projection(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for projection in (self.to_q, self.to_k, self.to_v)
        )
        mixed = self.attend(q, k, v, block_mask=self.mask)
        return self.to_out(mixed.transpose(1, 2).flatten(2))


_SEPARATE = {"to_q": 1, "to_k": 1, "to_v": 1}
_PACKED = {"to_qkv": 3}

PACKAGES: dict[str, Package] = {
    "linformer-128": Package(
        "linformer",
        "linformer",
        {"slots": 128},
        _linformer(128),
        _SEPARATE,
        "to_out",
        "128 slots, projections over tokens shared by the heads on both sides",
    ),
    "linformer-256": Package(
        "linformer",
        "linformer",
        {"slots": 256},
        _linformer(256),
        _SEPARATE,
        "to_out",
        "256 slots, projections over tokens shared by the heads on both sides",
    ),
    "performer": Package(
        "performer-pytorch",
        "performer",
        {"features": 266},
        _performer(266),
        _SEPARATE,
        "to_out",
        "266 positive features",
    ),
    "nystrom": Package(
        "nystrom-attention",
        "nystrom",
        {"landmarks": 64},
        _nystrom(False),
        _PACKED,
        "to_out",
        "64 landmarks, 6 iterations, no convolution",
    ),
    "nystrom-convolution": Package(
        "nystrom-attention",
        "nystrom",
        {"landmarks": 64, "conv_kernel": 33},
        _nystrom(True),
        _PACKED,
        "to_out",
        "64 landmarks, 6 iterations, convolution over 33 tokens",
    ),
    "reformer": Package(
        "reformer-pytorch",
        "reformer",
        {},
        _reformer,
        {"toqk": 1, "tov": 1},
        "to_out",
        "4 hashes, buckets of 64; queries and keys are one projection on their side",
    ),
    "efficient": Package(
        "linear-attention-transformer",
        "efficient",
        {},
        _linear_transformer,
        _SEPARATE,
        "to_out",
        "softmax over features of queries and over tokens of keys",
    ),
    "local": Package(
        "local-attention",
        "local",
        {"look_back": 1, "look_ahead": 1},
        _local(False),
        _PACKED,
        "to_out",
        "blocks of 128, each also sees the block before and the block after; no rotary positions",
    ),
    "window": Package(
        "local-attention",
        "window",
        {"radius": 128},
        _local(True),
        _PACKED,
        "to_out",
        "exact window of 128 tokens to each side; no rotary positions",
    ),
    "flex": Package(
        "torch",
        "window",
        {"radius": 128},
        _Flex,
        _SEPARATE,
        "to_out",
        "flex_attention, compiled, exact window of 128 tokens to each side",
    ),
    "bigbird": Package(
        "transformers",
        "bigbird",
        {},
        _BigBird,
        {"attention.query": 1, "attention.key": 1, "attention.value": 1},
        "",
        "blocks of 64, 3 random; the package has no output projection, so sparing is measured "
        "without",
    ),
    "longformer": Package(
        "transformers",
        "longformer",
        {},
        _Longformer,
        {"attention.query": 1, "attention.key": 1, "attention.value": 1},
        "",
        "window of 128 to each side, first token global with its own projections; the package has "
        "no output projection, so sparing is measured without",
    ),
}
