"""Write what is plotted and read from the records of benchmarks/mechanisms.py.

    python benchmarks/mechanisms_summary.py [FOLDER]

It writes the figure of README and docs, and the summary that ``sparing show`` reads, from the
records in FOLDER or from the newest committed ones. A test holds the summary against them.
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any

from mechanism_findings import Findings, newest, read
from mechanisms_figure import drawing
from sparing.core.catalogue import MECHANISMS, mechanism_class
from sparing.core.traits import FAMILIES
from sparing.report.figures.drawing import to_png
from sparing.report.figures.palette import DARK, LIGHT

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "figures"
MEASURED = ROOT / "src" / "sparing" / "mechanisms" / "_measured.json"


def by_family() -> dict[str, list[str]]:
    """Every mechanism under its family: first-line mechanisms first, softmax before all."""
    families: dict[str, list[str]] = {family: [] for family in FAMILIES}
    for name in MECHANISMS.names():
        families[mechanism_class(name).traits.family].append(name)
    for names in families.values():
        names.sort(key=lambda n: (n != "softmax", not mechanism_class(n).traits.arm, n))
    return {family: names for family, names in families.items() if names}


def figure_curves(findings: Findings) -> dict[str, dict[str, dict[int, float]]]:
    """The curves of each family; that of softmax is 1 everywhere."""
    curves = {
        family: {name: curve for name in names if (curve := findings.curve(name))}
        for family, names in by_family().items()
    }
    lengths = [
        tokens for family in curves.values() for curve in family.values() for tokens in curve
    ]
    if lengths:
        curves["dense"] = {"softmax": {min(lengths): 1.0, max(lengths): 1.0}, **curves["dense"]}
    return {family: lines for family, lines in curves.items() if lines}


def main() -> None:
    """Write the figures and the packaged summary."""
    if len(sys.argv) > 2:
        raise SystemExit(inspect.getdoc(sys.modules[__name__]))
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) == 2 else newest()
    if folder is None:
        raise SystemExit("no records are committed; run benchmarks/mechanisms.py first")
    findings = read(folder)
    draw = drawing(figure_curves(findings))
    for suffix, look in (("", LIGHT), ("-dark", DARK)):
        (FIGURES / f"mechanisms{suffix}.png").write_bytes(to_png(draw, look))
    summary: dict[str, Any] = findings.summary(MECHANISMS.names())
    MEASURED.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
