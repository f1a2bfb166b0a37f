"""Each mechanism's configurations under test and its claims: one line or two for each file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from sparing.core.mechanism import Mechanism
from sparing.testing.claims import Claim, Equals, Matches
from sparing.testing.references import (
    dense_kerformer,
    dense_linear,
    dense_linformer,
    dense_nystrom,
    dense_window,
)
from sparing.testing.subject import Subject


@dataclass(frozen=True)
class Entry:
    """Configurations of a mechanism that share their claims."""

    options: tuple[dict[str, Any], ...]
    claims: tuple[Claim, ...]
    row_sums: bool = True


def _project_by_identity(made: Any) -> None:
    """Linformer with as many slots as tokens, each slot one token."""
    made.key_projection.copy_(torch.eye(made.slots))
    made.value_projection.copy_(torch.eye(made.slots))


def _landmarks_everywhere(tokens: int) -> dict[str, Any]:
    return {"landmarks": tokens, "pinv": "exact"}


ENTRIES: dict[str, tuple[Entry, ...]] = {
    "softmax": (Entry(({},), (Equals("eager"),)),),
    "eager": (Entry(({},), (Equals("softmax"),)),),
    "window": (
        Entry(
            ({"radius": 2}, {"radius": 0}, {"radius": 17}),
            (Matches(dense_window), Equals("softmax", lambda tokens: {"radius": tokens})),
        ),
    ),
    "linear": (Entry(({},), (Matches(dense_linear),)),),
    "linformer": (
        Entry(
            ({"slots": 5}, *({"slots": 5, "sharing": s} for s in ("none", "kv", "layerwise"))),
            (
                Matches(dense_linformer),
                Equals("softmax", lambda tokens: {"slots": tokens}, _project_by_identity),
            ),
            row_sums=False,
        ),
        Entry(({"slots": 5, "projection": "random"},), (Matches(dense_linformer),), row_sums=False),
        Entry(
            tuple({"projection": p, "stride": 3} for p in ("mean_pool", "convolution")),
            (Equals("softmax", {"projection": "mean_pool", "stride": 1}),),
            row_sums=False,
        ),
    ),
    "nystrom": (
        Entry(
            ({"landmarks": 5, "pinv": "exact"},),
            (Matches(dense_nystrom), Equals("softmax", _landmarks_everywhere)),
            row_sums=False,
        ),
        Entry(
            ({"landmarks": 5}, {"landmarks": 5, "conv_kernel": 3}),
            (
                Equals(
                    "softmax",
                    lambda tokens: {"landmarks": tokens, "iterations": 24},
                    relative=1e-7,
                ),
            ),
            row_sums=False,
        ),
    ),
    "kerformer": (
        Entry(
            (
                {},
                {"se": "fixed"},
                {"se": "none"},
                {"axis": "token", "se": "fixed"},
                {"axis": "token", "se": "none", "query_map": "softmax"},
            ),
            (Matches(dense_kerformer),),
        ),
    ),
    "probabilistic": (
        Entry(
            (
                {},
                {"prior": "uniform"},
                {"key_adaptation": 2},
                {"value_precision": 0.5, "value_iterations": 2},
            ),
            (Equals("softmax"),),
        ),
    ),
}


def subjects(name: str, build: type[Mechanism]) -> list[Subject]:
    """The configurations of a mechanism by name; a stranger is tested with its defaults."""
    return [
        Subject(build, options, entry.row_sums, entry.claims)
        for entry in ENTRIES.get(name, (Entry(({},), (), row_sums=False),))
        for options in entry.options
    ]
