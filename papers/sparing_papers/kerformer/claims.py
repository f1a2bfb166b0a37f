"""Kerformer's claims, each as a number with a side on which it holds, and the study's own goals.

Source: Gan et al., 2023, doi 10.3389/fnbot.2023.1214203, sections 3.4 to 6.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparing.core.record import Record
from sparing.experiment.claims import Claim, GoalResult, Measure, decide
from sparing.experiment.records import RecordTable
from sparing_papers.kerformer.behaviour import neighbours, neighbours_by_reweighting
from sparing_papers.kerformer.costs import (
    lengths_won,
    longest_bytes,
    memory_at_ranges,
    million,
    range_effect,
    speed_over,
    time_at_ranges,
)
from sparing_papers.kerformer.joint import LONG, OF_EAGER, at_once
from sparing_papers.kerformer.joint import SPEED as SPEED_UP
from sparing_papers.kerformer.noise import noise
from sparing_papers.kerformer.options import (
    ARENA,
    CORES,
    LINEAR_ARMS,
    NO_SE_K,
    PRETRAINED,
    QUESTIONS,
    SPEED,
    VISION,
)
from sparing_papers.kerformer.scores import (
    ARENA_BASELINES,
    CIFAR,
    DOWNSTREAM_BASELINES,
    IMAGES,
    PLAIN,
    VISION_BASELINES,
    above,
    above_the_best,
    first_quarter,
    paired_share,
)
from sparing_papers.kerformer.speed import KINDS
from sparing_papers.long_range.arms import DENSE, KERFORMER
from sparing_papers.long_range.work import MARGIN

CLAIM, GOAL = "claim", "goal"
UNSCORED = "runs of all its variants on a task that passes the sensitivity check"


def _claim(
    questions: tuple[str, ...],
    text: str,
    quantity: str,
    measure: Measure,
    bound: float = 0.0,
    *,
    at_most: bool = False,
    unit: str = "share",
    kind: str = CLAIM,
) -> Claim:
    """``measure`` gives a number with its interval; fewest seeds and what decides are within it.

    Claims of one published table or figure are decided together.
    """
    name = f"{text} ({quantity})"
    table = text.partition(":")[0].partition(",")[0] if kind == CLAIM else ""
    scored = not {*questions} & {CORES, SPEED} or ARENA in questions
    needs = UNSCORED if scored else Claim.unmeasured
    return Claim(
        name,
        measure,
        bound,
        unit,
        at_most,
        family=table,
        kind=kind,
        questions=questions,
        unmeasured=needs,
    )


def claims_of(questions: Sequence[str]) -> list[Claim]:
    """The claims and goals that a run with these questions can decide."""
    return [claim for claim in CLAIMS if {*claim.questions} & {*questions}]


def decide_goals(
    records: Sequence[Record], questions: Sequence[str] = QUESTIONS
) -> list[GoalResult]:
    """Each claim and goal of these questions: it holds, does not, or is undecided."""
    return decide(claims_of(questions), RecordTable(records))


def _at_once(arm: str) -> Claim:
    return _claim(
        (ARENA, SPEED),
        f"{arm}: on long ranges as good as softmax, faster and leaner, all at once",
        f"of four: at most {100 * MARGIN:g} point worse on tasks of {LONG:,} tokens and more, "
        f"{SPEED_UP:g} times the speed of training at the longest length, no more memory than "
        f"fused softmax, {OF_EAGER:g} of eager's",
        at_once(arm),
        4.0,
        unit="of 4",
        kind=GOAL,
    )


_TASKS = "mean over the tasks that decide and that both ran"
CLAIMS: tuple[Claim, ...] = (
    _claim(
        (CORES,),
        "Table 1: Kerformer usually takes the least time below a million tokens",
        "the share of lengths at which efficient, linear and performer all take longer than "
        "kerformer, by content; usually: two of three",
        lengths_won,
        2 / 3,
        unit="of the lengths",
    ),
    _claim(
        (CORES,),
        "Table 2: dense attention takes three times as long on large values, as the figures say",
        "softmax's time on the widest range over that on values up to 2",
        range_effect,
        3.0,
        unit="ratio",
    ),
    _claim(
        (CORES,),
        "Table 2: on values up to 8 Kerformer takes less time than the other three",
        "the least of their times over kerformer's, by content, at that length, values up to 2",
        time_at_ranges,
        1.0,
        unit="ratio",
    ),
    _claim(
        (CORES,),
        "Table 3: on values up to 4 Kerformer takes the least memory",
        "the least of the other three's peaks over kerformer's, by content, at that length, values "
        "up to 2",
        memory_at_ranges,
        1.0,
        unit="ratio",
    ),
    _claim(
        (PRETRAINED,),
        "Table 4: fine-tuned, Kerformer is the best of the efficient mechanisms",
        "its mean over the tasks of both less a rival's, the least over rivals, plain training",
        above_the_best(PRETRAINED, DOWNSTREAM_BASELINES, labels=PLAIN),
    ),
    _claim(
        (ARENA,),
        "Table 5, caption: on long ranges Kerformer has the best mean of the efficient mechanisms",
        "its mean over the tasks that decide less a rival's, the least over the six printed "
        "rivals, each on all of these tasks",
        above_the_best(ARENA, ARENA_BASELINES),
    ),
    *(
        _claim(
            (ARENA,),
            f"Table 5, text: Kerformer is the best efficient mechanism on {task}",
            "its mean less a rival's there, the least over the six printed rivals",
            above_the_best(ARENA, ARENA_BASELINES, (task,)),
        )
        for task in ("listops", "retrieval")
    ),
    _claim(
        (ARENA,),
        "Table 6: SE-K helps",
        f"{_TASKS}: with less without",
        above(ARENA, KERFORMER, NO_SE_K),
    ),
    _claim(
        (ARENA,),
        "Table 6: the sigmoid of queries helps",
        f"{_TASKS}: with less without",
        above(ARENA, KERFORMER, "kerformer, plain queries"),
    ),
    _claim(
        (ARENA,),
        "Table 6: the softmax of keys helps",
        f"{_TASKS}: with less without",
        above(ARENA, KERFORMER, "kerformer, plain keys"),
    ),
    _claim(
        (SPEED,),
        "Table 7: from 2,000 tokens on Kerformer trains faster than linear attention",
        "its steps a second over linear attention's, the least of all lengths",
        speed_over("training", "linear", 2000),
        1.0,
        unit="ratio",
    ),
    *(
        _claim(
            (SPEED,),
            f"Table 7, text: more efficient than other linear mechanisms, {kind}",
            "its steps a second over those of each other linear arm, the least of all lengths from "
            "2,000 tokens on",
            speed_over(kind, least_tokens=2000),
            1.0,
            unit="ratio",
        )
        for kind in KINDS
    ),
    _claim(
        (ARENA, PRETRAINED),
        "Figure 5: Kerformer weighs neighbours more",
        "mean weight at distances 1 to 3 less that from 8 on, a key's own mean being 1, on tasks "
        "that decide",
        neighbours,
        unit="",
    ),
    _claim(
        (ARENA,),
        "Section 7: reweighting by SE-K makes neighbours weigh more",
        "that difference with SE-K less without, on tasks that decide and that both ran",
        neighbours_by_reweighting,
        unit="",
    ),
    _claim(
        (ARENA, PRETRAINED),
        "Section 3.4: Kerformer is more robust to noise",
        f"{_TASKS}: the share that Kerformer keeps under noise of what it is above chance, less "
        "softmax's",
        noise,
    ),
    _claim(
        (VISION,),
        "Figure 6: on images Kerformer beats dense attention",
        _TASKS,
        above(VISION, KERFORMER, DENSE),
    ),
    _claim(
        (VISION,),
        "Figure 6: by 3 points on CIFAR-10",
        "its mean there less softmax's",
        above(VISION, KERFORMER, DENSE, only=(CIFAR,)),
        0.03,
    ),
    _claim(
        (VISION,),
        "Figure 6: Kerformer is the best of all on MNIST, CIFAR-10 and flowers",
        "its mean over those that decide less a rival's, the least over the four",
        above_the_best(VISION, VISION_BASELINES, IMAGES),
    ),
    _claim(
        (VISION,),
        "Figures 7 and 8: on CIFAR-10 it learns faster than the other four",
        "validation score after a quarter of the epochs less a rival's, the least over the four",
        first_quarter,
    ),
    *(_at_once(arm) for arm in LINEAR_ARMS),
    _claim(
        (SPEED,),
        "65,536 tokens through the backbone in under 4 GB",
        "least peak of a forward pass",
        longest_bytes,
        4e9,
        at_most=True,
        unit="bytes",
        kind=GOAL,
    ),
    _claim(
        (CORES,),
        "A million tokens of width 64 through a linear mechanism",
        "longest sequence run",
        million,
        1e6,
        unit="tokens",
        kind=GOAL,
    ),
    _claim(
        (PRETRAINED,),
        "Distilled, a linear mechanism keeps 97 % of the dense score on IMDB",
        "right answers kept by the one best on validation, of the dense model's or of those of "
        "dense attention trained on as long, whichever is less; interval over other trainings and "
        "other examples",
        paired_share("kept_of_dense", "kept_of_softmax"),
        0.97,
        kind=GOAL,
    ),
    _claim(
        (PRETRAINED,),
        "and is clearly better than the control uniform",
        "its right answers less uniform's; interval as above",
        paired_share("gain_over_uniform"),
        kind=GOAL,
    ),
)
