"""The result of ``agree``: as text, as JSON with its records, and the changed texts as a file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sparing.agree.comparison import Agreement, Change, PairedDifference, counts_of
from sparing.agree.options import Options
from sparing.answers import Finding
from sparing.core.errors import UsageError, quoted
from sparing.core.reading import parse_json
from sparing.core.record import Labels, Record
from sparing.core.rounding import rounded_down
from sparing.core.writing import write_atomically
from sparing.measure.inputs import SpeedUp
from sparing.measure.load import Load
from sparing.measure.machine import commit, machine, machine_id

SHOWN_CHANGES, SHOWN_COUNTS, TEXT_CHARACTERS = 20, 10, 70
ENDINGS = (".jsonl", ".csv")
NAMES = ["row", "text", "a", "b", "a_probability", "b_probability"]
WORDS = {"eager": "PyTorch", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


@dataclass(frozen=True)
class Speed:
    """B's speed over A's, without and with the tokenizer; mean times in ms by call."""

    model: SpeedUp
    with_tokenizer: SpeedUp
    mean_ms: Mapping[str, float]
    load: Load | None


@dataclass(frozen=True)
class Reference:
    """The agreement of A and of B with a third model, and their difference in pairs."""

    name: str
    a: Agreement
    b: Agreement
    difference: PairedDifference


@dataclass(frozen=True)
class Result:
    """How far two models agree; prints as a few lines.

    ``noun`` says what has an answer, such as a text, and what is the same then. ``changes`` are
    those with another answer, the farthest first. ``findings`` are further numbers of their kind.
    """

    a: str
    b: str
    engines: tuple[str, str]
    source: str
    noun: tuple[str, str]
    agreement: Agreement
    findings: tuple[Finding, ...]
    changes: tuple[Change, ...] = field(repr=False)
    speed: Speed | None
    reference: Reference | None
    options: Options
    notes: tuple[str, ...] = ()

    def finding(self, name: str) -> float:
        """The value of a further number of the comparison; ``KeyError`` where there is none."""
        return {one.name: one.value for one in self.findings}[name]

    @property
    def counts(self) -> list[tuple[str, str, int]]:
        """How often each answer became each other one, the most frequent first."""
        return counts_of(self.changes)

    @property
    def required(self) -> dict[str, Agreement]:
        """The agreements that must reach ``at_least``: with the reference, if there is one."""
        if self.reference is None:
            return {f"{self.b} with {self.a}": self.agreement}
        name = self.reference.name
        return {
            f"{self.a} with {name}": self.reference.a,
            f"{self.b} with {name}": self.reference.b,
        }

    @property
    def missed(self) -> list[str]:
        """A line for each agreement that is not shown to be high enough; none if all are."""
        needed, lines, several = self.options.at_least, [], plural(self.noun[0])
        for names, one in self.required.items():
            if one.least < needed:
                more = f": more {several} narrow the bound" if one.share > needed else ""
                seen = f"{100 * one.share:.2f} % on {one.texts:,} {several}"
                lines.append(
                    f"the agreement of {names} is shown to be at least {_down(one.least)} with 95 "
                    f"% confidence ({seen}), and {100 * needed:g} % is required{more}"
                )
        return lines

    def records(self) -> list[Record]:
        """The results as records, with the machine and the code."""
        names: Labels = {
            "a": self.a,
            "b": self.b,
            "source": self.source,
            "batch": self.options.batch,
        }
        count = self.agreement.texts
        records = [
            *_records("both", self.agreement, names),
            *(_of(one.name, one.value, one.unit, names, count) for one in self.findings),
            *self._reference_records(names),
            *self._speed_records(names),
        ]
        host, code = machine_id(machine()), commit()
        return [replace(record, machine=host, commit=code) for record in records]

    def _reference_records(self, names: Labels) -> list[Record]:
        if self.reference is None:
            return []
        gap, labels = self.reference.difference, {**names, "reference": self.reference.name}
        return [
            *_records("a", self.reference.a, labels),
            *_records("b", self.reference.b, labels),
            _of(
                "agreement_difference",
                gap.value,
                "share",
                {**labels, "p": gap.p_value},
                self.reference.a.texts,
                gap.interval,
            ),
        ]

    def _speed_records(self, names: Labels) -> list[Record]:
        if self.speed is None:
            return []
        records = []
        for tokenizer, ratio in ((False, self.speed.model), (True, self.speed.with_tokenizer)):
            labels: Labels = {**names, "tokenizer": tokenizer, "threads": self.options.threads}
            records.append(
                _of("agree_speed_up", ratio.value, "ratio", labels, ratio.inputs, ratio.interval)
            )
        load = self.speed.load
        return [*records, *([load.record()] if load is not None else [])]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the records, and what is no number."""
        return {
            "a": self.a,
            "b": self.b,
            "engines": list(self.engines),
            "source": self.source,
            "texts": self.agreement.texts,
            "changed": self.agreement.changed,
            "agreement": self.agreement.share,
            "agreement_at_least": self.agreement.least,
            "confidence": 0.95,
            "closer_to_reference": self.reference and self.reference.difference.closer,
            "counts": [{"from": a, "to": b, "count": count} for a, b, count in self.counts],
            "missed": self.missed,
            "notes": list(self.notes),
            "records": [parse_json(record.to_json()) for record in self.records()],
        }

    def __str__(self) -> str:
        lines = [
            f"A: {self.a} ({WORDS[self.engines[0]]})",
            f"B: {self.b} ({WORDS[self.engines[1]]})",
            *self.notes,
            "",
            *self._agreement("B", "A", self.agreement),
            f"This is agreement on {plural(self.noun[0])} like these, not correctness.",
            *(one.words for one in self.findings if one.words),
            *self._speed_lines(),
            *self._reference_lines(),
            *self._change_lines(),
        ]
        return "\n".join(lines)

    def _speed_lines(self) -> list[str]:
        if self.speed is None:
            return []
        way = (
            "one text at a time"
            if self.options.batch == 1
            else f"{self.options.batch} texts at a time"
        )
        model, whole = self.speed.model, self.speed.with_tokenizer
        lines = [
            f"Speed: B is {_times(model)} as fast as A, {way}; {_times(whole)} with the tokenizer."
        ]
        if self.speed.load is not None and self.speed.load.disturbance:
            lines.append(f"The times cannot be relied on: {self.speed.load.disturbance}.")
        return lines

    def _reference_lines(self) -> list[str]:
        if self.reference is None:
            return []
        gap = self.reference.difference
        low, high = gap.interval
        verdict = f"{gap.closer} agrees more" if gap.closer != "undecided" else "undecided"
        return [
            "",
            f"Reference: {self.reference.name}",
            *self._agreement("A", "the reference", self.reference.a),
            *self._agreement("B", "the reference", self.reference.b),
            f"B less A: {100 * gap.value:+.2f} percentage points (95 % interval {100 * low:+.2f} "
            f"to {100 * high:+.2f}; McNemar p = {gap.p_value:.3g}): {verdict}.",
        ]

    def _agreement(self, name: str, other: str, agreement: Agreement) -> list[str]:
        same, (noun, answer) = agreement.texts - agreement.changed, self.noun
        return [
            f"{name} gives {answer} as {other} on {same:,} of {agreement.texts:,} {plural(noun)} "
            f"({100 * agreement.share:.2f} %).",
            f"With 95 % confidence at least {_down(agreement.least)} of {plural(noun)} like these "
            f"get {answer}.",
        ]

    def _change_lines(self) -> list[str]:
        if not self.changes:
            return []
        rows = [_change_line(change) for change in self.changes[:SHOWN_CHANGES]]
        more = len(self.changes) - SHOWN_CHANGES
        tail = [f"  and {more:,} more; --changed FILE writes all"] if more > 0 else []
        if self.changes[0].before_probability is None:
            head = f"Changed {plural(self.noun[0])}, those that differ most first:"
            return ["", head, *rows, *tail]
        counts = [f"  {a} -> {b}: {count:,}" for a, b, count in self.counts[:SHOWN_COUNTS]]
        if len(self.counts) > SHOWN_COUNTS:
            counts.append(f"  and {len(self.counts) - SHOWN_COUNTS} other pairs")
        head = "Changed texts, those of which A was surest first:"
        return ["", "Changed answers, from A to B:", *counts, "", head, *rows, *tail]


def plural(noun: str) -> str:
    """Several of them."""
    return {"query": "queries"}.get(noun, f"{noun}s")


def _change_line(change: Change) -> str:
    before, after = (
        answer if probability is None else f"{answer} ({probability:.2f})"
        for answer, probability in (
            (change.before, change.before_probability),
            (change.after, change.after_probability),
        )
    )
    text = quoted(" | ".join(change.texts), TEXT_CHARACTERS)
    row = f"row {change.row}" + (f" ({change.gap})" if change.gap else "")
    answers = before if before == after else f"{before} -> {after}"
    return f"  {row}: {answers}: {text}"


def require_ending(path: Path) -> None:
    """Raise ``UsageError`` for a file of changed texts that ends in neither .jsonl nor .csv."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"{path}: changed texts are written as {' or '.join(ENDINGS)}")


def write_changes(result: Result, path: Path) -> None:
    """All changed texts, the ones of which A was surest first, as .jsonl or .csv."""
    require_ending(path)
    rows = [
        {
            "row": change.row,
            "text": change.texts[0],
            **({"pair": change.texts[1]} if len(change.texts) > 1 else {}),
            "a": change.before,
            "b": change.after,
            **_numbers(change),
        }
        for change in result.changes
    ]
    if path.suffix.lower() == ".jsonl":
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    else:
        names = list(rows[0]) if rows else NAMES
        table = io.StringIO(newline="")
        writer = csv.DictWriter(table, names)
        writer.writeheader()
        writer.writerows(rows)
        lines = table.getvalue()
    write_atomically(path, lines)


def _numbers(change: Change) -> dict[str, float]:
    """What a file has beside the answers: probabilities, or how different the answers are."""
    if change.before_probability is None or change.after_probability is None:
        return {"distance": round(change.distance, 6)}
    return {
        "a_probability": round(change.before_probability, 6),
        "b_probability": round(change.after_probability, 6),
    }


def _down(share: float) -> str:
    return f"{rounded_down(100 * share, 2):.2f} %"


def _times(ratio: SpeedUp) -> str:
    if ratio.interval is None:
        return f"{ratio.value:.2f} times"
    low, high = ratio.interval
    return f"{ratio.value:.2f} times ({low:.2f} to {high:.2f})"


def _records(role: str, agreement: Agreement, names: Labels) -> list[Record]:
    labels: Labels = {**names, "of": role}
    share = _of(
        "agreement", agreement.share, "share", labels, agreement.texts, (agreement.least, 1.0)
    )
    changed = _of("changed_answers", agreement.changed, "texts", labels, agreement.texts)
    return [share, changed]


def _of(
    name: str,
    value: int | float,
    unit: str,
    labels: Labels,
    count: int,
    interval: tuple[float, float] | None = None,
) -> Record:
    return Record(name, value, unit, "measured", dict(labels), interval, count)
