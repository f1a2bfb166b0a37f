"""The tables of slim_shapes.py, from its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparing.core.record import Record

DENSE, FREE = "dense", "dense without attention"
ENGINES = {"eager": "PyTorch", "compiled": "torch.compile", "onnxruntime": "ONNX Runtime"}
NAMES = {"minilm": "MiniLM's shape", "bert-base": "BERT-base's shape"}
GOAL = 0.2
MEBI = 2**20
INTRODUCTION = """# Slim at other shapes

Random weights, one thread, float32. Speed is over the fastest dense form of the same cell (in
bold), the median over rounds of paired ratios with its 95 % interval. "As chosen on SST-2" and "on
MRPC" are the plans that slim chose there on MiniLM, carried over by shares, with as many inputs
exiting after each layer as there. These exit rates are stated, since random weights have none, and
nothing here is about accuracy. FLOPs are the executed ones, as a share of the dense model's."""


def page(records: Sequence[Record], earlier: Mapping[str, Mapping[str, float]]) -> str:
    """The whole page as Markdown; ``earlier`` are seconds of training by task and variant."""
    parts = [INTRODUCTION]
    cells = dict.fromkeys(
        (r.labels["shape"], r.labels["batch"], r.labels["tokens"])
        for r in records
        if r.name == "attention_share"
    )
    for shape, batch, tokens in sorted(cells, key=str_then_numbers):
        of = {"shape": shape, "batch": batch, "tokens": tokens}
        parts.append(speed_table([r for r in records if of.items() <= r.labels.items()], of))
    shapes = dict.fromkeys(r.labels["shape"] for r in records if r.name == "peak_bytes")
    parts += [memory_table(records, str(shape)) for shape in shapes]
    if any(r.name == "step_overhead" for r in records):
        parts.append(training_table(records))
    if earlier:
        parts.append(totals_table(earlier))
    return "\n\n".join(parts) + "\n"


def str_then_numbers(cell: tuple) -> tuple:
    """MiniLM first, then by batch and length."""
    shape, batch, tokens = cell
    return list(NAMES).index(shape), batch, tokens


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ranged(record: Record, digits: int = 2, scale: float = 1.0) -> str:
    """A value with its interval."""
    value = f"{scale * (record.value or 0.0):.{digits}f}"
    if record.interval is None:
        return value
    low, high = (f"{scale * end:.{digits}f}" for end in record.interval)
    return f"{value} ({low} to {high})"


def speed_table(records: Sequence[Record], of: Mapping[str, object]) -> str:
    """One cell: a row for each form and engine."""
    times = [r for r in records if r.name == "latency_ms" and r.labels["arm"] != FREE]
    ratios = {(r.labels["arm"], r.labels["engine"]): r for r in records if r.name == "speed_up"}
    flops = {r.labels["arm"]: r.value or 0.0 for r in records if r.name == "flops"}
    rows = []
    for r in times:
        form = (r.labels["arm"], r.labels["engine"])
        baseline = form not in ratios
        latency = f"{r.value:.3g}"
        cells = [
            str(form[0]),
            ENGINES[str(form[1])],
            f"**{latency}**" if baseline else latency,
            "1" if baseline else ranged(ratios[form]),
            f"{100 * flops[form[0]] / flops[DENSE]:.0f} %",
        ]
        rows.append(cells)
    share = next(r for r in records if r.name == "attention_share")
    counted = next(r for r in records if r.name == "attention_flops_share")
    title = f"## {NAMES[str(of['shape'])]}, batch {of['batch']}, {of['tokens']} tokens"
    text = (
        f"Attention is {ranged(share, 0, 100)} % of the dense model's time in PyTorch and "
        f"{100 * (counted.value or 0):.0f} % of its FLOPs. {times[0].count} rounds."
    )
    head = ["form", "engine", "milliseconds", "speed", "FLOPs"]
    return "\n\n".join([title, text, table(head, rows)])


def memory_table(records: Sequence[Record], shape: str) -> str:
    """Peak and weights of each form of a shape, and whether a fifth is saved."""
    peaks = [r for r in records if r.name == "peak_bytes" and r.labels["shape"] == shape]
    weights = {
        (r.labels["arm"], r.labels["engine"]): r.value or 0.0
        for r in records
        if r.name == "weight_bytes" and r.labels["shape"] == shape
    }
    dense = {r.labels["engine"]: r.value or 0.0 for r in peaks if r.labels["arm"] == DENSE}
    rows = []
    for r in peaks:
        arm, engine = str(r.labels["arm"]), str(r.labels["engine"])
        less = 1 - (r.value or 0.0) / dense[engine]
        saved = "" if arm == DENSE else f"{100 * less:+.0f} %"
        met = "" if arm == DENSE else "yes" if less >= GOAL else "no"
        peak, held = (r.value or 0.0) / MEBI, weights[arm, engine] / MEBI
        rows.append([arm, ENGINES[engine], f"{peak:.0f}", saved, met, f"{held:.1f}"])
    batch, tokens = peaks[0].labels["batch"], peaks[0].labels["tokens"]
    title = f"## Memory, {NAMES[shape]}, batch {batch} of {tokens} tokens"
    text = (
        "What one call adds to the loaded model at its peak, each form in a fresh process; no "
        "input exits early. Less is relative to the dense model in the same engine."
    )
    head = ["form", "engine", "peak, MiB", "less", "at least 20 %", "weights, MiB"]
    return "\n\n".join([title, text, table(head, rows)])


def training_table(records: Sequence[Record]) -> str:
    """Steps of both kinds, the overhead, and the memory of a step."""
    rows = []
    for overhead in (r for r in records if r.name == "step_overhead"):
        of = overhead.labels.items()
        steps = {
            r.labels["step"]: r.value or 0.0
            for r in records
            if r.name == "step_ms" and of <= r.labels.items()
        }
        rows.append(
            [
                str(overhead.labels["texts"]),
                str(overhead.labels["precision"]),
                "yes" if overhead.labels["attention_dropout"] else "no",
                f"{steps['fine-tune']:.0f}",
                f"{steps['distil']:.0f}",
                f"{ranged(overhead, 0, 100)} %",
            ]
        )
    head = ["texts", "precision", "attention dropout", "fine-tune, ms", "distil, ms", "more"]
    text = (
        "A step of distilling (teacher, exits, a sampled width) beside a step of fine-tuning the "
        "dense model, on the same batches of 32; the interval is over batches."
    )
    peaks = [
        f"{r.labels['step']}: {(r.value or 0) / MEBI:.0f} MiB"
        for r in records
        if r.name == "train_peak_bytes"
    ]
    more = ["What a step adds to what is loaded, float32: " + "; ".join(peaks) + "."] * bool(peaks)
    return "\n\n".join(["## Training", text, table(head, rows), *more])


def totals_table(earlier: Mapping[str, Mapping[str, float]]) -> str:
    """What slim trained in the committed runs, beside fine-tuning alone."""
    rows = []
    for task, arms in earlier.items():
        dense, ours = arms.get("dense"), arms.get("slim")
        if dense and ours:
            more = f"{100 * ours / dense:+.0f} %"
            rows.append([task, f"{dense:.0f}", f"{ours:.0f}", more])
    head = ["run", "fine-tuning, s", "distilling, s", "more training in all"]
    text = "Seconds in training steps of the committed runs of slim, with the epochs given there."
    return "\n\n".join(["## Training of a whole run", text, table(head, rows)])
