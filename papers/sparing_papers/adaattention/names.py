"""The names of variants, of forms at BERT-base's shape and of means, and their page titles."""

from __future__ import annotations

DENSE, FULL, ADAPTIVE, OURS = "dense", "full", "adaptive", "slim"
CONTROLS = ("random", "global", "uniform")
"""The controls: variants with scores that do not depend on the input."""
SCORER_SHARES = {"scorer-d8": 0.125, "scorer-d2": 0.5, "scorer-d": 1.0}
"""The scorer's width over the model's; the adaptive variant's is a quarter."""
INT8, FULL_INT8 = "int8", "full int8"
ONE, OWN = "one-scorer", "own-scorers"
"""Trained together: the models of several tasks with one scorer for all, or with one each."""
TAUGHT = "-taught"
"""The end of the names of variants with layers that imitated the dense model's first."""
SHAPE = "bert-base"
AS_PRINTED, FREE, NARROW = "as-printed", "attention free", "width 2/3"
MEAN, EVERY, GLUE = "mean", "every", "glue"
"""Means over the tasks that run every variant, over all tasks of texts, and over those of GLUE that
have every row of Table I."""
SHARED = "shared"
"""The mean over the tasks that share one scorer."""
GLUE_TASKS = ("mnli", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")
"""Those of Table I, in its order."""
SEEDS = "seeds"
"""The group of a speed that is a mean over seeds."""

LAMBDA = "\N{GREEK SMALL LETTER LAMDA}"
_SHOWN = {
    FULL: "full (dense)",
    ADAPTIVE: "adaptive, as the paper",
    "linformer": "Linformer",
    "bigbird": "BigBird",
    "skip": "skip tokens",
    "prune": "prune heads",
    "random": "random scores",
    "global": "fixed global scores",
    "uniform": "uniform half width",
    "prune-gradual": "prune heads, training between",
    "uniform-rotated": "uniform half width, rotated",
    "adaptive-rotated": "adaptive, rotated",
    "threshold-0.3": "threshold 0.3",
    "threshold-0.7": "threshold 0.7",
    "scorer-d8": "scorer d/8",
    "scorer-d2": "scorer d/2",
    "scorer-d": "scorer d",
    "weight-0": f"{LAMBDA} 0",
    "weight-0.05": f"{LAMBDA} 0.05",
    "weight-0.1": f"{LAMBDA} 0.10",
    "no-threshold": "no threshold",
    "literal-loss": "the printed loss",
    OURS: "slim",
    ONE: "one scorer for all tasks",
    OWN: "one scorer for each task",
    AS_PRINTED: "as printed",
    FREE: "no attention at all",
}


def name_of_arm(arm: object) -> str:
    """The title of a variant; INT8 forms and taught ones are named after their variant."""
    text = str(arm)
    if text.endswith(TAUGHT):
        return f"{name_of_arm(text.removesuffix(TAUGHT))}, layers taught first"
    if text.endswith(f" {INT8}"):
        return f"{name_of_arm(text.removesuffix(f' {INT8}'))}, INT8"
    return _SHOWN.get(text, text)
