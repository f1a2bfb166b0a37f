"""The tables of the Kerformer study, each beside the printed one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean

from sparing.core.record import Label, Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.estimates import NONE, value_text
from sparing.report.run import Run
from sparing.report.table import Column, table
from sparing_papers.kerformer.page import prose
from sparing_papers.kerformer.page.published import PRINTED, averages
from sparing_papers.long_range import BY_CONTENT, DENSE, KERFORMER
from sparing_papers.long_range.page.lookups import arms, line, mean, named, numbers, tasks
from sparing_papers.long_range.page.tables import ratio_text, score_text

Copy = tuple[str, str]
"""The variant that an encoder was swapped to, and the task that it was trained on."""
Average = tuple[str, str, float, float]
"""Of which table and variant, the average as printed, and that of what is printed."""
ARM = Column[str]("variant", str)
# One head alone has no positions: the printed Kerformer is compared with the form by content.
PRINTED_AS = {BY_CONTENT: KERFORMER}
GIVEN = "the dense model's"
BEFORE, IMITATED, DISTILLED, LABELS = "before", "layers", "warm", "plain"
STAGES = {BEFORE: "before", LABELS: "labels alone", DISTILLED: "distilled first"}
# What follows the dense model's answers leaves the layers as they had learned to imitate.
OF_LAYERS = {BEFORE: "as swapped in", IMITATED: "imitated", LABELS: "labels alone"}
OF_ANSWERS = {
    BEFORE: "as swapped in",
    IMITATED: "imitated",
    DISTILLED: "distilled",
    LABELS: "labels alone",
}


def core_blocks(run: Run) -> list[Block]:
    """Tables 1 to 3."""
    return [block for block in (_time(run), _ranges(run), _memory(run)) if block.rows]


def _arms(run: Run, name: str, question: str) -> list[str]:
    names = named(run, name, "arm", question=question)
    return [DENSE, *(arm for arm in names if arm != DENSE)] if names else []


def _time(run: Run) -> Block:
    names = ("latency_ms", "not_run")
    lengths = {n for name in names for n in numbers(run, name, "tokens", question="cores")}
    columns = [Column(wording.length(n), partial(_time_text, run, n)) for n in sorted(lengths)]
    rows = _arms(run, "latency_ms", "cores")
    return table("time", "Table 1: time by length", prose("time"), rows, [ARM, *columns])


def _time_text(run: Run, tokens: int, arm: str) -> str:
    at: dict[str, Label] = {"question": "cores", "arm": arm, "tokens": tokens}
    took, ratio = (
        run.table.find("latency_ms", **at),
        run.table.find("latency_ratio", over=DENSE, **at),
    )
    cell = value_text(took, wording.latency)
    if took is None:
        cell = _not_run(run.table.find("not_run", of="time", **at))
    if ratio is not None:
        cell += f", {ratio_text(ratio)}"
    printed = PRINTED["seconds"].get(PRINTED_AS.get(arm, arm), {}).get(str(tokens))
    return cell if printed is None else f"{cell} [{printed:,.3g} s]"


def _not_run(record: Record | None) -> str:
    if record is None:
        return NONE
    of_memory = record.labels.get("why") == "memory"
    form = wording.size_of_bytes if of_memory else wording.duration
    return f"not run: {value_text(record, form)} predicted"


def _ranges(run: Run) -> Block:
    spreads = run.table.values_of("range_ratio", "spread", question="cores")

    def column(spread: float) -> Column[str]:
        def cell(arm: str) -> str:
            seconds = PRINTED["seconds_by_range"].get(PRINTED_AS.get(arm, arm), {})
            printed = seconds.get(f"{spread:g}")
            record = run.table.find("range_ratio", question="cores", arm=arm, spread=spread)
            return ratio_text(record) + (f" [{printed / seconds['2']:.2f}x]" if printed else "")

        return Column(f"up to {spread:g}", cell)

    columns = [column(spread) for spread in sorted(float(s or 0) for s in spreads)]
    title, rows = "Table 2: time by range of values", _arms(run, "latency_ms", "cores")
    return table("range", title, prose("range"), rows if columns else [], [ARM, *columns])


def _memory(run: Run) -> Block:
    lengths = numbers(run, "peak_bytes", "tokens", question="cores")
    columns = [Column(wording.length(n), partial(_peak_text, run, n)) for n in lengths]
    rows = _arms(run, "peak_bytes", "cores")
    megabytes = [f"{arm} {value:,.0f}" for arm, value in PRINTED["megabytes"].items()]
    explain = prose("memory", printed=wording.listing(megabytes, 9))
    rows = list(dict.fromkeys((*rows, "eager"))) if rows else []
    return table("memory", "Table 3: memory", explain, rows, [ARM, *columns])


def _peak_text(run: Run, tokens: int, arm: str) -> str:
    """The peak, or the least and the largest where ranges of values differ by a tenth."""
    at: dict[str, Label] = {"question": "cores", "arm": arm, "tokens": tokens}
    peaks = [float(record.value or 0.0) for record in run.table.all("peak_bytes", **at)]
    if not peaks:
        return _not_run(run.table.find("not_run", of="memory", **at))
    cell = wording.size_of_bytes(max(peaks))
    differ = max(peaks) > 1.1 * min(peaks)
    return f"{wording.size_of_bytes(min(peaks))} to {cell}" if differ else cell


def speed_blocks(run: Run) -> list[Block]:
    """Table 7, in training and in use, and peak memory of whole steps."""
    rows = _arms(run, "steps_per_s", "speed")
    if not rows:
        return []
    lengths = numbers(run, "steps_per_s", "tokens", question="speed")
    blocks = []
    for kind, name in (("training", "in training"), ("inference", "in use")):
        columns = [Column(wording.length(n), partial(_rate_text, run, kind, n)) for n in lengths]
        title = f"Table 7: speed {name}"
        blocks.append(table(f"speed-{kind}", title, prose("rates"), rows, [ARM, *columns]))
    return [*blocks, _peaks(run)]


def _rate_text(run: Run, kind: str, tokens: int, arm: str) -> str:
    at: dict[str, Label] = {"question": "speed", "arm": arm, "tokens": tokens, "kind": kind}
    rate, up = run.table.find("steps_per_s", **at), run.table.find("speed_up", over=DENSE, **at)
    cell = NONE if rate is None else f"{value_text(rate, wording.number)}/s"
    cell += f", {ratio_text(up)}" if up is not None else ""
    rows = PRINTED["steps_per_second"][kind]
    printed, dense = (rows.get(name, {}).get(str(tokens)) for name in (arm, DENSE))
    return f"{cell} [{printed / dense:.2f}x]" if printed and dense and arm != DENSE else cell


def _peaks(run: Run) -> Block:
    peaks = run.table.all("peak_bytes", question="speed")
    sizes = {(str(r.labels["kind"]), int(r.labels["tokens"] or 0)) for r in peaks}

    def column(kind: str, tokens: int) -> Column[str]:
        at: dict[str, Label] = {"question": "speed", "kind": kind, "tokens": tokens}
        return Column(
            f"{kind}, {wording.length(tokens)}",
            lambda arm: value_text(
                run.table.find("peak_bytes", arm=arm, **at), wording.size_of_bytes
            ),
        )

    columns = [column(*size) for size in sorted(sizes, reverse=True)]
    rows = _arms(run, "peak_bytes", "speed")
    return table("peaks", "Memory of a step", prose("peaks"), rows, [ARM, *columns])


def swapped_blocks(run: Run) -> list[Block]:
    """Table 4, a pretrained encoder's attention swapped, and its gap to dense attention."""
    blocks = [_scores(run), gap_block(run)]
    return [block for block in blocks if block.rows]


def _swapped(run: Run, columns: Sequence[Column[Copy]]) -> list[Copy]:
    """The swapped encoders of which one of the columns says something."""
    copies = [(arm, task) for arm in arms(run, "pretrained") for task in tasks(run, "pretrained")]
    return [copy for copy in copies if any(column.cell(copy) != NONE for column in columns)]


def _labels(copy: Copy, stage: str) -> dict[str, Label]:
    arm, task = copy
    return {"question": "pretrained", "task": task, "arm": arm, "stage": stage}


OF_COPY = (
    Column[Copy]("variant", lambda copy: copy[0]),
    Column[Copy]("task", lambda copy: copy[1]),
)


def _scores(run: Run) -> Block:
    def stage_text(stage: str, copy: Copy) -> str:
        return score_text(run, "score", **_labels(copy, stage))

    def printed_text(copy: Copy) -> str:
        printed = PRINTED["downstream"].get(copy[0], {}).get(copy[1])
        return NONE if printed is None else f"{printed:.2f}"

    stages = [Column(head, partial(stage_text, stage)) for stage, head in STAGES.items()]
    columns = [*OF_COPY, *stages, Column("printed", printed_text)]
    title, rows = "Table 4: swapped encoders", _swapped(run, stages)
    return table("pretrained", title, prose("swapped"), rows, columns)


def gap_block(run: Run) -> Block:
    """Errors of layers, each given the dense model's inputs, and divergence of answers."""

    def layers_text(stage: str, copy: Copy) -> str:
        records = line(run, "layer_error", "layer", inputs=GIVEN, **_labels(copy, stage))
        errors = [float(record.value or 0.0) for _, record in records]
        if not errors:
            return NONE
        return f"{fmean(errors):.2f} ({min(errors):.2f} to {max(errors):.2f})"

    def answers_text(stage: str, copy: Copy) -> str:
        return value_text(mean(run, "output_divergence", **_labels(copy, stage)), "{:.3f}".format)

    columns = [
        *(Column(f"layers, {name}", partial(layers_text, s)) for s, name in OF_LAYERS.items()),
        *(Column(f"answers, {name}", partial(answers_text, s)) for s, name in OF_ANSWERS.items()),
    ]
    rows = [copy for copy in _swapped(run, columns) if copy[0] != DENSE]
    title = "The gap to dense attention"
    return table("gap", title, prose("gap"), rows, [*OF_COPY, *columns])


def averages_block() -> Block:
    """The printed averages, and what the printed rows come to."""
    rows = [
        (f"Table {number}", *row)
        for number, name in ((4, "downstream"), (5, "arena"))
        for row in averages(PRINTED[name])
    ]
    columns = (
        Column[Average]("table", lambda row: row[0]),
        Column[Average]("variant", lambda row: row[1]),
        Column[Average]("printed", lambda row: f"{row[2]:.2f}"),
        Column[Average]("mean of the row", lambda row: f"{row[3]:.2f}"),
        Column[Average]("", lambda row: "" if abs(row[2] - row[3]) < 0.02 else "wrong"),
    )
    return table("averages", "Printed averages", prose("averages"), rows, columns)
