"""The Kerformer study from end to end on tiny sizes, and its parts alone."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

from sparing import Heads, Mask, mechanism
from sparing.core.errors import UsageError
from sparing.experiment.registry import find_study
from sparing.report.page import write_report
from sparing.tasks import load_task
from sparing_papers.kerformer import claims
from sparing_papers.kerformer import study as kerformer
from sparing_papers.kerformer.cores import CoreOptions, core_call, core_point, core_sweep
from sparing_papers.kerformer.options import Options
from sparing_papers.kerformer.page import published as ker_published
from sparing_papers.kerformer.speed import SpeedOptions, step_call
from sparing_papers.long_range import arms, measurements
from sparing_papers.long_range.work import LongWork, TaskOptions

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
        variants=("softmax", "linear", "kerformer"),
        lengths=(32,),
        step_tokens=64,
        rounds=2,
        longest=0,
    ),
    arena=TaskOptions(
        tasks=("listops", "imdb"),
        variants=("kerformer", "kerformer, plain keys"),
        seeds=2,
        pilot=False,
        task_options={"listops": LISTOPS},
        trained={"listops": {"epochs": 1, "batch_size": 32}},
    ),
    vision=TaskOptions(
        tasks=("digits",),
        variants=("kerformer",),
        seeds=1,
        pilot=False,
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
        find_study("kerformer").run(generous, folder, cells=pattern)
    yield find_study("kerformer").run(generous, folder, cells="vision/*")
    patch.undo()


def by(records, name, **labels):
    return [r for r in records if r.name == name and labels.items() <= r.labels.items()]


def test_every_arm_is_trained_evaluated_and_compared(ended):
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
    expected = claims.claims_of(SMALL.questions)
    assert len(ended.goals) == len(expected)
    assert ended.config["claims"] == [claim.kind for claim in expected]
    decided = [goal.met for goal in ended.goals if "decide" in goal.name]
    assert set(decided) == {"undecided"}  # listops on 32 examples tells nothing


def test_what_was_right_is_kept_and_expressions_have_no_noise(ended):
    answers = by(ended.records, "answers", task="listops")
    scores = by(ended.records, "score", task="listops")
    assert [r.value / r.count for r in answers] == pytest.approx([r.value for r in scores])
    assert not by(ended.records, "noisy_score")
    assert not by(ended.records, "mean_answers")


def test_the_page_shows_everything(ended):
    pages = write_report(ended.folder)
    page, markdown = pages["html"].read_text(), pages["md"].read_text()
    for text in ("The published claims", "Table 7", "kerformer, plain keys", "Printed averages"):
        assert text in page
        assert text in markdown
    assert "How much neighbours weigh: listops" in page
    assert "Under noise" not in page  # expressions have none
    assert "This run is not complete" in page
    for name in ("cores", "speed", "neighbours-listops", "learning-digits"):
        assert pages[name].is_file()


def test_a_finished_run_trains_nothing_again(ended, monkeypatch):
    monkeypatch.setattr("sparing.experiment.cells.training.train", None)
    options = replace(SMALL, cores=replace(SMALL.cores, most_bytes=2**30))
    again = find_study("kerformer").run(options, ended.folder, cells="arena/*")
    assert again.failures == []
    assert len(again.records) == len(ended.records)
    monkeypatch.delenv("SPARING_DATA", raising=False)
    planned = find_study("kerformer").plan(options, ended.folder)
    assert {c.key for c in planned.cells if not c.done} == {
        c.key for c in planned.cells if "/memory/" in c.key or "inference" in c.key
    }


def test_a_guess_counts_evaluations(tmp_path, monkeypatch):
    def guess(**changes):
        options = replace(SMALL, questions=("arena",), arena=replace(SMALL.arena, **changes))
        return find_study("kerformer").plan(options, tmp_path).minutes_left

    monkeypatch.delenv("SPARING_DATA", raising=False)
    assert guess(test_examples=40) > guess(test_examples=4)


def test_what_does_not_fit_is_predicted_and_not_run(tmp_path):
    alone = replace(SMALL, questions=("cores",))
    result = find_study("kerformer").run(alone, tmp_path / "run", cells="cores/*/200*")
    # without anything that is trained there is a page all the same, of what was asked alone
    page = write_report(tmp_path / "run")["md"].read_text(encoding="utf-8")
    assert "## One head alone" in page
    assert "## Learning images" not in page
    gone = by(result.records, "not_run")
    assert {r.labels["arm"] for r in gone} >= {"softmax", "linear", "eager"}
    assert all(r.obtained == "modelled" and r.value > 0 for r in gone)
    assert by(result.records, "latency_ms") == by(result.records, "peak_bytes") == []
    sweep = core_sweep(CoreOptions(), 1)
    assert sweep.forecast(core_point("eager", 100_000)).bytes > 100_000**2 * 4
    assert sweep.forecast(core_point("linear", 100_000)).bytes < 2**28
    dense = [sweep.forecast(core_point("softmax", n)).seconds for n in (4096, 65_536)]
    assert dense[1] > 50 * dense[0]


def test_values_of_a_core_stay_in_their_range(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "sparing_papers.kerformer.cores._built",
        lambda arm, tokens: Listens(),
    )

    class Listens(torch.nn.Module):
        streams = "qkv"

        def forward(self, *streams):
            seen.append(streams)

    core_call("linear", 50, 3.0)()
    for stream in seen[0]:
        assert stream.shape == (1, 1, 50, 64)
        assert 2.5 < stream.max() <= 3.0
        assert -3.0 <= stream.min() < -2.5


def test_a_step_of_training_changes_weights_and_one_in_use_does_not(monkeypatch):
    built = []
    monkeypatch.setattr(
        "sparing_papers.kerformer.speed.build",
        lambda *given: built.append(arms.build(*given)) or built[-1],
    )
    for kind, changes in (("training", True), ("inference", False)):
        call = step_call("linear", 16, 2, kind)
        before = [p.detach().clone() for p in built[-1].parameters()]
        call()
        pairs = zip(before, built[-1].parameters(), strict=True)
        assert any(not torch.equal(old, new) for old, new in pairs) == changes


def test_implied_weights_of_dense_attention_are_its_own():
    made = mechanism("softmax", Heads(2, 4)).double().eval()
    q, k, v = torch.randn(3, 1, 2, 10, 4, generator=torch.Generator().manual_seed(0)).double()
    weights = measurements._weights(made, {"q": q, "k": k, "v": v}, Mask())
    torch.testing.assert_close(weights, (q @ k.transpose(-1, -2) / 2).softmax(-1)[0])


def test_weights_by_distance_count_every_pair_once():
    weights = torch.full((3, 20, 20), 1 / 20)
    sums, counts = measurements.by_distance(weights)
    torch.testing.assert_close(sums, counts)
    assert counts.sum() == 400
    assert counts[0] == 20
    assert counts[1] == 38
    assert counts[2] == 2 * (18 + 17)  # distances 2 and 3
    near = torch.eye(20)[None]
    assert measurements.by_distance(near)[0].tolist()[:2] == [400.0, 0.0]
    # weights that no query changes say nothing of distance, wherever they are large
    heavy = torch.ones(20)
    heavy[5:15] = 4.0
    sums, counts = measurements.by_distance(heavy.expand(3, 20, 20) / 7)
    torch.testing.assert_close(sums, counts)


def test_a_trained_arm_shows_its_weights_and_uniform_is_flat(ended):
    flat = by(ended.records, "weight_at_distance", arm="uniform")
    assert flat
    assert all(r.value == pytest.approx(1, abs=1e-4) for r in flat)
    dense = by(ended.records, "weight_at_distance", arm="softmax", seed=0)
    assert any(abs(r.value - 1) > 1e-4 for r in dense)


@pytest.mark.parametrize("share", [0.2, 0.7])
def test_noise_replaces_its_share_and_leaves_class_tokens(share):
    task = load_task("listops", **{**LISTOPS, "test_examples": 200})
    noised = measurements.noisy(task, share)
    changed = total = 0
    for old, new in zip(task.test.inputs, noised.test.inputs, strict=True):
        assert new[0] == old[0]
        assert new.min() >= 1
        changed, total = changed + int((old != new).sum()), total + len(old) - 1
    kept_by_chance = 1 - 1 / (task.vocabulary - 2)
    assert changed / total == pytest.approx(share * kept_by_chance, abs=0.03)
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            noised.test.inputs, measurements.noisy(task, share).test.inputs, strict=True
        )
    )


def test_arms_have_options_that_their_mechanisms_take():
    for name in arms.names():
        arm = arms.arm_of(name)
        mechanism(arm.mechanism, Heads(2, 8, width=16, tokens=64), **arms.options_of(name, 64))
    assert arms.options_of("linformer", 64)["slots"] == 16
    assert "slots" not in arms.options_of("linformer, pooled", 64)


def test_printed_averages_are_computed_anew():
    averages = {
        (arm, printed): real
        for arm, printed, real in ker_published.averages(ker_published.PRINTED["downstream"])
    }
    assert averages["dct", 80.19] == pytest.approx(82.346)
    assert averages["kerformer", 83.39] == pytest.approx(83.39)
    assert not any(math.isnan(real) for real in averages.values())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"questions": ("arenas",)}, "did you mean 'arena'"),
        ({"questions": ("cores", "cores")}, "are named twice"),
        ({"noise": (1.5,)}, r"noise must be in \(0, 1\)"),
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
        (TaskOptions, {"variants": ("kerfomer",)}, "did you mean 'kerformer'"),
        (TaskOptions, {"variants": ("linear", "linear")}, "named twice"),
        (TaskOptions, {"variants_of": {"imdb": ("liner",)}}, "did you mean 'linear'"),
        (TaskOptions, {"trained": {"listops": {"epoch": 1}}}, "did you mean 'epochs'"),
        (TaskOptions, {"margin": 0.0}, "margin"),
        (CoreOptions, {"variants": ("linear",)}, "must hold softmax"),
        (CoreOptions, {"lengths": (8,)}, "at least 16"),
        (SpeedOptions, {"lengths": (8,)}, "at least 16"),
        (SpeedOptions, {"rounds": 0}, "speed.rounds must be at least 1; got 0"),
        (SpeedOptions, {"longest": -1}, "speed.longest must be at least 0"),
        (CoreOptions, {"most_seconds": -1.0}, "cores.most_seconds must be at least 0"),
        (CoreOptions, {"ranges": (0.0,)}, "cores.ranges must be above 0"),
        (CoreOptions, {"lengths": (1000, 1000)}, "cores.lengths are named twice"),
    ],
)
def test_parts_refuse(kind, given, message):
    with pytest.raises(UsageError, match=message):
        kind(**given)


def test_one_task_of_two_questions_is_told_twice(tmp_path):
    task_options = TaskOptions(tasks=("digits",))
    work = LongWork("vision", "digits", load_task("digits"), "vit", tmp_path, task_options)
    named = kerformer._named([work, replace(work, question="arena"), replace(work, name="mnist")])
    assert [*named] == ["vision/digits", "arena/digits", "mnist"]


def test_the_paper_budget_needs_an_accelerator(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.raises(UsageError, match="needs an accelerator"):
        find_study("kerformer").run(kerformer.BUDGETS["paper"], tmp_path / "run")


def test_goals_are_those_of_the_chosen_questions():
    every = [claim.text for claim in claims.claims_of(claims.QUESTIONS)]
    assert every == [claim.text for claim in claims.CLAIMS]
    assert [text[:9] for text in (c.text for c in claims.claims_of(["pretrained"]))] == [
        *("Table 4: ", "Figure 5:", "Section 3", "Distilled", "and is cl")
    ]
    cores = {c.text[:8] for c in claims.claims_of(["cores"])}
    assert cores == {"Table 1:", "Table 2:", "Table 3:", "A millio"}
    images = [goal.name[:9] for goal in claims.decide_goals([], ["vision"])]
    assert images == ["Figure 6:", "Figure 6:", "Figure 6:", "Figures 7"]
