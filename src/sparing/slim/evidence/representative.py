"""A few texts instead of all: easy and hard, short and long ones by their shares.

The time of a form with exits depends on which inputs exit. On 120 texts at random its speed has a
standard error of 9 %, on 120 of these 4 % (benchmarks/slim_shares.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor

FROM_EACH = 4  # texts out of each stratum: strata of equal difficulty, with lengths inside


def evenly(count: int, most: int) -> list[int]:
    """At most ``most`` of the numbers below ``count``: the middle one of each equal part."""
    taken = min(count, most)
    return [(2 * number + 1) * count // (2 * taken) for number in range(taken)]


def representative(
    efforts: Float[Tensor, " texts"], lengths: Sequence[int], most: int
) -> list[int]:
    """The numbers of at most ``most`` texts, in order: a systematic sample with strata.

    Texts in the order of their ``efforts`` (equal ones by length) are cut into strata of one size.
    These are sorted by length, up and down in turn, so that neighbours are alike. Of that order
    every n-th text is taken. Source: Cochran, "Sampling Techniques", 1977, chapter 8.
    """
    size = np.asarray(lengths)
    order = np.lexsort((size, efforts.numpy()))
    strata = np.array_split(order, math.ceil(most / FROM_EACH))
    sorted_up = [stratum[np.argsort(size[stratum], kind="stable")] for stratum in strata]
    turned = [one[::-1] if number % 2 else one for number, one in enumerate(sorted_up)]
    arranged = np.concatenate(turned)
    return sorted(int(arranged[number]) for number in evenly(len(order), most))
