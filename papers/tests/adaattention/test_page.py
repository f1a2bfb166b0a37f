from __future__ import annotations

import dataclasses
import re

import pytest
from papers.tests.adaattention.records import SPEEDS, config, records

from sparing.core.errors import DataError
from sparing.core.record import Record
from sparing.experiment.records import RecordTable
from sparing.report.page import write_report
from sparing.report.run import Run
from sparing_papers.adaattention.page.arms import arm_rows
from sparing_papers.adaattention.page.content import verdict
from sparing_papers.adaattention.page.patterns import maps, steps
from sparing_papers.adaattention.page.tables import MAIN, REST, length_block, printed_blocks
from tests.compare import records as make
from tests.compare.test_page import HOSTILE
from tests.slim.test_page import text_of


def read(given: list[Record] | None = None, **changes: object) -> tuple[Run, RecordTable]:
    """A run and the table of its records."""
    run = Run(config(**changes), records() if given is None else given, [], [])
    return run, RecordTable(run.records, run.config["arms"])


def with_speed(arm: str, value: float, interval: tuple[float, float]) -> list[Record]:
    """The records with another speed of one variant on the tasks' texts."""
    labels = {"arm": arm, "task": "mean", "inputs": "all"}
    changed = Record("speed_up", value, "ratio", "measured", labels, interval, 9, "c", "m", "c")
    return [r for r in records() if r.obtained == "paper" or r.labels != labels] + [changed]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ada")
    make.write_run(folder, config(), records())
    files = write_report(folder)
    return files, files["html"].read_text(), files["md"].read_text()


def test_it_writes_page_twin_and_figure(page):
    files, text, twin = page
    assert set(files) == {"html", "md", "speeds", "speeds-dark"}
    for shown in (text_of(text), twin.replace("\\", "")):
        plain = shown.replace("\N{NO-BREAK SPACE}", " ")
        for owed in (
            "The printed 1.76× is not there",
            "Table IV: components",
            "Table V: the size of the scorer",
            "187,020 in each layer",
            "Table VI",
            "Section III.D",
            "Impossible figures",
            "average of skip: 87.1",
            "By layer and head, sst2",
            "is vacuous",
            "1.018×",
            "at most 1.54×",
        ):
            assert owed in plain, owed


def test_no_script_and_one_radio_button_an_example(page):
    _, text, _ = page
    assert "<script" not in text
    assert "onclick" not in text
    assert len(re.findall(r'<input type="radio"', text)) == 2
    assert text.count(" checked>") == 1
    assert "#step-2:checked ~ .example-2 { display: block; }" in text


def test_dropped_tokens_are_marked_and_words_are_escaped(page):
    _, text, twin = page
    assert re.search(r'<span class="dropped">a</span>', text)
    assert re.search(r'<span class="kept special">\[class\]</span>', text)
    assert "&lt;b&gt;nothing&lt;/b&gt;" in text
    assert "<b>nothing" not in text + twin
    assert "~~a~~" in twin


def test_every_printed_figure_is_on_the_page_with_ours_or_not_run():
    blocks = printed_blocks(read()[1], ["sst2"], (*MAIN, *REST))
    assert [block.title.partition(":")[0] for block in blocks] == [*MAIN, *REST]
    shown = sum(
        text != "\N{EN DASH}"
        for block in blocks
        for row in block.rows
        for head, text in zip(block.heads, row, strict=True)
        if head.endswith(", paper") or head == "Paper"
    )
    assert shown == len([r for r in records() if r.obtained == "paper"])
    table = next(block for block in blocks if block.title.startswith("Table IV"))
    rows = {row[0]: row for row in table.rows}
    assert rows["random scores"] == (
        "random scores",
        "86.1 %",
        "77.0 %",
        "1.5×",
        "0.93× (0.90× to 0.96×)",
    )
    glue = next(block for block in blocks if block.title.startswith("Table I:"))
    assert ("full (dense)", "mnli", "84.6 %", "not run") in glue.rows


def test_reasons_stand_over_each_table():
    for block in printed_blocks(read()[1], ["sst2"], (*MAIN, *REST)):
        assert block.explain.startswith("Why the figures here differ. ")
        assert len(block.explain) > 60


@pytest.mark.parametrize(
    ("value", "interval", "lead"),
    [
        (0.86, (0.8, 0.9), "is not there"),
        (1.8, (1.7, 1.9), "is undecided"),
        (2.0, (1.9, 2.1), "is reached"),
    ],
)
def test_the_verdict_follows_the_interval(value, interval, lead):
    decided = verdict(*read(with_speed("adaptive", value, interval)))
    assert decided.lead.endswith(lead)


def test_a_speed_around_one_claims_no_direction():
    decided = verdict(*read(with_speed("adaptive", 1.01, (0.97, 1.04))))
    assert "neither clearly faster nor slower (0.97–1.04×)" in decided.second[0]


def test_without_speeds_at_bert_bases_shape_the_texts_decide():
    without_shape = [r for r in records() if r.obtained == "paper" or r.labels.get("shape") is None]
    decided = verdict(*read(without_shape))
    assert decided.because.startswith(": on the texts of sst2 the paper's method makes the model")
    assert "1.16× slower" in decided.because


@pytest.mark.usefixtures("_unpainted")
def test_before_the_arms_are_timed_there_is_no_verdict(tmp_path):
    make.write_run(tmp_path, config(), records(measured=False), None)
    text = text_of(write_report(tmp_path)["html"].read_text())
    assert "No verdict yet" in text
    assert "Impossible figures" in text
    assert "were not measured in this run so far" in text


def test_every_arm_has_a_row_and_full_is_the_baseline():
    rows = arm_rows(read()[1], ["sst2"])
    assert len(rows) == 1 + len(SPEEDS)
    assert [row.arm for row in rows if row.baseline] == ["full (dense)"]
    assert rows[-1].arm == "adaptive, as the paper, INT8"
    slow = next(row for row in rows if row.arm == "adaptive, as the paper")
    assert (slow.cells["speed"].tone, slow.cells["scores"].text) == ("loss", "0.30")
    assert slow.cells["scores"].notes == ("67 % cut",)


def test_speeds_stand_by_length_of_the_texts():
    block = length_block(read()[1], ["sst2"])
    assert block.heads == ("Variant", "10-50 tokens")
    assert dict(block.rows)["slim"] == "1.90× (1.87× to 1.93×)"
    assert len(block.rows) == len(SPEEDS)


def test_maps_mark_the_class_token_and_say_where_there_is_no_separator():
    by_title = {heatmap.title: heatmap for heatmap in maps(*read())}
    places = by_title["By place in the text, sst2"]
    assert places.heads[0] == "[CLS]"
    assert places.heads[-1] == "last"
    assert "they have no [SEP]" in places.explain
    marked = {heatmap.title: heatmap for heatmap in maps(*read(special={"sst2": {"last": True}}))}
    assert marked["By place in the text, sst2"].heads[-1] == "[SEP]"
    heads = by_title["By layer and head, sst2"]
    strengths = [spot.strength for _, spots in heads.rows for spot in spots]
    assert (min(strengths), max(strengths)) == (8, 80)


def test_images_are_called_images():
    task = {**config()["task"], "kind": "image"}
    results = read(task=task)
    assert "On the images of sst2" in verdict(*results).second[0]
    places = next(heatmap for heatmap in maps(*results) if "place" in heatmap.title)
    assert places.title == "By place in the image, sst2"
    assert "patch" in places.explain
    assert "[SEP]" not in places.explain


def test_patches_keep_their_grey_and_their_places():
    step = steps(read()[1])[1]
    assert step.columns == 2
    assert [piece.grey for piece in step.pieces] == [0, 50, 100, 25]
    assert [piece.is_kept for piece in step.pieces] == [True, False, True, False]


@pytest.mark.parametrize("flags", ["no", "[true]", "3"])
def test_a_damaged_example_is_named(tmp_path, flags):
    changed = [
        dataclasses.replace(r, labels={**r.labels, "kept": flags}) if r.name == "kept_tokens" else r
        for r in records()
    ]
    make.write_run(tmp_path, config(), changed)
    with pytest.raises(DataError, match="kept_tokens"):
        write_report(tmp_path)


@pytest.mark.usefixtures("_unpainted")
def test_hostile_texts_stay_texts(tmp_path):
    evil = HOSTILE[3]
    task = {**config()["task"], "name": evil, "notes": [evil]}
    changed = config(name=evil, tasks=[evil], task=task, command=evil, engine=evil)
    hostile = [
        dataclasses.replace(r, labels={k: evil if v == "sst2" else v for k, v in r.labels.items()})
        for r in records()
    ]
    make.write_run(tmp_path, changed, hostile, None, [{"cell": evil, "error": evil}])
    text = write_report(tmp_path)["html"].read_text()
    assert "<iframe" not in text
    assert "<script" not in text
    assert text.count("</style>") == text.count("</html>") == 1


@pytest.mark.usefixtures("_unpainted")
def test_the_report_is_the_same_for_the_same_records(tmp_path):
    texts = []
    for name in ("one", "two"):
        make.write_run(tmp_path / name, config(), records())
        texts.append(write_report(tmp_path / name)["html"].read_text())
    assert texts[0] == texts[1]
