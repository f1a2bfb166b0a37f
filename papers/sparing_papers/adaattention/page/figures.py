"""The figure of the AdaAttention page: speed by length, measured, bounded and printed."""

from __future__ import annotations

from sparing.experiment.records import RecordTable
from sparing.report import wording
from sparing.report.figures.chart import Point, Scales, lines_plot, points
from sparing.report.figures.drawing import Plot
from sparing_papers.adaattention.findings import lengths_of, speed_at
from sparing_papers.adaattention.names import AS_PRINTED, FREE, FULL, FULL_INT8, NARROW, name_of_arm
from sparing_papers.adaattention.page.texts import TEXT

PRINTED = "the paper's figures"
_FORMS = (
    *(FULL, AS_PRINTED, PRINTED, FREE, "skip", NARROW),
    *("linformer", "bigbird", "prune", "uniform"),
)
_CLASSES = (("10-50", 10, 50), ("50-200", 50, 200), ("200+", 200, 512))


def positions() -> dict[str, int]:
    """Every name of the legend, with the key of its colour and marker."""
    return {label_of(form): position for position, form in enumerate(_FORMS)}


def label_of(form: str) -> str:
    """A line's name on the figure."""
    if form == AS_PRINTED:
        return "as printed, measured"
    return form if form == PRINTED else name_of_arm(form)


def speeds(records: RecordTable) -> Plot:
    """Speed over the full model by length at BERT-base's shape, and the paper's steps."""
    lengths = lengths_of(records)
    timed = {
        form: [(float(tokens), r) for tokens in lengths if (r := speed_at(records, form, tokens))]
        for form in _FORMS
    }
    lines = {label_of(form): points(line) for form, line in timed.items()}
    description = TEXT("speeds")
    quantised = speed_at(records, FULL_INT8, max(lengths, default=0))
    if quantised is not None and quantised.value is not None:
        speed, length = wording.factor(quantised.value), wording.length(max(lengths))
        description += f" {TEXT('speeds-int8', speed=speed, length=length)}"
    if any(lines.values()):
        lines[PRINTED] = _steps(records, max(lengths))
    title = "Speed by length, at the shape of BERT-base"
    scales = Scales("tokens", "Speed over dense fused attention", log_x=True, level=1.0)
    missing = TEXT("speeds-missing")
    return lines_plot("speeds", title, description, lines, positions(), scales, missing)


def _steps(records: RecordTable, longest: int) -> list[Point]:
    """The printed speed over each class of length, from its shortest to its longest text."""
    printed = {
        record.labels.get("length_class"): float(record.value or 1.0) for record in records.claims
    }
    return [
        (float(tokens), printed[name], None)
        for name, low, high in _CLASSES
        if name in printed
        for tokens in (low, max(high, longest) if name == "200+" else high)
    ]
