"""Slimmed models of other answers than one class, scored by the labels of their test split.

    python benchmarks/slim_kinds.py runs/slim

Nothing is run: each folder below the given one with a finished run of slim on a labelled task of
entities, several labels or a ranking counts. The fastest form of each model and precision has a
row, and the served form; speeds are at the first batch size.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from slim_pool import CLASSES, SlimRun, finished
from sparing.core.record import Record
from sparing.experiment.records import RecordTable
from sparing.report.estimates import interval_text, with_ends
from sparing.report.facts import metric_name
from sparing.report.markdown import plain_table
from sparing.slim.evidence.candidates import DENSE, Candidate
from sparing.slim.evidence.kept import kept_share
from sparing.slim.page import lookups
from sparing.slim.promise import form_name, form_of, promise_of

HEADS = (
    *("task", "form", "ms", "over dense float32", "over dense of the precision"),
    *("same answers", "score", "share of the dense score"),
)


def kinds_table(runs: Sequence[SlimRun]) -> str:
    """The rows of all runs."""
    return plain_table(HEADS, [row for run in runs for row in _rows(run)])


def _rows(run: SlimRun) -> Iterator[tuple[str, ...]]:
    table = run.run.table
    batch = lookups.batches(run.run)[0]
    promise = promise_of(table)
    served = None if promise is None else promise.form
    for form in _shown(table, batch, served):
        name = form_name(form) + (" (served)" if form == served else "")
        score = table.find("whole_score", primary=True, **form.labels)
        same = table.value("agreement", **form.labels)
        left = kept_share(table, form.labels)
        yield (
            run.task,
            name,
            _number(table.value("latency_ms", **form.labels, batch=batch, of="mean"), 2),
            interval_text(table.find("speed_up", **form.labels, batch=batch), "{:.2f}".format),
            interval_text(_class_speed(table, form, batch), "{:.2f}".format),
            "–" if same is None else f"{100 * same:.1f} %",
            "–" if score is None else f"{_metric(score)} {score.value:.3f}",
            "–" if left is None else with_ends(left.value, left.interval, "{:.3f}".format),
        )


def _shown(table: RecordTable, batch: int, served: Candidate | None) -> list[Candidate]:
    """The fastest form without exits of each model and precision, and the served one."""
    times: dict[tuple[str, str], tuple[float, Candidate]] = {}
    for record in table.all("latency_ms", of="mean", batch=batch):
        form = form_of(record)
        if record.value is not None and form.threshold == 1:
            key = (form.model, form.precision)
            best = times.get(key)
            if best is None or record.value < best[0]:
                times[key] = (record.value, form)
    order = [(model, precision) for precision in CLASSES for model in (DENSE, "slim")]
    forms = [times[key][1] for key in order if key in times]
    return [*forms, *([served] if served is not None and served not in forms else [])]


def _metric(score: Record) -> str:
    return metric_name({"task": {"metric": score.labels["metric"]}})


def _class_speed(table: RecordTable, form: Candidate, batch: int) -> Record | None:
    """slim over dense in the same precision."""
    if form.model == DENSE:
        return None
    return table.find("class_speed_up", precision=form.precision, batch=batch, form=str(form))


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="the folder of the runs")
    runs = finished(parser.parse_args().runs, followed=True)
    if not runs:
        raise SystemExit("there is no finished run of slim on such a task")
    print(kinds_table(runs))


if __name__ == "__main__":
    main()
