"""Bounds on speed from FLOPs of the AdaAttention paper, and its figures that contradict each other.

Counts are multiply-adds of a BERT layer of width D for each of n tokens. The projections take
4 D^2, the feed-forward part 8 D^2, q k takes D n and the weighted values D n.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparing.core.record import Label, Record
from sparing_papers.adaattention import published as paper
from sparing_papers.adaattention.names import ADAPTIVE, FULL, GLUE_TASKS, SCORER_SHARES, SHAPE

WIDTH, HEADS, HEAD_DIM, LAYERS = 768, 12, 64, 12
REDUCED_HEADS, REDUCED_SHARE = 0.5, 0.3
LENGTHS = (32, 128, 512, 4096)
Numbers = dict[str, int | float | str]


def scorer_params(width: int, heads: int, share: float) -> int:
    """Parameters of a layer's scorer: two hidden layers of ``share`` of the width, biases too."""
    hidden = max(1, round(width * share))
    return (width + 1) * hidden + (hidden + 1) * hidden + (hidden + 1) * heads


def largest_speed_up(tokens: int, *, free: bool = False, scorer: bool = False) -> float:
    """The most that BERT-base can gain when half its heads compare at 0.3 of their width.

    Overheads are not counted, the scorer only with ``scorer``. ``free`` removes all products of
    pairs instead: the speed-up without any attention.
    """
    layer = 12 * WIDTH**2 + 2 * tokens * WIDTH
    saved = 2.0 * tokens * WIDTH
    if not free:
        saved = tokens * WIDTH * REDUCED_HEADS * (1 - REDUCED_SHARE)
    spent = scorer_params(WIDTH, HEADS, 0.25) if scorer else 0
    return layer / (layer - saved + spent)


def bounds() -> list[Record]:
    """The bounds by length, as records."""
    records = []
    kinds = (("printed", False, False), ("printed with scorer", False, True), ("free", True, False))
    for tokens in LENGTHS:
        for kind, free, scorer in kinds:
            value = largest_speed_up(tokens, free=free, scorer=scorer)
            labels: dict[str, Label] = {"tokens": tokens, "kind": kind}
            records.append(Record("largest_speed_up", value, "ratio", "modelled", labels))
        share = tokens * WIDTH / (12 * WIDTH**2 + 2 * tokens * WIDTH)
        records.append(Record("qk_share", share, "share", "modelled", {"tokens": tokens}))
    return records


def scorers() -> list[Record]:
    """How many parameters the scorers of Table V have in one layer of BERT-base."""
    records = []
    for arm, share in {ADAPTIVE: 0.25, **SCORER_SHARES}.items():
        labels: dict[str, Label] = {"arm": arm, "shape": SHAPE}
        params = scorer_params(WIDTH, HEADS, share)
        records.append(Record("scorer_params", params, "numbers", "modelled", labels))
    return records


def impossible() -> list[Record]:
    """The printed figures that are impossible, each with the computed number."""
    computed = {**_numbers(), "average": _averages()}
    return [
        Record("impossible", float(numbers["value"]), "", "modelled", _filled(clash, numbers))
        for clash in paper.IMPOSSIBLE
        for numbers in computed[clash["name"]]
    ]


def _filled(clash: Mapping[str, str], numbers: Numbers) -> dict[str, Label]:
    return {key: text.format(**numbers) for key, text in clash.items() if key != "name"}


def _numbers() -> dict[str, list[Numbers]]:
    """The numbers filled into each text on an impossible figure; ``value`` is the computed one."""
    smallest, *_, largest = (scorer_params(WIDTH, HEADS, share) for share in SCORER_SHARES.values())
    table_one = paper.figures("Table I", ADAPTIVE)
    numbers: dict[str, Numbers] = {
        "speed": {"value": largest_speed_up(512), "free": largest_speed_up(512, free=True)},
        "mean score": {"value": 1 / paper.figures("Table VI", ADAPTIVE)["Avg score"]},
        "operations": {"value": LAYERS * HEADS * HEAD_DIM},
        "loss": {"value": 1},
        "tasks": {"value": len(GLUE_TASKS)},
        "scorers": {"value": smallest, "largest": largest},
        "lengths": {"value": table_one["speed, sst2"]},
        "squad": {"value": paper.figures("Table II", FULL)["SQuAD EM"]},
    }
    return {name: [filled] for name, filled in numbers.items()}


def _averages() -> list[Numbers]:
    """The printed averages that differ from the mean of their rows."""
    wrong: list[Numbers] = []
    for arm in paper.rows("Table I"):
        row = paper.figures("Table I", arm)
        mean = sum(row[task] for task in GLUE_TASKS) / len(GLUE_TASKS)
        if abs(mean - row["mean"]) > 0.051:
            wrong.append({"arm": arm, "printed": row["mean"], "value": mean})
    return wrong
