"""What undecided goals need, and the smallest effect that planned seeds tell."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sparing.core.errors import DataError
from sparing.core.record import RECORDS, Record, RecordLog
from sparing.experiment.claims import (
    Claim,
    Condition,
    Estimate,
    at_once,
    decide,
    least,
    of_pairs,
    of_record,
    recorded,
)
from sparing.experiment.forecasts.effects import committed_runs, planned_seeds, smallest_effects
from sparing.experiment.forecasts.needs import Need
from sparing.experiment.records import RecordTable
from sparing.measure.statistics import geometric_mean_ratio, mean_difference

NOTHING = RecordTable([])
VALUES = (0.01, 0.03, 0.11, 0.02)


def seeds(values, family="", target=0.0, **more):
    """A claim on the mean of so many seeds."""
    by_seed = dict(enumerate(values))
    measure = lambda records, confidence: of_pairs(by_seed, dict.fromkeys(by_seed, 0.0), confidence)  # noqa: E731
    return Claim("a", measure, target, family=family, **more)


def brute(values, target, confidence):
    """The first count at which Student's interval of this mean and spread excludes the target."""
    mean, spread = np.mean(values), np.std(values, ddof=1)
    for count in range(2, 1001):
        standard = np.linspace(-1, 1, count)
        others = mean + standard / standard.std(ddof=1) * spread
        gap = abs(mean - target)
        from scipy import stats

        if stats.t.ppf((1 + confidence) / 2, count - 1) * others.std(ddof=1) / count**0.5 < gap:
            return count
    return None


@pytest.mark.parametrize("target", [0.0, 0.02, 0.035])
@pytest.mark.parametrize("family", [1, 3])
def test_a_need_is_the_count_of_brute_force_at_the_confidence_of_the_family(target, family):
    claims = [seeds(VALUES, "t", target) for _ in range(family)]
    expected = brute(VALUES, target, 1 - 0.05 / family)
    for result in decide(claims, NOTHING):
        assert result.met == "undecided"
        assert result.need == Need(expected, "seeds", 4)


def test_decided_claims_need_nothing_and_files_do_not_name_forecasts():
    (result,) = decide([seeds((1.0, 1.1, 1.2))], NOTHING)
    assert result.met is True
    assert result.need is None
    assert {"need", "forecast"} & result.to_dict().keys() == set()
    (open_one,) = decide([seeds(VALUES)], NOTHING)
    stored = json.loads(json.dumps(open_one.to_dict()))
    assert Need.from_dict(stored["need"]) == open_one.need
    assert "forecast" not in stored


def test_an_effect_of_nothing_is_too_small():
    (result,) = decide([seeds((0.0101, -0.01, 0.03, -0.03))], NOTHING)
    assert result.need == Need(1000, "seeds", 4, beyond=True)
    assert str(result.need) == "more than 1,000 seeds: the effect is too small to matter here"


@pytest.mark.parametrize(
    ("claim", "need"),
    [
        (seeds((0.1, 0.2)), "at least 3 seeds"),
        (seeds((0.1, 0.1, 0.1)), "at least 5 seeds"),
        (Claim("a", lambda r, c: None, 0.0), "a measurement"),
        (Claim("a", lambda r, c: None, 0.0, unmeasured="a run"), "a run"),
        (Claim("a", lambda r, c: Estimate(1.0, None, lacks="words"), 0.0), "words"),
        (Claim("a", lambda r, c: Estimate(1.0, (-1.0, 2.0), lacks="words"), 0.0), "words"),
        (
            Claim("a", lambda r, c: Estimate(1.0, (0.5, 2.0), disturbance="busy"), 0.0),
            "a machine that does nothing else",
        ),
        (
            seeds((0.1, 0.2, 0.3), guards=(Condition(lambda r, g: False, "another task"),)),
            "another task",
        ),
        (seeds((0.1, 0.2, 0.3), guards=(lambda r, g: False,)), "other data"),
    ],
)
def test_what_comes_before_seeds_is_said(claim, need):
    (result,) = decide([claim], NOTHING)
    assert result.met == "undecided"
    assert str(result.need) == need


def test_a_guard_that_would_stop_the_answer_is_said_besides_the_seeds():
    guard = Condition(lambda records, result: result.met is not True, "longer training")
    (result,) = decide([seeds(VALUES, guards=(guard,))], NOTHING)
    assert result.need.count == brute(VALUES, 0.0, 0.95)
    assert str(result.need).endswith("(4 now); longer training")


@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_the_forecast_of_a_record_is_that_of_its_pairs(confidence):
    gap = mean_difference(VALUES, [0.0] * 4)
    record = Record("x", gap.value, "share", "measured", {}, gap.interval, gap.count)
    of_one = of_record(record, confidence).forecast
    of_other = of_pairs(dict(enumerate(VALUES)), dict.fromkeys(range(4), 0.0), confidence).forecast
    assert of_one.at(4) == pytest.approx(of_record(record, confidence).interval)
    assert of_one.at(9) == pytest.approx(of_other.at(9))


def test_rounds_have_a_forecast_and_counts_of_other_things_have_none():
    ratio = geometric_mean_ratio([1.0, 1.4, 1.1, 1.3], [1.0] * 4)
    record = Record("x", ratio.value, "ratio", "measured", {}, ratio.interval, ratio.count)
    timed = of_record(record, 0.95, scale="log", of_seeds=False)
    assert (timed.forecast.of, timed.forecast.count) == ("rounds of timing", 4)
    assert timed.forecast.at(4) == pytest.approx(ratio.interval)
    assert of_record(record, 0.95, of_seeds=False).forecast is None


@pytest.mark.parametrize("count", [3, 8])
def test_the_least_of_several_is_forecast_from_all_of_them(count):
    several = [dict(enumerate(np.array(VALUES) + shift)) for shift in (0.0, 0.01, 0.1)]

    def over(level):
        return [of_pairs(one, dict.fromkeys(one, 0.0), level) for one in several]

    wide = over(at_once(0.95, 3))
    low, high = least(over(0.95), wide).forecast.at(count)
    assert low == min(one.forecast.at(count)[0] for one in over(0.95))
    assert high == min(one.forecast.at(count)[1] for one in wide)


@pytest.mark.parametrize(
    "entry", [{"count": "3"}, {"counts": 3}, {"beyond": 1}, {"why": None}, {"of": ["seeds"]}]
)
def test_a_need_of_a_damaged_file_is_refused(entry):
    with pytest.raises(DataError, match="need"):
        Need.from_dict(entry)


def run_of(folder, name, values):
    gap = mean_difference(values, [0.0] * len(values))
    record = Record("gap", gap.value, "share", "measured", {}, gap.interval, gap.count)
    RecordLog(folder / name / RECORDS).append([record])
    return folder / name


def test_the_smallest_effect_is_half_the_interval_of_the_planned_seeds(tmp_path):
    few, many = (run_of(tmp_path, str(n), VALUES[:n]) for n in (3, 4))
    claims = [Claim("a: gap", recorded("gap"), 0.0, "share")]
    effects = smallest_effects(
        lambda records: decide(claims, RecordTable(records)), [few, many], lambda goal: 9
    )
    (effect,) = effects
    assert (effect.goal, effect.seeds, effect.known, effect.source) == ("a: gap", 9, 4, "4")
    from scipy import stats

    expected = stats.t.ppf(0.975, 8) * np.std(VALUES, ddof=1) / 3
    assert effect.effect == pytest.approx(expected)


def test_no_effect_is_stated_without_planned_seeds_or_runs(tmp_path):
    claims = [Claim("a", recorded("gap"), 0.0)]
    many = run_of(tmp_path, "many", VALUES)
    decided = lambda records: decide(claims, RecordTable(records))  # noqa: E731
    assert smallest_effects(decided, [many], lambda goal: 0) == ()
    assert smallest_effects(decided, [tmp_path / "none"], lambda goal: 3) == ()
    (many / RECORDS).write_text("no record\n")
    assert smallest_effects(decided, [many], lambda goal: 3) == ()


@pytest.mark.parametrize(
    ("config", "count"), [({"seeds": [0, 1, 2]}, 3), ({"seeds": 5}, 5), ({}, 0)]
)
def test_planned_seeds_are_those_of_the_configuration(config, count):
    assert planned_seeds(config)("any goal") == count


def test_committed_runs_are_those_beside_the_package_of_the_study():
    runs = committed_runs("sparing_papers.linformer.study", "linformer")
    assert [run.name.partition("-")[0] for run in runs] == ["linformer"] * len(runs)
    assert len(runs) >= 4
    assert committed_runs("sparing.compare.study", "compare") == []
