"""The Kerformer study from end to end on tiny sizes, and its parts alone."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

from sparing import Heads, Mask, mechanism
from sparing.core.errors import UsageError
from sparing.core.record import Record
from sparing.report import ker_published, write_report
from sparing.studies import _ker_claims as claims
from sparing.studies import _ker_costs as costs
from sparing.studies import _ker_judges as judges
from sparing.studies import _ker_scores as ker_scores
from sparing.studies import _long_analysis as analysis
from sparing.studies import _long_arms as arms
from sparing.studies import kerformer
from sparing.studies._ker_cores import CoreOptions, core_call, predicted_bytes, predicted_seconds
from sparing.studies._ker_options import Options
from sparing.studies._ker_speed import SpeedOptions, Step
from sparing.studies._long_work import TaskOptions
from sparing.tasks import load_task

LISTOPS = {
    "min_tokens": 8,
    "max_tokens": 40,
    "examples": 32,
    "validation_examples": 20,
    "test_examples": 40,
}
SMALL = Options(
    questions=("cores", "speed", "arena", "vision"),
    cores=CoreOptions(lengths=(64, 200), ranges=(1.0,), range_tokens=64, rounds=2, most_bytes=0),
    speed=SpeedOptions(
        arms=("softmax", "linear", "kerformer"), lengths=(32,), step_tokens=64, rounds=2, longest=0
    ),
    arena=TaskOptions(
        tasks=("listops", "imdb"),
        arms=("kerformer", "kerformer, plain keys"),
        seeds=2,
        task_options={"listops": LISTOPS},
        trained={"listops": {"epochs": 1, "batch_size": 32}},
    ),
    vision=TaskOptions(
        tasks=("digits",),
        arms=("kerformer",),
        seeds=1,
        task_options={"digits": {"patch_size": 4}},
        trained={"digits": {"epochs": 1}},
        test_examples=50,
    ),
    noise=(0.5,),
    looked_at=1,
)
TIMED = ("cores/time/*", "cores/range/*", "speed/training/*")


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "run"
    patch = pytest.MonkeyPatch()
    patch.delenv("SPARING_DATA", raising=False)
    generous = replace(SMALL, cores=replace(SMALL.cores, most_bytes=2**30))
    for pattern in (*TIMED, "arena/*"):
        kerformer.run(generous, folder, cells=pattern)
    yield kerformer.run(generous, folder, cells="vision/*")
    patch.undo()


def by(records, name, **labels):
    return [r for r in records if r.name == name and labels.items() <= r.labels.items()]


def test_every_arm_is_trained_judged_and_compared(ended):
    assert ended.failures == []
    for arm in ("softmax", "kerformer", "kerformer, plain keys", "uniform"):
        scores = by(ended.records, "score", question="arena", arm=arm)
        assert {r.labels["seed"] for r in scores} == {0, 1}
        assert all(r.count == 40 for r in scores)
        [mean] = by(ended.records, "mean_score", question="arena", arm=arm)
        assert mean.value == pytest.approx(sum(r.value for r in scores) / 2)
    [gap] = by(ended.records, "score_difference", arm="kerformer", less="softmax", task="listops")
    ours, dense = (
        by(ended.records, "mean_score", question="arena", arm=arm)[0].value
        for arm in ("kerformer", "softmax")
    )
    assert gap.value == pytest.approx(ours - dense)


def test_what_needs_data_is_left_out_and_said(ended):
    config = json.loads((ended.folder / "config.json").read_text())
    assert "imdb was left out: there is no data folder" in config["task"]["notes"]
    assert not any("imdb" in key for key in config["cells"])


def test_times_are_paired_with_dense_attention(ended):
    for tokens in (64, 200):
        [ratio] = by(ended.records, "latency_ratio", arm="linear", over="softmax", tokens=tokens)
        assert ratio.value > 0
        assert ratio.interval[0] <= ratio.value <= ratio.interval[1]
    [up] = by(ended.records, "speed_up", arm="linear", over="softmax")
    [rate] = by(ended.records, "steps_per_s", arm="linear")
    [dense] = by(ended.records, "steps_per_s", arm="softmax")
    assert up.value == pytest.approx(rate.value / dense.value, rel=0.5)


def test_goals_stand_in_the_order_of_the_claims(ended):
    assert len(ended.goals) == len(claims.CLAIMS)
    assert ended.config["claims"] == [claim.kind for claim in claims.CLAIMS]
    decided = [goal.met for goal in ended.goals if "decide" in goal.name]
    assert set(decided) == {"undecided"}  # listops on 32 examples tells nothing


def test_the_page_shows_everything(ended):
    pages = write_report(ended.folder)
    page, markdown = pages["html"].read_text(), pages["md"].read_text()
    for text in ("The published claims", "Table 7", "kerformer, plain keys", "Printed averages"):
        assert text in page
        assert text in markdown
    assert "This run is not complete" in page
    for name in ("cores", "speed", "neighbours-listops", "noise-listops", "learning-digits"):
        assert pages[name].is_file()


def test_a_finished_run_trains_nothing_again(ended, monkeypatch):
    monkeypatch.setattr("sparing.studies._long_train.train", None)
    options = replace(SMALL, cores=replace(SMALL.cores, most_bytes=2**30))
    again = kerformer.run(options, ended.folder, cells="arena/*")
    assert again.failures == []
    assert len(again.records) == len(ended.records)
    monkeypatch.delenv("SPARING_DATA", raising=False)
    planned = kerformer.plan(options, ended.folder)
    assert {c.key for c in planned.cells if not c.done} == {
        c.key for c in planned.cells if "/memory/" in c.key or "inference" in c.key
    }


def test_what_does_not_fit_is_predicted_and_not_run(tmp_path):
    alone = replace(SMALL, questions=("cores",))
    found = kerformer.run(alone, tmp_path / "run", cells="cores/*/200*")
    # without anything that is trained there is a page all the same, of what was asked alone
    page = write_report(tmp_path / "run")["md"].read_text(encoding="utf-8")
    assert "## One head alone" in page
    assert "## Learning images" not in page
    gone = by(found.records, "not_run")
    assert {r.labels["arm"] for r in gone} >= {"softmax", "linear", "eager"}
    assert all(r.obtained == "modelled" and r.value > 0 for r in gone)
    assert by(found.records, "latency_ms") == by(found.records, "peak_bytes") == []
    assert predicted_bytes("eager", 100_000) > 100_000**2 * 4
    assert predicted_bytes("linear", 100_000) < 2**28
    dense = [predicted_seconds("softmax", tokens, 1) for tokens in (4096, 65_536)]
    assert dense[1] > 50 * dense[0]


def test_values_of_a_core_stay_in_their_range(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "sparing.studies._ker_cores._built",
        lambda arm, tokens: type(
            "M", (), {"streams": "qkv", "__call__": lambda _, *s: seen.append(s)}
        )(),
    )
    core_call("linear", 50, 3.0)()
    for stream in seen[0]:
        assert stream.shape == (1, 1, 50, 64)
        assert 2.5 < stream.max() <= 3.0
        assert -3.0 <= stream.min() < -2.5


def test_a_step_of_training_changes_weights_and_one_in_use_does_not(monkeypatch):
    built = []
    monkeypatch.setattr(
        "sparing.studies._ker_speed.build",
        lambda *given: built.append(arms.build(*given)) or built[-1],
    )
    for kind, changes in (("training", True), ("inference", False)):
        call = Step("linear", 16, 2, kind).call()
        before = [p.detach().clone() for p in built[-1].parameters()]
        call()
        pairs = zip(before, built[-1].parameters(), strict=True)
        assert any(not torch.equal(old, new) for old, new in pairs) == changes


def test_implied_weights_of_dense_attention_are_its_own():
    made = mechanism("softmax", Heads(2, 4)).double().eval()
    q, k, v = torch.randn(3, 1, 2, 10, 4, generator=torch.Generator().manual_seed(0)).double()
    found = judges._weights(made, {"q": q, "k": k, "v": v}, Mask())
    torch.testing.assert_close(found, (q @ k.transpose(-1, -2) / 2).softmax(-1)[0])


def test_weights_by_distance_count_every_pair_once():
    weights = torch.full((3, 20, 20), 1 / 20)
    sums, counts = judges.by_distance(weights)
    torch.testing.assert_close(sums, counts)
    assert counts.sum() == 400
    assert counts[0] == 20
    assert counts[1] == 38
    assert counts[2] == 2 * (18 + 17)  # distances 2 and 3
    near = torch.eye(20)[None]
    assert judges.by_distance(near)[0].tolist()[:2] == [400.0, 0.0]


def test_a_trained_arm_shows_its_weights_and_uniform_is_flat(ended):
    flat = by(ended.records, "weight_at_distance", arm="uniform")
    assert flat
    assert all(r.value == pytest.approx(1, abs=1e-4) for r in flat)
    dense = by(ended.records, "weight_at_distance", arm="softmax", seed=0)
    assert any(abs(r.value - 1) > 1e-4 for r in dense)


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_noise_replaces_its_share_and_leaves_class_tokens(share):
    task = load_task("listops", **{**LISTOPS, "test_examples": 200})
    found = judges.noisy(task, share)
    changed = total = 0
    for old, new in zip(task.test.inputs, found.test.inputs, strict=True):
        assert new[0] == old[0]
        assert new.min() >= 1
        changed, total = changed + int((old != new).sum()), total + len(old) - 1
    kept_by_chance = 1 - 1 / (task.vocabulary - 2)
    assert changed / total == pytest.approx(share * kept_by_chance, abs=0.03)
    assert all(
        torch.equal(a, b)
        for a, b in zip(found.test.inputs, judges.noisy(task, share).test.inputs, strict=True)
    )


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
    found = analysis.analyse(scores(softmax=dense, uniform=uniform), {"t": 0.5})
    [told] = by(found, "decides")
    assert bool(told.value) == decided
    assert why in told.labels["why"]


def test_claims_of_scores_wait_for_a_task_that_decides():
    ours, plain = [0.70, 0.71, 0.72], [0.60, 0.62, 0.61]
    records = scores(
        softmax=[0.7, 0.71, 0.7],
        uniform=[0.5, 0.5, 0.51],
        kerformer=ours,
        **{"kerformer, no SE-K": plain},
    )
    helps = next(c for c in claims.CLAIMS if c.text == "Table 6: SE-K helps")
    assert helps.measure(records) is None
    decided = [*records, *analysis.analyse(records, {"t": 0.5})]
    value, interval = helps.measure(decided)
    assert value == pytest.approx(0.1)
    assert interval[0] > 0
    assert helps.measure([r for r in decided if r.labels.get("seed") in (0, 1, None)])[1] is None


def of_task(task, **by_arm):
    return [replace(r, labels={**r.labels, "task": task}) for r in scores(**by_arm)]


def test_two_arms_are_held_against_each_other_on_the_tasks_that_both_ran():
    records = [
        *of_task("a", softmax=[0.8, 0.81, 0.8], uniform=[0.5] * 3, kerformer=[0.85, 0.84, 0.85]),
        *of_task("a", linear=[0.9, 0.91, 0.9], local=[0.8, 0.79, 0.8]),
        *of_task("b", softmax=[0.8, 0.81, 0.8], uniform=[0.5] * 3, linear=[0.6, 0.61, 0.6]),
    ]
    records += analysis.analyse(records, {"a": 0.5, "b": 0.5})
    value, interval = ker_scores.above_the_best(records)  # linear's own mean over both is 0.75
    assert value == pytest.approx(0.847 - 0.903, abs=1e-3)
    assert interval[1] < 0
    plain = [
        replace(r, labels={**r.labels, "question": "pretrained", "stage": "plain"}) for r in records
    ]
    assert ker_scores.best_transfer(plain)[0] == value


@pytest.mark.parametrize(("clean", "measured"), [([0.8, 0.79, 0.8], True), ([0.5] * 3, False)])
def test_who_only_guesses_is_not_robust_to_noise(clean, measured):
    records = scores(softmax=[0.8, 0.81, 0.8], uniform=[0.5] * 3, kerformer=clean)
    records += [
        replace(r, name="noisy_score", value=0.5, labels={**r.labels, "noise": 0.1})
        for r in records
    ]
    records += analysis.analyse([r for r in records if r.name == "score"], {"t": 0.5})
    assert (ker_scores.noise(records) is not None) == measured


def test_the_least_of_several_has_the_least_ends():
    assert costs.least([(1.1, (1.05, 1.15)), None, (1.12, (0.9, 1.4))]) == (1.1, (0.9, 1.15))
    assert costs.least([(1.1, (1.05, 1.15)), (1.2, None)]) == (1.1, None)
    assert costs.least([None]) is None


def test_seeds_that_agree_are_not_without_spread():
    alike = [replace(r, count=100) for r in scores(softmax=[0.8] * 3, uniform=[0.8] * 3)]
    gap = next(r for r in analysis.analyse(alike, {"t": 0.5}) if r.name == "score_difference")
    assert gap.interval[0] < -0.005 < 0.005 < gap.interval[1]


def test_speed_of_kerformer_over_linear_is_the_inverse_of_the_other():
    labels = {"question": "speed", "arm": "linear", "kind": "training", "over": "kerformer"}
    records = [
        Record("speed_up", 2.0, "ratio", "measured", {**labels, "tokens": 4096}, (1.6, 2.5)),
        Record("speed_up", 0.5, "ratio", "measured", {**labels, "tokens": 1024}, (0.4, 0.6)),
    ]
    assert costs.speed_over("training", "linear", 2000)(records) == (0.5, (0.4, 1 / 1.6))


def test_arms_have_options_that_their_mechanisms_take():
    for name in arms.names():
        arm = arms.arm_of(name)
        mechanism(arm.mechanism, Heads(2, 8, width=16, tokens=64), **arms.options_of(name, 64))
    assert arms.options_of("linformer", 64)["slots"] == 16
    assert "slots" not in arms.options_of("linformer, pooled", 64)


def test_printed_averages_are_computed_anew():
    found = {
        (arm, printed): real
        for arm, printed, real in ker_published.averages(ker_published.DOWNSTREAM)
    }
    assert found["dct", 80.19] == pytest.approx(82.346)
    assert found["kerformer", 83.39] == pytest.approx(83.39)
    assert not any(math.isnan(real) for real in found.values())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"questions": ("arenas",)}, "did you mean 'arena'"),
        ({"questions": ("cores", "cores")}, "each once"),
        ({"noise": (1.5,)}, "between 0 and 1"),
        ({"seeds": 0}, "at least 1"),
        ({"needs": "gpu"}, "accelerator"),
    ],
)
def test_options_refuse(given, message):
    with pytest.raises(UsageError, match=message):
        replace(SMALL, **given)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (TaskOptions, {"arms": ("kerfomer",)}, "did you mean 'kerformer'"),
        (TaskOptions, {"arms": ("linear", "linear")}, "named twice"),
        (TaskOptions, {"arms_of": {"imdb": ("liner",)}}, "did you mean 'linear'"),
        (TaskOptions, {"trained": {"listops": {"epoch": 1}}}, "did you mean 'epochs'"),
        (TaskOptions, {"margin": 0.0}, "margin"),
        (CoreOptions, {"arms": ("linear",)}, "must hold softmax"),
        (CoreOptions, {"lengths": (8,)}, "at least 16"),
        (SpeedOptions, {"lengths": (8,)}, "at least 16"),
    ],
)
def test_parts_refuse(kind, given, message):
    with pytest.raises(UsageError, match=message):
        kind(**given)


def test_the_paper_budget_needs_an_accelerator(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.raises(UsageError, match="needs an accelerator"):
        kerformer.run(kerformer.BUDGETS["paper"], tmp_path / "run")


def test_what_distilled_copies_keep_is_asked_of_the_linear_arm_best_on_validation():
    def told(name, arm, value, interval=None):
        labels = {"question": "pretrained", "task": "imdb", "arm": arm, "stage": "warm"}
        return Record(name, value, "share", "measured", labels, interval, 500)

    records = [
        told("validation_score", "longformer", 0.9),  # not linear
        told("validation_score", "linear", 0.7),
        told("validation_score", "efficient", 0.8),
        told("validation_score", "efficient", 0.6),
        told("kept_of_dense", "longformer", 1.0, (0.99, 1.01)),
        told("kept_of_dense", "linear", 0.995, (0.99, 1.0)),  # best on the test rows
        told("kept_of_dense", "efficient", 0.99, (0.98, 1.0)),
        told("gain_over_uniform", "efficient", 0.03, (-0.01, 0.07)),
        told("gain_over_uniform", "linear", 0.05, (0.01, 0.07)),
    ]
    kept, gain = ker_scores.kept("kept_of_dense"), ker_scores.kept("gain_over_uniform")
    assert kept(records) == (0.99, (0.98, 1.0))
    assert gain(records) == (0.03, (-0.01, 0.07))
    assert kept([]) is None


def test_memory_is_that_of_the_leanest_linear_arm():
    def peak(arm, value):
        labels = {"question": "speed", "arm": arm, "kind": "training", "tokens": 4096}
        return Record("peak_bytes", value, "bytes", "measured", labels)

    records = [
        peak("softmax", 100.0),
        peak("linear", 120.0),
        peak("dct", 90.0),
        peak("local", 50.0),
    ]
    assert costs.memory_share("softmax")(records) == (0.9, (0.9, 0.9))
    assert costs.memory_share("eager")(records) is None
