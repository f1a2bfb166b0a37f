"""The figures of the Linformer study: lengths, singular values, ranks, errors, time and memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from sparing.core.record import Label
from sparing.experiment.claims import FEWEST_SEEDS
from sparing.report.figures.chart import Point, Scales, lines_of, lines_plot, points
from sparing.report.figures.drawing import Plot
from sparing.report.run import Run
from sparing_papers.linformer.page import prose
from sparing_papers.linformer.page.matrices import METHODS
from sparing_papers.linformer.page.tables import SLICED
from sparing_papers.long_range.page.lookups import arms, asks, line, named, positions, tasks

PROMISED = {1: "bound of theorem 1", 2: "bound of theorem 2"}
FULL = "full rank"
LEAST = 1e-9
"""Where an interval of errors that reaches 0 ends on an axis of powers."""
# name: quantity, what it is, unit, and the factor to that unit
COSTS = {
    "time": ("latency_ms", "Time", "Seconds", 1e-3),
    "memory": ("peak_bytes", "Memory", "MiB at the peak", 2**-20),
}
_METHOD_SIGNS = {name: sign for sign, name in enumerate((*METHODS.values(), *PROMISED.values()), 1)}
_LAYER_SIGNS = {f"layer {number}": number for number in range(1, 49)}


def figures(run: Run) -> list[Plot]:
    """All figures of a run."""
    distilled_on = named(run, "length_score", "task", question="pretrained")
    return [
        *(_longer(run, task) for task in tasks(run, "longer")),
        *(_distilled(run, task) for task in distilled_on),
        *([_growth(run)] if asks(run, "spectrum") else []),
        *(_spectrum(run, source) for source in named(run, "mean_kept_share", "source")),
        *(_error(run, source) for source in named(run, "mean_output_error", "source")),
        *(_cost(run, name) for name in COSTS if asks(run, "cost")),
    ]


def all_signs(run: Run) -> dict[str, int]:
    """The signs of everything that a legend names."""
    return {**arm_signs(run), **_METHOD_SIGNS, **_LAYER_SIGNS, **_source_signs(run)}


def arm_signs(run: Run) -> dict[str, int]:
    """The signs of variants, the same in every figure."""
    together = (
        [str(arm) for arm in run.config.get("arms") or []],
        named(run, "predicted_s", "arm"),
        arms(run, "masked", "perplexity"),
        arms(run, "pretrained", "length_score"),
    )
    return positions(list(dict.fromkeys(chain(*together))), together)


def _source_signs(run: Run) -> dict[str, int]:
    sources = named(run, "mean_effective_rank", "source")
    return {FULL: 0} | {name: sign for sign, name in enumerate(sources, 1)}


def _scores(run: Run, along: str, **labels: Label) -> list[Point]:
    """Scores by length, with bars where there are three seeds."""
    records = line(run, "length_score", along, **labels)
    few = [(x, replace(r, interval=None) if r.count < FEWEST_SEEDS else r) for x, r in records]
    return points(few, 100.0)


def _longer(run: Run, task: str) -> Plot:
    """Score against length, relative to what was trained on."""
    lines = {
        arm: _scores(run, "factor", question="longer", task=task, arm=arm)
        for arm in arms(run, "longer", "length_score")
    }
    tokens = (run.config.get("tasks") or {}).get(task, {}).get("tokens")
    label = "length of the input, in lengths of training"
    return lines_plot(
        f"longer-{task}",
        f"Longer than trained: {task}",
        prose("figure-longer", tokens=tokens),
        lines,
        arm_signs(run),
        Scales(label, "Score", log_x=True, per_cent=True, across=1.0),
    )


def _distilled(run: Run, task: str) -> Plot:
    """Score against length of a pretrained encoder that was swapped and distilled on short inputs.

    Seeds are not shown as bars: the table has paired differences from softmax, which are surer.
    """
    at: dict[str, Label] = {"question": "pretrained", "task": task, "stage": "warm"}
    lines = {
        SLICED if arm == "linformer" else arm: [
            (x, y, None) for x, y, _ in _scores(run, "tokens", arm=arm, **at)
        ]
        for arm in arms(run, "pretrained", "length_score")
    }
    return lines_plot(
        f"distilled-{task}",
        f"Longer than distilled: {task}",
        prose("figure-distilled"),
        lines,
        arm_signs(run),
        Scales("tokens", "Score", log_x=True, per_cent=True),
    )


def _growth(run: Run) -> Plot:
    """Effective rank against length, beside full rank."""
    lines = lines_of(run.table.all("mean_effective_rank"), "source", "tokens")
    lengths = sorted({x for of_source in lines.values() for x, _, _ in of_source})
    full: list[Point] = [(x, x, None) for x in lengths]
    return lines_plot(
        "rank",
        "Does the rank grow with the length?",
        prose("figure-rank"),
        {FULL: full, **lines},
        _source_signs(run),
        Scales("tokens", "Effective rank", log_x=True, log_y=True),
    )


def _spectrum(run: Run, source: str) -> Plot:
    """The cumulative singular values by layer, at the longest length of training."""
    tokens = _longest(run, "mean_effective_rank", source)[0]
    records = sorted(
        (
            record
            for record in run.table.all("mean_kept_share", source=source, tokens=tokens)
            if "layer" in record.labels and isinstance(record.labels["kept"], int)
        ),
        key=lambda record: int(record.labels["layer"] or 0),
    )
    lines = lines_of(records, "layer", "kept", 100.0, intervals=False)
    return lines_plot(
        f"spectrum-{source}",
        f"How much the first singular values hold: {source}",
        prose("figure-spectrum", tokens=tokens),
        {f"layer {int(layer) + 1}": of_layer for layer, of_layer in lines.items()},
        _LAYER_SIGNS,
        Scales("k, first singular values", "Share of their sum", log_x=True, per_cent=True),
    )


def _longest(run: Run, name: str, source: str) -> tuple[int, bool]:
    """The longest length of a source within what its model was trained on, and whether it is.

    Else the shortest of all, which is nearest to that.
    """
    records = run.table.all(name, source=source)
    lengths = [(int(r.labels["tokens"] or 0), bool(r.labels["beyond"])) for r in records]
    within = [tokens for tokens, beyond in lengths if not beyond]
    return (max(within), True) if within else (min(tokens for tokens, _ in lengths), False)


def error_length(run: Run, source: str) -> tuple[int, str]:
    """The longest length at which errors were measured, of those that the model learned on.

    Where there is none of these, the longest of all, and words that say so.
    """
    tokens, within = _longest(run, "mean_output_error", source)
    if within:
        return tokens, ""
    all_lengths = run.table.values_of("mean_output_error", "tokens", source=source)
    return max(int(tokens or 0) for tokens in all_lengths), " (longer than it learned on)"


def _error(run: Run, source: str) -> Plot:
    """Error of the output against the number of slots, beside what the theorems promise."""
    tokens, beyond = error_length(run, source)
    at: dict[str, Label] = {"source": source, "tokens": tokens}
    errors = lines_of(run.table.all("mean_output_error", **at), "method", "slots")
    bounds = lines_of(run.table.all("mean_bound", **at), "theorem", "slots")
    lines = {METHODS[method]: of_method for method, of_method in errors.items()}
    lines |= {PROMISED[int(theorem)]: of_theorem for theorem, of_theorem in bounds.items()}
    return lines_plot(
        f"error-{source}",
        f"How far the output is from exact attention's: {source}",
        prose("figure-error", tokens=tokens, beyond=beyond),
        {
            name: [(x, y, ends and (max(LEAST, ends[0]), ends[1])) for x, y, ends in of_name]
            for name, of_name in lines.items()
        },
        _METHOD_SIGNS,
        Scales("slots, k", "Relative error", log_x=True, log_y=True, level=1.0),
    )


def _cost(run: Run, name: str) -> Plot:
    """Time or memory of an encoder at a fixed number of tokens, against their length."""
    total = (run.config.get("cost") or {}).get("tokens", 0)
    quantity, what, unit, factor = COSTS[name]
    records = run.table.all(quantity, subject="model")
    return lines_plot(
        name,
        f"{what} of an encoder at {total:,} tokens in all",
        prose("figure-cost", total=total),
        lines_of(records, "arm", "tokens", factor, intervals=False),
        arm_signs(run),
        Scales("tokens in a row", unit, log_x=True, log_y=True),
    )
