"""Which model slim serves: every branch of the rule, and what all committed runs served."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from sparing.core.compressed import read_stored, stored_path
from sparing.core.errors import DataError, UsageError
from sparing.core.reading import parse_json
from sparing.core.record import RECORDS, RecordLog
from sparing.layers.frontier import FrontierPoint
from sparing.layers.plan import Plan
from sparing.slim.search.choose import choose
from sparing.slim.state import (
    FILE,
    Form,
    Int8Form,
    State,
    Surveyed,
    read_state,
    served,
    write_state,
)
from sparing.slim.study import Options, steps_of
from sparing.tasks import load_task

ROOT = Path(__file__).parents[2]
TEXTS = {
    path.parent: read_stored(stored_path(path.parent / RECORDS) or path)
    for path in sorted((ROOT / "benchmarks" / "results").glob("slim-*/config.json"))
}
RUNS = [folder for folder, text in TEXTS.items() if b"chosen_plan" in text]
# The first runs did not mark the plans that they chose among.
MARKED = [folder for folder in RUNS if b'"contender"' in TEXTS[folder]]
PLAN = Plan((2,) * 4, (8,) * 4, exits=(1, 2, 3), threshold=0.7)
CHOSEN = Surveyed(PLAN, 0.4, 0.9, contender=True, good=True)


def form(kind, score, cost, good, folder="fixed-width"):
    return Form(kind, folder, PLAN, 0.5, cost, score, good)


def tuned(score=0.9, cost=0.4, good=True):
    return form("chosen", score, cost, good)


def alone(score=0.9, cost=0.4, good=True):
    return form("alone", score, cost, good, "static")


FALLBACK = form("fallback", 0.9, 0.7, good=False, folder="fixed-width-2")


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (State(), None),  # nothing is cheaper than dense, which is kept
        (State(chosen=CHOSEN), "adaptive"),
        (State(chosen=CHOSEN, fine_tunes=True), None),  # the training has not ended
        (State(chosen=CHOSEN, fine_tunes=True, alone=(alone(),)), None),
        (State(chosen=CHOSEN, fine_tunes=True, fine_tuned=(tuned(),)), "chosen"),
        (
            State(chosen=CHOSEN, fine_tunes=True, fine_tuned=(tuned(good=False), FALLBACK)),
            "fallback",
        ),
    ],
)
def test_what_is_served_without_a_control(state, kind):
    form = served(state)
    assert (None if form is None else form.kind) == kind


@pytest.mark.parametrize(
    ("ours", "control", "kind"),
    [
        (tuned(0.9, 0.7), alone(0.8, 0.4), "chosen"),  # both good: the better
        (tuned(0.8, 0.2), alone(0.9, 0.3), "alone"),
        (tuned(0.9, 0.4), alone(0.9, 0.3), "alone"),  # as good: the cheaper
        (tuned(0.9, 0.3), alone(0.9, 0.4), "chosen"),
        (tuned(0.9, 0.4), alone(0.9, 0.4), "chosen"),  # alike: the fine-tuned one
        (tuned(0.8, 0.2, good=False), alone(0.9, 0.6), "alone"),
        (tuned(0.9, 0.2, good=False), alone(0.8, 0.6), "alone"),  # the floor goes before the score
        (tuned(0.9, 0.6), alone(0.8, 0.2, good=False), "chosen"),
        (tuned(0.8, 0.6), alone(0.9, 0.2, good=False), "chosen"),
        (tuned(0.8, 0.2, good=False), alone(0.9, 0.9, good=False), "alone"),  # none qualifies
        (tuned(0.9, 0.9, good=False), alone(0.8, 0.2, good=False), "chosen"),
    ],
)
def test_the_control_is_served_where_it_is_better(ours, control, kind):
    state = State(chosen=CHOSEN, fine_tunes=True, fine_tuned=(ours,), alone=(control,))
    form = served(state)
    assert (form.kind, form.good) == (kind, ours.good or control.good)


def test_only_the_last_of_several_attempts_counts():
    first, last = alone(1.0, 0.1), alone(0.8, 0.3)
    state = State(chosen=CHOSEN, fine_tunes=True, fine_tuned=(tuned(0.7, 0.1), tuned(0.9, 0.4)))
    assert served(replace(state, alone=(first, last))) == tuned(0.9, 0.4)


@pytest.mark.parametrize("fine_tuned", [(), (tuned(),)])
def test_the_calibrated_threshold_is_served_and_nothing_else_changes(fine_tuned):
    state = State(chosen=CHOSEN, fine_tunes=bool(fine_tuned), fine_tuned=fine_tuned)
    before, after = served(state), served(replace(state, threshold=0.95))
    assert after == replace(before, plan=replace(PLAN, threshold=0.95))


def test_a_plan_that_is_good_or_not_before_any_training_says_so():
    for good in (True, False):
        form = served(State(chosen=replace(CHOSEN, good=good)))
        assert (form.good, form.allowed_share, form.folder) == (good, 0.4, "adaptive")


def plan_of(record):
    return Plan.from_dict(parse_json(record.labels["plan"]))


def point_of(record):
    labels = record.labels
    marks = {name: bool(labels.get(name)) for name in ("on_front", "contender", "good")}
    fixed = labels.get("kind") == "depth"
    return Surveyed(plan_of(record), labels["cost_share"], labels["score"], fixed, **marks)


class Committed:
    """The state that a committed run came to, read off its records."""

    def __init__(self, folder):
        self.records = RecordLog(folder / RECORDS).read()
        self.fixed_width, self.bound = self.one("fixed_width_plan"), self.one("disagreement_bound")
        forms = [self.form(r) for r in self.records if r.name == "attempted_plan"]
        chosen, fallback = self.one("chosen_plan"), self.one("fallback_plan")
        survey = (
            replace(r, labels={**r.labels, "score": r.value})
            for r in self.records
            if r.name == "frontier_score" and (r.labels.get("on_front") or "contender" in r.labels)
        )
        self.state = State(
            survey=tuple(map(point_of, survey)),
            chosen=point_of(chosen),
            fallback=fallback and point_of(fallback),
            fine_tunes=self.fixed_width is not None,
            fine_tuned=tuple(form for form in forms if form.kind != "alone"),
            alone=tuple(form for form in forms if form.kind == "alone"),
            threshold=plan_of(self.bound).threshold,
        )

    def one(self, name):
        return next((record for record in self.records if record.name == name), None)

    def form(self, record):
        labels = record.labels
        cost, score, good = (labels[name] for name in ("cost_share", "score", "good"))
        share = labels["allowed_share"]
        return Form(labels["attempt"], "", plan_of(record), share, cost, score, good)


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: path.name)
def test_committed_runs_served_what_the_rule_says(folder):
    run = Committed(folder)
    assert served(run.state).plan == plan_of(run.bound)
    before = served(replace(run.state, threshold=None))
    recorded = run.fixed_width or run.one("chosen_plan")
    assert (before.plan, before.cost_share) == (plan_of(recorded), recorded.value)
    if run.fixed_width is not None:
        labels = run.fixed_width.labels
        assert (before.kind, before.score) == (labels["attempt"], labels["score"])
        assert (before.good, before.allowed_share) == (labels["good"], labels["allowed_share"])


def test_the_committed_runs_are_many_and_of_every_kind():
    runs = [Committed(folder) for folder in RUNS]
    assert (len(runs), len(MARKED)) >= (25, 10)
    kinds = {served(run.state).kind for run in runs}
    assert kinds == {"adaptive", "shallow", "chosen", "fallback", "alone"}
    last = [served(run.state) for run in runs if run.state.fine_tunes]
    assert {form.good for form in last} == {True, False}


@pytest.mark.parametrize("folder", MARKED, ids=lambda path: path.name)
def test_committed_runs_chose_what_the_rule_says(folder):
    run = Committed(folder)
    front = run.state.contenders if run.state.fine_tunes else run.state.front
    speeds = {plan_of(r): r.value for r in run.records if r.name == "trial_speed"}
    config = json.loads((folder / "config.json").read_text())
    number, safe, reached = choose(
        front,
        lambda number: speeds[front[number].plan],
        config["identity"]["speed"],
        fine_tunes=run.state.fine_tunes,
    )
    recorded, fallback = run.one("chosen_plan"), run.one("fallback_plan")
    assert (front[number].plan, reached) == (plan_of(recorded), recorded.labels["reached"])
    assert (not reached and number != safe) == (fallback is not None)
    assert fallback is None or front[safe].plan == plan_of(fallback)


FULL = State(
    survey=(CHOSEN, Surveyed(PLAN.without_choice, 0.6, None, fixed=True)),
    chosen=CHOSEN,
    fallback=Surveyed(PLAN, 0.7, 0.95),
    fine_tunes=True,
    fine_tuned=(tuned(), FALLBACK),
    alone=(alone(),),
    thresholds=(FrontierPoint(PLAN, 0.3, 0.8),),
    threshold=0.9,
    static="static",
    int8=(Int8Form("dense", "dense-int8-0"), Int8Form("slim", "slim-int8-3")),
)


@pytest.mark.parametrize("state", [State(), FULL])
def test_a_state_is_read_back_as_it_was_written(tmp_path, state):
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_run_that_has_not_begun_has_an_empty_state(tmp_path):
    assert read_state(tmp_path) == State()


def _without(content, name):
    return {key: value for key, value in content.items() if key != name}


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: _without(content, "threshold"),
        lambda content: {**content, "more": 1},
        lambda content: {**content, "threshold": "0.9"},
        lambda content: {**content, "fine_tunes": 1},
        lambda content: {**content, "survey": 3},
        lambda content: {**content, "chosen": 3},
        lambda content: {**content, "chosen": {**content["chosen"], "plan": {}}},
        lambda content: {**content, "chosen": {**content["chosen"], "plan": 3}},
        lambda content: {**content, "chosen": {**content["chosen"], "cost_share": -1.0}},
        lambda content: {**content, "int8": [{"arm": "slim"}]},
        lambda content: [content],
    ],
)
def test_a_damaged_state_is_refused_in_one_line(tmp_path, damage):
    content = json.loads(json.dumps(asdict(FULL)))
    (tmp_path / FILE).write_text(json.dumps(damage(content)))
    with pytest.raises(DataError, match=FILE) as caught:
        read_state(tmp_path)
    assert "\n" not in str(caught.value)


def test_half_a_state_is_refused(tmp_path):
    write_state(tmp_path, FULL)
    text = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(text[: len(text) // 2])
    with pytest.raises(DataError, match=r"state\.json cannot be read: it is not JSON"):
        read_state(tmp_path)


def test_a_step_whose_forerunner_failed_says_so(tmp_path):
    steps = steps_of(Options(), load_task("digits", patch_size=4), tmp_path)
    for state in (State(), State(chosen=CHOSEN), State(chosen=CHOSEN, fine_tunes=True)):
        write_state(tmp_path, state)
        with pytest.raises(UsageError, match="an earlier step has failed"):
            steps.served()
    write_state(tmp_path, State(chosen=CHOSEN, threshold=0.8))
    assert steps.served().plan.threshold == 0.8
