"""Kerformer's claims, each as a number with a side on which it holds, and the study's own goals.

Source: Gan et al., 2023, doi 10.3389/fnbot.2023.1214203, sections 3.4 to 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from sparing.core.record import Label
from sparing.measure.statistics import mean_difference
from sparing.studies._arms import family_of
from sparing.studies._goals import Goal, GoalResult
from sparing.studies._ker_costs import (
    LINEAR,
    Found,
    Measure,
    Records,
    longest_bytes,
    memory_share,
    million,
    most_speed,
    range_effect,
    slowest_rival,
    speed_over,
)
from sparing.studies._ker_options import ARENA, PRETRAINED, VISION
from sparing.studies._long_analysis import by_seed
from sparing.studies._long_arms import CONTROLS, DENSE, KERFORMER, arm_of

FEWEST_SEEDS = 3
CLAIM, GOAL = "claim", "goal"


@dataclass(frozen=True)
class Claim:
    """``measure`` gives a number with its interval; it holds where all of it is on the good side.

    ``bound`` is that side's edge, ``at_most`` says that small is good; ``kind`` tells what is
    published from what this study set out to show. None is measured where nothing decides.
    """

    text: str
    quantity: str
    measure: Measure
    bound: float = 0.0
    at_most: bool = False
    unit: str = "share"
    kind: str = CLAIM


def judge(records: Records) -> list[GoalResult]:
    """Each claim and goal: it holds, does not, or is undecided."""
    found = []
    for claim in CLAIMS:
        goal = Goal(f"{claim.text} ({claim.quantity})", claim.bound, claim.unit, claim.at_most)
        measured = claim.measure(records)
        result = goal.judge(None, None) if measured is None else goal.judge(*measured)
        found.append(result)
    return found


def deciding(records: Records, question: str, least_tokens: int = 0) -> list[str]:
    """The tasks of a question that tell mechanisms apart and are long enough."""
    tokens = {
        str(r.labels["task"]): float(r.value or 0.0) for r in records if r.name == "task_tokens"
    }
    return [
        str(r.labels["task"])
        for r in records
        if r.name == "decides"
        and r.value
        and r.labels.get("question") == question
        and tokens.get(str(r.labels["task"]), 0.0) >= least_tokens
    ]


def _gap(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Found:
    """The mean paired difference; without an interval where seeds are too few to decide."""
    seeds = [seed for seed in ours if seed in theirs]
    if not seeds:
        return None
    gap = mean_difference([ours[n] for n in seeds], [theirs[n] for n in seeds])
    return gap.value, gap.interval if gap.count >= FEWEST_SEEDS else None


def _over_tasks(
    records: Records, question: str, name: str, arm: str, **labels: Label
) -> dict[int, float]:
    """By seed the mean of a quantity over the tasks that decide."""
    tasks = deciding(records, question)
    found = [by_seed(records, name, question=question, task=t, arm=arm, **labels) for t in tasks]
    if not found:
        return {}
    seeds = set.intersection(*(set(each) for each in found))
    return {seed: fmean(each[seed] for each in found) for seed in sorted(seeds)}


def _above(question: str, ours: str, theirs: str) -> Measure:
    """How much better one arm is than another, over the tasks that decide."""

    def measure(records: Records) -> Found:
        one, other = (_over_tasks(records, question, "score", arm) for arm in (ours, theirs))
        return _gap(one, other)

    return measure


def _above_the_best(records: Records) -> Found:
    """Kerformer's mean less that of the best efficient arm that is no form of it."""
    named = {str(r.labels.get("arm")) for r in records if r.labels.get("question") == ARENA}
    others = [arm for arm in named if not arm.startswith(KERFORMER)]
    scores = {
        arm: found
        for arm in others
        if arm not in (DENSE, *CONTROLS) and (found := _over_tasks(records, ARENA, "score", arm))
    }
    if not scores:
        return None
    best = max(scores, key=lambda arm: fmean(scores[arm].values()))
    return _gap(_over_tasks(records, ARENA, "score", KERFORMER), scores[best])


def _noise(records: Records) -> Found:
    """What softmax loses under the middle noise less what kerformer loses."""
    shares = sorted({r.labels["noise"] for r in records if r.name == "noisy_score"}, key=float)  # type: ignore[arg-type]
    if not shares:
        return None
    share = shares[len(shares) // 2]

    def lost(arm: str) -> dict[int, float]:
        clean = _over_tasks(records, ARENA, "score", arm)
        noisy = _over_tasks(records, ARENA, "noisy_score", arm, noise=share)
        return {seed: clean[seed] - noisy[seed] for seed in clean if seed in noisy}

    return _gap(lost(DENSE), lost(KERFORMER))


def _neighbours(records: Records) -> Found:
    """Kerformer's mean weight at distances 1 to 3 less that from 32 on, over all tasks."""
    near: dict[int, list[float]] = {}
    far: dict[int, list[float]] = {}
    for each in records:
        if each.name != "weight_at_distance" or each.labels.get("arm") != KERFORMER:
            continue
        distance, seed = int(each.labels["distance"] or 0), int(each.labels["seed"] or 0)
        if distance in (1, 2):
            near.setdefault(seed, []).append(float(each.value or 0.0))
        elif distance >= 32:
            far.setdefault(seed, []).append(float(each.value or 0.0))
    return _gap({n: fmean(v) for n, v in near.items()}, {n: fmean(v) for n, v in far.items()})


def _kept(name: str) -> Measure:
    """On IMDB, distilled first: a quantity of the linear arm that keeps most of the dense score."""

    def measure(records: Records) -> Found:
        found = [
            r
            for r in records
            if r.name == "kept_of_dense"
            and r.labels.get("task") == "imdb"
            and r.labels.get("stage") == "warm"
            and family_of(arm_of(str(r.labels["arm"])).mechanism) in LINEAR
        ]
        if not found:
            return None
        best = max(found, key=lambda r: float(r.value or 0.0)).labels["arm"]
        wanted = {"task": "imdb", "stage": "warm", "arm": best}.items()
        asked = [r for r in records if r.name == name and wanted <= r.labels.items()]
        return (float(asked[-1].value or 0.0), asked[-1].interval) if asked else None

    return measure


def _first_quarter(records: Records) -> Found:
    """On images, kerformer's validation score after a quarter of the epochs less softmax's."""

    def early(arm: str) -> dict[int, float]:
        found: dict[int, list[float]] = {}
        for task in deciding(records, VISION):
            points = [
                r
                for r in records
                if r.name == "validation_score"
                and r.labels.get("task") == task
                and r.labels.get("question") == VISION
                and r.labels.get("arm") == arm
            ]
            last = max((float(r.labels["epoch"] or 0) for r in points), default=0.0)
            for each in points:
                if float(each.labels["epoch"] or 0) == max(1.0, last // 4):
                    found.setdefault(int(each.labels["seed"] or 0), []).append(
                        float(each.value or 0)
                    )
        return {seed: fmean(values) for seed, values in found.items()}

    return _gap(early(KERFORMER), early(DENSE))


def _best_transfer(records: Records) -> Found:
    """After plain fine-tuning, kerformer's mean over tasks less that of the best linear rival."""
    scores: dict[str, dict[int, list[float]]] = {}
    for each in records:
        labels = each.labels
        if (
            each.name == "score"
            and labels.get("question") == PRETRAINED
            and labels.get("stage") == "plain"
        ):
            own = scores.setdefault(str(labels["arm"]), {})
            own.setdefault(int(labels["seed"] or 0), []).append(float(each.value or 0.0))
    means = {arm: {n: fmean(v) for n, v in found.items()} for arm, found in scores.items()}
    rivals = [
        means[arm]
        for arm in means
        if not arm.startswith(KERFORMER) and arm not in (DENSE, *CONTROLS)
    ]
    if not rivals or KERFORMER not in means:
        return None
    return _gap(means[KERFORMER], max(rivals, key=lambda found: fmean(found.values())))


_TASKS = "mean over the tasks that decide"
CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Table 1: Kerformer usually takes the least time below a million tokens",
        "the least of the times of efficient, linear and performer over its own",
        slowest_rival,
        1.0,
        unit="ratio",
    ),
    Claim(
        "Table 2: dense attention takes three times as long on large values",
        "softmax's time on the widest range over that on values up to 2",
        range_effect,
        3.0,
        unit="ratio",
    ),
    Claim(
        "Table 4: fine-tuned, Kerformer is the best of the efficient mechanisms",
        "its mean over tasks less the best rival's, plain fine-tuning",
        _best_transfer,
    ),
    Claim(
        "Table 5: on long ranges Kerformer has the best mean of the efficient mechanisms",
        f"its {_TASKS} less the best rival's",
        _above_the_best,
    ),
    Claim(
        "Table 6: SE-K helps",
        f"{_TASKS}: with less without",
        _above(ARENA, KERFORMER, "kerformer, no SE-K"),
    ),
    Claim(
        "Table 6: the sigmoid of queries helps",
        f"{_TASKS}: with less without",
        _above(ARENA, KERFORMER, "kerformer, plain queries"),
    ),
    Claim(
        "Table 6: the softmax of keys helps",
        f"{_TASKS}: with less without",
        _above(ARENA, KERFORMER, "kerformer, plain keys"),
    ),
    Claim(
        "Table 7: from 2,000 tokens on Kerformer trains faster than linear attention",
        "its steps a second over linear attention's, the least of all lengths",
        speed_over("training", "linear", 2000),
        1.0,
        unit="ratio",
    ),
    Claim(
        "Table 7: and is faster in use",
        "its steps a second over linear attention's, the least of all lengths",
        speed_over("inference", "linear", 2000),
        1.0,
        unit="ratio",
    ),
    Claim(
        "Figure 5: Kerformer weighs neighbours more",
        "mean weight at distances 1 to 3 less that from 32 on, an equal share being 1",
        _neighbours,
        unit="",
    ),
    Claim(
        "Section 3.4: Kerformer is more robust to noise",
        f"{_TASKS}: what softmax loses under noise less what Kerformer loses",
        _noise,
    ),
    Claim(
        "Figure 6: on images Kerformer beats dense attention",
        _TASKS,
        _above(VISION, KERFORMER, DENSE),
    ),
    Claim(
        "Figures 7 and 8: and learns faster",
        f"{_TASKS}: validation score after a quarter of the epochs less softmax's",
        _first_quarter,
    ),
    Claim(
        "A linear mechanism trains at 2.5 times the speed of softmax at the longest length",
        "the one with the best lower end",
        most_speed,
        2.5,
        unit="ratio",
        kind=GOAL,
    ),
    Claim(
        "with no more memory than fused softmax",
        "peak of a training step over softmax's",
        memory_share(DENSE),
        1.0,
        at_most=True,
        unit="ratio",
        kind=GOAL,
    ),
    Claim(
        "and a tenth of eager's",
        "peak of a training step over eager's",
        memory_share("eager"),
        0.1,
        at_most=True,
        unit="ratio",
        kind=GOAL,
    ),
    Claim(
        "65,536 tokens through the backbone in under 4 GB",
        "least peak of a forward pass",
        longest_bytes,
        4e9,
        at_most=True,
        unit="bytes",
        kind=GOAL,
    ),
    Claim(
        "A million tokens of width 64 through a linear mechanism",
        "longest sequence run",
        million,
        1e6,
        unit="tokens",
        kind=GOAL,
    ),
    Claim(
        "Distilled, a linear mechanism keeps 97 % of the dense score on IMDB",
        "share of the right answers kept by the best one, interval over examples",
        _kept("kept_of_dense"),
        0.97,
        kind=GOAL,
    ),
    Claim(
        "and is clearly better than the control uniform",
        "its share of right answers less uniform's, interval over examples",
        _kept("gain_over_uniform"),
        kind=GOAL,
    ),
)
