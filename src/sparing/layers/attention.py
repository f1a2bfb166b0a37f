"""A multi-head attention layer around any mechanism."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.catalogue import mechanism as build_mechanism
from sparing.core.errors import UsageError
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import NO_MASK


class Attention(nn.Module):
    """Projects to queries, keys and values, mixes with a mechanism, projects back.

    ``width`` is the layer's width, divided among ``heads``. ``mechanism`` is a name, with its
    ``options``; ``tokens`` is the longest sequence, for mechanisms that need it. Random mechanisms
    have a ``seed``: give each layer of a stack another one, as ``swap`` does, or all layers are
    alike. With ``mechanism="softmax"`` and the same weights it computes what
    ``torch.nn.MultiheadAttention`` (``batch_first=True``) computes, but takes a ``Mask`` and
    returns no attention weights.

    Raises ``UsageError`` when the heads do not divide the width or a name is unknown.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        mechanism: str = "softmax",
        *,
        bias: bool = True,
        tokens: int | None = None,
        **options: object,
    ) -> None:
        super().__init__()
        if heads < 1 or width < 1 or width % heads:
            raise UsageError(f"{heads} heads do not divide a width of {width}")
        self.q_projection = nn.Linear(width, width, bias=bias)
        self.k_projection = nn.Linear(width, width, bias=bias)
        self.v_projection = nn.Linear(width, width, bias=bias)
        self.output_projection = nn.Linear(width, width, bias=bias)
        shape = Heads(heads, width // heads, width=width, tokens=tokens)
        self.mechanism = build_mechanism(mechanism, shape, **options)
        self.mechanism.init_from(self._weights())

    def forward(
        self,
        x: Float[Tensor, "batch queries width"],
        context: Float[Tensor, "batch keys width"] | None = None,
        *,
        mask: Mask = NO_MASK,
    ) -> Float[Tensor, "batch queries width"]:
        """Attend from ``x`` to itself, or to ``context`` (cross-attention, without causality)."""
        if x.ndim != 3 or x.shape[-1] != self.q_projection.in_features:
            expected = f"(batch, tokens, {self.q_projection.in_features})"
            raise UsageError(f"Attention: x must be {expected}; got {tuple(x.shape)}")
        if context is not None:
            mask = Mask(mask.keep, mask.causal, cross=True)
        source = x if context is None else context
        tensors = {
            "q": self._split(self.q_projection(x)),
            "k": self._split(self.k_projection(source)),
            "v": self._split(self.v_projection(source)),
        }
        # autocast lowers the outputs of projections, not their inputs
        tensors["x"] = x.to(tensors["q"].dtype)
        chosen = (tensors[name] for name in self.mechanism.streams)
        mixed = self.mechanism(*chosen, mask=mask)
        joined: Tensor = self.output_projection(mixed.transpose(1, 2).flatten(2))
        return joined

    def _split(self, projected: Tensor) -> Tensor:
        heads = self.mechanism.heads
        batch, tokens, _ = projected.shape
        return projected.view(batch, tokens, heads.count, heads.dim).transpose(1, 2)

    def _weights(self) -> dict[str, Tensor]:
        layers = {"q": self.q_projection, "k": self.k_projection, "v": self.v_projection}
        weights = {name: layer.weight for name, layer in layers.items()}
        biases = {f"{name}_bias": layer.bias for name, layer in layers.items()}
        return {**weights, **{name: bias for name, bias in biases.items() if bias is not None}}
