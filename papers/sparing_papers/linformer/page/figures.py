"""The figures of the Linformer study: lengths, singular values, ranks, errors, time and memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from sparing.core.record import Label, Record
from sparing.experiment.claims import FEWEST_SEEDS
from sparing.report.figures.chart import Lines, Point, Scales, lines_plot, points
from sparing.report.figures.drawing import Plot
from sparing_papers.linformer.page.tables import SLICED
from sparing_papers.long_range.page.results import LongResults, positions

METHODS = {
    "random": "drawn",
    "learned": "learned",
    "mean_pool": "means",
    "convolution": "learned means",
    "theorem 1": "theorem's form, P R'R V",
    "best rank": "nearest matrix of rank k",
}
PROMISED = {1: "bound of theorem 1", 2: "bound of theorem 2"}
FULL = "full rank"
COSTS = ("latency_ms", "peak_bytes")
_LAYERS = tuple(f"layer {number}" for number in range(1, 49))
_METHOD_PLACES = {
    name: place for place, name in enumerate((*METHODS.values(), *PROMISED.values()), 1)
}
_LAYER_PLACES = {name: place for place, name in enumerate(_LAYERS, 1)}


def figures(results: LongResults) -> list[Plot]:
    """All figures of a run."""
    return [
        *(longer(results, task) for task in results.tasks("longer")),
        *(distilled(results, task) for task in _distilled_on(results)),
        *([growth(results)] if results.asks("spectrum") else []),
        *(spectrum(results, source) for source in sources(results, "mean_kept_share")),
        *(error(results, source) for source in sources(results, "mean_output_error")),
        *(cost(results, name) for name in COSTS if results.asks("cost")),
    ]


def _distilled_on(results: LongResults) -> list[str]:
    found = results.all("length_score", question="pretrained")
    return list(dict.fromkeys(str(r.labels["task"]) for r in found))


def all_positions(results: LongResults) -> dict[str, int]:
    """The signs of everything that a legend names."""
    return {
        **arm_positions(results),
        **_METHOD_PLACES,
        **_LAYER_PLACES,
        **_source_positions(results),
    }


def arm_positions(results: LongResults) -> dict[str, int]:
    """The signs of arms, the same in every figure."""
    listed = [str(arm) for arm in results.run.config.get("arms") or []]
    timed = [str(r.labels["arm"]) for r in results.all("predicted_s")]
    masked = results.arms("masked", "perplexity")
    swapped = results.arms("pretrained", "length_score")
    together = (listed, timed, masked, swapped)
    return positions(list(dict.fromkeys(chain(*together))), together)


def sources(results: LongResults, name: str) -> list[str]:
    """Whose matrices there are; what swapped copies err by has the same name and no source."""
    found = (r.labels.get("source") for r in results.all(name))
    return list(dict.fromkeys(str(source) for source in found if source is not None))


def _source_positions(results: LongResults) -> dict[str, int]:
    found = sources(results, "mean_effective_rank")
    return {FULL: 0} | {name: place for place, name in enumerate(found, 1)}


def _line(results: LongResults, along: str, **labels: Label) -> list[Point]:
    """Scores by length, with bars where there are three seeds."""
    found = [
        (x, record if record.count >= FEWEST_SEEDS else replace(record, interval=None))
        for x, record in results.line("length_score", along, **labels)
    ]
    return points(found, 100.0)


def longer(results: LongResults, task: str) -> Plot:
    """Score against length, relative to what was trained on."""
    lines: Lines = {
        arm: _line(results, "factor", question="longer", task=task, arm=arm)
        for arm in results.arms("longer", "length_score")
    }
    tokens = (results.run.config.get("tasks") or {}).get(task, {}).get("tokens")
    return lines_plot(
        f"longer-{task}",
        f"Longer than trained: {task}",
        f"Score by length of the input, 1 being the {tokens} tokens that were trained on (the "
        "line). Bars are 95 % intervals over seeds, where there are three; the table has them all.",
        lines,
        arm_positions(results),
        Scales(
            "length of the input, in lengths of training",
            "Score",
            log_x=True,
            per_cent=True,
            across=1.0,
        ),
    )


def distilled(results: LongResults, task: str) -> Plot:
    """Score against length of a pretrained encoder that was swapped and distilled on short inputs.

    Seeds are not shown as bars: paired differences from softmax, far surer, stand in the table.
    """
    here: dict[str, Label] = {"question": "pretrained", "task": task, "stage": "warm"}
    lines: Lines = {
        SLICED if arm == "linformer" else arm: [
            (x, y, None) for x, y, _ in _line(results, "tokens", **here, arm=arm)
        ]
        for arm in results.arms("pretrained", "length_score")
    }
    return lines_plot(
        f"distilled-{task}",
        f"Longer than distilled: {task}",
        "Score of a pretrained encoder, its attention swapped and distilled on inputs of the "
        "shortest length, by the length that the same long inputs are cut to. Means over seeds; "
        "the table has the differences from softmax with their intervals.",
        lines,
        arm_positions(results),
        Scales("tokens", "Score", log_x=True, per_cent=True),
    )


def growth(results: LongResults) -> Plot:
    """Effective rank against length, beside full rank."""
    lines: dict[str, list[Point]] = {}
    for r in results.all("mean_effective_rank"):
        x, y = float(r.labels["tokens"] or 0), float(r.value or 0)
        ends = None if r.interval is None else (float(r.interval[0]), float(r.interval[1]))
        lines.setdefault(str(r.labels["source"]), []).append((x, y, ends))
    lengths = sorted({x for line in lines.values() for x, _, _ in line})
    full: list[Point] = [(x, x, None) for x in lengths]
    drawn: dict[str, list[Point]] = {FULL: full} if full else {}
    drawn |= {source: sorted(line, key=lambda p: p[0]) for source, line in lines.items()}
    return lines_plot(
        "rank",
        "Does the rank grow with the length?",
        "Effective rank of attention matrices by length, mean over layers and heads with 95 % "
        "intervals over them. A line as steep as that of full rank would mean a fixed share of n. "
        "Encoders trained here were lengthened beyond what they were trained on.",
        drawn,
        _source_positions(results),
        Scales("tokens", "Effective rank", log_x=True, log_y=True),
    )


def spectrum(results: LongResults, source: str) -> Plot:
    """The cumulative singular values by layer, at the longest length of training."""
    tokens = longest_trained(results, source)
    found: dict[int, list[Point]] = {}
    for r in results.all("mean_kept_share", source=source, tokens=tokens):
        if "layer" in r.labels and isinstance(r.labels["kept"], int):
            point = (float(r.labels["kept"]), 100 * float(r.value or 0), None)
            found.setdefault(int(r.labels["layer"] or 0), []).append(point)
    lines = {f"layer {layer + 1}": sorted(line) for layer, line in sorted(found.items())}
    return lines_plot(
        f"spectrum-{source}",
        f"How much the first singular values hold: {source}",
        f"Share of the sum of singular values in the first k, mean over heads, {tokens} tokens: "
        "what figure 1 of the paper shows for 512.",
        lines,
        _LAYER_PLACES,
        Scales("k, first singular values", "Share of their sum", log_x=True, per_cent=True),
    )


def longest_trained(results: LongResults, source: str) -> int:
    """The longest length of a source within what its model was trained on, else the shortest."""
    found = [r.labels for r in results.all("mean_effective_rank", source=source)]
    inside = [int(labels["tokens"] or 0) for labels in found if not labels["beyond"]]
    return max(inside) if inside else min(int(labels["tokens"] or 0) for labels in found)


def error_length(results: LongResults, source: str) -> tuple[int, str]:
    """The longest length at which errors were measured, of those that the model learned on.

    Where there is none of these, the longest of all, and words that say so.
    """
    found = [r.labels for r in results.all("mean_output_error", source=source)]
    inside = [int(labels["tokens"] or 0) for labels in found if not labels["beyond"]]
    if inside:
        return max(inside), ""
    longest = max(int(labels["tokens"] or 0) for labels in found)
    return longest, " (longer than it learned on)"


def error(results: LongResults, source: str) -> Plot:
    """Error of the output against the number of slots, beside what the theorems promise."""
    tokens, beyond = error_length(results, source)
    here: dict[str, Label] = {"source": source, "tokens": tokens}
    lines: dict[str, list[Point]] = {}
    for r in results.all("mean_output_error", **here):
        lines.setdefault(METHODS[str(r.labels["method"])], []).append(_by_slots(r))
    for r in results.all("mean_bound", **here):
        if r.value is not None:
            lines.setdefault(PROMISED[int(r.labels["theorem"] or 0)], []).append(_by_slots(r))
    return lines_plot(
        f"error-{source}",
        f"How far the output is from exact attention's: {source}",
        f"Relative error of a head's output by the number of slots, mean over heads with 95 % "
        f"intervals over them, {tokens} tokens{beyond}. An answer of 0 has the error 1 (the line): "
        "a bound above it says nothing.",
        {name: sorted(line, key=lambda p: p[0]) for name, line in lines.items()},
        _METHOD_PLACES,
        Scales("slots, k", "Relative error", log_x=True, log_y=True, level=1.0),
    )


def _by_slots(record: Record) -> Point:
    ends = record.interval
    interval = None if ends is None else (max(1e-9, float(ends[0])), float(ends[1]))
    return float(record.labels["slots"] or 0), float(record.value or 0), interval


def cost(results: LongResults, name: str) -> Plot:
    """Time or memory of an encoder at a fixed number of tokens, against their length."""
    total = (results.run.config.get("cost") or {}).get("tokens", 0)
    scale = 1e-3 if name == "latency_ms" else 2**-20
    lines: dict[str, list[Point]] = {}
    for r in results.all(name, subject="model"):
        point = (float(r.labels["tokens"] or 0), scale * float(r.value or 0), None)
        lines.setdefault(str(r.labels["arm"]), []).append(point)
    what, unit = ("Time", "Seconds") if name == "latency_ms" else ("Memory", "MiB at the peak")
    return lines_plot(
        "time" if name == "latency_ms" else "memory",
        f"{what} of an encoder at {total:,} tokens in all",
        f"One forward call of the named backbone on {total:,} tokens, in rows of so many. Where a "
        "line ends, the next length was predicted to take too long or too much; the table says so.",
        {arm: sorted(line) for arm, line in lines.items()},
        arm_positions(results),
        Scales("tokens in a row", unit, log_x=True, log_y=True),
    )
