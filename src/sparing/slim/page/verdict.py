"""The verdict on a slimmed model: the target reached or not, what else there is, what is promised.

Whether a goal is met was decided by the study, before any page; here it is put into words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparing.core.record import Record
from sparing.core.rounding import rounded_down
from sparing.report import wording
from sparing.report.sections import Verdict
from sparing.slim.page.results import Interval, SlimResults, Trial
from sparing.slim.page.wording import (
    engine_name,
    per_cent,
    score_name,
    speed_interval,
    speed_text,
    times,
    upper_share,
)


@dataclass(frozen=True)
class _Goal:
    """A declared goal: its verdict, value and interval; ``note`` says why it is not decided."""

    met: bool | str
    value: float
    interval: Interval
    note: str = ""


def judge(results: SlimResults) -> Verdict:
    """The verdict from goals and records alone; goals that were not judged yet decide nothing."""
    speed, kept = _goal(results, "speed over"), _goal(results, "share of")
    after = [_guarantee(results)]
    if speed is None or kept is None:
        stage = "a step failed" if results.run.failed else "the run is not at its end"
        because = f": {stage}, and nothing was verified on test inputs."
        return Verdict("No verdict yet", because, _said(_offer(results), *after))
    if speed.note:
        because = f": the goal is {speed.note}; the slim model {_kept_words(results, kept)}."
        return Verdict("No verdict on speed", because, _said(*after))
    verdicts = {speed.met, kept.met}
    target = f"{times(results.speed)} at {per_cent(results.floor)}"
    what = f"{_speed_words(results, speed)} and {_kept_words(results, kept)}"
    facts = f"at batch {results.batches[0]} the slim model {what}."
    if verdicts == {True}:
        return Verdict(_reached(results), f": {facts}", _said(*after))
    if False in verdicts:
        lead = f"The target of {target} is not reached"
        return Verdict(lead, f": {facts}", _said(_offer(results), *after))
    lead = f"Whether the target of {target} is reached is undecided"
    return Verdict(lead, f": {facts}", _said(_open(speed, kept), _offer(results), *after))


def _reached(results: SlimResults) -> str:
    """Reached, in full or without the rate of disagreement that was asked for."""
    found = results.disagreement
    refused = found is not None and found.labels.get("kept") is False
    return "Target reached, but not the guarantee" if refused else "Target reached"


def _said(*sentences: str) -> tuple[str, ...]:
    return tuple(sentence for sentence in sentences if sentence)


def _goal(results: SlimResults, begins: str) -> _Goal | None:
    """A goal by how its name begins; None where it was not measured."""
    named: list[dict[str, Any]] = [
        goal for goal in results.run.goals if str(goal.get("name")).startswith(begins)
    ]
    value = named[0].get("value") if named else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    met, interval = named[0].get("met", "undecided"), _pair(named[0].get("interval"))
    return _Goal(met, float(value), interval, str(named[0].get("note") or ""))


def _pair(interval: object) -> Interval:
    if not isinstance(interval, (list, tuple)) or len(interval) != 2:
        return None
    low, high = interval
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)):
        return None
    return float(low), float(high)


def _speed_words(results: SlimResults, goal: _Goal) -> str:
    """How fast, against what, and in which engines."""
    found = speed_text(goal.value, goal.interval)
    clear = "neither clearly faster nor slower" if found == "no clear difference" else found
    if found == "the same":
        clear = "as fast as" if goal.interval is None else "neither faster nor slower"
    interval = f"{speed_interval(goal.interval)}; " if goal.interval else ""
    return f"is {clear} than the fastest dense form ({interval}{_engines(results)})"


def _engines(results: SlimResults) -> str:
    form, rival = results.fastest(), results.reference(results.batches[0])
    if form is None or rival is None:
        return "engine unknown"
    mine, theirs = engine_name(form.engine), engine_name(rival.engine)
    return f"both in {mine}" if mine == theirs else f"{mine} against {theirs}"


def _kept_words(results: SlimResults, goal: _Goal) -> str:
    """The share of the score kept, with the bound that decides it."""
    kept = f"keeps {_share(goal.value)} of its {score_name(results)}"
    if goal.interval is None:
        return kept
    low, high = (_share(end) for end in goal.interval)
    if goal.met is True:
        return f"{kept} (at least {_share(rounded_down(goal.interval[0], 3))})"
    return f"{kept} ({low.removesuffix(' %')} to {high})"


def _share(value: float) -> str:
    return wording.share(value)


def _open(speed: _Goal, kept: _Goal) -> str:
    """Which goal the numbers leave open."""
    named = [("the speed", speed), ("the score kept", kept)]
    undecided = [name for name, goal in named if goal.met not in (True, False)]
    verb, noun = ("holds", "interval") if len(undecided) == 1 else ("hold", "intervals")
    return (
        f"The {noun} of {wording.listing(undecided)} {verb} the target: neither reached nor "
        "missed. More test inputs would narrow it."
    )


def _offer(results: SlimResults) -> str:
    """What else the frontier holds: the fastest plan that is good enough, the best fast one."""
    dense = results.dense_score
    if not dense or not results.trials or any(trial.disturbance for trial in results.trials):
        return ""
    good = [trial for trial in results.trials if trial.score >= results.floor * dense]
    fast = [trial for trial in results.trials if trial.speed >= results.speed]
    name = score_name(results)
    if good:
        best = max(good, key=lambda trial: trial.speed)
        parts = [f"the fastest within the floor kept {_trial_words(best, dense, name)}"]
    else:
        best = max(results.trials, key=lambda trial: trial.score)
        parts = [f"none was within the floor and the best kept {_trial_words(best, dense, name)}"]
    if fast:
        best = max(fast, key=lambda trial: trial.score)
        kept = _share(best.score / dense)
        parts.append(f"the best of those at least {times(results.speed)} faster kept {kept}")
    else:
        parts.append(f"none was {times(results.speed)} faster")
    return f"Of the plans timed while choosing, on {results.split} inputs, {'; '.join(parts)}."


def _trial_words(trial: Trial, dense: float, name: str) -> str:
    speed = speed_text(trial.speed, trial.interval)
    clear = speed.endswith(("faster", "slower"))
    ran = f"and was {speed}" if clear else "without a clear difference in time"
    kept = f"{_share(trial.score / dense)} of the dense {name}"
    return f"{kept} {ran} ({speed_interval(trial.interval)})"


def _guarantee(results: SlimResults) -> str:
    """What is promised about answers that differ from the dense model's."""
    found = results.disagreement
    if found is None or found.value is None:
        return ""
    promise = found.labels.get("promise")
    if isinstance(promise, str) and promise:
        asked = "Guarantee" if found.labels.get("kept") is True else "No guarantee as asked"
        return f"{asked}: {promise}."
    return f"Guarantee: {bound_words(found)}."


def bound_words(found: Record) -> str:
    """The bound of a plan that was fixed beforehand, with what it rests on."""
    delta = found.labels.get("delta")
    sure = per_cent(1 - delta) if isinstance(delta, float) else "unknown"
    seen = found.labels.get("disagreements")
    return (
        f"with confidence {sure}, at most {upper_share(found.value or 0.0)} of inputs like these "
        f"are answered otherwise than by the dense model ({seen} of {found.count:,} held-out "
        "inputs were)"
    )
