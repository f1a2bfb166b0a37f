"""The certified speed under every rule for thresholds and for timed texts, on made-up answers."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

from sparing.core.errors import UsageError
from sparing.slim.evidence.candidates import Candidate

TEXTS = 1600
EXACT = Candidate("dense", "onnxruntime", "float32")
DENSE8 = Candidate("dense", "onnxruntime", "int8")
SLIM8 = Candidate("slim", "onnxruntime", "int8", threshold=0.5)
CUT = Candidate("slim", "onnxruntime", "int8", layers=2)


@pytest.fixture
def slim_shares():
    return importlib.import_module("slim_shares")


@pytest.fixture
def run(slim_shares):
    """Two exits of a plan of four layers, dense INT8 and float32, nearer to it by turns."""
    generator = torch.Generator().manual_seed(0)
    dense = 3 * torch.randn(TEXTS, 2, generator=generator)
    first, last, int8 = (
        dense + noise * torch.randn(TEXTS, 2, generator=generator) for noise in (1.5, 1.0, 0.1)
    )
    answers = {
        EXACT: dense[:, None],
        DENSE8: torch.stack([int8, dense], 1),
        SLIM8: torch.stack([first, last, dense], 1),
        CUT: torch.stack([first, dense], 1),
    }
    lengths = torch.randint(3, 60, (TEXTS,), generator=generator).numpy()
    speeds = {EXACT: 1.0, DENSE8: 2.0, SLIM8: 5.0, CUT: 12.0}
    return slim_shares.Answered(answers, speeds, (2, 4), lengths)


def test_a_text_takes_the_time_of_every_stage_that_it_reached(slim_shares, run):
    one = Candidate("slim", "onnxruntime", "int8", "", 0.9, cascade=True)
    taking = slim_shares.times(one, run, run.answers)
    sure = run.answers[SLIM8].softmax(-1).amax(-1) > 0.9
    for text, (first, last, _) in zip(taking, sure.tolist(), strict=True):
        assert text == pytest.approx(0.1 if first else 0.2 if last else 1.2)
    assert np.unique(taking).size == 3


def test_by_way_of_int8_its_time_is_added(slim_shares, run):
    one = Candidate("slim", "onnxruntime", "int8", "", 0.9, cascade=True, second=0.8)
    taking = slim_shares.times(one, run, run.answers)
    assert sorted(np.unique(taking.round(6))) == pytest.approx([0.1, 0.2, 0.7, 1.7])


def test_cuts_are_candidates_unless_the_rule_leaves_them_out(slim_shares, run):
    by_rule = {rule: slim_shares.listed(rule, run, run.answers) for rule in slim_shares.SHARES}
    cuts = {rule: [one for one in listed if one.layers] for rule, listed in by_rule.items()}
    assert (len(cuts["likely"]) > 1, cuts["no cuts"]) == (True, [])
    exiting = [one for one in by_rule["no cuts"] if one.exits and one.second < 1]
    assert exiting, "without cuts the plan with its exits takes their places"
    taking = slim_shares.times(CUT, run, run.answers)
    assert taking.tolist() == pytest.approx([1 / 12] * len(taking))


def test_every_rule_has_a_row_and_all_texts_have_no_error(slim_shares, run):
    rows = slim_shares.divided(run, 800, 0)
    by_divergence = [row for row in rows if row["equal"] == "divergence"]
    assert [(row["shares"], row["timed_on"]) for row in by_divergence] == [
        (shares, texts) for shares in slim_shares.SHARES for texts in slim_shares.TEXTS
    ]
    (by_speed,) = [row for row in rows if row["equal"] == "speed"]
    assert (by_speed["shares"], by_speed["timed_on"]) == slim_shares.BOTH_ORDERS
    assert max(row["error"] for row in rows if row["timed_on"] == "all") < 1e-12
    assert all(np.diff(row["speeds"]).min() >= 0 for row in rows if row["timed_on"] == "all")
    assert rows == slim_shares.divided(run, 800, 0)


@pytest.mark.parametrize("size", [0, 801])
def test_parts_that_the_texts_do_not_fill_are_one_line(slim_shares, run, size):
    with pytest.raises(UsageError, match="1,600 for both"):
        slim_shares.divided(run, size, 0)


def test_representative_texts_have_the_smaller_error(slim_shares, run):
    rows = [{"run": "a", **row} for seed in range(8) for row in slim_shares.divided(run, 800, seed)]
    mean = {
        texts: np.mean([row["error"] for row in rows if row["timed_on"] == texts])
        for texts in slim_shares.TEXTS
    }
    assert mean["representative"] < 0.7 * mean["random"]
    pooled = slim_shares.summary(rows)
    assert [row["divisions"] for row in pooled] == [8] * 13
    first = [row["speeds"] for row in rows if row["shares"] == "epsilons"][::3]
    assert pooled[0]["speeds"] == pytest.approx(np.exp(np.log(first).mean(0)), abs=1e-3)
    assert len(slim_shares.table(pooled).splitlines()) == 2 + 13
    assert "representative" in slim_shares.errors_of(pooled)
