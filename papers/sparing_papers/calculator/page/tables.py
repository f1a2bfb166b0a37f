"""The tables of the calculator study: networks, the published table beside, claims, lengths."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from operator import itemgetter
from typing import Any

from sparing.core.record import Label, Record
from sparing.report import wording
from sparing.report.blocks import WOULD_NEED, Block, need_text
from sparing.report.estimates import NONE, Form, interval_text, share_text, value_text
from sparing.report.run import Run
from sparing.report.table import Column, table
from sparing_papers.calculator.analysis import (
    SETS,
    energy_of,
    is_exact,
    legacy_span,
    line_of,
    mean_of,
    right_share,
)
from sparing_papers.calculator.claims import verdict_of
from sparing_papers.calculator.names import NETWORKS
from sparing_papers.calculator.page.content import TEXT, evaluated_arms, seeds

PUBLISHED_SETS = {"In range": "in", "Out of range": "published out", "Long": "published long"}
ALONG = (
    ("operands", "Error by number of operands", "operands", "published long"),
    ("far", "Error by number of operands, out of range too", "operands", "out+long"),
    ("largest", "Error by size of the largest operand", "largest", "out"),
)
EPOCHS = {
    "with_prompt": "Right tokens, prompt's among them",
    "tokens": "Right tokens of answers",
    "whole_answers": "Answers right throughout",
    "exact": "Exact, written freely",
}
Cells = Mapping[str, str]


@cache
def printed() -> dict[str, Any]:
    """What the paper prints: quoted, not measured."""
    file = resources.files(__package__ or "").joinpath("published.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def number(value: float) -> str:
    """An error or a score: two decimals, more where it is small."""
    if abs(value) < 1e-4:
        return "0" if abs(value) < 1e-9 else f"{value:.0e}"
    if abs(value) < 1e4:
        return f"{value:.4f}" if abs(value) < 0.1 else f"{value:.2f}"
    return f"{value:.2g}"


def whole(value: float) -> str:
    """A count."""
    return f"{value:,.0f}"


def mean_column(
    run: Run, head: str, name: str, text: Callable[[Record | None], str], **labels: Label
) -> Column[str]:
    """A column of a variant's means over seeds."""
    return Column(head, lambda arm: text(mean_of(run.table, name, arm, **labels)))


def of_form(form: Form) -> Callable[[Record | None], str]:
    """How a value alone is written."""
    return lambda record: value_text(record, form)


def with_interval(record: Record | None) -> str:
    """A mean with its interval over seeds."""
    return interval_text(record, number)


def network_blocks(run: Run) -> list[Block]:
    """Every variant on every corrected set: exact answers, then errors and costs."""
    arms, measured = evaluated_arms(run), wording.count_of(seeds(run), "seed")
    network: Column[str] = Column("Network", str)
    exact = [
        network,
        mean_column(run, "Weights", "parameters", of_form(whole), of="architecture"),
        *(mean_column(run, f"Exact, {name}", "exact", share_text, set=name) for name in SETS),
        mean_column(run, "Bounded score", "bounded_score", with_interval),
    ]
    errors = [
        network,
        *(
            mean_column(run, f"Error, {name}", "mean_error", with_interval, set=name)
            for name in SETS
        ),
        Column("Published score", lambda arm: _legacy(run, arm)),
        Column("Energy", lambda arm: value_text(energy_of(run.table, arm), wording.energy)),
        mean_column(run, "Time", "train_time_s", of_form(wording.duration)),
    ]
    return [
        table("networks", "Networks", TEXT("networks", seeds=measured), arms, exact),
        table("errors", "Errors", TEXT("errors", seeds=measured), arms, errors),
    ]


def _legacy(run: Run, arm: str) -> str:
    """The published score, which is infinite for a network that errs nowhere."""
    span = legacy_span(run.table, arm)
    return "infinite" if span is None and is_exact(run.table, arm) else with_interval(span)


def _from_cells(key: str, title: str, explain: str, rows: list[Cells]) -> Block:
    """A table of rows that bring their heads along."""
    columns: list[Column[Cells]] = [Column(head, itemgetter(head)) for head in rows[0]]
    return table(key, title, explain, rows, columns)


def published_block(run: Run) -> Block:
    """Each printed figure, the later one, the measured one, and why they differ."""
    arms = list(enumerate(printed()["arms"]))
    rows = [_beside(run, row, n, arm) for row in printed()["rows"] for n, arm in arms]
    rows += [_sizes(run, n, arm) for n, arm in arms]
    return _from_cells("published", "Beside the published table", TEXT("published"), rows)


def _beside(run: Run, row: Mapping[str, Any], number: int, arm: str) -> Cells:
    """A printed figure of one column beside the measured one."""
    labels = {"set": row["set"]} if "set" in row else {}
    return {
        "Quantity": f"{row['title']}: {arm}",
        "Printed": f"{row['first'][number]:.4g}",
        "Later revision": f"{row['later'][number]:g}",
        "Here": with_interval(mean_of(run.table, row["record"], arm, **labels)),
        "Why they differ": row["why"],
    }


def _sizes(run: Run, number: int, arm: str) -> Cells:
    """Weights and optimiser state of one column, printed and here."""
    kinds = ("architecture", "optimizer")
    theirs = " + ".join(whole(float(printed()[kind][number])) for kind in kinds)
    sizes = (mean_of(run.table, "parameters", arm, of=kind) for kind in kinds)
    ours = " + ".join(value_text(size, whole) for size in sizes)
    return {
        "Quantity": f"Weights + optimiser state: {arm}",
        "Printed": theirs,
        "Later revision": NONE,
        "Here": ours,
        "Why they differ": "the same" if theirs == ours else "",
    }


def claims_block(run: Run) -> Block:
    """Each claim with its number and verdict."""

    def value(goal: Mapping[str, Any]) -> str:
        given = goal.get("value")
        return number(given) if isinstance(given, int | float) else str(given or NONE)

    columns: list[Column[Mapping[str, Any]]] = [
        Column("Claim", lambda goal: str(goal["name"]).partition(": ")[0]),
        Column("Measured by", lambda goal: str(goal["name"]).partition(": ")[2]),
        Column("Value", value),
        Column("Interval", lambda goal: " to ".join(map(number, goal["interval"] or ())) or NONE),
        Column("Verdict", verdict_of),
    ]
    columns += [Column(WOULD_NEED, need_text)] if any(map(need_text, run.goals)) else []
    questions = run.config.get("questions") or [NETWORKS]  # older runs do not say so
    explain = [TEXT("claims"), *([TEXT("claims-networks")] if NETWORKS in questions else [])]
    return table("claims", "The published claims", " ".join(explain), run.goals, columns)


def along_blocks(run: Run) -> list[Block]:
    """Errors by number of operands and by distance from training, for every variant."""
    blocks = []
    for key, title, along, name in ALONG:
        lines = {
            arm: dict(line)
            for arm in evaluated_arms(run)
            if (line := line_of(run.table, "mean_error", arm, along, set=name))
        }
        columns: list[Column[str]] = [Column("Network", str)]
        columns += [
            _at(lines, value) for value in sorted({at for line in lines.values() for at in line})
        ]
        explain = TEXT("along", set=name, along=title.partition(" by ")[2])
        blocks += [table(key, title, explain, lines, columns)] if lines else []
    return blocks


def _at(lines: Mapping[str, Mapping[int, Record]], value: int) -> Column[str]:
    return Column(str(value), lambda arm: with_interval(lines[arm].get(value)))


def sensitivity_block(run: Run) -> list[Block]:
    """How an answer follows each operand, by place and by size."""

    def along(label: str) -> Callable[[str], str]:
        return lambda arm: ", ".join(
            value_text(record, number)
            for _, record in line_of(run.table, "sensitivity", arm, label, operands=3)
        )

    arms = [
        arm
        for arm in evaluated_arms(run)
        if line_of(run.table, "sensitivity", arm, "place", operands=3)
    ]
    columns: list[Column[str]] = [
        Column("Network", str),
        Column("By place, 1 to 3", along("place")),
        Column("By size, 0 to 5", along("size")),
        mean_column(run, "Weight and size of a number", "attention_size", with_interval),
        mean_column(run, "Answers nearer to the last number", "closer_to_last", share_text),
    ]
    if not arms:
        return []
    truth = run.table.values_of("closer_to_last", "truth")[0]
    explain = TEXT("sensitivity", truth=wording.share(float(truth or 0.0)))
    return [table("sensitivity", "What answers hang on", explain, arms, columns)]


def language_blocks(run: Run) -> list[Block]:
    """Language models: as printed, and tuned here, with and without their own words."""
    rows = [_as_printed(model) for model in printed()["language_models"]]
    tuned = [dict(r.labels) for r in run.table.all("language_parameters", of="model")]
    rows += [
        _tuned(run, {key: labels[key] for key in ("language_model", "way")}) for labels in tuned
    ]
    explain = TEXT("language", sums=run.config.get("language_model_tests"))
    blocks = [_from_cells("language", "Language models", explain, rows)]
    return blocks + ([_epochs(run)] if tuned else [])


def _as_printed(model: Mapping[str, Any]) -> Cells:
    """A model's printed accuracies, with the intervals that their counts of replies give."""
    shares = zip(model["printed"], model["asked"], strict=True)
    texts = (_right(round(percent * count / 100), count) for percent, count in shares)
    return {
        "Model": f"{model['name']} (printed)",
        "Weights": model["weights"],
        **dict(zip(PUBLISHED_SETS, texts, strict=True)),
        "Note": model["note"],
    }


def _tuned(run: Run, labels: dict[str, Label]) -> Cells:
    """A model that was tuned here."""

    def right(name: str) -> str:
        record = run.table.find("language_right", set=name, **labels)
        return NONE if record is None else _right(int(record.value or 0), record.count or 1)

    def lost(kind: str) -> str:
        records = run.table.all(f"language_{kind}", **labels)
        return f"{kind} {whole(sum(float(record.value or 0) for record in records))}"

    size = run.table.find("language_parameters", of="model", **labels)
    return {
        "Model": f"{labels['language_model']}, {labels['way']}",
        "Weights": value_text(size, whole),
        **{head: right(name) for head, name in PUBLISHED_SETS.items()},
        "Note": f"replies {lost('empty')}, {lost('malformed')}",
    }


def _right(right: int, count: int) -> str:
    return interval_text(right_share(right, count), lambda share: f"{100 * share:.1f}", " %")


def _epochs(run: Run) -> Block:
    """A language model's tokens and answers, epoch by epoch."""
    records = [record for name in EPOCHS for record in run.table.all(f"language_{name}")]
    rows = sorted({(str(r.labels["way"]), int(r.labels["epoch"] or 0)) for r in records})

    def share(name: str) -> Callable[[tuple[str, int]], str]:
        return lambda row: share_text(run.table.find(f"language_{name}", way=row[0], epoch=row[1]))

    columns: list[Column[tuple[str, int]]] = [
        Column("Tuning", lambda row: "{}, epoch {}".format(*row))
    ]
    columns += [Column(head, share(name)) for name, head in EPOCHS.items()]
    return table("epochs", "Tokens and answers", TEXT("epochs"), rows, columns)
