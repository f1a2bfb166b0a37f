"""Goals of further runs: the printed losses on CoLA, taught layers, and what they can tell."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from papers.tests.golden import ROOT

from sparing.core.record import RECORDS, Record, RecordLog
from sparing.experiment.claims import decide
from sparing.experiment.records import RecordTable
from sparing_papers.adaattention.arms import Length, Work
from sparing_papers.adaattention.claims import claims_of
from sparing_papers.adaattention.further import reach
from sparing_papers.adaattention.options import BUDGETS
from sparing_papers.adaattention.published import figures
from tests.train.small import token_task

COLA, TAUGHT = BUDGETS["cola"], BUDGETS["taught"]
ADAPTIVE_RUNS = f"adaattention-*/{RECORDS}*"
COMMITTED = ROOT / "papers" / "results" / "adaattention-standard-ae492dc4-2026-11"


@pytest.fixture
def works(tmp_path):
    def of(name, metric):
        task = replace(token_task(), name=name, metric=metric, metrics=(metric, "accuracy"))
        return Work(name, task, tmp_path, "", {}, Length())

    return {"cola": [of("cola", "matthews")], "sst2": [of("sst2", "accuracy")]}


def new_claims(options, works):
    """Those that runs of other tasks and variants do not have."""
    plain = replace(options, tasks=("sst2",), taught=(), shared=())
    usual = [claim.text for claim in claims_of(plain, [replace(works[0], name="sst2")])]
    return [claim for claim in claims_of(options, works) if claim.text not in usual]


def score(arm, value, task="cola"):
    labels = {"arm": arm, "task": task, "metric": "matthews", "main": True}
    return Record("score", value, "score", "measured", labels, None, 3)


def gap(arm, value, half, seeds=3, **labels):
    name = "arm_difference" if "to" in labels else "score_difference"
    about = {"task": "cola", **labels, "arm": arm}
    return Record(name, value, "score", "measured", about, (value - half, value + half), seeds)


def seeds_of(arm, task, count=3):
    return [gap(arm, 0.0, 1.0, count, task=task)]


def met(claims, *records):
    return {
        c.text: r.met for c, r in zip(claims, decide(claims, RecordTable(records)), strict=True)
    }


def test_each_printed_loss_on_cola_is_a_goal(works):
    claims = new_claims(COLA, works["cola"])
    printed = {
        re.sub(r" loses.*", "", c.text).removeprefix("printed: on cola "): round(-100 * c.target, 1)
        for c in claims
        if " on cola " in c.text
    }
    assert printed == {"adaptive": 0.3, "linformer": 3.9, "bigbird": 4.2, "skip": 1.6}
    assert printed["skip"] == pytest.approx(
        figures("Table I", "full")["cola"] - figures("Table I", "skip")["cola"]
    )


def test_a_loss_on_cola_counts_only_where_the_full_model_learns_it_with_every_seed(works):
    claims = [c for c in new_claims(COLA, works["cola"]) if "bigbird" in c.text]
    (text,) = (claim.text for claim in claims)
    good, bad = gap("bigbird", -0.01, 0.02), gap("bigbird", -0.08, 0.02)
    assert met(claims, score("full", 0.3), good)[text] is True
    assert met(claims, score("full", 0.3), bad)[text] is False
    assert met(claims, score("full", 0.05), good)[text] == "undecided"
    assert met(claims, score("full", 0.3), gap("bigbird", -0.01, 0.02, 2))[text] == "undecided"


def test_teaching_is_compared_with_the_plain_form_and_with_what_is_printed(works):
    claims = new_claims(TAUGHT, works["sst2"])
    better, printed = (claim.text for claim in claims)
    assert better == "ours: linformer scores higher with layers taught first"
    assert printed == "printed: linformer with layers taught first loses at most 2.7 points"
    arm = "linformer-taught"
    records = [
        *seeds_of(arm, "sst2"),
        gap(arm, 0.1, 0.05, 1, to="linformer", task="every"),
        gap(arm, -0.1, 0.05, 1, task="every"),
    ]
    assert met(claims, *records) == {better: True, printed: False}
    few = [*seeds_of(arm, "sst2", 2), *records[1:]]
    assert met(claims, *few)[better] == "undecided"
    planned = new_claims(replace(TAUGHT, seeds=(0, 1)), works["sst2"])
    assert met(planned, *few)[better] == "undecided"  # though every planned seed is there


def test_runs_without_these_tasks_and_variants_have_the_goals_that_they_had(works):
    plain = replace(TAUGHT, taught=())
    names = [claim.text for claim in claims_of(plain, works["sst2"])]
    assert len(names) == 7
    assert not [name for name in names if "cola" in name or "taught" in name]


def test_a_point_of_accuracy_is_worth_more_correlation_where_labels_are_uneven(works):
    (work,) = works["cola"]
    test = work.task.test

    def with_labels(labels):
        return replace(work, task=replace(work.task, test=replace(test, labels=labels)))

    even = torch.arange(len(test)) % 2
    assert reach.points_of_correlation(with_labels(even)) == pytest.approx(2.0)
    tenth = (torch.arange(len(test)) % 10 == 0).long()
    share = float(tenth.double().mean())
    expected = 1 / (2 * share * (1 - share))
    assert reach.points_of_correlation(with_labels(tenth)) == pytest.approx(expected)
    assert reach.points_of_correlation(works["sst2"][0]) == 1.0


def test_plans_say_what_a_run_could_tell_by_the_committed_ones(works):
    records = RecordTable(RecordLog(COMMITTED / RECORDS).read())
    known = records.find("score_difference", arm="skip", task="sst2")
    assert known is not None
    assert known.interval is not None
    half = (known.interval[1] - known.interval[0]) / 2
    (work,) = works["cola"]
    inputs = records.all("seed_score", arm="skip", task="sst2")[0].count
    factor = reach.points_of_correlation(work) * (inputs / len(work.task.test)) ** 0.5
    (note,) = reach.notes_of(COLA, [work])
    assert note.startswith("cola: by the spread on sst2, 3 seeds and ")
    (shown,) = re.findall(r"([\d.]+) \(skip tokens\)", note)
    assert float(shown) == pytest.approx(100 * half * factor, rel=0.06)
    assert reach.notes_of(replace(COLA, seeds=(0, 1)), [work]) == ()
    assert reach.notes_of(TAUGHT, works["sst2"]) == ()


def test_a_shared_scorer_can_tell_the_mean_of_three_tasks():
    (note,) = reach.notes_of(BUDGETS["shared"], [])
    (shown,) = re.findall(r"about ([\d.]+) points", note)
    tables = [RecordTable(RecordLog(path).read()) for path in COMMITTED.parent.glob(ADAPTIVE_RUNS)]
    halves = []
    for task in ("sst2", "mrpc", "stsb"):
        of_task = [t.find("score_difference", arm="adaptive", task=task) for t in tables]
        known = [r for r in of_task if r is not None and r.interval is not None]
        low, high = max(known, key=lambda record: record.count).interval or (0.0, 0.0)
        halves.append((high - low) / 2)
    expected = 100 * sum(half * half for half in halves) ** 0.5 / 3
    assert float(shown) == pytest.approx(expected, rel=0.02)
