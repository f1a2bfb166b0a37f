"""The largest budget that keeps a limit: which plans are timed, in what form, and what is set."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

import sparing
from sparing.core.errors import UsageError
from sparing.layers.plan import full_plan
from sparing.transfer import fitting
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.adaptive import FrontierPoint
from tests.transfer.classifiers import dense, texts

BUSY = {"reason": ""}


@pytest.fixture
def model():
    """An adaptive model whose frontier has three plans; the middle one drops tokens by chance."""
    made = adapt(dense("bert"), exits=[2])
    whole = full_plan(made.encoder.sizes)
    dropping = replace(whole, tokens_above=0.5, tokens_after=1, exits=(2,), threshold=0.9)
    made.set_frontier(
        [
            FrontierPoint(whole.shortened(2), 0.4, 0.7),
            FrontierPoint(dropping, 0.8, 0.9),
        ]
    )
    return made


@pytest.fixture
def timed(monkeypatch, model):
    """Each plan takes 10 ms a layer; what was timed is kept."""
    plans = []

    def clock(calls, **options):
        plans.append(model.plan)
        return {
            "plan": SimpleNamespace(p50_ms=10.0 * model.plan.layers, disturbance=BUSY["reason"])
        }

    monkeypatch.setattr(fitting, "paired_latency", clock)
    return plans


def test_the_dearest_plan_that_holds_is_set(model, timed):
    fit = sparing.fit_budget(model, max_latency_ms=25.0, tokens=8)
    assert (fit.budget, fit.latency_ms, fit.peak_mb) == (0.4, 20.0, None)
    assert model.plan == fit.plan
    assert len(timed) == 3
    assert sparing.fit_budget(model, max_latency_ms=1e3, tokens=8).budget == 1.0


def test_a_budget_that_a_busy_machine_fitted_says_so(model, timed, monkeypatch):
    assert sparing.fit_budget(model, max_latency_ms=25.0, tokens=8).disturbance == ""
    monkeypatch.setitem(BUSY, "reason", "other programs kept 1.8 of 2 processors busy")
    fit = sparing.fit_budget(model, max_latency_ms=25.0, tokens=8)
    assert "1.8 of 2" in fit.disturbance
    with pytest.raises(UsageError, match=r"the machine was busy .* fit the budget again"):
        sparing.fit_budget(model, max_latency_ms=1.0, tokens=8)


def test_limits_without_inputs_hold_for_every_input(model, timed):
    sparing.fit_budget(model, max_latency_ms=25.0, tokens=8)
    assert all(not plan.exits and not plan.tokens_above and not plan.gated for plan in timed)
    timed.clear()
    sparing.fit_budget(model, max_latency_ms=25.0, inputs=[texts([5, 3])])
    assert any(plan.exits and plan.tokens_above for plan in timed), "inputs choose for themselves"


def test_what_cannot_be_held_leaves_the_plan(model, timed):
    before = model.plan
    with pytest.raises(UsageError, match="even the cheapest plan takes 20 ms"):
        sparing.fit_budget(model, max_latency_ms=1.0, tokens=8)
    assert model.plan == before


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({}, "needs max_latency_ms or max_memory_mb"),
        ({"max_latency_ms": 0.0}, "max_latency_ms must be above 0"),
        ({"max_memory_mb": -1.0}, "max_memory_mb must be above 0"),
        ({"max_latency_ms": 1e3, "tokens": 10_000}, "10000 tokens: the model reads"),
    ],
)
def test_impossible_limits_are_named(model, limits, words):
    with pytest.raises(UsageError, match=words):
        sparing.fit_budget(model, **limits)
