"""The figures of the Kerformer study: speed by length, neighbours, noise, learning, distilling."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from statistics import fmean

from sparing.core.record import Label, Labels
from sparing.report.figures.chart import BEFORE_ONE, Point, Scales, lines_of, lines_plot, points
from sparing.report.figures.drawing import Plot
from sparing.report.run import Run
from sparing_papers.kerformer.page import prose
from sparing_papers.long_range import DENSE, NOTHING
from sparing_papers.long_range.page.lookups import arms, line, mean, named, positions, tasks

Signs = Mapping[str, int]
FORMS = ("kerformer, no SE-K", "kerformer, plain queries", "kerformer, plain keys")
DRAWN = {
    "arena": "score",
    "vision": "score",
    "speed": "steps_per_s",
    "cores": "latency_ms",
    "pretrained": "score",
}


def signs_of(run: Run) -> dict[str, int]:
    """Signs of all variants of the run, the same in every figure."""
    together = [arms(run, question, name) for question, name in DRAWN.items()]
    return positions(list(dict.fromkeys(chain(*together))), together)


def figures(run: Run) -> list[Plot]:
    """The figures of the questions of a run; of all where it does not say which."""
    signs = signs_of(run)
    plots = [("cores", _cores(run, signs)), ("speed", _speed(run, signs))]
    for task in tasks(run, "arena")[:2] or [""]:
        labels: Labels = {"question": "arena", "task": task}
        plots.append(("arena", _neighbours(run, labels, signs)))
        # some tasks have scores and none under noise, as noise would change their answers
        if run.table.all("noisy_score", **labels) or not run.table.all("score", **labels):
            plots.append(("arena", _noise(run, labels, signs)))
    for labels in _swapped(run)[:2]:
        plots.append(("pretrained", _neighbours(run, labels, signs)))
        plots.append(("pretrained", _noise(run, labels, signs)))
    plots += [("vision", _learning(run, task, signs)) for task in tasks(run, "vision") or [""]]
    plots.append(("pretrained", _distilling(run, signs)))
    identity = run.config.get("identity")
    questions = identity.get("questions") if isinstance(identity, dict) else None
    return [
        plot for question, plot in plots if not isinstance(questions, list) or question in questions
    ]


def _cores(run: Run, signs: Signs) -> Plot:
    ratios = run.table.all("latency_ratio", over=DENSE, question="cores")
    lines = lines_of(ratios, "arm", "tokens")
    scales = Scales("tokens", "Time over dense", log_x=True, log_y=True, level=1.0)
    title = "One head alone, by length"
    return lines_plot("cores", title, prose("figure-cores"), lines, signs, scales)


def _speed(run: Run, signs: Signs) -> Plot:
    ratios = run.table.all("speed_up", over=DENSE, question="speed", kind="training")
    lines = lines_of(ratios, "arm", "tokens")
    scales = Scales("tokens", "Speed over dense", log_x=True, log_y=True, level=1.0)
    title = "Training the backbone, by length"
    return lines_plot("speed", title, prose("figure-speed"), lines, signs, scales)


def _swapped(run: Run) -> list[Labels]:
    """The tasks on which swapped encoders, trained with labels alone, met noise."""
    labels: Labels = {"question": "pretrained", "stage": "plain"}
    noisy = named(run, "noisy_score", "task", **labels)
    return [{**labels, "task": task} for task in tasks(run, "pretrained") if task in noisy]


def _titled(labels: Labels) -> tuple[str, str]:
    """How the name and the title of a figure of a task end."""
    task = str(labels["task"])
    if labels["question"] == "pretrained":
        return f"-{task}-swapped", f": {task}, swapped encoders"
    return (f"-{task}", f": {task}") if task else ("", "")


def _neighbours(run: Run, labels: Labels, signs: Signs) -> Plot:
    name, title = _titled(labels)
    weights = {
        arm: line(run, "weight_at_distance", "distance", arm=arm, **labels)
        for arm in arms(run, str(labels["question"]))
        if arm != NOTHING  # it weighs its own token alone, far above what the others do
    }
    return lines_plot(
        f"neighbours{name}",
        f"How much neighbours weigh{title}",
        prose("figure-neighbours"),
        {arm: points([(x or BEFORE_ONE, r) for x, r in of_arm]) for arm, of_arm in weights.items()},
        signs,
        Scales("distance in tokens", "Weight", log_x=True, level=1.0),
    )


def _noise(run: Run, labels: Labels, signs: Signs) -> Plot:
    name, title = _titled(labels)
    lines = {}
    for arm in arms(run, str(labels["question"])):
        noisy = line(run, "noisy_score", "noise", arm=arm, **labels)
        clean = mean(run, "score", arm=arm, **labels)
        if noisy and arm not in FORMS:
            whole = noisy if clean is None else [(0.0, clean), *noisy]
            lines[arm] = [(100 * x, y, None) for x, y, _ in points(whole, 100.0)]
    return lines_plot(
        f"noise{name}",
        f"Under noise{title}",
        prose("figure-noise"),
        lines,
        signs,
        Scales("tokens replaced, per cent", "Score", per_cent=True),
    )


def _learning(run: Run, task: str, signs: Signs) -> Plot:
    return lines_plot(
        f"learning-{task}" if task else "learning",
        f"Learning images: {task}" if task else "Learning images",
        prose("figure-learning"),
        _curves(run, "epoch", question="vision", task=task),
        signs,
        Scales("epoch", "Validation score", per_cent=True, bands=True),
    )


def _distilling(run: Run, signs: Signs) -> Plot:
    at = {
        str(record.labels["task"])
        for record in run.table.all("validation_score", question="pretrained")
        if "step" in record.labels
    }
    task = "imdb" if "imdb" in at else min(at, default="")
    return lines_plot(
        "distilling",
        f"Closing the gap of swapped encoders: {task}" if task else "Closing the gap",
        prose("figure-distilling"),
        _curves(run, "step", question="pretrained", task=task, stage="warm"),
        signs,
        Scales("steps", "Validation score", per_cent=True, bands=True),
        prose("no-distilling"),
    )


def _curves(run: Run, along: str, *, question: str, **labels: Label) -> dict[str, list[Point]]:
    """By variant the mean validation score of all seeds, and the least and the largest."""
    curves: dict[str, list[Point]] = {}
    for arm in arms(run, question):
        scores: dict[float, list[float]] = {}
        records = run.table.all("validation_score", question=question, arm=arm, **labels)
        for record in records:
            at = float(record.labels[along] or 0.0)
            scores.setdefault(at, []).append(100 * float(record.value or 0.0))
        curves[arm] = [(at, fmean(ys), (min(ys), max(ys))) for at, ys in sorted(scores.items())]
    return curves
