"""Where the adaptive arm spends: heads, places and difficulty as maps of cells; kept tokens."""

from __future__ import annotations

from dataclasses import dataclass

from sparing.report import wording
from sparing_papers.adaattention.page.results import ADAPTIVE, AdaResults, Example

_THIRDS = ("hard", "middle", "easy")


@dataclass(frozen=True)
class Spot:
    """One cell of a map: its text, its share of the colour in per cent, and what it is in full."""

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
    kept: bool
    special: bool


@dataclass(frozen=True)
class Step:
    """One example to look at: what is said of it, its pieces, and the columns of a picture."""

    number: int
    words: str
    pieces: tuple[Piece, ...]
    columns: int


def maps(results: AdaResults) -> list[Map]:
    """Scores by layer and head, by difficulty, by layer and place; those that were recorded."""
    found = []
    for task in results.tasks:
        found += [
            each
            for each in (_heads(results, task), _thirds(results, task), _places(results, task))
            if each is not None
        ]
    return found


def _spot(value: float | None, low: float, high: float, words: str) -> Spot:
    if value is None:
        return Spot("", 0, words)
    share = 0.5 if high - low < 1e-9 else (value - low) / (high - low)
    return Spot(f"{value:.2f}", round(8 + 72 * share), f"{words}: {value:.3f}")


def _heads(results: AdaResults, task: str) -> Map | None:
    rows = [
        (layer, head, value)
        for layer, head, value in results.rows_of("pattern_head", task, "layer", "head")
        if isinstance(layer, int) and isinstance(head, int)
    ]
    if not rows:
        return None
    known = {(layer, head): value for layer, head, value in rows}
    layers, heads = sorted({row[0] for row in rows}), sorted({row[1] for row in rows})
    low, high = min(known.values()), max(known.values())
    lines = tuple(
        (
            f"layer {layer}",
            tuple(
                _spot(known.get((layer, head)), low, high, f"layer {layer}, head {head}")
                for head in heads
            ),
        )
        for layer in layers
    )
    explain = (
        f"Mean score of each head over {task}'s test inputs. At or below 0.5 a head is cut to its "
        "score's share of the width, else it is whole."
    )
    title = f"By layer and head, {task}"
    return Map(title, explain, tuple(f"head {head}" for head in heads), lines)


def _places(results: AdaResults, task: str) -> Map | None:
    rows = results.rows_of("pattern_place", task, "layer", "place")
    if not rows:
        return None
    known = {(layer, place): value for layer, place, value in rows}
    places = list(dict.fromkeys(str(row[1]) for row in rows))
    layers = sorted({row[0] for row in rows})
    low, high = min(known.values()), max(known.values())
    lines = tuple(
        (
            f"layer {layer}",
            tuple(
                _spot(known.get((layer, place)), low, high, f"layer {layer}, {place}")
                for place in places
            ),
        )
        for layer in layers
    )
    marks = results.run.config.get("special")
    marks = marks.get(task, {}) if isinstance(marks, dict) else {}
    names = {"first": "[CLS]", "last": "[SEP]" if marks.get("last") else "last"}
    explain = (
        "Mean score over heads of the first token, of eight equal stretches of the text, and of "
        "the last token. The paper says that special tokens score high and late ones low."
    )
    image = results.is_image(task)
    if image:
        names["first"] = "class"
        explain = (
            "Mean score over heads of the class token, of eight equal stretches of the patches, "
            "and of the last patch. The paper says that special tokens score high and late ones "
            "low."
        )
    elif not marks.get("last"):
        explain += " This task's texts end with a word: there is no [SEP] in them."
    heads = tuple(names.get(place, place.removeprefix("part ")) for place in places)
    where = "image" if image else "text"
    return Map(f"By place in the {where}, {task}", explain, heads, lines)


def _thirds(results: AdaResults, task: str) -> Map | None:
    found = {
        str(record.labels["difficulty"]): record
        for record in results.all.all("pattern_difficulty", task=task, arm=ADAPTIVE)
    }
    if not found:
        return None
    values = [record.value or 0.0 for record in found.values()]
    low, high = min(values), max(values)
    spots = tuple(
        _spot(record.value, low, high, f"{name} inputs")
        for name in _THIRDS
        if (record := found.get(name)) is not None
    )
    widest = high - low
    explain = (
        "Inputs in thirds by how sure the full model is of its answer. From the hardest to the "
        f"easiest third the mean score moves by {wording.number(widest, 2)}: this is how much the "
        "scorer tells one input from another."
    )
    heads = tuple(name for name in _THIRDS if name in found)
    return Map(f"By difficulty, {task}", explain, heads, (("mean score", spots),))


def steps(results: AdaResults) -> list[Step]:
    """The examples, in their order."""
    return [_step(number, each) for number, each in enumerate(results.examples, start=1)]


def _step(number: int, example: Example) -> Step:
    right = "right" if example.label == example.answer else "wrong"
    words = (
        f"{example.task}: answered {example.answer}, which is {right}; "
        f"{wording.share(example.share, 0)} kept"
    )
    pieces = tuple(_piece(part, kept, place) for place, (part, kept) in enumerate(example.parts))
    return Step(number, words, pieces, example.columns)


def _piece(part: str | float, kept: bool, place: int) -> Piece:
    if isinstance(part, float):
        return Piece("", round(100 * part), kept, special=False)
    special = part in ("[class]", "[CLS]", "[SEP]", "<s>", "</s>") or (place == 0 and not part)
    return Piece(part, 0, kept, special)
