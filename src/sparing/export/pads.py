"""Let an ONNX graph compute its layers on real tokens alone, in any batch and order of lengths.

Of a batch of short texts a third or more may be pads, and layers work as hard on them as on words.
Here everything between attentions runs on a table with one row for each real token of the batch.
Before an attention its queries, keys and values are put back in their places. A pad gets the row of
the real token before it, in the same text; the mask hides it. So no text sees another's numbers.
``layers.packing`` does the same in PyTorch.

Source: Zhai et al., "ByteTransformer", 2022, arXiv 2210.03052, section III (prefix sums of the mask
give the places), which has fused kernels for GPUs. Here the graph's own operators do it, on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparing.core.errors import Unsupported, UsageError

HIDDEN, MASK = "hidden", "attention_mask"
# Operators that treat every token alone, where other inputs are constants for all tokens.
ALONE = {
    *("Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "Neg", "Abs", "Min", "Max", "Clip"),
    *("Cast", "Identity", "Gelu", "Relu", "Erf", "Tanh", "Sigmoid", "Softplus", "Swish"),
}
OF_LAST_AXIS = ("LayerNormalization", "RMSNormalization", "Split")
ZERO, ONE, ALL = "pads/zero", "pads/one", "pads/all"
CONSTANTS = {ZERO: np.array(0), ONE: np.array(1), ALL: np.array([-1])}
PLACES, INVERSE = "pads/places", "pads/inverse"


def skip_pads(onnx: Any, model: Any) -> None:
    """Rewrite a traced model in place; its inputs, outputs and answers stay the same.

    ``attention_mask`` (batch, tokens) is 0 at pads, which may be anywhere. Outputs for each token
    hold another token's numbers at pads. A later segment of a chain stays as it is where
    tokens were dropped before it. Raises ``UsageError`` for a model without a mask, and
    ``Unsupported`` for one in which no product works token by token.
    """
    takes = {given.name for given in model.graph.input}
    if MASK not in takes:
        raise UsageError("an export that skips pads needs an attention_mask: images have no pads")
    rewriter = _Rewriter(onnx, model.graph)
    rewriter.follow()
    if rewriter.products:
        rewriter.replace()
    elif HIDDEN not in takes:
        raise Unsupported("no layer of this model works token by token, so no pads can be skipped")


@dataclass
class _Rewriter:
    """Follows which values have a row for each real token.

    ``rows`` maps a value's name to that of its rows, ``padded`` to that of its form with pads.
    ``nodes`` is the new graph. ``products`` counts the products that work on rows.
    """

    onnx: Any
    graph: Any
    rows: dict[str, str] = field(default_factory=dict)
    padded: dict[str, str] = field(default_factory=dict)
    nodes: list[Any] = field(default_factory=list)
    products: int = 0

    def __post_init__(self) -> None:
        self.constants = {held.name: len(held.dims) for held in self.graph.initializer}
        described = [*self.graph.value_info, *self.graph.input, *self.graph.output]
        self.shapes = {value.name: _shape(value) for value in described}
        self.tokens = self.shapes[MASK][1]
        # the tracer has a size of its own for the mask's batch: one row could serve all texts
        self.batches = {self.shapes[given.name][0] for given in self.graph.input}

    def follow(self) -> None:
        """Make the new nodes."""
        self._index_tokens()
        for node in self.graph.node:
            self._on_rows(node) if self._is_alone(node) else self._with_pads(node)
        for made in self.graph.output:
            if made.name in self.rows:
                self._add("Gather", [self.rows[made.name], INVERSE], made.name, axis=0)

    def replace(self) -> None:
        """Put them in the place of the graph's."""
        for name, value in CONSTANTS.items():
            self.graph.initializer.append(self.onnx.numpy_helper.from_array(value, name))
        del self.graph.node[:]
        self.graph.node.extend(self.nodes)
        del self.graph.value_info[:]  # of other shapes now

    def _index_tokens(self) -> None:
        """The place of each real token, and the row of each place.

        The first token of a text counts as real: a head may read it even where it is a pad.
        """
        kinds, add = self.onnx.TensorProto, self._add
        shape = add("Shape", [MASK], "pads/shape")
        length = add("Gather", [shape, ONE], "pads/tokens", axis=0)
        first = add("Equal", [add("Range", [ZERO, length, ONE], "pads/range"), ZERO], "pads/first")
        real = add("Cast", [MASK], "pads/real", to=kinds.BOOL)
        keep = add("Or", [real, first], "pads/keep")
        add("Transpose", [add("NonZero", [keep], "pads/found")], PLACES)
        flat = add("Reshape", [add("Cast", [keep], "pads/ones", to=kinds.INT64), ALL], "pads/flat")
        number = add("Sub", [add("CumSum", [flat, ZERO], "pads/sum"), ONE], "pads/number")
        add("Reshape", [number, shape], INVERSE)

    def _is_alone(self, node: Any) -> bool:
        """Whether a node may work on rows, and has a reason to: a product, or rows as input."""
        given = [name for name in node.input if name and name not in self.constants]
        if not given or not all(name in self.rows or self._is_hidden(name) for name in given):
            return False
        constants = [self.constants[name] for name in node.input if name in self.constants]
        if node.op_type == "MatMul":
            return node.input[0] == given[0] and constants == [2]
        if not any(name in self.rows for name in given) or max(constants, default=0) > 1:
            return False
        return node.op_type in ALONE or (node.op_type in OF_LAST_AXIS and _axis(node) == -1)

    def _is_hidden(self, name: str) -> bool:
        """Whether a value is (batch, tokens, width), with the tokens of the mask."""
        shape = self.shapes.get(name, ())
        if len(shape) != 3 or shape[2] in (0, 1):
            return False
        return shape[0] in self.batches and shape[1] == self.tokens

    def _on_rows(self, node: Any) -> None:
        self.products += node.op_type == "MatMul"
        given = [self._rows_of(name) if self._is_value(name) else name for name in node.input]
        made = [f"{name}/rows" for name in node.output]
        self.rows.update(zip(node.output, made, strict=True))
        self._copy(node, given, made)

    def _with_pads(self, node: Any) -> None:
        given = [self._padded_of(name) if name in self.rows else name for name in node.input]
        self._copy(node, given, list(node.output))

    def _is_value(self, name: str) -> bool:
        return bool(name) and name not in self.constants

    def _rows_of(self, name: str) -> str:
        if name not in self.rows:
            self.rows[name] = self._add("GatherND", [name, PLACES], f"{name}/rows")
            self.padded[name] = name
        return self.rows[name]

    def _padded_of(self, name: str) -> str:
        if name not in self.padded:
            given = [self.rows[name], INVERSE]
            self.padded[name] = self._add("Gather", given, f"{name}/padded", axis=0)
        return self.padded[name]

    def _add(self, kind: str, given: Sequence[str], made: str, **attributes: Any) -> str:
        """Add a node and return the name of its result."""
        node = self.onnx.helper.make_node(kind, given, [made], name=made, **attributes)
        self.nodes.append(node)
        return made

    def _copy(self, node: Any, given: Sequence[str], made: Sequence[str]) -> None:
        copied = type(node).FromString(node.SerializeToString())
        del copied.input[:], copied.output[:]
        copied.input.extend(given)
        copied.output.extend(made)
        self.nodes.append(copied)


def _shape(value: Any) -> tuple[int | str, ...]:
    """The sizes of a described value; a name where a size is free."""
    return tuple(size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim)


def _axis(node: Any) -> int:
    """The axis of a node, from its attribute; the operators' default is not the last for all."""
    default = 0 if node.op_type == "Split" else -1
    return next((int(one.i) for one in node.attribute if one.name == "axis"), default)
