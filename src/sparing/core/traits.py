"""The abilities of a mechanism, declared once and checked in both directions by the contract."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Traits:
    """Positive, checked facts about a mechanism, plus where it comes from.

    - causal: honours ``Mask(causal=True)``; padding: honours ``Mask(keep=...)``
    - cross: queries may be another sequence than keys
    - any_length: serves every length (otherwise up to ``Heads.tokens``)
    - exact: equals softmax(q k^T / sqrt(dim)) v
    - permutable: permuting the keys with their values changes nothing
    - random: samples parameters at construction
    - differentiable: gradients are the true ones (otherwise only finite)
    - exportable: ``torch.export`` at one length runs at another
    - onnx: the file of ``torch.onnx.export(dynamo=True)`` gives the same answers in onnxruntime,
      for any batch, length and padding

    ``family`` groups it in lists and tables (one of ``FAMILIES``). ``arm`` says that a study of all
    mechanisms includes it.
    """

    paper: str
    year: int
    family: str = "other"
    arm: bool = False
    causal: bool = False
    padding: bool = True
    cross: bool = False
    any_length: bool = True
    exact: bool = False
    permutable: bool = False
    random: bool = False
    differentiable: bool = True
    exportable: bool = True
    onnx: bool = True


FAMILIES: tuple[str, ...] = (
    "dense",
    "sparse",
    "low-rank",
    "kernel",
    "hashing",
    "control",
    "other",
)
"""Scores for all pairs; for chosen pairs; for few summaries; through features; for pairs with
equal hashes; controls."""

FLAGS: tuple[str, ...] = (
    "causal",
    "padding",
    "cross",
    "any_length",
    "exact",
    "permutable",
    "random",
    "differentiable",
    "exportable",
    "onnx",
)
