"""The whole page of ``slim``: what it says in each case, and what it makes of damaged files."""

from __future__ import annotations

import dataclasses
import html.parser
import json
import re

import pytest

from sparing.core.errors import DataError
from sparing.core.record import Record
from sparing.report.page import write_report
from sparing.report.run import Run
from sparing.slim.evidence.changed import write_changed
from sparing.slim.page.build import build
from sparing.slim.page.content import changed_block, parts_block
from sparing.slim.page.cuts import static_blocks
from sparing.slim.page.forms import engines_block, forms_section
from sparing.slim.page.frontier import frontier_block
from tests.compare import records as make
from tests.compare.test_page import HOSTILE
from tests.slim.records import (
    BFLOAT16,
    CUT,
    DENSE,
    NOTHING,
    ONE,
    REFERENCE,
    UNLABELLED,
    Story,
    changed,
    goals,
    run_of,
    slim_config,
    slim_records,
)


def text_of(page):
    class Text(html.parser.HTMLParser):
        content = ""

        def handle_data(self, data):
            self.content += data

    parser = Text()
    parser.feed(page)
    return " ".join(parser.content.split())


def both(story=None, **changes):
    """The texts of the page and of its Markdown twin."""
    page = build(run_of(story, **changes))
    return text_of(page.html), page.markdown.replace("\N{NO-BREAK SPACE}", " ")


def section_of(run, key):
    return next(part for part in build(run).sections if getattr(part, "key", "") == key)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slim")
    make.write_run(folder, slim_config(), slim_records(), goals())
    write_changed(folder, changed())
    files = write_report(folder)
    return files, files["html"].read_text(), files["md"].read_text()


def test_it_writes_page_twin_and_figures(page):
    files, text, twin = page
    figures = {"frontier", "survey"}
    assert set(files) == {"html", "md", *figures, *(f"{name}-dark" for name in figures)}
    assert all(path.stat().st_size > 1000 for path in files.values())
    for shown in (text_of(text), twin):
        for owed in (
            "At least 95 % of inputs like these",
            "The certified frontier",
            "Changed answers",
            "text 19, a film",
            "ONNX Runtime INT8, exits above 0.9, then dense",
            "openvino is not installed",
            "What was cut where",
            "The static pruned model",
            "9.05 min",
            "slim-sst2/model/serve",
            "forms/97",
            "a subset",
            "sparing slim minilm --task sst2",
        ):
            assert owed in shown.replace("\N{NO-BREAK SPACE}", " "), owed
        assert "text 20, a film" not in shown


@pytest.mark.parametrize("story", [Story(), DENSE, NOTHING, ONE, UNLABELLED, CUT])
def test_every_case_has_a_page_with_its_guarantee_first(story):
    lead = {REFERENCE: "Keep the dense model", BFLOAT16: "Keep the dense model, in bfloat16"}
    for text in both(story):
        first, _, _ = text.partition("The certified frontier")
        assert lead.get(story.served, "At least 95 %") in first


@pytest.mark.parametrize(
    "until", [record.cell for record in slim_records() if record.name == "cell"]
)
def test_a_run_that_was_stopped_has_a_page(until):
    text, twin = both(Story(until=until))
    assert ("This run is not complete" in text) is (until != "memory")
    assert ("No model was saved" in twin) is (until != "memory")


def test_the_frontier_has_a_row_for_every_share():
    block = frontier_block(run_of())
    assert [row[0] for row in block.rows] == ["1 %", "2 %", "3 %", "5 % (served)", "8 %"]
    served = dict(zip(block.heads, block.rows[3], strict=True))
    assert served["Changed in calibration"] == "9 of 436"
    assert served["Speed on test, batch 1"] == "4.2× faster (4.0–4.4×)"
    assert served["Speed on test, batch 8"] == "4.2× faster (4.0–4.4×)"
    assert served["Agreement on test"] == "97.90 %"
    assert served["Accuracy"] == "91.5 %"
    assert "All rows hold together with 95 % confidence" in block.explain


def test_one_point_promises_no_others():
    block = frontier_block(run_of(ONE))
    assert len(block.rows) == 1
    assert "together" not in block.explain


def test_a_share_without_a_certified_form_keeps_dense():
    for row in frontier_block(run_of(NOTHING)).rows:
        assert row[1] == "none: keep dense in float32"
        assert set(row[2:]) == {"\N{EN DASH}"}


def test_a_served_cut_says_which_layers_run():
    section = section_of(run_of(CUT), "cuts")
    assert "every input runs layers 1 to 2. Those whose" in section.parts[0].text
    assert "Exit rate" not in section.parts[1].heads
    rows = {row.arm: row.note for row in forms_section(run_of(CUT)).parts[1].rows}
    name = "slim, ONNX Runtime INT8, layers 1 to 2, exits above 0.9, then dense INT8 above 0.8"
    assert rows[f"{name}, then dense"] == "served"
    assert rows["slim, ONNX Runtime INT8, exits above 0.9, then dense"] == ""


def test_without_labels_there_is_no_score_beside_agreement():
    assert "Accuracy" in frontier_block(run_of()).heads
    heads = frontier_block(run_of(UNLABELLED)).heads
    assert heads[-1] == "Agreement on test"
    columns = forms_section(run_of(UNLABELLED)).parts[1].columns
    assert not {"score", "difference"} & {column.key for column in columns}


def test_every_tested_form_is_a_row_with_its_numbers():
    rows = {row.arm: row for row in forms_section(run_of()).parts[1].rows}
    assert len(rows) == 10
    cells = rows["slim, OpenVINO bfloat16"].cells
    assert cells["time1"].text == "2.76 ms"
    assert [note.split()[0] for note in cells["time1"].notes] == ["p50", "p99"]
    assert (cells["speed1"].text, cells["speed1"].tone) == ("3.4× faster", "gain")
    assert cells["agreement"].text == "97.30 %"
    assert cells["agreement"].notes == ("divergence 0.0090",)
    assert cells["difference"].text == "−0.7 (−1.0 to −0.4)"
    assert cells["memory"].text == "40.0 MiB"
    assert rows["dense, ONNX Runtime float32"].cells["speed1"].text == "baseline"
    assert rows["static, ONNX Runtime INT8"].cells["memory"].tone == "missing"
    assert rows["slim, ONNX Runtime INT8, exits above 0.9, then dense"].note == "served"


def test_the_tokenizer_is_named_beside_the_times_without_it():
    for text in both():
        assert "No time here has the tokenizer in it. It takes 0.160 ms for one text" in text
        assert "From text to answer, with the tokenizer on both sides" in text
    run = run_of()
    others = [record for record in run.records if record.name != "tokenizer_ms"]
    page = build(dataclasses.replace(run, records=others))
    assert "tokenizer in it" not in page.markdown


def test_within_a_precision_both_forms_are_named():
    block = engines_block(run_of())
    assert block.rows[0] == (
        "float32",
        "1",
        "slim, ONNX Runtime float32",
        "dense, ONNX Runtime float32",
        "2.1× faster (2.0–2.2×)",
    )
    assert [row[0] for row in block.rows] == [
        *("float32", "float32", "bfloat16", "bfloat16", "INT8", "INT8")
    ]
    assert "OpenVINO INT8: openvino is not installed" in block.explain
    assert "ONNX Runtime INT8, scales per channel" in block.explain
    assert "longer on 24 inputs than" in block.explain
    assert "so they were not tried further: slim, PyTorch bfloat16." in block.explain


def test_where_every_form_competes_nothing_is_said_of_slower_ones():
    run = run_of()
    fast = [r for r in run.records if r.name != "screened_speed" or r.labels["competes"]]
    assert "tried further" not in engines_block(dataclasses.replace(run, records=fast)).explain


@pytest.mark.parametrize("forms", [None, {}, "x", {"measured": 3, "missing": [None]}])
def test_a_configuration_without_forms_still_has_its_block(forms):
    assert "not recorded" in engines_block(run_of(forms=forms)).explain


def test_parts_are_halves_of_a_task_and_parts_of_texts():
    parts = {row[0]: row[1] for row in parts_block(run_of()).rows}
    assert parts == {
        "training": "20,000",
        "choosing": "436",
        "calibration": "436",
        "test": "1,821",
    }
    text, _ = both(UNLABELLED)
    assert "12 texts occur more than once" in text
    assert [row[1] for row in parts_block(run_of(UNLABELLED)).rows] == [
        *("3,000", "436", "436", "1,821")
    ]


@pytest.mark.parametrize(
    ("speed", "gap", "verdict"),
    [
        ((1.1, 1.3), (0.001, 0.009), "the served form is better"),
        ((1.1, 1.3), (-0.004, 0.009), "the served form is better"),
        ((0.7, 0.8), (-0.004, 0.009), "the static model is better"),
        ((0.9, 1.1), (-0.004, 0.009), "no clear difference"),
        ((1.1, 1.3), (-0.009, -0.004), "one is faster, the other more accurate"),
    ],
)
def test_the_verdict_on_the_static_model_follows_from_both_intervals(speed, gap, verdict):
    ends = {"static_speed_up": speed, "static_difference": gap}
    run = run_of()
    records = [dataclasses.replace(r, interval=ends.get(r.name, r.interval)) for r in run.records]
    (block,) = static_blocks(dataclasses.replace(run, records=records))
    assert block.title == f"The static pruned model: {verdict}"


def test_changed_answers_come_with_their_texts_and_confidences(tmp_path):
    run = dataclasses.replace(run_of(), folder=tmp_path)
    assert "not kept" in changed_block(run).explain
    write_changed(tmp_path, [])
    assert "all test inputs the dense model's answer" in changed_block(run).explain
    write_changed(tmp_path, changed(3))
    block = changed_block(run)
    assert block.rows[1] == ("8", "text 1, a film", "negative (60.0 %)", "positive (98.0 %)")
    assert len(block.rows) == 3
    write_changed(tmp_path, changed(30))
    block = changed_block(run)
    assert len(block.rows) == 20
    assert "30 test inputs" in block.explain


def test_changed_images_have_no_column_of_texts(tmp_path):
    images = [dataclasses.replace(one, texts=()) for one in changed(3)]
    write_changed(tmp_path, images)
    task = {**slim_config()["task"], "kind": "image"}
    block = changed_block(dataclasses.replace(run_of(task=task), folder=tmp_path))
    assert block.heads == ("Test input", "Dense", "Served")


def test_correlations_are_not_written_in_per_cent():
    task = {**slim_config()["task"], "metric": "matthews"}
    row = frontier_block(run_of(task=task)).rows[0]
    assert row[-1] == "0.919"


def test_notices_tell_a_part_of_the_test():
    identity = {**slim_config()["identity"], "timed_examples": 300}
    text, _ = both(identity=identity)
    assert "Timed on 300 of 1,821 test inputs" in text


def test_a_busy_machine_goes_first_and_its_speeds_are_not_decided():
    run = run_of()
    busy = "other programs kept 1.8 of 2 processors busy"
    load = make.record("machine_load", 0.4, "share", disturbance=busy)
    cells = sorted({r.cell for r in run.records if r.name == "speed_up"})
    more = [dataclasses.replace(load, cell=cell) for cell in cells]
    disturbed = dataclasses.replace(run, records=[*run.records, *more])
    made = build(disturbed)
    notices = [line for line in made.markdown.splitlines() if line.startswith("> ")]
    assert notices[0].startswith("> The machine was busy during 2 measurements")
    rows = forms_section(disturbed).parts[1].rows
    assert not any(row.cells["speed1"].text.endswith(("faster", "slower")) for row in rows)
    assert static_blocks(disturbed)[0].title.endswith("not decided: the machine was busy")


def test_hostile_texts_stay_texts(tmp_path):
    evil = HOSTILE[3]
    relabel = {"openvino": evil, "static": f"dense {HOSTILE[1]}", "bfloat16": HOSTILE[2]}
    records = [
        dataclasses.replace(r, labels={k: relabel.get(v, v) for k, v in r.labels.items()})
        for r in slim_records()
    ]
    task = {**slim_config()["task"], "name": evil, "metric": evil, "notes": [evil]}
    forms = {"measured": [evil], "missing": [evil]}
    config = slim_config(
        name=evil, task=task, model={"name": evil}, command=f"{evil}`````", forms=forms
    )
    one = dataclasses.replace(changed(1)[0], texts=(evil, "a\x1b[31m|\u202eb"), dense=evil)
    write_changed(tmp_path, [one])
    run = Run(
        {"machines": {}, **config}, records, goals(), [{"cell": evil, "error": evil}], tmp_path
    )
    made = build(run)
    page, twin = made.html, made.markdown
    assert "<iframe" not in page
    assert "<script" not in page
    assert page.count("</style>") == page.count("</html>") == 1
    assert not {"\x1b", "\u202e"} & {*page, *twin}
    outside = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", twin)
    assert not re.search(r"<(?!/?(picture|source|img|br|sub|details|summary|code|!--))", outside)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("frontier_score", {"kind": "exits", "width": 1.0, "plan": "no"}),
        ("frontier_score", {"kind": "exits", "width": "wide", "plan": "{}"}),
        ("chosen_plan", {"plan": json.dumps({"heads": [], "neurons": []})}),
        ("latency_ms", {"of": "mean", "arm": "slim", "batch": 1}),
        ("certified_speed", {"epsilon": "few"}),
        ("disagreement", {"arm": "slim"}),
    ],
)
def test_damaged_records_are_named(tmp_path, name, labels):
    record = Record(name, 0.5, "", "measured", labels)
    make.write_run(tmp_path, slim_config(), [record])
    with pytest.raises(DataError, match=name) as caught:
        write_report(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", sorted({record.name for record in slim_records() if record.name != "cell"})
)
def test_a_kind_of_record_may_be_missing(name):
    run = run_of()
    others = [record for record in run.records if record.name != name]
    assert build(dataclasses.replace(run, records=others)).markdown


@pytest.mark.parametrize(
    "name", sorted({record.name for record in slim_records() if record.name != "cell"})
)
def test_a_record_without_labels_gives_a_page_or_one_line(name):
    run = run_of()
    bare = [dataclasses.replace(r, labels={}) if r.name == name else r for r in run.records]
    seen = ""
    try:
        build(dataclasses.replace(run, records=bare)).markdown  # noqa: B018
    except DataError as error:
        seen = str(error)
    assert not seen or (name in seen and "\n" not in seen)


def test_the_report_is_the_same_for_the_same_records():
    assert both() == both()
