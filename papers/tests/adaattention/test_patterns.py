"""The printed patterns of head scores, beside those of the committed runs."""

from __future__ import annotations

from statistics import fmean

import pytest
from papers.tests.golden import ROOT

from sparing.core.errors import DataError
from sparing.core.record import Label, Record
from sparing.experiment.claims import decide
from sparing.experiment.records import RecordTable
from sparing_papers.overview.rows import Check, read_paper
from sparing_papers.overview.verdicts import Results

PAPER = read_paper("adaattention")
RESULTS = Results(PAPER, ROOT / "papers" / "results")
ROWS = {row.id: row for row in PAPER.rows}
TASKS = {"standard": ("sst2", "stsb"), "pairs": ("mrpc",), "reviews": ("imdb",)}
PARTS = tuple(f"part {number}" for number in range(1, 9))
SIDES = {
    "Section IV.A, class token": (("first",), PARTS),
    "Section IV.A, separator": (("last",), PARTS),
    "Section III.D, late positions": (PARTS[4:], PARTS[:4]),
}


def score(task: str, layer: int, places: tuple[str, ...]) -> float:
    """The mean score at these parts of the texts, record by record."""
    run = next(name for name, tasks in TASKS.items() if task in tasks)
    table = RESULTS.runs[run].table
    labels: dict[str, Label] = {"task": task, "arm": "adaptive", "layer": layer}
    known = [table.exact("pattern_place", **labels, place=part) for part in places]
    return fmean(record.value for record in known if record is not None and record.value)


def gaps(task: str, sides: tuple[tuple[str, ...], tuple[str, ...]]) -> list[float]:
    """By layer the score on one side less that on the other."""
    return [score(task, n, sides[0]) - score(task, n, sides[1]) for n in range(1, 7)]


@pytest.mark.parametrize("name", SIDES)
def test_a_pattern_is_decided_over_the_trainings_of_all_tasks(name):
    (answer,) = RESULTS.answers(ROWS[name])
    tasks = [task for of_run in TASKS.values() for task in of_run]
    by_task = [fmean(gaps(task, SIDES[name])) for task in tasks]
    assert answer.result.value == pytest.approx(fmean(by_task), abs=1e-12)
    assert answer.run == "standard, pairs, reviews"
    low, high = answer.result.interval or (0.0, 0.0)
    spread = sum((value - fmean(by_task)) ** 2 for value in by_task) / 3
    assert high - low == pytest.approx(2 * 3.182446 * (spread / 4) ** 0.5, rel=1e-5)


def test_the_verdicts_are_those_of_the_intervals():
    verdicts = {name: RESULTS.verdict(ROWS[name]) for name in SIDES}
    assert list(verdicts.values()) == ["met", "undecided", "undecided"]


def test_what_the_notes_say_of_sst2_is_in_the_records():
    of_class, late = (gaps("sst2", SIDES[name]) for name in [*SIDES][::2])
    assert [layer for layer, gap in enumerate(of_class, start=1) if gap < 0] == [1]
    assert sum(gap > 0 for gap in late) == 5
    first_layer = {part: score("sst2", 1, (part,)) for part in ("first", *PARTS, "last")}
    assert min(first_layer, key=first_layer.__getitem__) == "last"


def record(task: str, part: str, value: float, **more: Label) -> Record:
    return Record(
        "pattern_place", value, "share", "measured", {"task": task, "place": part, **more}
    )


def test_values_in_a_list_are_averaged_and_paired_by_the_label():
    table = RecordTable(
        [
            *(record(task, "a", 0.5 + 0.01 * n) for n, task in enumerate("xyz")),
            *(record(task, "b", 0.3) for task in "xyz"),
            *(record(task, "c", 0.1) for task in "xy"),
            record("x", "b", 9.0, seed=1),  # of another kind: it has one more label
        ]
    )
    less: dict[str, Label | list[Label]] = {"place": ["b", "c"]}
    check = Check("t", "pattern_place", {"place": "a"}, at_least=0.6, less=less, by="task")
    result = decide([check.claim("t")], table)[0]
    assert result.value == pytest.approx(fmean([0.3, 0.31, 0.22]))
    assert result.met is False
    undecided = Check("t", "pattern_place", {"place": "a"}, at_least=0.3, less=less, by="task")
    need = decide([undecided.claim("t")], table)[0].need
    assert need is not None
    assert (need.of, need.now) == ("tasks", 3)


def test_a_list_selects_no_single_record():
    labels: dict[str, Label | list[Label]] = {"place": ["a"]}
    with pytest.raises(DataError, match="a list of values for pattern_place needs less"):
        decide([Check("t", "pattern_place", labels, at_least=0.0).claim("t")], RecordTable([]))
