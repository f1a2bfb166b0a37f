"""The tables of the Kerformer study, each beside the printed one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparing.core.record import Label, Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing_papers.kerformer.page import published
from sparing_papers.long_range.page.results import DENSE, LongResults
from sparing_papers.long_range.page.tables import NONE, points_text, ratio_text, score_text

BY_CONTENT = "kerformer, by content"
STAGES = ("before", "plain", "warm")
# One head alone has no positions: the printed Kerformer stands beside the form by content.
PRINTED_AS = {BY_CONTENT: "kerformer"}


def core_blocks(results: LongResults) -> list[Block]:
    """Tables 1 to 3."""
    arms = _arms(results, "latency_ms", "cores")
    return [
        block
        for block in (_time(results, arms), _ranges(results, arms), _memory(results))
        if block.rows
    ]


def _arms(results: LongResults, name: str, question: str) -> list[str]:
    found = dict.fromkeys(str(r.labels["arm"]) for r in results.all(name, question=question))
    return [DENSE, *(arm for arm in found if arm != DENSE)] if found else []


def _numbers(results: LongResults, label: str, question: str, *names: str) -> list[float]:
    values = {
        float(r.labels[label] or 0.0)
        for name in names
        for r in results.all(name, question=question)
        if label in r.labels
    }
    return sorted(values)


def _time(results: LongResults, arms: Sequence[str]) -> Block:
    lengths = [int(n) for n in _numbers(results, "tokens", "cores", "latency_ms", "not_run")]
    rows = []
    for arm in arms:
        cells = [arm]
        for tokens in lengths:
            at: dict[str, Label] = {"question": "cores", "arm": arm, "tokens": tokens}
            took = results.find("latency_ms", **at)
            gone = results.find("not_run", **at, of="time")
            ratio = results.find("latency_ratio", **at, over=DENSE)
            cell = _not_run(gone) if took is None else wording.latency(float(took.value or 0.0))
            if ratio is not None:
                cell += f", {ratio_text(ratio)}"
            printed = published.SECONDS.get(PRINTED_AS.get(arm, arm), {}).get(tokens)
            cells.append(cell + (f" [{printed:,.3g} s]" if printed is not None else ""))
        rows.append(tuple(cells))
    heads = ("arm", *(wording.length(n) for n in lengths))
    explain = (
        "One head of 64 features alone, values up to 2: median time, and the ratio to fused dense "
        "attention, paired, with its 95 % interval. In brackets the printed seconds, of MATLAB: "
        "302 s for 10,000 tokens are 42 million multiply-adds a second, a thousandth of one core."
    )
    return Block("time", "Table 1: time by length", explain, heads, tuple(rows))


def _not_run(record: Record | None) -> str:
    if record is None or record.value is None:
        return NONE
    value = float(record.value)
    if record.labels.get("why") == "memory":
        return f"not run: {wording.size_of_bytes(value)} predicted"
    return f"not run: {wording.duration(value)} predicted"


def _ranges(results: LongResults, arms: Sequence[str]) -> Block:
    spreads = _numbers(results, "spread", "cores", "range_ratio")
    rows = []
    for arm in arms:
        cells = [arm]
        for spread in spreads:
            found = results.find("range_ratio", question="cores", arm=arm, spread=spread)
            old = published.BY_RANGE.get(PRINTED_AS.get(arm, arm), {})
            cell = ratio_text(found)
            if spread in old:
                cell += f" [{old[spread] / old[2]:.2f}x]"
            cells.append(cell)
        rows.append(tuple(cells))
    heads = ("arm", *(f"up to {spread:g}" for spread in spreads))
    explain = (
        "Each arm's time on values of that range over its own on values up to 2, interleaved; in "
        "brackets what the printed seconds come to. No mechanism here looks at its values to "
        "choose its work. What is above 1 is arithmetic itself: Performer's exponentials of far "
        "negative numbers, whose results underflow, take the processor several times as long."
    )
    return Block("range", "Table 2: time by range of values", explain, heads, tuple(rows))


def _memory(results: LongResults) -> Block:
    arms = [*_arms(results, "peak_bytes", "cores")]
    lengths = [int(n) for n in _numbers(results, "tokens", "cores", "peak_bytes")]
    rows = []
    for arm in dict.fromkeys((*arms, "eager") if arms else ()):
        cells = [arm]
        for tokens in lengths:
            at: dict[str, Label] = {"question": "cores", "arm": arm, "tokens": tokens}
            peaks = [float(r.value or 0.0) for r in results.all("peak_bytes", **at)]
            gone = results.find("not_run", **at, of="memory")
            cell = wording.size_of_bytes(max(peaks)) if peaks else _not_run(gone)
            if len(peaks) > 1 and max(peaks) > 1.1 * min(peaks):
                cell = f"{wording.size_of_bytes(min(peaks))} to {cell}"
            cells.append(cell)
        rows.append(tuple(cells))
    heads = ("arm", *(wording.length(n) for n in lengths))
    explain = (
        "Peak growth of memory in one call, output included, each in a process of its own; softmax "
        "is fused, eager writes the square out. Printed at 10,000 tokens, in megabytes: "
        + wording.listing([f"{arm} {value:,.0f}" for arm, value in published.MEGABYTES.items()], 9)
        + ", and up to half as much again for larger values; the fused kernel has no square."
    )
    return Block("memory", "Table 3: memory", explain, heads, tuple(rows))


def speed_blocks(results: LongResults) -> list[Block]:
    """Table 7, in training and in use, and peak memory of whole steps."""
    arms = _arms(results, "steps_per_s", "speed")
    if not arms:
        return []
    lengths = [int(n) for n in _numbers(results, "tokens", "speed", "steps_per_s")]
    found = [_rates(results, arms, lengths, kind) for kind in ("training", "inference")]
    return [*found, _peaks(results)]


def _rates(results: LongResults, arms: Sequence[str], lengths: Sequence[int], kind: str) -> Block:
    rows = []
    for arm in arms:
        cells = [arm]
        for tokens in lengths:
            at: dict[str, Label] = {"question": "speed", "arm": arm, "tokens": tokens, "kind": kind}
            rate, up = results.find("steps_per_s", **at), results.find("speed_up", **at, over=DENSE)
            cell = NONE if rate is None else f"{wording.number(float(rate.value or 0.0))}/s"
            cell += f", {ratio_text(up)}" if up is not None else ""
            cells.append(cell + _old_rate(kind, arm, tokens))
        rows.append(tuple(cells))
    explain = (
        "Steps a second of the named backbone on random bytes, about as many tokens in a step at "
        "every length, and how many times the speed of fused dense attention that is (paired). In "
        "brackets the printed steps a second over the printed transformer's, where both are there."
    )
    name = "in training" if kind == "training" else "in use"
    heads = ("arm", *(wording.length(n) for n in lengths))
    return Block(f"speed-{kind}", f"Table 7: speed {name}", explain, heads, tuple(rows))


def _old_rate(kind: str, arm: str, tokens: int) -> str:
    rows = published.RATES[kind]
    own, dense = rows.get(arm, {}).get(tokens), rows[DENSE].get(tokens)
    return "" if own is None or dense is None or arm == DENSE else f" [{own / dense:.2f}x]"


def _peaks(results: LongResults) -> Block:
    places = sorted(
        {
            (str(r.labels["kind"]), int(r.labels["tokens"] or 0))
            for r in results.all("peak_bytes", question="speed")
        },
        reverse=True,
    )
    rows = []
    for arm in _arms(results, "peak_bytes", "speed"):
        cells = [arm]
        for kind, tokens in places:
            found = results.find("peak_bytes", question="speed", arm=arm, kind=kind, tokens=tokens)
            cells.append(NONE if found is None else wording.size_of_bytes(float(found.value or 0)))
        rows.append(tuple(cells))
    heads = ("arm", *(f"{kind}, {wording.length(tokens)}" for kind, tokens in places))
    explain = "Peak growth of memory in one step on one sequence, in a process of its own."
    return Block("peaks", "Memory of a step", explain, heads, tuple(rows))


def transfer_block(results: LongResults) -> list[Block]:
    """Table 4: a pretrained encoder's attention swapped, before and after training."""
    found = list(results.all("score", question="pretrained"))
    if not found:
        return []
    tasks = list(dict.fromkeys(str(r.labels["task"]) for r in found))
    rows = []
    for arm in results.arms("pretrained"):
        for task in tasks:
            cells = [_stage(results, arm, task, stage) for stage in STAGES]
            if any(cell != NONE for cell in cells):
                printed = published.DOWNSTREAM.get(arm, {}).get(task)
                rows.append((arm, task, *cells, NONE if printed is None else f"{printed:.2f}"))
    explain = (
        "A pretrained encoder, fine-tuned with its own attention, all its layers swapped: score "
        "right after, after training on labels alone, and after as many steps that follow the "
        "dense model, first layer by layer. Behind each the difference from the dense model "
        "trained on for as many steps, in points. The last column is what is printed for "
        "BERT-base-like models."
    )
    heads = ("arm", "task", "before", "labels alone", "distilled first", "printed")
    return [Block("pretrained", "Table 4: swapped encoders", explain, heads, tuple(rows))]


def _stage(results: LongResults, arm: str, task: str, stage: str) -> str:
    labels = copies(arm, task, stage)
    score, gap = results.mean("score", **labels), results.difference("score", labels)
    text = score_text(score)
    return text if gap is None or arm == DENSE else f"{text}; {points_text(gap)}"


def copies(arm: str, task: str, stage: str) -> dict[str, Label]:
    """The labels of what is told of an encoder's swapped copies at a stage of their training."""
    return {"question": "pretrained", "task": task, "arm": arm, "stage": stage}


def averages_block() -> Block:
    """The printed averages, and what the printed rows come to."""
    rows = [
        (name, arm, f"{printed:.2f}", f"{real:.2f}", "" if abs(printed - real) < 0.02 else "wrong")
        for name, table in (("Table 4", published.DOWNSTREAM), ("Table 5", published.ARENA))
        for arm, printed, real in published.averages(_known(table))
    ]
    explain = (
        "With the right means Kerformer leads Longformer by 0.2 points in Table 4, and is second "
        "to DCT-Former in Table 5, whose caption says that it is best."
    )
    heads = ("table", "arm", "printed", "mean of the row", "")
    return Block("averages", "Printed averages", explain, heads, tuple(rows))


def _known(rows: Mapping[str, Mapping[str, float]]) -> Mapping[str, Mapping[str, float]]:
    return {arm: row for arm, row in rows.items() if row["printed"] == row["printed"]}
