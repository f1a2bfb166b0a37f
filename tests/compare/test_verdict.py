from __future__ import annotations

import re
from dataclasses import replace

import pytest

from sparing.compare.page import verdict
from tests.compare import records as make

FAST, SLOW, SAME = (0.5, (0.45, 0.55)), (1.5, (1.4, 1.6)), (1.0, (0.95, 1.05))


def decide(records, config, failed=()):
    return verdict.decide(make.run_of(records, config, failed))


def test_the_attention_core_alone_decides_nothing():
    records, config = situation({"a": (None, "no worse")})
    labels = {"arm": "a", "scope": "attention", "tokens": 4096, "batch": 1}
    records.append(make.record("latency_ratio", FAST[0], "ratio", FAST[1], **labels))
    result = decide(records, config)
    assert (result.decision, result.arm) == ("undecided", None)


def situation(arms, crossings=(), shares=True):
    """A run of softmax and variants given as name -> (ratio and interval, the accuracy's word)."""
    records = []
    for arm, (speed, word) in arms.items():
        cost_labels = {"arm": arm, "scope": "model", "tokens": 65, "batch": 1}
        if speed:
            records.append(make.record("latency_ratio", speed[0], "ratio", speed[1], **cost_labels))
            records += make.latency_verdict(arm, *speed)
        if word:
            labels = {"arm": arm, "baseline": "softmax", "verdict": word, "margin": 0.01}
            gap = {"better": 0.02, "worse": -0.02}.get(word, -0.001)
            interval = (gap - 0.003, gap + 0.003)
            records.append(make.record("accuracy_difference", gap, "share", interval, **labels))
    for arm, tokens in crossings:
        labels = {} if tokens else {"longest_tokens": 4096}
        records.append(make.record("crossover_tokens", tokens, "tokens", arm=arm, **labels))
    if shares:
        records.append(make.record("attention_share", 0.8, "share", tokens=4096))
        records.append(make.record("largest_gain", 5.0, "ratio", tokens=4096))
    return records, make.config(("softmax", *arms))


@pytest.mark.parametrize(
    ("arms", "decision", "arm", "says"),
    [
        ({"a": (FAST, "no worse")}, "use", "a", r"Use a here: it .* 2\.0× faster than dense"),
        ({"a": (FAST, "better")}, "use", "a", "accuracy is better"),
        (
            {"a": ((0.8, (0.7, 0.9)), "no worse"), "b": (FAST, "no worse")},
            "use",
            "b",
            "Use b here",
        ),
        ({"a": (FAST, "worse"), "b": (SLOW, "no worse")}, "keep dense", "softmax", "but its acc"),
        ({"a": (SLOW, "no worse")}, "keep dense", "softmax", r"a makes .* 1\.50× slower"),
        ({"a": (SLOW, "worse"), "b": (SLOW, None)}, "keep dense", "softmax", "even the fastest"),
        ({"a": (SAME, "no worse")}, "keep dense", "softmax", "no other variant is clearly faster"),
        (
            {"a": ((0.9996, (0.9993, 0.9998)), "no worse")},
            "keep dense",
            "softmax",
            "no other variant is clearly faster",
        ),
        ({"a": (SAME, "undecided")}, "keep dense", "softmax", "no other variant is clearly faster"),
        ({"a": (SAME, "better")}, "use", "a", "no difference in speed was found"),
        ({"a": (SLOW, "better")}, "depends", "a", "only if accuracy counts most"),
        ({"a": (FAST, "undecided")}, "undecided", None, "keep dense until more is known"),
        ({"a": (FAST, None)}, "undecided", None, "a still lacks measurements"),
        ({"a": (None, "no worse")}, "undecided", None, "a still lacks measurements"),
        ({"a": (None, None), "b": (None, None)}, "undecided", None, "a and b still lack"),
        ({"a": ((0.5, None), "no worse")}, "undecided", None, "still lacks"),
        ({}, "undecided", None, "Nothing to compare"),
    ],
)
def test_decision(arms, decision, arm, says):
    result = decide(*situation(arms))
    assert (result.decision, result.arm) == (decision, arm)
    assert re.search(says, result.first)


@pytest.mark.parametrize(
    ("crossings", "says"),
    [
        ([("a", 512), ("b", 300)], "From about 300 tokens on .* of b becomes faster than dense's;"),
        ([("a", 512), ("b", None)], "From about 512 tokens on"),
        (
            [("a", None), ("b", None)],
            "No variant's attention becomes faster than dense up to 4,096",
        ),
        ([("a", None)], "is not known yet"),
        ([], "is not known yet"),
        ([("a", 64)], "of a is faster than dense's from about 64 tokens on, so already here"),
    ],
)
def test_from_which_length_on(crossings, says):
    arms = {"a": (SLOW, "no worse"), "b": (SLOW, "no worse")}
    result = decide(*situation(arms, crossings))
    assert re.search(says, result.second)
    assert "at 4,096 tokens attention is 80 % of the model's time" in result.second
    assert "more than 5.0× faster" in result.second


# at the edge of every interval: touching 1 is no difference
@pytest.mark.parametrize(
    ("value", "interval", "decision"),
    [
        (0.9, (0.8, 0.99), "use"),
        (0.9, (0.8, 1.0), "keep dense"),
        (0.9, (0.8, 1.2), "keep dense"),
        (1.1, (0.8, 1.2), "keep dense"),
        (1.1, (1.0, 1.2), "keep dense"),
        (1.1, (1.01, 1.2), "keep dense"),
    ],
)
def test_an_interval_that_holds_or_touches_1_decides_nothing(value, interval, decision):
    result = decide(*situation({"a": ((value, interval), "no worse")}))
    assert result.decision == decision
    unclear = interval[0] <= 1 <= interval[1]
    assert ("no other variant is clearly faster" in result.first) == unclear
    assert ("faster than dense (95 %" in result.first) == (interval[1] < 1)
    assert ("slower than dense" in result.first) == (interval[0] > 1)


BUSY = "other programs kept 1.8 of 2 processors busy"


def busy(records, cell=""):
    """The records, timed while the machine was busy."""
    load = make.record("machine_load", 0.4, "share", disturbance=BUSY)
    return [*records, replace(load, cell=cell)]


@pytest.mark.parametrize(
    "arms",
    [
        {"a": (FAST, "no worse")},
        {"a": (FAST, "worse"), "b": (SLOW, "no worse")},
        {"a": (SLOW, "better")},
        {"a": (SAME, "no worse")},
    ],
)
def test_no_verdict_from_a_busy_machine(arms):
    records, config = situation(arms)
    result = decide(busy(records), config)
    assert (result.decision, result.arm, result.lead) == ("undecided", None, "No verdict on speed")
    assert BUSY in result.because
    assert not re.search("faster|slower|[Kk]eep|Use", str(result).replace("become faster", ""))
    assert decide(busy(records, "elsewhere"), config) == decide(records, config)


def test_what_gains_most_accuracy_is_named():
    records, config = situation({"a": (SAME, "better"), "b": (SAME, "better")})
    labels = {"arm": "b", "baseline": "softmax", "verdict": "better", "margin": 0.01}
    records.append(make.record("accuracy_difference", 0.05, "share", (0.04, 0.06), **labels))
    assert decide(records, config).arm == "b"


def test_what_attention_could_give_is_said_without_other_arms_too():
    records, config = situation({})
    assert decide(records, config).second.startswith("At 4,096 tokens attention is 80 % of")
    nothing = "What any attention could give was not measured."
    assert decide([], config).second == nothing
    unknown = make.record("attention_share", None, "share", tokens=4096)
    assert decide([unknown], config).second == nothing
    load = make.record("machine_load", 0.4, "share", disturbance=BUSY)
    shares = [replace(record, cell="shares") for record in records]
    assert decide([*shares, replace(load, cell="shares")], config).second == nothing


def test_a_curve_of_a_busy_machine_crosses_nowhere():
    records, config = situation({"a": (SLOW, "no worse")}, [("a", 512)])
    labels = {"arm": "a", "scope": "attention", "tokens": 512, "batch": 1}
    curve = make.record("latency_ratio", 0.5, "ratio", (0.4, 0.6), **labels)
    records = busy(
        [*records, replace(curve, cell="latency/attention/512")], "latency/attention/512"
    )
    result = decide(records, config)
    assert result.decision == "keep dense"
    assert "not decided either: the machine was busy" in result.second


def test_a_share_and_its_gain_are_of_one_value():
    records, config = situation({"a": (SLOW, "no worse")}, shares=False)
    share, interval = 0.934637, (0.923845, 0.946746)
    records.append(make.record("attention_share", share, "share", interval, tokens=4096))
    gains = [1 / (1 - value) for value in (share, *interval)]
    records.append(make.record("largest_gain", gains[0], "ratio", tuple(gains[1:]), tokens=4096))
    second = decide(records, config).second
    assert "attention is 93.46 % of the model's time" in second
    assert "more than 15.3× faster (95 % interval 13.1–18.8×)" in second
    assert f"{1 / (1 - 0.9346):.1f}" == "15.3"


def test_an_arm_that_loses_accuracy_does_not_lead_the_crossing():
    arms = {"a": (SLOW, "worse"), "b": (SLOW, "no worse")}
    result = decide(*situation(arms, [("a", 200), ("b", 400)]))
    assert "From about 400 tokens on" in result.second
    assert "a's already from about 200 tokens on, but its accuracy is worse" in result.second
    only = decide(*situation({"a": (SLOW, "worse")}, [("a", 200)]))
    assert "though it lost accuracy here" in only.second


def test_a_measured_length_is_no_estimate_and_the_newest_word_counts():
    records, config = situation({"a": (SLOW, "no worse")}, [("a", 512)])
    labels = {"arm": "a", "scope": "attention", "tokens": 512, "batch": 1, "statistic": "p50"}
    records.append(make.record("latency_ms", 1.0, "ms", **labels))
    assert "From 512 tokens on the picture changes" in decide(records, config).second
    records.append(make.record("crossover_tokens", None, "tokens", arm="a", longest_tokens=4096))
    assert "No variant's attention becomes faster" in decide(records, config).second
    records.append(make.record("crossover_tokens", 512.0, "tokens", arm="a"))
    assert "From 512 tokens on the picture changes" in decide(records, config).second


@pytest.mark.parametrize(
    ("arms", "says"),
    [
        ({"a": (SAME, "worse"), "idle": (FAST, "worse")}, "the nearest, a, takes"),
        ({"a": (SLOW, "worse"), "idle": (FAST, "worse")}, "other variant that is no control, a"),
        ({"a": (FAST, "undecided"), "idle": (FAST, "undecided")}, "decided: a makes"),
        ({"idle": (FAST, "worse")}, "idle makes"),
    ],
)
def test_a_control_is_not_named_where_it_does_not_win(arms, says):
    records, config = situation(arms)
    config["families"] = {"a": "kernel", "idle": "control"}
    assert says in str(decide(records, config))


def test_an_arm_that_failed_is_not_waited_for():
    records, config = situation({"a": (None, None), "b": (SLOW, "no worse")})
    assert decide(records, config).decision == "undecided"
    failed = [{"cell": "train/a/seed=0", "error": "boom"}]
    assert decide(records, config, failed).decision == "keep dense"
    every = [*failed, {"cell": {"arm": "b"}, "error": "boom"}]
    assert "no other variant could be measured" in decide([], config, every).first


@pytest.mark.parametrize("arm", [(FAST, None), (None, "no worse"), (None, "better")])
def test_an_arm_that_failed_after_one_of_its_measurements_is_not_waited_for(arm):
    records, config = situation({"a": arm, "b": (SLOW, "no worse")})
    failed = [{"cell": "train/a/seed=0", "error": "boom"}]
    missing = decide(records, config, failed)
    assert missing.decision == ("use" if "better" in arm else "keep dense")
    assert "still lacks" not in missing.first


def test_another_baseline_is_called_by_its_name():
    records, config = situation({"a": (SLOW, "no worse")})
    config["baseline"] = config["arms"][0] = "window"
    assert decide(records, config).lead == "Keep window here"


def test_figures_of_papers_decide_nothing():
    records, config = situation({"a": (SLOW, "no worse")})
    labels = {"arm": "a", "scope": "model", "tokens": 65, "batch": 1}
    claim = make.record("latency_ratio", 0.1, "ratio", (0.1, 0.1), "paper", **labels)
    assert decide([*records, claim], config) == decide(records, config)


@pytest.mark.parametrize("tokens", [65, 1025])
def test_it_is_two_sentences_and_a_pure_function(tokens):
    records, config = make.records(tokens=tokens), make.config(tokens=tokens)
    result = decide(records, config)
    assert result == decide(list(records), config)
    for sentence in (result.first, result.second):
        assert sentence.endswith(".")
        assert not re.search(r"\.\s", sentence)


def test_on_a_short_task_dense_stays_and_on_a_long_one_it_goes():
    short = decide(make.records(), make.config())
    long = decide(make.records(tokens=1025), make.config(tokens=1025))
    assert (short.decision, long.decision) == ("keep dense", "use")
    assert long.arm in make.EIGHT
