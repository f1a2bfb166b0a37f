"""Kerformer's claims: numbers with intervals, on the tasks and seeds that can tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from sparing.core.record import Record
from sparing.experiment.claims import Estimate
from sparing.experiment.forecasts.needs import Forecast
from sparing.experiment.records import RecordTable
from sparing.measure.pooling import Part, reach_of
from sparing_papers.kerformer import behaviour as ker_behaviour
from sparing_papers.kerformer import claims, costs, joint
from sparing_papers.kerformer import scores as ker_scores
from sparing_papers.kerformer.options import LINEAR_ARMS
from sparing_papers.long_range import analysis
from sparing_papers.long_range.answers import answers_record

ARENA = ker_scores.above_the_best("arena", ker_scores.ARENA_BASELINES)
TRANSFER = ker_scores.above_the_best(
    "pretrained", ker_scores.DOWNSTREAM_BASELINES, labels=ker_scores.PLAIN
)
PICTURES = ker_scores.above_the_best("vision", ker_scores.VISION_BASELINES, ker_scores.IMAGES)


def pair(estimate):
    return estimate and (estimate.value, estimate.interval)


def of(measure, records, confidence=0.95):
    """A measure's value and interval on these records."""
    return pair(measure(RecordTable(records), confidence))


def measured(claim, records):
    return of(claim.measure, records)


def scores(**by_arm):
    return [
        Record(
            "score",
            value,
            "share",
            "measured",
            {"question": "arena", "task": "t", "arm": a, "seed": n},
        )
        for a, values in by_arm.items()
        for n, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("dense", "uniform", "decided", "why"),
    [
        ([0.60, 0.61, 0.62], [0.51, 0.52, 0.50], True, "better than uniform"),
        ([0.52, 0.53, 0.51], [0.40, 0.41, 0.42], False, "5 points above chance"),
        ([0.60, 0.61, 0.62], [0.60, 0.62, 0.61], False, "not clearly better"),
        ([0.60], [0.50], False, "fewer than two seeds"),
    ],
)
def test_a_task_decides_only_above_chance_and_uniform(dense, uniform, decided, why):
    analysed = analysis.analyse(scores(softmax=dense, uniform=uniform), {"t": 0.5})
    [decision] = [record for record in analysed if record.name == "decides"]
    assert bool(decision.value) == decided
    assert why in decision.labels["why"]


def test_claims_of_scores_wait_for_a_task_that_decides():
    ours, plain = [0.70, 0.71, 0.72], [0.60, 0.62, 0.61]
    records = scores(
        softmax=[0.7, 0.71, 0.7],
        uniform=[0.5, 0.5, 0.51],
        kerformer=ours,
        **{"kerformer, no SE-K": plain},
    )
    helps = next(c for c in claims.CLAIMS if c.text.startswith("Table 6: SE-K helps ("))
    assert measured(helps, records) is None
    decided = [*records, *analysis.analyse(records, {"t": 0.5})]
    value, interval = measured(helps, decided)
    assert value == pytest.approx(0.1)
    assert interval[0] > 0
    assert measured(helps, [r for r in decided if r.labels.get("seed") in (0, 1, None)])[1] is None


def of_task(task, **by_arm):
    return [replace(r, labels={**r.labels, "task": task}) for r in scores(**by_arm)]


def test_two_arms_are_held_against_each_other_on_the_tasks_that_both_ran():
    records = [
        *of_task("a", softmax=[0.8, 0.81, 0.8], uniform=[0.5] * 3, kerformer=[0.85, 0.84, 0.85]),
        *of_task("a", performer=[0.9, 0.91, 0.9], local=[0.8, 0.79, 0.8], linear=[0.99] * 3),
        *of_task("b", softmax=[0.8, 0.81, 0.8], uniform=[0.5] * 3, performer=[0.6, 0.61, 0.6]),
    ]
    records += analysis.analyse(records, {"a": 0.5, "b": 0.5})
    # performer's own mean over both is 0.75; linear is not in the table
    value, interval = of(ARENA, records)
    assert value == pytest.approx(0.847 - 0.903, abs=1e-3)
    assert interval[1] < 0  # one baseline is enough to lose to, whatever the others would come to
    assert of(ker_scores.above_the_best("arena", ker_scores.ARENA_BASELINES, ("a",)), records) == (
        value,
        interval,
    )
    assert (
        of(ker_scores.above_the_best("arena", ker_scores.ARENA_BASELINES, ("listops",)), records)
        is None
    )
    plain = [
        replace(r, labels={**r.labels, "question": "pretrained", "stage": "plain"}) for r in records
    ]
    for task in ("a", "b"):
        labels = {"question": "pretrained", "task": task}
        plain.append(Record("chance", 0.5, "share", "measured", labels))
    value, _ = of(TRANSFER, plain)  # where linear is in the table
    assert value == pytest.approx(0.847 - 0.99, abs=1e-3)
    guessing = [replace(r, value=0.5) if r.labels.get("task") == "a" else r for r in plain]
    assert of(TRANSFER, guessing) is None


def test_a_baseline_on_one_task_says_nothing_of_a_mean_of_two():
    records = [
        *of_task("a", softmax=[0.8, 0.81, 0.8], uniform=[0.5] * 3, kerformer=[0.8, 0.81, 0.8]),
        *of_task("b", softmax=[0.8, 0.81, 0.8], uniform=[0.5] * 3, kerformer=[0.8, 0.81, 0.8]),
        *of_task("a", performer=[0.9, 0.91, 0.9]),
    ]
    records += analysis.analyse(records, {"a": 0.5, "b": 0.5})
    assert of(ARENA, records) is None


def test_no_mean_is_told_finer_than_one_answer_of_the_smallest_test_split():
    def on_images(arm, values, count=100):
        return [
            Record(
                name,
                value,
                "share",
                "measured",
                {"question": "vision", "task": "cifar10", "arm": arm, "seed": n, "epoch": 1.0},
                count=count,
            )
            for name in ("score", "validation_score")
            for n, value in enumerate(values)
        ]

    records = [
        *(
            record
            for arm in ker_scores.VISION_BASELINES
            for record in on_images(arm, [0.50, 0.51, 0.52])
        ),
        *on_images("uniform", [0.2, 0.21, 0.22]),
        *on_images("kerformer", [0.51, 0.52, 0.53]),  # one image more, each time
    ]
    task_labels = {"question": "vision", "task": "cifar10", "chance": 0.2}
    records.append(Record("decides", 1.0, "", "measured", task_labels))
    large = replace(records[0], labels={**records[0].labels, "task": "mnist"}, count=2000)
    for text in ("Figure 6: on", "Figure 6: by", "Figure 6: Kerformer", "Figures 7 and 8"):
        claim = next(c for c in claims.CLAIMS if c.text.startswith(text))
        value, interval = measured(claim, [*records, large])
        assert value == pytest.approx(0.01)
        assert interval[0] < 0


def test_the_best_of_all_is_told_only_beside_all():
    low = {arm: [0.6, 0.61, 0.6] for arm in ker_scores.ARENA_BASELINES}
    dense = {"softmax": [0.8, 0.81, 0.8], "uniform": [0.5] * 3}
    table = next(c for c in claims.CLAIMS if c.text.startswith("Table 5"))
    for missing, decided in (("", True), ("reformer", False)):
        arms = {arm: by_seed for arm, by_seed in low.items() if arm != missing}
        records = scores(**dense, kerformer=[0.7, 0.71, 0.7], **arms)
        records += analysis.analyse(records, {"t": 0.5})
        value, interval = measured(table, records)
        assert value == pytest.approx(0.1)
        assert (interval is not None) == decided


def swapped(records):
    """The same scores as those of swapped encoders, trained with labels alone."""
    stage_labels = {"question": "pretrained", "stage": "plain"}
    swapped_records = [
        replace(r, labels={**r.labels, **stage_labels}) for r in records if "arm" in r.labels
    ]
    chance = Record("chance", 0.5, "share", "measured", {"question": "pretrained", "task": "t"})
    return [*swapped_records, chance]


@pytest.mark.parametrize("kind", ["arena", "pretrained"])
def test_neighbours_are_told_by_both_kinds_of_training(kind):
    records = scores(softmax=[0.8, 0.81, 0.8], uniform=[0.5] * 3, kerformer=[0.7, 0.71, 0.7])
    kerformer_records = [r for r in records if r.labels["arm"] == "kerformer"]
    weights = {0: (9.0, 9), 1: (1.5, 8), 2: (1.2, 13), 4: (5.0, 7), 8: (0.9, 5), 16: (0.7, 1)}
    records += [
        replace(
            r, name="weight_at_distance", value=w, count=pairs, labels={**r.labels, "distance": at}
        )
        for r in kerformer_records
        for at, (w, pairs) in weights.items()
    ]
    if kind == "arena":
        records += analysis.analyse([r for r in records if r.name == "score"], {"t": 0.5})
    else:
        records = swapped(records)
    value, _ = of(ker_behaviour.neighbours, records)
    # distances 1 to 3, and from 8 on, every pair as much as another
    assert value == pytest.approx((8 * 1.5 + 13 * 1.2) / 21 - (5 * 0.9 + 0.7) / 6)


def test_what_reweighting_does_to_neighbours_is_told_against_the_form_without():
    records = scores(softmax=[0.8, 0.81, 0.8], uniform=[0.5] * 3, kerformer=[0.7, 0.71, 0.7])
    arms = {"kerformer": (1.5, 0.9), "kerformer, no SE-K": (1.3, 0.95)}
    weights = [
        replace(
            r, name="weight_at_distance", value=w, labels={**r.labels, "arm": a, "distance": at}
        )
        for r in records
        if r.labels["arm"] == "kerformer"
        for a, both in arms.items()
        for at, w in zip((1, 8), both, strict=True)
    ]
    analysed = analysis.analyse(records, {"t": 0.5})
    value, interval = of(ker_behaviour.neighbours_by_reweighting, records + weights + analysed)
    assert value == pytest.approx((1.5 - 0.9) - (1.3 - 0.95))
    assert interval is not None
    alone = [r for r in weights if r.labels["arm"] == "kerformer"]
    assert of(ker_behaviour.neighbours_by_reweighting, records + alone + analysed) is None


def test_equal_arms_seldom_look_as_if_one_of_them_were_better():
    chance, falls = np.random.default_rng(0), 0
    for _ in range(200):
        ours, *baselines = ({"t": dict(enumerate(row))} for row in chance.normal(size=(10, 3)))
        _, interval = pair(ker_scores.over_all(ours, {str(n): r for n, r in enumerate(baselines)}))
        falls += interval[1] < 0
    assert falls <= 10


def ratios(**by_baseline):
    """Times over kerformer's by baseline and length: value and interval."""
    return [
        replace(
            scores(x=[value])[0],
            name="latency_ratio",
            value=value,
            interval=(value - reach, value + reach),
            labels={"over": "kerformer, by content", "arm": baseline, "tokens": tokens},
        )
        for baseline, by_tokens in by_baseline.items()
        for tokens, (value, reach) in by_tokens.items()
    ]


def test_usually_is_counted_over_lengths():
    fast = {1000: (1.5, 0.1), 10_000: (1.5, 0.1), 100_000: (1.5, 0.1), 10**6: (0.5, 0.1)}
    three = {"linear": fast, "efficient": fast, "performer": fast}
    assert of(costs.lengths_won, ratios(**three)) == (1.0, (1.0, 1.0))
    mixed = {**fast, 1000: (0.5, 0.1), 10_000: (1.05, 0.2)}
    value, interval = of(costs.lengths_won, ratios(**{**three, "linear": mixed}))
    assert of(costs.lengths_won, ratios(linear=fast, efficient=fast)) is None  # one was not timed
    assert value == pytest.approx(2 / 3)
    assert interval == pytest.approx((1 / 3, 2 / 3))
    assert of(costs.lengths_won, []) is None


def timed(arm, tokens, value, interval):
    labels = {"kind": "training", "over": "softmax", "arm": arm, "tokens": tokens}
    return Record("speed_up", value, "ratio", "measured", labels, interval)


def peak(arm, value):
    labels = {"question": "speed", "arm": arm, "kind": "training", "tokens": 4096}
    return Record("peak_bytes", value, "bytes", "measured", labels)


def test_a_speed_is_that_at_the_longest_length():
    ups = [timed("dct", 1024, 9.0, (8.0, 10.0)), timed("dct", 4096, 2.6, (2.4, 2.8))]
    assert pair(costs.speed_up(RecordTable(ups), "dct", 0.95)) == (2.6, pytest.approx((2.4, 2.8)))
    _, (low, high) = pair(costs.speed_up(RecordTable(ups), "dct", 0.99))
    assert low < 2.4
    assert high > 2.8
    assert pair(costs.speed_up(RecordTable(ups), "linear", 0.95)) is None


def test_memory_is_that_of_one_arm_beside_a_baseline():
    records = [peak("softmax", 100.0), peak("dct", 90.0)]
    assert pair(costs.peak_share(RecordTable(records), "dct", "softmax")) == (0.9, (0.9, 0.9))
    assert pair(costs.peak_share(RecordTable(records), "dct", "eager")) is None
    assert pair(costs.peak_share(RecordTable(records), "linear", "softmax")) is None


def long_task(ours, tokens=1025.0):
    records = scores(softmax=[0.8, 0.8, 0.8], uniform=[0.5, 0.51, 0.5], dct=ours)
    records += analysis.analyse(records, {"t": 0.5})
    labels = {"question": "arena", "task": "t"}
    return [*records, Record("task_tokens", tokens, "tokens", "measured", labels)]


LEAN = [peak("softmax", 100.0), peak("eager", 1000.0), peak("dct", 90.0)]
FAST = timed("dct", 4096, 8.0, (7.9, 8.1))


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([*long_task([0.8, 0.8, 0.801]), FAST, *LEAN], (4.0, (4.0, 4.0))),
        ([*long_task([0.8, 0.8, 0.801], tokens=128.0), FAST, *LEAN], (3.0, (3.0, 4.0))),
        ([*long_task([0.7, 0.7, 0.701]), FAST, *LEAN], (3.0, (3.0, 3.0))),
        ([FAST, *LEAN], (3.0, (3.0, 4.0))),
        ([timed("dct", 4096, 2.6, (2.4, 2.8)), *LEAN], (3.0, (2.0, 4.0))),
        ([FAST, *LEAN[:2], peak("dct", 120.0)], (1.0, (1.0, 2.0))),
        ([], None),
    ],
    ids=["all", "no long task", "worse", "not trained", "perhaps fast", "too much memory", "none"],
)
def test_one_arm_must_be_good_fast_and_lean_at_once(records, expected):
    assert of(joint.at_once("dct"), records) == expected


def test_what_may_be_all_at_once_is_linear():
    assert {costs.family_of(costs.arm_of(arm).mechanism) for arm in LINEAR_ARMS} <= {*costs.LINEAR}
    linear_claims = [c.text for c in claims.CLAIMS if "all at once" in c.text]
    assert [text.split(":")[0] for text in linear_claims] == [*LINEAR_ARMS]


def answered(arm, seed, right):
    labels = {"question": "arena", "task": "t", "arm": arm, "seed": seed}
    return answers_record(right, labels)


def test_scores_that_agree_over_seeds_are_not_sure_of_other_examples():
    right = np.random.default_rng(0).random((2, 400)) < 0.8
    arms = dict(zip(("softmax", "kerformer"), right, strict=True))
    records = scores(
        **{arm: [seed_scores.mean()] * 3 for arm, seed_scores in arms.items()},
        uniform=[0.5, 0.5, 0.51],
    )
    records += analysis.analyse(records, {"t": 0.5})
    answers = [answered(arm, n, list(map(bool, arms[arm]))) for arm in arms for n in range(3)]
    measure = ker_scores.above("arena", "kerformer", "softmax")
    (value, alone), (same, crossed) = of(measure, records), of(measure, [*records, *answers])
    assert value == same
    gaps = right[1].astype(float) - right[0]
    reach = 1.96 * gaps.std() / 20
    assert crossed[1] - same == pytest.approx(reach, rel=0.02)
    assert alone[1] - value < reach / 5


def test_the_mean_over_tasks_takes_all_seeds_of_each():
    first = [0.02, 0.05, 0.03, 0.06, 0.04]
    second = [0.10, 0.16, 0.13]
    ours = {"a": dict(enumerate(first)), "b": dict(enumerate(second))}
    theirs = {task: dict.fromkeys(seed_scores, 0.0) for task, seed_scores in ours.items()}
    value, (low, high) = pair(ker_scores.gap_of(ours, theirs))
    assert value == pytest.approx((0.04 + 0.13) / 2)
    variances = [
        np.var(seed_scores, ddof=1) / len(seed_scores) / 4 for seed_scores in (first, second)
    ]
    freedom = sum(variances) ** 2 / (variances[0] ** 2 / 4 + variances[1] ** 2 / 2)
    reach = stats.t.ppf(0.975, freedom) * sum(variances) ** 0.5
    assert (value - low, high - value) == pytest.approx((reach, reach))
    few = {**ours, "b": {0: 0.10, 1: 0.16}}
    assert pair(ker_scores.gap_of(few, theirs)) == (pytest.approx(0.085), None)


def test_seeds_that_agree_are_not_without_spread():
    alike = [replace(r, count=100) for r in scores(softmax=[0.8] * 3, uniform=[0.8] * 3)]
    gap = next(r for r in analysis.analyse(alike, {"t": 0.5}) if r.name == "score_difference")
    assert gap.interval[0] < -0.005 < 0.005 < gap.interval[1]


def test_errors_against_dense_attention_are_averaged_and_not_compared_with_it_again():
    alike = [replace(r, name="layer_error", unit="") for r in scores(softmax=[0], linear=[0.5])]
    assert {r.name for r in analysis.analyse(alike, {})} == {"mean_layer_error"}


def test_speed_of_kerformer_over_linear_is_the_inverse_of_the_other():
    labels = {"question": "speed", "arm": "linear", "kind": "training", "over": "kerformer"}
    records = [
        Record("speed_up", 2.0, "ratio", "measured", {**labels, "tokens": 4096}, (1.6, 2.5)),
        Record("speed_up", 0.5, "ratio", "measured", {**labels, "tokens": 1024}, (0.4, 0.6)),
    ]
    assert of(costs.speed_over("training", "linear", 2000), records) == (0.5, (0.4, 1 / 1.6))


def _taken(arm, steps):
    labels = {"question": "pretrained", "task": "imdb", "arm": arm, "stage": "layers", "seed": 0}
    return Record("steps", float(steps), "", "measured", labels)


def _distilled(**scores_by_arm):
    """Scores of distilled copies on IMDB, and what guessing comes to."""
    here = {"question": "pretrained", "task": "imdb"}
    records = [Record("chance", 0.5, "share", "measured", here)]
    for arm, values in scores_by_arm.items():
        for seed, value in enumerate(values):
            labels = {**here, "arm": arm, "stage": "warm", "seed": seed}
            records.append(Record("score", value, "share", "measured", labels, count=2000))
    return records


def test_what_distilled_copies_keep_is_asked_of_the_linear_arm_best_on_validation():
    def make_record(name, arm, value, interval=None, step=1):
        labels = {"question": "pretrained", "task": "imdb", "arm": arm, "stage": "warm"}
        # of one seed is the score alone, of how many the other quantities are
        extra = {"seed": 0, "step": step} if name == "validation_score" else {"seeds": 3}
        labels |= extra
        return Record(name, value, "share", "measured", labels, interval, 500)

    records = [
        make_record("validation_score", "longformer", 0.9, step=2),  # not linear
        make_record("validation_score", "linear", 0.9),  # layer by layer: other weights
        make_record("validation_score", "linear", 0.7, step=2),
        make_record("validation_score", "efficient", 0.8, step=2),  # the best: evaluated
        make_record("validation_score", "efficient", 0.6, step=3),
        *(_taken(arm, 1) for arm in ("longformer", "linear", "efficient")),
        *_distilled(softmax=[0.9, 0.91, 0.9], uniform=[0.8, 0.81, 0.8]),
        make_record("kept_of_dense", "longformer", 1.0, (0.99, 1.01)),
        make_record("kept_of_softmax", "efficient", 0.97, (0.95, 0.99)),
        make_record("kept_of_dense", "linear", 0.995, (0.99, 1.0)),  # best on the test rows
        make_record("kept_of_dense", "efficient", 0.99, (0.98, 1.0)),
        make_record("gain_over_uniform", "efficient", 0.03, (-0.01, 0.07)),
        make_record("gain_over_uniform", "linear", 0.05, (0.01, 0.07)),
    ]
    retention, gain = (
        ker_scores.paired_share("kept_of_dense"),
        ker_scores.paired_share("gain_over_uniform"),
    )
    assert of(retention, records) == (0.99, (0.98, 1.0))
    assert of(gain, records) == (0.03, (-0.01, 0.07))
    assert of(retention, []) is None
    both = ker_scores.paired_share("kept_of_dense", "kept_of_softmax")
    assert of(both, records) == (0.97, (0.95, 0.99))  # beside dense attention trained on as long
    assert of(both, [r for r in records if r.name != "kept_of_softmax"]) is None
    alike = [r for r in records if r.name not in ("score", "chance")]
    alike += _distilled(softmax=[0.9, 0.91, 0.9], uniform=[0.91, 0.9, 0.9])
    assert of(retention, alike) == (0.99, None)  # nothing is gained by attending
    guessing = [r for r in records if r.name != "score"]
    guessing += _distilled(softmax=[0.54, 0.54, 0.54], uniform=[0.5, 0.5, 0.5])
    assert of(retention, guessing) == (0.99, None)
    for record in records:  # two trainings do not decide
        if "seeds" in record.labels:
            record.labels["seeds"] = 2
    assert of(retention, records) == (0.99, None)


def test_a_small_split_that_decides_nothing_blurs_nothing():
    decided = scores(softmax=[0.7, 0.71, 0.7], uniform=[0.5, 0.5, 0.51])
    decided = [replace(r, count=1000) for r in decided]
    small = [replace(r, count=50, labels={**r.labels, "task": "photos"}) for r in decided[:1]]
    records = [*decided, *small]
    whole = [*records, *analysis.analyse(records, {"t": 0.5})]
    assert ker_scores.step_of(RecordTable(whole), "arena") == 0.001


def alone(*tokens, name="latency_ms"):
    labels = {"question": "cores", "arm": "kerformer, by content"}
    return [Record(name, 1.0, "ms", "measured", {**labels, "tokens": length}) for length in tokens]


def test_a_million_tokens_are_missed_only_where_they_were_asked_for():
    assert of(costs.million, []) is None
    assert of(costs.million, alone(1000, 10_000)) is None
    assert of(costs.million, alone(1000, 10**6)) == (1e6, (1e6, 1e6))
    refused = [*alone(1000), *alone(10**6, name="not_run")]
    assert of(costs.million, refused) == (1000.0, (1000.0, 1000.0))


def at_range(arm, seconds, megabytes):
    """A baseline's ratio to kerformer at the length of Tables 2 and 3, and a peak there."""
    labels = {"question": "cores", "arm": arm, "tokens": 10_000}
    over = {**labels, "over": "kerformer, by content"}
    return [
        Record("latency_ratio", seconds, "ratio", "measured", over, (seconds - 0.1, seconds + 0.1)),
        Record("peak_bytes", megabytes, "bytes", "measured", {**labels, "spread": 2.0}),
    ]


def test_tables_of_ranges_are_asked_beside_all_three():
    labels = {"question": "cores", "arm": "linear", "tokens": 10_000, "spread": 4.0}
    records = [
        Record("range_ms", 1.0, "ms", "measured", labels),
        *at_range("efficient", 1.4, 40.0),
        *at_range("linear", 1.2, 30.0),
        *at_range("kerformer, by content", 1.0, 20.0)[1:],
    ]
    assert of(costs.time_at_ranges, records) is None
    assert of(costs.memory_at_ranges, records) is None
    records += at_range("performer", 2.0, 25.0)
    assert of(costs.time_at_ranges, records)[0] == 1.2
    assert of(costs.memory_at_ranges, records) == (1.25, (1.25, 1.25))
    assert of(costs.time_at_ranges, records[1:]) is None  # no range was asked


def test_other_linear_mechanisms_are_those_of_the_linear_families():
    records = [
        Record(
            "speed_up",
            value,
            "ratio",
            "measured",
            {"kind": "inference", "over": "kerformer", "arm": arm, "tokens": 4096},
            (value - 0.1, value + 0.1),
        )
        for arm, value in {"linear": 0.8, "nystrom": 0.5, "softmax": 2.0, "local": 3.0}.items()
    ]
    records.append(replace(records[0], value=9.0, labels={**records[0].labels, "tokens": 1024}))
    value, _ = of(costs.speed_over("inference", least_tokens=2000), records)
    assert value == pytest.approx(1 / 0.8)
    labels = {**records[0].labels, "arm": "kerformer, by content"}
    ours = [replace(records[0], labels=labels)]
    assert of(costs.speed_over("inference", least_tokens=2000), ours) is None


def test_best_on_images_is_told_beside_all_four():
    def image(arm, values):
        labels = {"question": "vision", "task": "mnist", "arm": arm}
        return [
            Record("score", v, "share", "measured", {**labels, "seed": n}, count=2000)
            for n, v in enumerate(values)
        ]

    records = [
        *image("softmax", [0.8, 0.81, 0.8]),
        *image("uniform", [0.5] * 3),
        *image("kerformer", [0.9, 0.91, 0.9]),
        *image("efficient", [0.95, 0.96, 0.95]),
    ]
    records += analysis.analyse(records, {"mnist": 0.1})
    value, interval = of(PICTURES, records)
    assert value == pytest.approx(-0.05)
    assert interval[1] < 0
    only = [r for r in records if r.labels.get("arm") != "efficient"]
    assert of(PICTURES, only)[1] is None  # three were not measured


def test_a_mean_over_tasks_is_forecast_by_the_seeds_of_every_task():
    ours = {"a": {0: 0.5, 1: 0.6, 2: 0.58}, "b": {0: 0.4, 1: 0.41, 2: 0.45}}
    theirs = {task: dict.fromkeys(scores, 0.4) for task, scores in ours.items()}
    parts = {"a": Part(0.0004, 400)}
    now = ker_scores.gap_of(ours, theirs, parts=parts)
    assert now.forecast.at(3) == pytest.approx(now.interval)
    seeds = [Part(np.var([*of.values()], ddof=1) / 12 / 4, 11) for of in ours.values()]
    reach = reach_of([*seeds, Part(0.0001, 400)], 0.95)
    assert now.forecast.at(12) == pytest.approx((now.value - reach, now.value + reach))
    alone = reach_of([Part(0.0001, 400)], 0.95)
    assert now.forecast.at(10**8)[1] - now.value == pytest.approx(alone, rel=1e-3)


def test_tasks_with_few_seeds_have_no_forecast_and_say_so():
    ours = {"a": {0: 0.5, 1: 0.6}}
    gap = ker_scores.gap_of(ours, {"a": {0: 0.4, 1: 0.4}})
    assert (gap.interval, gap.forecast, gap.lacks) == (None, None, "at least 3 seeds")


def test_conditions_at_once_are_forecast_by_the_seeds_of_the_score():
    narrow = Forecast("seeds", 3, lambda n: (-1 / n, 1 / n))
    score = Estimate(-0.02, (-0.06, 0.02), 3, forecast=narrow)
    speed = Estimate(3.0, (2.0, 4.0), forecast=Forecast("rounds", 3, lambda n: (3.0, 3.0)))
    assert joint.Condition(score, -0.01).at(1000).states() == (True, False, True)
    assert joint.Condition(speed, 2.5).at(1000).states() == (False, True, True)
    assert joint.Condition(None, 1.0).at(9).states() == (False, False, True)
