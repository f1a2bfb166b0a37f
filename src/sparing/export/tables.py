"""Embedding tables of an ONNX file in INT8, each row with a scale of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int8
from numpy.typing import NDArray

from sparing.export._extra import require

# Tables of fewer rows, such as those of positions, are a small part of a file.
FEWEST_ROWS = 1000
LARGEST = 127


def narrow_tables(model: Any) -> None:
    """Store the large tables that a graph looks rows up in as INT8; the model is changed.

    The rows that are looked up become float32 again by their scales. So a table takes a quarter of
    its bytes, in the file and in memory, and no value moves by more than half a step of its row.
    """
    graph = model.graph
    lookups = [node for node in graph.node if node.op_type == "Gather" and not _axis(node)]
    for table in [held for held in graph.initializer if _is_large(held)]:
        users = [node for node in graph.node if table.name in node.input]
        if users and all(node in lookups and node.input[0] == table.name for node in users):
            _narrow(graph, table, users)


def rows_in_int8(
    table: Float[NDArray[Any], "rows width"],
) -> tuple[Int8[NDArray[Any], "rows width"], Float[NDArray[Any], "rows 1"]]:
    """A table's rows as whole numbers from -127 to 127, and the scale of each row."""
    largest = np.abs(table).max(1, keepdims=True)
    scales = np.where(largest > 0, largest / LARGEST, 1).astype(np.float32)
    return np.rint(table / scales).astype(np.int8), scales


def _is_large(held: Any) -> bool:
    onnx = require("onnx")
    is_float = held.data_type == onnx.TensorProto.FLOAT
    return is_float and len(held.dims) == 2 and held.dims[0] >= FEWEST_ROWS


def _axis(node: Any) -> int:
    return next((int(one.i) for one in node.attribute if one.name == "axis"), 0)


def _narrow(graph: Any, table: Any, lookups: list[Any]) -> None:
    """Replace a table by its rows in INT8 and their scales, and each look-up by two."""
    onnx = require("onnx")
    helper, arrays, name = onnx.helper, onnx.numpy_helper, table.name
    values = arrays.to_array(table)
    if not np.isfinite(values).all():
        return  # as whole numbers they would look like any other
    rows, scales = rows_in_int8(values)
    del graph.initializer[[held.name for held in graph.initializer].index(name)]
    graph.initializer.extend(
        [arrays.from_array(rows, f"{name}_int8"), arrays.from_array(scales, f"{name}_scales")]
    )
    nodes = []
    for node in graph.node:
        if node not in lookups:
            nodes.append(node)
            continue
        made, numbers = node.output[0], node.input[1]
        whole, wide, scale = (f"{made}_{part}" for part in ("int8", "wide", "scale"))
        nodes += [
            helper.make_node("Gather", [f"{name}_int8", numbers], [whole]),
            helper.make_node("Cast", [whole], [wide], to=onnx.TensorProto.FLOAT),
            helper.make_node("Gather", [f"{name}_scales", numbers], [scale]),
            helper.make_node("Mul", [wide, scale], [made]),
        ]
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
