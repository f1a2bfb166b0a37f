"""What the memory tests measure, in a process of its own."""

from __future__ import annotations

import os
import signal
import sys

import torch

MEBI = 2**20


def tensor(mebibytes, *, freed=0):
    """A call that fills a tensor and then frees it; building takes and frees ``freed`` first.

    It prints at both levels, as libraries do.
    """
    torch.ones(freed * MEBI // 4)
    small = [torch.ones(1024) for _ in range(freed * MEBI // 4096)]
    del small

    def call():
        torch.ones(mebibytes * MEBI // 4)
        print('{"bytes": 1}')
        os.write(1, b"from below\n")
        sys.stdout.flush()
        return torch.ones(1)

    return call


def attention(name, tokens):
    """A call of a mechanism on random tensors."""
    from sparing.core.catalogue import mechanism
    from sparing.core.heads import Heads

    built = mechanism(name, Heads(2, 64))
    q, k, v = torch.randn(3, 1, 2, tokens, 64).unbind()

    def call():
        with torch.inference_mode():
            return built(q, k, v)

    return call


def product(tokens):
    """A call that multiplies a column by a row."""
    x = torch.ones(tokens, 1)
    return lambda: x @ x.T


def failing(cause):
    """A call that ends in the given way."""

    def call():
        if cause == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if cause == "starved":
            torch.empty(2**50)
        if cause == "slow":
            signal.pause()
        raise ValueError("a plain mistake\nwith a long tail")

    return call


def not_a_call():
    return 3


def mapped(file: str):
    """A call that reads weights which are mapped from a file, as transformers opens them."""
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        weight = opened.get_tensor("weight")
    return lambda: weight.sum()
