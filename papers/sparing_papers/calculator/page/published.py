"""What "A Predictive Calculator" prints, and what its code printed later; quoted, not measured.

Source: Mukin, A Predictive Calculator (2025), section 5; the later table is the mean of five runs
in github.com/AntonStantan/matura at commit 7aa5740, made after a fault was found.
"""

from __future__ import annotations

from dataclasses import dataclass

ARMS = (
    "FNN2",
    "FNN3",
    "RNN2",
    "LSTM with attention",
    "transformer4",
    "transformer5",
)


@dataclass(frozen=True)
class Printed:
    """One row of the table: ``here`` names the record and the set that it is compared with."""

    title: str
    record: str
    set: str
    first: tuple[float, ...]
    later: tuple[float, ...] | None
    why: str


ROWS = (
    Printed(
        "Mean error in range",
        "mean_error",
        "in",
        (0.0389406, 0.0346, 0.2730647, 0.5908327, 0.0448075, 0.0381983),
        (0.0269, 0.0275, 0.2450, 0.8141, 0.0393, 0.0366),
        "the same sums; printed are single runs, rates and sizes of a search of 100 trials",
    ),
    Printed(
        "Relative error in range",
        "relative_error",
        "in",
        (0.0155504, 0.013438, 0.11352, 0.2712299, 0.0188047, 0.0151836),
        (0.0110, 0.0111, 0.0940, 0.3030, 0.0163, 0.0149),
        "the same sums and formula",
    ),
    Printed(
        "Mean error out of range",
        "mean_error",
        "published out",
        (2.2301364, 2.504607, 3.572741, 3.23501, 4.5702314, 4.9287004),
        (2.178, 2.372, 3.738, 3.971, 4.420, 4.902),
        "the same sums, of which a third have an operand (-5) that training has seen",
    ),
    Printed(
        "Relative error out of range",
        "relative_error",
        "published out",
        (0.250927, 0.290885, 0.3472042, 0.3404062, 0.5201459, 0.5431157),
        (0.250, 0.275, 0.364, 0.434, 0.495, 0.540),
        "the same sums and formula",
    ),
    Printed(
        "Mean error on long sums",
        "mean_error",
        "published long",
        (6.2929916, 6.116872, 6.076693, 2.7806435, 6.163059, 6.0680327),
        (6.16, 5.65, 5.52, 2.93, 3.89, 3.80),
        "printed for all but the LSTM is |value| less predictions for the sums in range, where any "
        "network that is right in range gets about 6.2; later, for FNN2, FNN3 and RNN2, it is "
        "|value| less the prediction, 5.64 for a perfect network",
    ),
    Printed(
        "Benchmark score",
        "legacy_score",
        "",
        (6.6345832, 6.672521, 0.4793787, 1.7374969, 2.8882827, 5.2896368),
        (10.70, 8.91, 0.665, 2.20, 5.02, 4.77),
        "relative to a small network that the published code trains anew, without a seed, for "
        "every column, and its long term uses predictions for another set too; here to the mean "
        "errors of the baseline's seeds",
    ),
)
ARCHITECTURE = (6211, 8893, 222464, 6511, 38209, 498241)
OPTIMIZER = (0, 0, 0, 13024, 76419, 996483)


@dataclass(frozen=True)
class PrintedLanguageModel:
    """Accuracy in per cent as printed, and how many replies were asked and empty, where known."""

    name: str
    weights: str
    printed: tuple[float, float, float]
    asked: tuple[int, int, int]
    note: str


LANGUAGE_MODELS = (
    PrintedLanguageModel(
        "Gemini 2.5 Pro",
        "1.4e11 (printed)",
        (95.17, 99.51, 90.0),
        (145, 204, 70),
        "asked the first tenth of each set alone; every reply was right, and what is missing to "
        "100 are empty replies (7, 1 and 7); the first 70 long sums all have two operands",
    ),
    PrintedLanguageModel(
        "Gemma 3 1B", "1.0e9", (93.41, 63.33, 39.57), (1457, 2048, 700), "the whole sets"
    ),
    PrintedLanguageModel(
        "Gemma 3 270M", "2.7e8", (54.22, 9.67, 28.0), (1457, 2048, 700), "the whole sets"
    ),
)
