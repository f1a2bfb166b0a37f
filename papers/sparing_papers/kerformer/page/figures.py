"""The figures of the Kerformer study: speed by length, neighbours, noise, learning, distilling."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from statistics import fmean

from sparing.core.record import Label
from sparing.report.figures.chart import (
    BEFORE_ONE,
    Interval,
    Point,
    Scales,
    lines_plot,
    points,
)
from sparing.report.figures.drawing import Plot
from sparing_papers.long_range.page.results import DENSE, LongResults, positions

Told = dict[str, Label]
FORMS = ("kerformer, no SE-K", "kerformer, plain queries", "kerformer, plain keys")


def places_of(results: LongResults) -> dict[str, int]:
    """Signs of all arms of the run, the same in every figure."""
    together = [
        results.arms(question, name)
        for question, name in (
            ("arena", "score"),
            ("vision", "score"),
            ("speed", "steps_per_s"),
            ("cores", "latency_ms"),
            ("pretrained", "score"),
        )
    ]
    return positions(list(dict.fromkeys(chain(*together))), together)


def figures(results: LongResults) -> list[Plot]:
    """The figures of the questions that a run asks; of all where it does not say which."""
    places = places_of(results)
    found = [("cores", _cores(results, places)), ("speed", _speed(results, places))]
    for task in results.tasks("arena")[:2] or [""]:
        told: Told = {"question": "arena", "task": task}
        found.append(("arena", _neighbours(results, told, places)))
        if _asked_under_noise(results, told):
            found.append(("arena", _noise(results, told, places)))
    for told in _copies(results)[:2]:
        found.append(("pretrained", _neighbours(results, told, places)))
        found.append(("pretrained", _noise(results, told, places)))
    images = results.tasks("vision") or [""]
    found += [("vision", _learning(results, task, places)) for task in images]
    found.append(("pretrained", _distilling(results, places)))
    identity = results.run.config.get("identity")
    asked = identity.get("questions") if isinstance(identity, dict) else None
    if not isinstance(asked, list):
        return [plot for _, plot in found]
    return [plot for question, plot in found if question in asked]


def _ratios(results: LongResults, name: str, **labels: str) -> dict[str, list[Point]]:
    lines: dict[str, list[Point]] = {}
    for each in results.all(name, over=DENSE, **labels):
        if each.value is None:
            continue
        arm, tokens = str(each.labels["arm"]), float(each.labels["tokens"] or 0)
        ends = each.interval
        interval: Interval = None if ends is None else (float(ends[0]), float(ends[1]))
        lines.setdefault(arm, []).append((tokens, float(each.value), interval))
    return {arm: sorted(line) for arm, line in lines.items()}


def _cores(results: LongResults, places: Mapping[str, int]) -> Plot:
    return lines_plot(
        "cores",
        "One head alone, by length",
        "Time over that of fused dense attention, one head of 64 features on one core; the line is "
        "equal time. Below is faster.",
        _ratios(results, "latency_ratio", question="cores"),
        places,
        Scales("tokens", "Time over dense", log_x=True, log_y=True, level=1.0),
    )


def _speed(results: LongResults, places: Mapping[str, int]) -> Plot:
    return lines_plot(
        "speed",
        "Training the backbone, by length",
        "Steps a second over those with fused dense attention, about as many tokens in a "
        "step at every length; the line is equal speed. Above is faster.",
        _ratios(results, "speed_up", question="speed", kind="training"),
        places,
        Scales("tokens", "Speed over dense", log_x=True, log_y=True, level=1.0),
    )


def _copies(results: LongResults) -> list[Told]:
    """The tasks on which swapped encoders, trained with labels alone, met noise."""
    told: Told = {"question": "pretrained", "stage": "plain"}
    noisy = {r.labels["task"] for r in results.all("noisy_score", **told)}
    return [{**told, "task": task} for task in results.tasks("pretrained") if task in noisy]


def _titled(told: Told) -> tuple[str, str]:
    """What names a figure of a task, and what its title ends with."""
    task = str(told["task"])
    if told["question"] == "pretrained":
        return f"-{task}-swapped", f": {task}, swapped encoders"
    return (f"-{task}", f": {task}") if task else ("", "")


def _shown(results: LongResults, told: Told) -> list[str]:
    return [arm for arm in results.arms(str(told["question"])) if arm not in FORMS]


def _neighbours(results: LongResults, told: Told, places: Mapping[str, int]) -> Plot:
    name, title = _titled(told)
    lines = {
        arm: points(
            [
                (at or BEFORE_ONE, record)
                for at, record in results.line("weight_at_distance", "distance", arm=arm, **told)
            ]
        )
        for arm in results.arms(str(told["question"]))
        if arm != "none"  # it weighs its own token alone, far above what the others do
    }
    return lines_plot(
        f"neighbours{name}",
        f"How much neighbours weigh{title}",
        "Mean weight of keys by their distance from the query over layers, heads and seeds, each "
        "over its key's mean of all queries (the line); the first place is the query's own token.",
        lines,
        places,
        Scales("distance in tokens", "Weight", log_x=True, level=1.0),
    )


def _asked_under_noise(results: LongResults, told: Told) -> bool:
    """Whether a task's noise has or awaits scores: some have none, and are judged all the same."""
    noisy, judged = (any(results.all(name, **told)) for name in ("noisy_score", "score"))
    return noisy or not judged


def _noise(results: LongResults, told: Told, places: Mapping[str, int]) -> Plot:
    name, title = _titled(told)
    lines = {}
    for arm in _shown(results, told):
        line = results.line("noisy_score", "noise", arm=arm, **told)
        clean = results.mean("score", arm=arm, **told)
        whole = line if clean is None else [(0.0, clean), *line]
        lines[arm] = [(100 * x, y, None) for x, y, _ in points(whole, 100.0)] if line else []
    return lines_plot(
        f"noise{name}",
        f"Under noise{title}",
        "Score on test inputs of which a share of tokens is replaced at random; means over seeds.",
        lines,
        places,
        Scales("tokens replaced, per cent", "Score", per_cent=True),
    )


def _learning(results: LongResults, task: str, places: Mapping[str, int]) -> Plot:
    return lines_plot(
        f"learning-{task}" if task else "learning",
        f"Learning images: {task}" if task else "Learning images",
        "Validation score by epoch, the mean of all seeds; the band spans the seeds.",
        {
            arm: _curve(results, {"question": "vision", "task": task, "arm": arm}, "epoch")
            for arm in results.arms("vision")
        },
        places,
        Scales("epoch", "Validation score", per_cent=True, bands=True),
    )


def _curve(results: LongResults, labels: Mapping[str, str], along: str) -> list[Point]:
    found: dict[float, list[float]] = {}
    for each in results.all("validation_score", **labels):
        at = float(each.labels[along] or 0.0)
        found.setdefault(at, []).append(100 * float(each.value or 0.0))
    return [(at, fmean(ys), (min(ys), max(ys))) for at, ys in sorted(found.items())]


def _distilling(results: LongResults, places: Mapping[str, int]) -> Plot:
    tasks = {
        str(r.labels["task"])
        for r in results.all("validation_score", question="pretrained")
        if "step" in r.labels
    }
    task = "imdb" if "imdb" in tasks else next(iter(sorted(tasks)), "")
    return lines_plot(
        "distilling",
        f"Closing the gap of swapped encoders: {task}" if task else "Closing the gap",
        "Validation score by steps of training, distilled first, the mean of all seeds; the band "
        "spans the seeds.",
        {
            arm: _curve(
                results,
                {"question": "pretrained", "task": task, "arm": arm, "stage": "warm"},
                "step",
            )
            for arm in results.arms("pretrained")
        },
        places,
        Scales("steps", "Validation score", per_cent=True, bands=True),
        "No pretrained encoder was named, or none was trained so far.",
    )
