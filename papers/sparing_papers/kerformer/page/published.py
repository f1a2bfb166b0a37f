"""What Kerformer prints; quoted, not measured. Averages are computed anew: several are wrong.

Source: Gan et al., 2023, doi 10.3389/fnbot.2023.1214203, Tables 1 to 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

Rows = Mapping[str, Mapping[str, float]]

# Table 1: seconds of one head of 64 features by length; a length that is missing ran out of memory.
SECONDS: Mapping[str, Mapping[int, float]] = {
    "softmax": {1000: 4.001, 10_000: 302.072},
    "efficient": {1000: 1.0, 10_000: 31.015, 100_000: 87.024, 1_000_000: 967.22},
    "linear": {1000: 1.0, 10_000: 6.0121, 100_000: 51.014, 1_000_000: 506.134},
    "performer": {1000: 0.882, 10_000: 6.112, 100_000: 55.514, 1_000_000: 505.514},
    "kerformer": {1000: 0.2, 10_000: 5.852, 100_000: 44.011, 1_000_000: 521.144},
}
# Table 2: seconds at 10,000 tokens by the range of values.
BY_RANGE: Mapping[str, Mapping[float, float]] = {
    "softmax": {1: 335.075, 2: 302.072, 4: 1003.233, 6: 1062.249, 8: 1032.248, 10: 1103.246},
    "efficient": {1: 34.007, 2: 31.015, 4: 35.008, 6: 34.008, 8: 35.993, 10: 55.013},
    "linear": {1: 7.001, 2: 6.012, 4: 5.025, 6: 5.145, 8: 6.004, 10: 8.001},
    "performer": {1: 6.854, 2: 6.112, 4: 6.012, 6: 5.541, 8: 6.125, 10: 7.854},
    "kerformer": {1: 6.001, 2: 5.852, 4: 5.006, 6: 5.022, 8: 5.952, 10: 8.004},
}
# Table 3: megabytes at 10,000 tokens for values up to 2.
MEGABYTES = {
    "softmax": 11_001.0,
    "efficient": 585.0,
    "linear": 678.0,
    "performer": 702.0,
    "kerformer": 578.0,
}
_DOWNSTREAM = ("qqp", "sst2", "mnli", "imdb", "amazon")
# Table 4: per cent after fine-tuning, and the average as printed.
DOWNSTREAM: Rows = {
    arm: dict(zip((*_DOWNSTREAM, "printed"), values, strict=True))
    for arm, values in {
        "softmax": (88.52, 92.25, 80.02, 92.55, 75.65, 85.80),
        "performer": (69.95, 50.82, 35.28, 60.41, 64.25, 56.14),
        "reformer": (63.12, 50.66, 35.35, 49.88, 64.32, 52.67),
        "linear": (74.75, 84.72, 66.35, 91.21, 72.62, 78.07),
        "longformer": (85.55, 88.56, 77.27, 91.07, 73.52, 83.13),
        "rfa": (75.32, 76.44, 57.71, 78.86, 68.08, 71.28),
        "dct": (85.56, 86.89, 77.48, 89.68, 72.12, 80.19),
        "kerformer": (85.68, 90.21, 76.32, 91.50, 73.24, 83.39),
    }.items()
}
_ARENA = ("listops", "imdb", "retrieval", "pathfinder")
# Table 5: per cent; the arena's Text is imdb here.
ARENA: Rows = {
    arm: dict(zip((*_ARENA, "printed"), values, strict=True))
    for arm, values in {
        "local": (15.67, 52.87, 53.40, 66.59, 47.13),
        "reformer": (37.32, 56.12, 53.42, 68.47, 53.83),
        "performer": (17.96, 65.45, 53.79, 77.08, 53.57),
        "longformer": (35.65, 62.79, 56.83, 69.69, 56.24),
        "softmax": (36.42, 64.37, 57.52, 71.42, 57.43),
        "bigbird": (36.11, 64.08, 59.31, 74.79, 58.57),
        "dct": (36.55, 65.15, 59.55, 75.56, 59.20),
        "kerformer": (36.95, 64.32, 59.98, 74.52, 58.94),
        # Table 6, where Text of Kerformer itself is 63.32
        "kerformer, plain queries": (33.25, 58.53, 55.89, float("nan"), float("nan")),
        "kerformer, plain keys": (35.21, 60.25, 57.26, float("nan"), float("nan")),
        "kerformer, no SE-K": (32.23, 57.87, 56.31, float("nan"), float("nan")),
    }.items()
}
_LENGTHS = (1024, 2048, 3072, 4096)
# Table 7: steps a second; missing is out of memory.
_RATES: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "softmax": ((25.42, 7.85), (6.91, 2.19)),
    "local": ((57.69, 33.21, 23.32, 17.80), (13.42, 6.61, 4.35, 3.10)),
    "reformer": ((44.23, 21.60, 12.75, 8.35), (11.60, 5.01, 2.96, 1.97)),
    "bigbird": ((20.92, 11.53, 8.14, 6.12), (6.50, 3.21, 2.09, 1.55)),
    "linear": ((67.81, 38.22, 26.30, 19.92), (11.88, 5.56, 3.54, 2.49)),
    "performer": ((74.20, 42.35, 29.53, 22.43), (14.23, 6.50, 4.13, 2.93)),
    "longformer": ((23.02, 6.33), (4.42, 1.31)),
    "dct": ((56.21, 34.21, 22.85, 20.51), (11.58, 5.95, 3.92, 2.32)),
    "kerformer": ((57.42, 33.15, 21.45, 17.13), (11.34, 5.58, 3.57, 2.55)),
}
RATES: Mapping[str, Mapping[str, Mapping[int, float]]] = {
    kind: {arm: dict(zip(_LENGTHS, both[place], strict=False)) for arm, both in _RATES.items()}
    for place, kind in enumerate(("inference", "training"))
}


def averages(rows: Rows) -> list[tuple[str, float, float]]:
    """(arm, average as printed, average of what is printed), of rows that have both."""
    found = []
    for arm, row in rows.items():
        values = [value for task, value in row.items() if task != "printed"]
        if row["printed"] == row["printed"]:
            found.append((arm, row["printed"], fmean(values)))
    return found
