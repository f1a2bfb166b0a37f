"""No attention: each token keeps its own value. A control."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload


class NoAttention(Mechanism):
    """Every token gets its own value: a model in which tokens never exchange information.

    Formula: out_i = v_i.

    Symbols: i is a position; queries and keys are accepted, since every layer has them, and not
    used.

    Cost: one copy. It equals ``window`` with radius 0.

    Source: a control of this library. What differs: nothing. A padded token has no value of its own
    and gets zeros.
    """

    traits = Traits(
        paper="none: a control of this library",
        year=2026,
        family="control",
        arm=True,
        causal=True,
    )
    accelerated = ("accelerator",)

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """A copy of the last values, one for each query: the output is never the input itself."""
        return v[:, :, v.shape[2] - q.shape[2] :].clone()

    def cost(self, work: Workload) -> Cost:
        """No FLOPs; memory for the copy only."""
        outputs = work.rows * work.queries * work.dim
        return Cost(matmul_flops=0, other_flops=0, peak_bytes=outputs * work.element_bytes)
