"""The matrix products of a mechanism as text, and as a table of their operations."""

from __future__ import annotations

from collections.abc import Sequence

from sparing.core.products import Product, Products

WIDTHS, HEIGHTS = (7, 9, 18), (1, 2, 5)  # of a box, by the rank of its size
GAP = "   "


def drawn(products: Products) -> str:
    """Every product as boxes of plain text: rows at the left of a matrix, columns above it."""
    named = [f"{s} = {products.sizes[s]:,} {products.meanings[s]}" for s in products.sizes]
    parts = [f"Sizes for one head: {', '.join(named)}."]
    for number, step in enumerate(products.steps, 1):
        shapes = "{0} x {1} times {1} x {2} is {0} x {2}".format(*step.sizes)
        says = f"; {step.says}" if step.says else ""
        parts.append(f"{number}. {step.left} times {step.right}: {shapes}{says}")
        parts.append("\n".join(_row(products, step)))
    return "\n\n".join(parts)


def _row(products: Products, step: Product) -> list[str]:
    """One product: left box, right box, and the result behind an equals sign."""
    rows, inner, columns = step.sizes
    boxes = [
        _box(products, step.left, rows, inner),
        _box(products, step.right, inner, columns),
        _box(products, step.result, rows, columns),
    ]
    height = max(map(len, boxes))
    lines = []
    for line in range(height):
        parts = [box[line] if line < len(box) else " " * len(box[0]) for box in boxes]
        equals = " = " if line == 2 else GAP
        lines.append(f"{parts[0]}{GAP}{parts[1]}{equals}{parts[2]}".rstrip())
    return lines


def _box(products: Products, name: str, rows: str, columns: str) -> list[str]:
    """A matrix as lines of one width."""
    width = max(len(name) + 2, WIDTHS[rank(products, columns)])
    height = HEIGHTS[rank(products, rows)]
    middle = height // 2
    lines = ["  " + columns.center(width + 2), "  +" + "-" * width + "+"]
    for line in range(height):
        text = name if line == middle else ""
        lines.append(f"{rows if line == middle else ' '} |{text.center(width)}|")
    return [*lines, "  +" + "-" * width + "+"]


def rank(products: Products, symbol: str) -> int:
    """0 for the smallest size, 2 for the largest; equal sizes have one rank."""
    sizes = sorted(set(products.sizes.values()))
    position = sizes.index(products.sizes[symbol])
    return 2 if position == len(sizes) - 1 else min(position, 1)


def operation_rows(products: Sequence[Products]) -> list[tuple[str, ...]]:
    """A row for each step: the product, its formula, and its million operations at each length.

    All of ``products`` have the same steps, of one head. The last row is their sum.
    """
    rows = []
    for step in products[0].steps:
        counts = (_millions(at.flops(step)) for at in products)
        rows.append((f"{step.left} {step.right}", "2" + "".join(step.sizes), *counts))
    return [*rows, ("all", "", *(_millions(at.total) for at in products))]


def _millions(flops: int) -> str:
    return f"{flops / 1e6:,.1f}"
