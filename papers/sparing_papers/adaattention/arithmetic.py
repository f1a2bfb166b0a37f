"""What arithmetic alone says of the AdaAttention paper: bounds on speed, and figures that clash.

Counts are multiply-adds of a BERT layer of width D for each of n tokens: 4 D^2 for the projections,
8 D^2 for the feed-forward part, D n for q k and as much for the weighted values.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparing.core.record import Label, Record
from sparing_papers.adaattention import published as paper

WIDTH, HEADS, HEAD_DIM, LAYERS = 768, 12, 64, 12
REDUCED_HEADS, REDUCED_SHARE = 0.5, 0.3
LENGTHS = (32, 128, 512, 4096)


def scorer_params(width: int, heads: int, share: float) -> int:
    """The numbers of a layer's scorer: two hidden layers of ``share`` of the width, biases too."""
    hidden = max(1, round(width * share))
    return (width + 1) * hidden + (hidden + 1) * hidden + (hidden + 1) * heads


def largest_speed_up(tokens: int, *, free: bool = False, scorer: bool = False) -> float:
    """The most that BERT-base can gain when half its heads compare at 0.3 of their width.

    Overheads count nothing, the scorer only where ``scorer`` says so. ``free`` takes all products
    of pairs away instead: what no attention at all would gain.
    """
    layer = 12 * WIDTH**2 + 2 * tokens * WIDTH
    saved = 2.0 * tokens * WIDTH
    if not free:
        saved = tokens * WIDTH * REDUCED_HEADS * (1 - REDUCED_SHARE)
    spent = scorer_params(WIDTH, HEADS, 0.25) if scorer else 0
    return layer / (layer - saved + spent)


def bounds() -> list[Record]:
    """The bounds by length, as records."""
    found = []
    kinds = (("printed", False, False), ("printed with scorer", False, True), ("free", True, False))
    for tokens in LENGTHS:
        for kind, free, scorer in kinds:
            value = largest_speed_up(tokens, free=free, scorer=scorer)
            labels: dict[str, Label] = {"tokens": tokens, "kind": kind}
            found.append(Record("largest_speed_up", value, "ratio", "modelled", labels))
        share = tokens * WIDTH / (12 * WIDTH**2 + 2 * tokens * WIDTH)
        found.append(Record("qk_share", share, "share", "modelled", {"tokens": tokens}))
    return found


def scorers() -> list[Record]:
    """How many parameters the scorers of Table V have in one layer of BERT-base."""
    shares = {"scorer-d8": 0.125, "adaptive": 0.25, "scorer-d2": 0.5, "scorer-d": 1.0}
    return [
        Record(
            "scorer_params",
            scorer_params(WIDTH, HEADS, share),
            "numbers",
            "modelled",
            {"arm": arm, "shape": "bert-base"},
        )
        for arm, share in shares.items()
    ]


def impossible() -> list[Record]:
    """The printed figures that cannot be so, each with the number that arithmetic gives."""
    return [_clash(*each) for each in (*_of_the_method(), *_of_table_one(), *_of_others())]


def _clash(source: str, printed: str, value: float, found: str, because: str) -> Record:
    labels = {"source": source, "printed": printed, "found": found, "because": because}
    return Record("impossible", value, "", "modelled", {**labels})


Clash = tuple[str, str, float, str, str]


def _of_the_method() -> Iterator[Clash]:
    most = largest_speed_up(512)
    yield (
        "Abstract, Table I",
        "1.76\N{MULTIPLICATION SIGN} on BERT-base up to 512 tokens",
        most,
        f"at most {most:.3f}\N{MULTIPLICATION SIGN}",
        "q k is 5 % of a layer's arithmetic at 512 tokens; half the heads at 0.3 of their width "
        f"leave the rest as it is. Without any product of pairs it would be "
        f"{largest_speed_up(512, free=True):.2f}\N{MULTIPLICATION SIGN}.",
    )
    ratio = 1 / paper.WEIGHTS["adaptive"][1]
    yield (
        "Table VI",
        "1.76\N{MULTIPLICATION SIGN} at a mean score of 0.65",
        ratio,
        f"at most {ratio:.2f}\N{MULTIPLICATION SIGN}",
        "A head costs all where its score is above the threshold, else its score: never less than "
        "the score. So the cost of q k alone is at least 0.65 of what it was.",
    )
    per_head = LAYERS * HEADS * HEAD_DIM
    yield (
        "Section II.D",
        "12 heads of 768: 110,592 n\N{SUPERSCRIPT TWO} operations",
        float(per_head),
        f"{per_head:,} n\N{SUPERSCRIPT TWO}",
        "A head has 64 of the 768 features. The count is 12 times too high, and leaves out "
        "projections and feed-forward, most of the time at these lengths.",
    )
    yield (
        "Section II.C",
        "the loss mean(1 - score) \N{LEFT DOUBLE QUOTATION MARK}encourages low scores"
        "\N{RIGHT DOUBLE QUOTATION MARK}",
        1.0,
        "least at a score of 1",
        "Its sign is wrong: the larger its weight, the higher the scores, against Table VI, where "
        "they fall.",
    )


def _of_table_one() -> Iterator[Clash]:
    for arm, values in paper.GLUE.items():
        mean = sum(values) / len(values)
        if abs(mean - paper.GLUE_MEANS[arm]) > 0.051:
            yield (
                "Table I",
                f"average of {arm}: {paper.GLUE_MEANS[arm]}",
                mean,
                f"{mean:.2f}",
                "The mean of the eight figures beside it.",
            )
    yield (
        "Table I",
        "nine tasks, WNLI among them",
        float(len(paper.TASKS)),
        f"{len(paper.TASKS)} columns",
        "WNLI is announced and has no column; pruning is announced as a baseline and has no row.",
    )


def _of_others() -> Iterator[Clash]:
    smallest, largest = (scorer_params(WIDTH, HEADS, share) for share in (0.125, 1.0))
    yield (
        "Table V",
        "scorers of 1.2K to 76.8K parameters",
        float(smallest),
        f"{smallest:,} to {largest:,}",
        "A first layer that reads 768 features has 768 numbers for each hidden unit. Four times "
        "the parameters at each doubling is what no such network does.",
    )
    yield (
        "Section III.D",
        "1.2\N{MULTIPLICATION SIGN} up to 50 tokens",
        paper.GLUE_SPEEDS[3],
        "1.78\N{MULTIPLICATION SIGN} on SST-2 in Table I",
        "The sentences of SST-2 have 25 tokens on average, so both speak of the same lengths.",
    )
    yield (
        "Table II",
        "BERT-base at 88.5 EM and 94.8 F1",
        88.5,
        "80.8 EM and 88.5 F1",
        "What Devlin et al. (2019, arXiv 1810.04805, Table 2) report for BERT-base on SQuAD 1.1; "
        "the printed pair is above their BERT-large.",
    )
