"""The Linformer study's page from records alone: its verdict, tables, and runs that still go."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sparing.core.errors import DataError
from sparing.core.record import Record
from sparing.experiment.claims import GoalResult
from sparing.experiment.study import write_goals
from sparing.report.page import write_report
from sparing.report.run import read_run
from sparing_papers.linformer.claims import decide_goals
from sparing_papers.linformer.options import Options
from sparing_papers.linformer.page.content import verdict
from sparing_papers.linformer.page.leads import Experiment, lead_of
from sparing_papers.linformer.page.matrices import growth_words
from sparing_papers.long_range.work import TaskOptions

CONFIG = {
    "study": "linformer",
    "name": "few",
    "identity": {},
    "arms": ["softmax", "linformer, sliced", "linformer, interpolated", "linformer", "uniform"],
    "baseline": "softmax",
    "task": {"name": "listops", "notes": ["imdb is left out: it needs a data folder"]},
    "model": {"name": "long_range"},
    "tasks": {"listops": {"tokens": 64, "examples": 100, "learning_rate": 1e-3, "slots": 16}},
    "factors": [1, 8],
    "margin": 0.01,
    "cost": {"tokens": 4096},
    "forms": {"linformer, k = 8": {"slots": 8}},
    "cells": ["longer/listops/0/softmax"],
    "machine": {"cpu": "Example"},
}
HERE = {"question": "longer", "task": "listops"}


def seeds(name, value, interval=None, count=3, **labels):
    seed_labels = {**HERE, "over": "seeds", **labels}
    return Record(name, value, "share", "measured", seed_labels, interval, count)


def trained(interval, *, decided=True, count=3, beyond=0.4, drop=(0.05, 0.2)):
    """Softmax at 0.4 at n, Linformer as good; at 8n it is ``beyond``, with the given difference.

    Length costs Linformer so much more than softmax as ``drop`` says.
    """
    records = [
        Record("decides", float(decided), "", "measured", {**HERE, "why": "because"}, count=count),
    ]
    for arm in ("softmax", "linformer", "uniform"):
        records.append(Record("score", 0.4, "share", "measured", {**HERE, "arm": arm, "seed": 0}))
        records.append(seeds("mean_score", 0.4, (0.38, 0.42), count, arm=arm))
    records.append(
        seeds("score_difference", 0.0, (-0.01, 0.01), count, arm="linformer", less="softmax")
    )
    for arm in ("softmax", "linformer, sliced", "linformer, interpolated"):
        for factor in (1, 8):
            arm_labels = {"arm": arm, "factor": factor}
            labels = {**HERE, **arm_labels, "seed": 0}
            records.append(Record("length_score", 0.4, "share", "measured", labels))
            records.append(Record("length_chance", 0.15, "share", "measured", labels))
            mean = 0.4 if factor == 1 else beyond
            records.append(
                seeds("mean_length_score", mean, (mean - 0.05, mean + 0.05), count, **arm_labels)
            )
            records.append(seeds("mean_length_chance", 0.15, (0.15, 0.15), count, **arm_labels))
    gap = {"arm": "linformer, sliced", "factor": 8, "less": "softmax"}
    records.append(seeds("length_score_difference", sum(interval) / 2, interval, count, **gap))
    records.append(seeds("length_drop_difference", sum(drop) / 2, drop, count, **gap))
    above = {"arm": "softmax", "factor": 8, "less": "uniform"}
    records.append(seeds("length_score_difference", 0.1, (0.05, 0.15), count, **above))
    return records


def swapped():
    """A pretrained encoder at two lengths: softmax, and linear attention 20 points below."""
    task_labels = {"question": "pretrained", "task": "imdb", "stage": "warm"}
    records = []
    arms = (("softmax", 0.8), ("linear", 0.6), ("linformer, pooled, as many slots", 0.7))
    for arm, value in arms:
        for tokens in (128, 512):
            arm_labels = {**task_labels, "arm": arm, "tokens": tokens}
            records.append(
                Record("length_score", value, "share", "measured", {**arm_labels, "seed": 0})
            )
            records.append(
                seeds("mean_length_score", value, (value - 0.01, value + 0.01), **arm_labels)
            )
            if arm == "linear":
                gap = {**arm_labels, "less": "softmax"}
                records.append(seeds("length_score_difference", -0.2, (-0.25, -0.15), **gap))
        # how far a copy's answers are from the dense model's, not an error of attention alone
        records.append(seeds("mean_output_error", 0.3, (0.2, 0.4), **task_labels, arm=arm))
    return records


def matrices():
    records = []
    source_labels = {"source": "listops", "over": "heads"}
    for tokens, rank in ((32, 8.0), (64, 12.0), (128, 20.0)):
        length_labels = {**source_labels, "tokens": tokens, "beyond": tokens > 64}
        ends = (rank - 1, rank + 1)
        records += [
            Record(f"mean_{name}", rank, "", "measured", length_labels, ends)
            for name in ("effective_rank", "rank_90")
        ]
        for directions in (1, 16, "n/4"):
            labels = {**source_labels, "tokens": tokens, "kept": directions}
            records.append(Record("mean_kept_share", 0.75, "share", "measured", labels))
            by_layer = {**labels, "layer": 0}
            records.append(Record("mean_kept_share", 0.5, "share", "measured", by_layer))
    growth = {
        **source_labels,
        "of": "effective_rank",
        "range": "trained",
        "shortest": 32,
        "longest": 64,
    }
    growth |= {"lengths": 2, "models": 1}
    records.append(Record("exponent", 0.66, "", "measured", growth, (0.6, 0.72), 32))
    for slots in (8, 16):
        here = {**source_labels, "tokens": 64, "slots": slots, "beyond": False}
        for method in ("random", "learned", "mean_pool", "convolution", "theorem 1", "best rank"):
            labels = {**here, "method": method}
            records.append(
                Record("mean_output_error", 0.5, "share", "measured", labels, (0.4, 0.6))
            )
            records.append(Record("rank_correlation", 0.7, "", "measured", labels, (0.5, 0.9), 16))
        records.append(Record("mean_bound", None, "share", "modelled", {**here, "theorem": 1}))
        records.append(Record("mean_bound", 2.5, "share", "modelled", {**here, "theorem": 2}))
        gain = {**here, "less": "random"}
        records.append(Record("learned_gain", -1.0, "share", "measured", gain, (-1.2, -0.8), 32))
    return records


def costs():
    records = []
    for tokens in (512, 4096):
        for arm in ("softmax", "eager", "linformer, k = 128"):
            labels = {"arm": arm, "subject": "model", "tokens": tokens, "batch": 4096 // tokens}
            records.append(Record("predicted_s", 1.0, "s", "modelled", labels))
            if arm == "eager" and tokens == 4096:
                reasons = {
                    **labels,
                    "of": "memory",
                    "why": "predicted to need 9.0 GiB, 2.0 are allowed",
                }
                records.append(Record("not_run", None, "", "modelled", reasons))
                continue
            records.append(Record("latency_ms", 250.0, "ms", "measured", labels))
            records.append(Record("peak_bytes", 2**28, "bytes", "measured", labels))
            if arm != "softmax":
                records.append(
                    Record("latency_ratio", 0.4, "ratio", "measured", labels, (0.38, 0.42), 5)
                )
    return records


def language():
    records = []
    for arm, value in (("softmax", 20.0), ("linear", 25.0)):
        for tokens in (32, 64):
            arm_labels = {"question": "masked", "corpus": "grammar", "tokens": tokens, "arm": arm}
            records.append(Record("perplexity", value, "", "measured", {**arm_labels, "seed": 0}))
            records.append(
                Record("mean_perplexity", value, "", "measured", {**arm_labels, "over": "seeds"})
            )
        arm_labels = {"question": "causal", "corpus": "grammar", "tokens": 32, "arm": arm}
        records.append(Record("perplexity", value, "", "measured", {**arm_labels, "seed": 0}))
    refused = {"question": "causal", "arm": "linformer", "seed": None, "why": "it mixes all"}
    records.append(Record("refused", 1, "", "measured", refused))
    for name in ("score", "mean_score"):
        labels = {"question": "transfer", "task": "sst2", "corpus": "grammar", "tokens": 32}
        labels |= {"arm": "softmax", "start": "scratch"}
        labels |= {"seed": 0} if name == "score" else {"over": "seeds"}
        records.append(Record(name, 0.6, "share", "measured", labels))
    labels = {"question": "translation", "task": "pairs", "place": "encoder", "arm": "softmax"}
    labels |= {"tokens": 20, "over": "seeds"}
    records.append(Record("mean_score", 0.3, "share", "measured", labels))
    records.append(Record("mean_token_accuracy", 0.8, "share", "measured", labels))
    return records


def write(folder, records, **config):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (folder / "records.jsonl").write_text("".join(r.to_json() + "\n" for r in records))
    options = Options(longer=TaskOptions(variants=("linformer",)))
    write_goals(folder, decide_goals(options, ["listops"], records))
    return folder


@pytest.mark.parametrize(
    ("interval", "options", "lead"),
    [
        ((-0.005, 0.01), {}, "Linformer holds on"),
        ((-0.3, -0.1), {}, "Linformer does not hold on"),
        ((-0.3, -0.1), {"drop": (-0.1, 0.1)}, "Linformer is behind on longer inputs"),
        ((-0.3, 0.1), {}, "Undecided whether Linformer holds on"),
        ((-0.3, -0.1), {"decided": False}, "Undecided whether Linformer holds on"),
        ((-0.3, -0.1), {"count": 2}, "Undecided whether Linformer holds on"),
        ((-0.005, 0.01), {"beyond": 0.15}, "Undecided whether Linformer holds on"),
    ],
)
def test_the_decisive_experiment_leads(tmp_path, interval, options, lead):
    run = read_run(write(tmp_path, trained(interval, **options)))
    decision = verdict(run)
    assert decision.lead.startswith(lead)
    reason = "because" if options.get("decided") is False else "at 8 times the length"
    assert reason in decision.because


@pytest.mark.parametrize(
    ("met", "drop", "lead"),
    [
        (False, (0.1, 0.2), "Linformer does not hold on"),
        (False, (-0.1, 0.2), "Linformer is behind on longer inputs"),
        (True, (-0.1, 0.2), "Linformer holds on"),
        ("undecided", (0.1, 0.2), "Undecided whether Linformer holds on"),
    ],
)
def test_a_pretrained_encoder_decides_where_others_do_not(tmp_path, met, drop, lead):
    records = [
        replace(r, labels={**r.labels, "arm": "linformer"}) if r.labels["arm"] == "linear" else r
        for r in swapped()
    ]
    last = {"question": "pretrained", "task": "imdb", "stage": "warm", "tokens": 512}
    last |= {"arm": "linformer", "less": "softmax"}
    records.append(seeds("length_drop_difference", sum(drop) / 2, drop, **last))
    folder = write(tmp_path, [*trained((-0.3, -0.1), decided=False), *records])
    name = "imdb, linformer, sliced in the pretrained encoder, distilled at 128 tokens: score at"
    told_by = GoalResult(f"{name} 512 less softmax's", -0.03, "share", -0.2, (-0.25, -0.15), met)
    write_goals(folder, [told_by])
    decision = verdict(read_run(folder))
    assert decision.lead.startswith(lead)
    where = "in the pretrained encoder, distilled at 128 tokens of imdb, at 512"
    where += ", undecided" if met == "undecided" else ""
    assert (
        decision.because == f": its score less softmax's is −20.0 (−25.0 to −15.0) points {where}."
    )


def test_what_decides_is_told_before_what_does_not(tmp_path):
    records = [
        replace(r, labels={**r.labels, "arm": "linformer"}) if r.labels["arm"] == "linear" else r
        for r in swapped()
    ]
    last = {"question": "pretrained", "task": "imdb", "stage": "warm", "tokens": 512}
    last |= {"arm": "linformer", "less": "softmax"}
    records.append(seeds("length_drop_difference", 0.15, (0.1, 0.2), **last))
    folder = write(tmp_path, [*trained((-0.3, 0.1)), *records])
    name = "imdb, linformer, sliced in the pretrained encoder, distilled at 128 tokens: score at"
    told_by = GoalResult(f"{name} 512 less softmax's", -0.03, "share", -0.2, (-0.25, -0.15), False)
    write_goals(folder, [told_by])
    because = verdict(read_run(folder)).because
    assert because.index("of imdb, at 512;") < because.index("the length of training, undecided.")


@pytest.mark.parametrize(
    ("others", "lead"),
    [
        (("holds",), "Linformer holds on"),
        (("undecided",), "Undecided whether Linformer holds on"),
        (("fails",), "Linformer does not hold on"),
    ],
)
def test_yes_is_said_where_all_experiments_hold(others, lead):
    done = [Experiment(met, loses_more=True, text="there") for met in ("holds", *others)]
    assert lead_of(done).startswith(lead)


def test_every_part_stands_on_the_page(tmp_path):
    records = [*trained((-0.3, -0.1)), *swapped(), *matrices(), *costs(), *language()]
    files = write_report(write(tmp_path, records))
    text = files["md"].read_text()
    for part in (
        *("Longer than trained: listops", "−20.0 (−30.0 to −10.0)", "imdb is left out"),
        *("grows, slower than n", "vacuous: no solution", "vacuous: 2.50", "12.0 (11.0 to 13.0)"),
        *("predicted to need 9.0 GiB", "0.400x (0.380 to 0.420)", "refused: it mixes all"),
        *("Longer than distilled: a pretrained encoder on imdb", "−20.0 (−25.0 to −15.0)"),
        *("Masked language models", "Transfer", "Translation", "This run is not complete"),
    ):
        assert part in text, part
    assert "in 2 of 2 cases" in text
    expected_files = {
        "longer-listops",
        "distilled-imdb",
        "rank",
        "spectrum-listops",
        "error-listops",
        "time",
        "memory",
    }
    assert expected_files | {"masked"} <= set(files)
    assert all(files[name].stat().st_size > 1000 for name in expected_files)


@pytest.mark.usefixtures("_unpainted")
def test_language_models_alone_are_no_arms_on_longer_inputs(tmp_path):
    text = write_report(write(tmp_path, language()))["md"].read_text()
    assert "0 variants" not in text
    assert "no encoder trained here was evaluated on them so far" in text


def test_one_length_has_a_table_and_no_picture(tmp_path):
    records = [r for r in language() if r.labels.get("tokens") != 64]
    files = write_report(write(tmp_path, records))
    assert "masked" not in files
    assert "Masked language models" in files["md"].read_text()


@pytest.mark.usefixtures("_unpainted")
@pytest.mark.parametrize("count", [0, 1, 5, 12, 30, 60, 90])
def test_a_run_that_still_goes_has_a_page(tmp_path, count):
    records = [*costs(), *matrices(), *trained((-0.3, -0.1)), *language()][:count]
    page = write_report(write(tmp_path, records))["html"].read_text()
    assert "This run is not complete" in page


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ((0.2, 0.9), "grows, slower than n"),
        ((-0.2, 0.9), "grows slower than n, if at all"),
        ((-0.4, -0.1), "does not grow"),
        ((1.1, 1.4), "grows faster than n"),
        ((0.8, 1.1), "undecided"),
        (None, "undecided"),
    ],
)
def test_growth_in_words(interval, said):
    assert growth_words(Record("exponent", 0.5, "", "measured", {}, interval)) == said


LENGTHS = "Undecided whether Linformer holds on longer inputs"


@pytest.mark.usefixtures("_unpainted")
@pytest.mark.parametrize(
    ("met", "lead"),
    [
        ((False, False), "Linformer's slots are too few for masked words"),
        ((True, True), "Linformer's slots are enough for masked words"),
        ((True, False), "Linformer's slots are enough for masked words in some cases"),
        ((False, "undecided"), "Linformer's slots are too few for masked words"),
        (("undecided", "undecided"), "Undecided whether Linformer's slots are enough"),
    ],
)
def test_a_run_about_language_is_led_by_it(tmp_path, met, lead):
    folder = write(tmp_path, language(), questions=["language"])
    names = [f"masked words, {n} tokens, linformer, k = 16: perplexity" for n in (32, 64)]
    pairs = zip(names, met, strict=True)
    write_goals(folder, [GoalResult(n, 1.05, "ratio", 1.7, (1.4, 2.1), m) for n, m in pairs])
    decision = verdict(read_run(folder))
    assert decision.lead.startswith(lead)
    decided = [n for n, m in zip((32, 64), met, strict=True) if m != "undecided"]
    for tokens in decided:
        assert f"1.70x (1.40 to 2.10) at {tokens} tokens with k = 16" in decision.because
    assert decision.because.count("1.70x") == len(decided)
    assert decision.because.endswith(".")
    text = write_report(folder)["md"].read_text()
    assert "listops" not in text.splitlines()[2]
    assert "Nothing of this was measured so far" not in text


@pytest.mark.parametrize(
    ("ends", "lead"),
    [
        ((0.38, 0.42), "Linformer is faster than fused softmax at 4,096 tokens"),
        ((0.9, 1.1), "Linformer is not shown to be faster than fused softmax at 4,096 tokens"),
    ],
)
def test_a_run_about_costs_is_led_by_them(tmp_path, ends, lead):
    records = [replace(r, interval=ends) if r.name == "latency_ratio" else r for r in costs()]
    folder = write(tmp_path, records, questions=["cost"])
    decision = verdict(read_run(folder))
    assert decision.lead == lead
    assert "linformer, k = 128 takes 0.400x" in decision.because
    assert not (folder / "figures" / "rank.png").exists()
    assert "rank" not in write_report(folder)


@pytest.mark.usefixtures("_unpainted")
@pytest.mark.parametrize(("value", "interval"), [(None, None), ("much", []), (None, (1.4, 2.1))])
def test_a_goal_of_language_without_its_numbers_has_a_page(tmp_path, value, interval):
    folder = write(tmp_path, language(), questions=["language"])
    goal = {"name": "masked words, 32 tokens, linformer, k = 16: perplexity", "met": False}
    goals = [{**goal, "target": 1.05, "value": value, "interval": interval}]
    (folder / "goals.json").write_text(json.dumps({"goals": goals}))
    text = write_report(folder)["md"].read_text()
    assert "is – at 32 tokens with k = 16" in text


def test_goals_as_the_study_names_them_lead_a_run_about_language(tmp_path):
    run = read_run(write(tmp_path, language(), questions=["language"]))
    assert verdict(run).lead.startswith("Undecided whether Linformer's slots")


@pytest.mark.usefixtures("_unpainted")
@pytest.mark.parametrize("tokens", ["4096", None, 1.5])
def test_a_length_that_is_no_whole_number_is_named(tmp_path, tokens):
    spoilt = [replace(r, labels={**r.labels, "tokens": tokens}) for r in costs()[-1:]]
    with pytest.raises(DataError, match="latency_ratio has tokens"):
        write_report(write(tmp_path, [*costs(), *spoilt]))


@pytest.mark.parametrize(
    "questions", [["longer", "language"], ["swapped", "cost"], ["error"], [{}]]
)
def test_other_runs_are_led_by_longer_inputs(tmp_path, questions):
    records = [] if questions in (["error"], [{}]) else [*costs(), *language()]
    run = read_run(write(tmp_path, records, questions=questions))
    assert verdict(run).lead.startswith(LENGTHS)


def test_goals_of_lengths_are_those_of_a_run_that_asks_for_them():
    arms = TaskOptions(variants=("linformer",))
    for questions, there in ((("longer", "cost"), True), (("cost",), False)):
        goals = decide_goals(Options(longer=arms, questions=questions), ["listops"], [])
        assert any("listops" in goal.name for goal in goals) is there
