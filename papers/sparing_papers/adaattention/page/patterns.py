"""Maps of the adaptive variant's scores by head, position and difficulty; and kept tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparing.core.record import Record
from sparing.experiment.records import RecordTable
from sparing.report.run import Run
from sparing_papers.adaattention.findings import is_image, kept_parts, tasks_of
from sparing_papers.adaattention.names import ADAPTIVE
from sparing_papers.adaattention.page.texts import TEXT, two_digits, whole_share

_THIRDS = ("hard", "middle", "easy")
_SPECIAL = ("[class]", "[CLS]", "[SEP]", "<s>", "</s>")
Cells = Sequence[tuple[str, float | None]]


@dataclass(frozen=True)
class Spot:
    """One cell of a map: its text, the strength of its colour in per cent, and its description."""

    text: str
    strength: int
    words: str


@dataclass(frozen=True)
class Map:
    """A map: its title, the names of its columns, and its rows, each with a name."""

    title: str
    explain: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Spot, ...]], ...]


@dataclass(frozen=True)
class Piece:
    """One token or patch: its text (empty for a patch), its grey level, whether it is kept."""

    text: str
    grey: int
    is_kept: bool
    special: bool


@dataclass(frozen=True)
class Step:
    """One example: its description, its parts, and the columns of a picture."""

    number: int
    words: str
    pieces: tuple[Piece, ...]
    columns: int


def maps(run: Run, records: RecordTable) -> list[Map]:
    """Maps by layer and head, by difficulty, by layer and position, if recorded."""
    drawn = (
        shown
        for task in tasks_of(run.config)
        for shown in (_heads(records, task), _thirds(records, task), _places(run, records, task))
    )
    return [shown for shown in drawn if shown is not None]


def _heads(records: RecordTable, task: str) -> Map | None:
    scores = _by_layer(records.all("pattern_head", task=task), "head", "head ")
    heads = {name: name for _, name in scores}
    return _layers(f"By layer and head, {task}", TEXT("map-heads", task=task), heads, scores)


def _places(run: Run, records: RecordTable, task: str) -> Map | None:
    scores = _by_layer(records.all("pattern_place", task=task), "place")
    marks = run.config.get("special")
    marks = marks.get(task, {}) if isinstance(marks, dict) else {}
    names = {"first": "[CLS]", "last": "[SEP]" if marks.get("last") else "last"}
    where, explain = "text", TEXT("map-text")
    if is_image(run.config, records, task):
        where, explain = "image", TEXT("map-image")
        names["first"] = "class"
    elif not marks.get("last"):
        explain += f" {TEXT('map-no-separator')}"
    heads = {part: names.get(part, part.removeprefix("part ")) for _, part in scores}
    return _layers(f"By place in the {where}, {task}", explain, heads, scores)


def _by_layer(
    records: Iterable[Record], label: str, prefix: str = ""
) -> dict[tuple[int, str], float]:
    """The scores by layer and by the value of this label."""
    return {
        (layer, f"{prefix}{record.labels.get(label)}"): float(record.value or 0.0)
        for record in records
        if isinstance(layer := record.labels.get("layer"), int)
    }


def _layers(
    title: str, explain: str, heads: Mapping[str, str], scores: Mapping[tuple[int, str], float]
) -> Map | None:
    """A row for each layer; ``heads`` are the columns with their titles."""
    rows = {
        f"layer {layer}": [(f"layer {layer}, {name}", scores.get((layer, name))) for name in heads]
        for layer in sorted({layer for layer, _ in scores})
    }
    return _map(title, explain, tuple(heads.values()), rows)


def _thirds(records: RecordTable, task: str) -> Map | None:
    scores = {
        str(record.labels["difficulty"]): float(record.value or 0.0)
        for record in records.all("pattern_difficulty", task=task, arm=ADAPTIVE)
    }
    heads = tuple(name for name in _THIRDS if name in scores)
    widest = max(scores.values(), default=0.0) - min(scores.values(), default=0.0)
    explain = TEXT("map-difficulty", widest=two_digits(widest))
    cells = [(f"{name} inputs", scores[name]) for name in heads]
    return _map(f"By difficulty, {task}", explain, heads, {"mean score": cells})


def _map(title: str, explain: str, heads: tuple[str, ...], rows: Mapping[str, Cells]) -> Map | None:
    """Cells of (description, score), coloured from the smallest to the largest score."""
    known = [value for cells in rows.values() for _, value in cells if value is not None]
    if not known:
        return None
    low, high = min(known), max(known)

    def spot(words: str, value: float | None) -> Spot:
        if value is None:
            return Spot("", 0, words)
        share = 0.5 if high - low < 1e-9 else (value - low) / (high - low)
        return Spot(f"{value:.2f}", round(8 + 72 * share), f"{words}: {value:.3f}")

    lines = ((name, tuple(spot(*cell) for cell in cells)) for name, cells in rows.items())
    return Map(title, explain, heads, tuple(lines))


def steps(records: RecordTable) -> list[Step]:
    """The examples, in their order; raises ``DataError`` for a damaged record."""
    return [_step(number, r) for number, r in enumerate(records.all("kept_tokens"), start=1)]


def _step(number: int, record: Record) -> Step:
    parts, columns = kept_parts(record)
    task, label, answer = (str(record.labels.get(name, "")) for name in ("task", "label", "answer"))
    words = TEXT(
        "example",
        task=task,
        answer=answer,
        right="right" if label == answer else "wrong",
        share=whole_share(float(record.value or 0.0)),
    )
    pieces = tuple(
        _piece(part, is_kept, position) for position, (part, is_kept) in enumerate(parts)
    )
    return Step(number, words, pieces, columns)


def _piece(part: str | float, is_kept: bool, position: int) -> Piece:
    if isinstance(part, float):
        return Piece("", round(100 * part), is_kept, special=False)
    return Piece(part, 0, is_kept, part in _SPECIAL or (position == 0 and not part))
