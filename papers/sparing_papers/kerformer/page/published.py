"""What Kerformer prints, by table and variant. Averages are computed anew: several are wrong.

Source: Gan et al., 2023, doi 10.3389/fnbot.2023.1214203, Tables 1 to 7.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from statistics import fmean
from typing import Any

PRINTED: Mapping[str, Any] = tomllib.loads(
    resources.files("sparing_papers.kerformer.page").joinpath("published.toml").read_text("utf-8")
)


def averages(rows: Mapping[str, Mapping[str, float]]) -> list[tuple[str, float, float]]:
    """(variant, average as printed, average of what is printed), of rows that have both."""
    return [
        (arm, row["printed"], fmean(score for task, score in row.items() if task != "printed"))
        for arm, row in rows.items()
        if "printed" in row
    ]
