"""Advice for one model on this machine: where its time goes, and what would make it faster.

``sparing advise MODEL`` runs it, in one or two minutes for a small encoder.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.advise.curves import (
    LENGTHS,
    Candidate,
    WholeModel,
    candidates,
    crossover_records,
    fastest,
    measure_as_given,
    measure_length,
    measure_whole,
    whole_records,
)
from sparing.advise.decision import Decision, decide
from sparing.advise.engines import Engines, measure_engines
from sparing.advise.model import Subject, open_subject, random_inputs, resolve_tokens
from sparing.advise.numbers import ratio_words
from sparing.advise.padding import Padding, Texts, measure_padding, tokenise
from sparing.advise.parts import Part, Parts, measure_parts, part_records
from sparing.advise.remedies import Findings, Remedy, remedies
from sparing.advise.tables import notes, tables
from sparing.compare.cells import latency_records
from sparing.core.errors import UsageError
from sparing.core.progress import Progress
from sparing.core.record import RECORDS, Record, RecordLog
from sparing.core.writing import write_atomically
from sparing.measure.load import collected, worst
from sparing.measure.machine import Facts, commit, machine, machine_id
from sparing.report.blocks import Block
from sparing.tasks.texts import read_texts

if TYPE_CHECKING:
    from torch import nn

SECONDS = {"parts": 12.0, "padding": 30.0, "engines": 20.0, "curves": 4.0, "whole": 10.0}
ROUNDS = {"parts": 20, "padding": 8, "engines": 8, "curves": 12, "whole": 20}
FEWEST_ROUNDS = 5
SHOWN_ROWS, MOST_LINES = 9, 40  # of a table, of the whole as text


@dataclass(frozen=True)
class Options:
    """The options of advice.

    ``tokens`` is the length to advise on (by default 512, or the model's limit). ``mechanisms`` are
    those to measure, all if empty. ``lengths`` are those of the crossover curves, 64 to 4,096 if
    empty. ``thread_count`` pins PyTorch's threads (None: PyTorch's default). ``engines`` times the
    model in every engine and precision that is installed: PyTorch, ONNX Runtime and OpenVINO, in
    float32, bfloat16 and INT8. ``quick`` halves the rounds and their time.
    """

    tokens: int | None = None
    batch: int = 1
    mechanisms: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()
    thread_count: int | None = None
    engines: bool = True
    quick: bool = False

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise UsageError(f"--batch must be at least 1; got {self.batch}")
        if self.thread_count is not None and self.thread_count < 1:
            raise UsageError(f"--threads must be at least 1; got {self.thread_count}")
        if min(self.lengths, default=1) < 1:
            raise UsageError(f"--lengths must be at least 1; got {min(self.lengths)}")

    def timing(self, stage: str) -> dict[str, Any]:
        """Rounds, threads and seconds of a stage, for the timers."""
        part = 0.5 if self.quick else 1.0
        return {
            "rounds": max(FEWEST_ROUNDS, round(part * ROUNDS[stage])),
            "threads": self.thread_count,
            "budget_s": part * SECONDS[stage],
        }


@dataclass(frozen=True)
class Advice:
    """What would make a model faster on this machine, and why.

    ``recommendation`` is the text; ``decision`` is one of six: keep dense, swap, drop padding,
    change engine, fold, undecided. ``remedies`` are all remedies with their effects: padding, every
    engine and precision, and a fold by their measured gain, then slim, and attention last.
    ``parts`` sum to the whole model's time. ``mechanisms`` hold each core's ratio by length;
    ``whole`` is the predicted and measured effect of the best. ``padding`` is the cost of pads on
    the given texts; ``engines`` is the dense model in other engines and precisions. ``records``
    hold every number. ``disturbance`` is what kept the machine busy meanwhile: then nothing is
    decided. A notebook shows tables.
    """

    model: str
    model_class: str
    tokens: int
    batch: int
    threads: int
    decision: Decision
    recommendation: str
    remedies: tuple[Remedy, ...]
    parts: tuple[Part, ...]
    largest_gain: float
    padding: Padding | None
    engines: Engines
    mechanisms: tuple[Candidate, ...]
    whole: WholeModel | None
    notes: tuple[str, ...]
    tables: tuple[Block, ...]
    machine: Facts
    records: list[Record] = field(repr=False)
    disturbance: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The advice as plain values, the recommendation first, the records last."""
        return {
            "recommendation": self.recommendation,
            "disturbance": self.disturbance,
            "decision": self.decision,
            "remedies": [asdict(remedy) for remedy in self.remedies],
            "model": self.model,
            "model_class": self.model_class,
            "tokens": self.tokens,
            "batch": self.batch,
            "threads": self.threads,
            "parts": [asdict(part) for part in self.parts],
            "largest_gain": self.largest_gain,
            "padding": None if self.padding is None else asdict(self.padding),
            "engines": asdict(self.engines),
            "mechanisms": [_plain_candidate(candidate) for candidate in self.mechanisms],
            "whole_model": None if self.whole is None else _plain_whole(self.whole),
            "notes": list(self.notes),
            "machine": self.machine,
            "records": [asdict(record) for record in self.records],
        }

    def __str__(self) -> str:
        """The recommendation, the tables and the notes as text, in 40 lines at most."""
        lines = [self.recommendation]
        for table in self.tables:
            lines += ["", table.title, *_text_table(table, SHOWN_ROWS)]
        lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines[:MOST_LINES])

    def _repr_html_(self) -> str:
        """The recommendation and the tables; every text is escaped."""
        from sparing.report.rendering import part_html

        parts = [f"<p><strong>{html.escape(self.recommendation)}</strong></p>"]
        parts += map(part_html, self.tables)
        parts.append("<ul>" + "".join(f"<li>{html.escape(n)}</li>" for n in self.notes) + "</ul>")
        return "\n".join(parts)


def run(
    model: str | nn.Module,
    options: Options,
    *,
    texts: Any = None,
    tokenizer: Any = None,
    output_dir: Path | None = None,
    on_progress: Progress = lambda fraction, text: None,
) -> Advice:
    """Measure one model and recommend what to do.

    ``model`` is a folder, a hub name, a built-in model (bert, vit: base size, random weights) or a
    model object, swapped or not. ``texts`` is a file or an object of texts, see ``read_texts``.
    ``tokenizer`` is by default the one in the model's folder. Raises ``UsageError``, ``DataError``
    or ``CheckpointError`` for unreadable inputs, before anything is measured.
    """
    if output_dir is not None:
        _require_own(output_dir)
    read = None if texts is None else read_texts(texts)
    on_progress(0.0, "opening the model")
    subject = open_subject(model, options.tokens)
    tokens = resolve_tokens(subject, options.tokens)
    chosen = candidates(subject, options.mechanisms)
    tokenised = None if read is None else tokenise(subject, read, tokens, tokenizer)
    with collected() as loads:
        findings, records, extra = _measure(
            subject, tokens, chosen, tokenised, options, on_progress
        )
    load = worst(loads)
    findings = replace(findings, source=_named(texts))
    if load is not None:
        findings = replace(findings, disturbance=load.disturbance)
        records.append(load.record())
    advice = _advice(findings, records, extra)
    if output_dir is not None:
        write(advice, output_dir)
    on_progress(1.0, "done")
    return advice


def _named(texts: Any) -> str:
    """The texts in a command: their path, FILE for an object, or empty without texts."""
    if texts is None:
        return ""
    return str(texts) if isinstance(texts, (str, Path)) else "FILE"


def _measure(
    subject: Subject,
    tokens: int,
    chosen: list[Candidate],
    texts: Texts | None,
    options: Options,
    on_progress: Progress,
) -> tuple[Findings, list[Record], list[str]]:
    """All stages, one after the other: the findings, their records, and notes."""
    inputs, sizes = random_inputs(subject, options.batch, tokens), (tokens, options.batch)
    on_progress(0.05, "where the time goes")
    parts = measure_parts(subject, inputs, **options.timing("parts"))
    records, padding = part_records(parts, *sizes), None
    pace = parts.model.p50_ms / (tokens * options.batch)
    if texts is not None:
        on_progress(0.15, "padding on the texts")
        padding, more = measure_padding(
            subject, texts, options.batch, ms_per_token=pace, **options.timing("padding")
        )
        records += more
    engines = Engines()
    if options.engines:
        on_progress(0.3, "the dense model in every engine and precision")
        timing = options.timing("engines")
        engines, more = measure_engines(subject, texts, *sizes, ms_per_token=pace, **timing)
        records += more
    records += _measure_curves(subject, chosen, tokens, options, on_progress)
    on_progress(0.9, "the whole model with the best mechanism")
    whole = _measure_best(subject, chosen, parts, inputs, tokens, options)
    records += whole_records(whole, *sizes) if whole is not None else []
    extra, more = _measure_swapped(subject, inputs, tokens, options)
    everything = Findings(subject, *sizes, parts, tuple(chosen), whole, padding, engines)
    return everything, records + more, extra


def write(advice: Advice, folder: Path) -> None:
    """Leave ``records.jsonl`` and ``advice.json`` in a folder, each whole or not at all.

    Raises ``UsageError`` for a folder with other files.
    """
    _require_own(folder)
    RecordLog(folder / RECORDS).replace(advice.records)
    content = json.dumps(advice.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(folder / "advice.json", content + "\n")


def _require_own(folder: Path) -> None:
    """Refuse a folder with the files of another run, before anything is measured."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        write_atomically(folder / ".writable", "")
        (folder / ".writable").unlink()
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}") from error
    if names and "advice.json" not in names:
        raise UsageError(
            f"{folder} has other files than advice ({names[0]}); choose another folder"
        )


def _measure_curves(
    subject: Subject,
    chosen: list[Candidate],
    tokens: int,
    options: Options,
    on_progress: Progress,
) -> list[Record]:
    lengths = sorted({*(options.lengths or LENGTHS), tokens})
    total, done, records = sum(length + 512 for length in lengths), 0, []
    for length in lengths:
        on_progress(0.5 + 0.4 * done / total, f"attention cores at {length} tokens")
        timing = options.timing("curves")
        records += measure_length(subject, chosen, length, options.batch, **timing)
        done += length + 512
    return records + crossover_records(chosen, options.batch)


def _measure_best(
    subject: Subject,
    chosen: list[Candidate],
    parts: Parts,
    inputs: dict[str, Any],
    tokens: int,
    options: Options,
) -> WholeModel | None:
    best = fastest(chosen, tokens)
    if best is None:
        return None
    return measure_whole(subject, best, parts, inputs, tokens, **options.timing("whole"))


def _measure_swapped(
    subject: Subject, inputs: dict[str, Any], tokens: int, options: Options
) -> tuple[list[str], list[Record]]:
    """For a model that was given swapped: the effect of its swap, as a note and records."""
    if subject.as_given is None:
        return [], []
    timed = measure_as_given(subject, inputs, **options.timing("whole"))
    given = timed["as given"]
    note = (
        "The model was given swapped. Against its dense form it is: "
        f"{ratio_words(given.ratio, given.disturbance)}. All other numbers are of the dense form."
    )
    return [note], latency_records(timed, "model", tokens, options.batch, "softmax")


def _advice(findings: Findings, records: list[Record], extra: list[str]) -> Advice:
    decision, recommendation = decide(findings)
    facts, revision = machine(), commit()
    stamp: Callable[[Record], Record] = lambda record: replace(  # noqa: E731
        record, machine=machine_id(facts), commit=revision
    )
    return Advice(
        model=findings.subject.name,
        model_class=findings.subject.kind,
        tokens=findings.tokens,
        batch=findings.batch,
        threads=findings.parts.model.threads,
        decision=decision,
        recommendation=recommendation,
        remedies=remedies(findings),
        parts=findings.parts.parts,
        largest_gain=findings.parts.gain.value,
        padding=findings.padding,
        engines=findings.engines,
        mechanisms=findings.chosen,
        whole=findings.whole,
        notes=notes(findings, extra),
        tables=tables(findings),
        machine=facts,
        records=[stamp(record) for record in records],
        disturbance=findings.disturbance,
    )


def _plain_candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "name": candidate.name,
        "exact": candidate.exact,
        "needs_training": not candidate.exact,
        "can_serve": not candidate.obstacle,
        "obstacle": candidate.obstacle,
        "crossover_tokens": candidate.crossover,
        "perhaps_from_tokens": candidate.earliest,
        "longest_tokens": candidate.longest,
        "ratios": {str(tokens): asdict(ratio) for tokens, ratio in candidate.curve.items()},
        "disturbance": candidate.disturbance,
        "skipped": {str(tokens): reason for tokens, reason in candidate.skipped.items()},
    }


def _plain_whole(whole: WholeModel) -> dict[str, Any]:
    return {
        "mechanism": whole.mechanism,
        "exact": whole.exact,
        "predicted": None if whole.predicted is None else asdict(whole.predicted),
        "measured": asdict(whole.measured),
        "swapped_layers": whole.swapped_layers,
        "left_layers": whole.left_layers,
    }


def _text_table(table: Block, most: int) -> list[str]:
    """Aligned columns, of so many rows at most."""
    rows = [table.heads, *table.rows[:most]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    left = len(table.rows) - most
    return lines if left <= 0 else [*lines, f"and {left} more: see to_dict()"]
