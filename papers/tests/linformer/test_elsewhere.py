"""A pretrained encoder, swapped and distilled on one task, is evaluated on other domains."""

from __future__ import annotations

from dataclasses import replace

import pytest
from papers.tests.kerformer.test_pretrained import data, model_folder, work  # noqa: F401

from sparing.core.record import Record
from sparing_papers.linformer import analysis
from sparing_papers.linformer import study as linformer
from sparing_papers.linformer.claims import decide_goals
from sparing_papers.linformer.options import Options
from sparing_papers.linformer.shift import ALL, by_domain, swapped_name
from sparing_papers.long_range.swapped import arm_records, dense_records
from sparing_papers.long_range.work import TaskOptions

HOME = swapped_name("imdb")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elsewhere")
    for directory, file, lines in (
        ("sent-conv", "custrev.all", [f"{n % 2} the phone was good" for n in range(10)]),
        ("amazon", "amazon_cells_labelled.txt", [f"bad and long\t{n % 2}" for n in range(6)]),
    ):
        (folder / directory).mkdir()
        (folder / directory / file).write_text("\n".join(lines) + "\n", encoding="latin-1")
    return folder


def test_a_copy_is_asked_when_it_has_imitated_to_the_end(work, elsewhere):  # noqa: F811
    by_domains = by_domain(Options(shift_examples=8), elsewhere, swapped=True)
    measured_work = replace(work, last_measurements=(by_domains,))
    records = [
        r for r in arm_records(measured_work, "uniform", 0) if r.labels.get("question") == "shift"
    ]
    here = {"question": "shift", "task": "sst2, swapped", "arm": "uniform", "seed": 0}
    assert all(here.items() <= r.labels.items() and "stage" not in r.labels for r in records)
    [home] = [r for r in records if r.name == "score"]
    assert (home.count, home.labels) == (24, here)
    scores = {r.labels["domain"]: r for r in records if r.name == "domain_score"}
    assert {name: r.count for name, r in scores.items()} == {"products": 8, "Amazon": 6, ALL: 6}
    drops = {r.labels["domain"]: r.value for r in records if r.name == "domain_drop"}
    assert drops["products"] == pytest.approx(home.value - scores["products"].value)
    assert not [r for r in dense_records(measured_work, 0) if r.labels.get("question") == "shift"]


def test_domains_that_are_missing_are_told_without_a_training_from_nothing(elsewhere, tmp_path):
    options = Options(
        questions=("swapped", "shift"),
        texts=TaskOptions(tasks=()),
        longer=TaskOptions(tasks=()),
        pretrained="encoder",
    )
    notes = linformer._loaded(options, tmp_path, elsewhere).notes
    missing = [note for note in notes if "is left out" in note]
    assert {note.split(" is ")[0] for note in missing} == {"SST-2", "movie reviews"}


@pytest.mark.parametrize(
    ("at_home", "elsewhere_lost", "met"),
    [
        (0.0, 0.0, True),
        (0.0, 0.2, False),
        (-0.1, 0.0, "undecided"),  # it had less to lose
        (-0.1, 0.2, False),  # and lost more all the same
    ],
)
def test_what_a_domain_costs_is_asked_of_who_had_it(at_home, elsewhere_lost, met):
    records = []
    for seed in range(3):
        scores = {"softmax": 0.8, "linear": 0.8 + at_home, "uniform": 0.6}
        for arm, score in scores.items():
            lost = 0.1 + (elsewhere_lost if arm == "linear" else 0.0)
            labels = {"question": "shift", "task": HOME, "arm": arm, "seed": seed}
            there = {**labels, "domain": ALL}
            jitter = 0.001 * seed
            records += [
                Record("score", score + jitter, "share", "measured", labels, count=1000),
                Record("home_chance", 0.5, "share", "measured", labels, count=1000),
                Record("domain_score", score - lost, "share", "measured", there, count=1000),
                Record("domain_drop", lost + jitter, "share", "measured", there, count=1000),
                Record("domain_chance", 0.5, "share", "measured", there, count=1000),
            ]
    options = Options(pretrained="encoder")
    analysed = [*records, *analysis.analyse(records, {})]
    name = "imdb, linear in the pretrained encoder: what it loses in other domains"
    goals = {g.name: g.met for g in decide_goals(options, [], analysed)}
    assert goals[f"{name} less what softmax loses"] == met
    [decision] = [r for r in analysed if r.name == "decides"]
    assert decision.labels["chance"] == 0.5
    without = replace(options, questions=("swapped",))
    assert not [g for g in decide_goals(without, [], analysed) if "domains" in g.name]
