from __future__ import annotations

import dataclasses
import html.parser
import json
import re

import pytest

from sparing.core.errors import DataError
from sparing.core.record import Record
from sparing.layers.plan import Plan
from sparing.report.page import write_report
from sparing.report.rendering import environment
from sparing.report.run import Run
from sparing.slim.page.build import build
from sparing.slim.page.cuts import cut_rows, cut_words, exit_sentence
from sparing.slim.page.forms import form_rows
from sparing.slim.page.int8 import settings_text
from sparing.slim.page.lookups import chosen, final_plan, taken, trials
from sparing.slim.page.verdict import decide
from tests.compare import records as make
from tests.compare.test_page import HOSTILE
from tests.slim.records import Story, goals, slim_config, slim_records


def read(story: Story | None = None, **changes: object) -> Run:
    """A run as the page reads it, without a folder."""
    decided = goals(story) if (story or Story()).until.startswith(("verify", "int8")) else []
    return Run(slim_config(**changes), slim_records(story), decided, [])


def rendered(story=None, failed=None, decided=None, **changes):
    """The page and its Markdown twin; pixels take long, so nothing is written."""
    decided = goals(story) if decided is None else decided
    run = Run(slim_config(**changes), slim_records(story), decided, failed or [])
    page = build(run)
    return page.html, page.markdown


def text_of(page):
    class Text(html.parser.HTMLParser):
        text = ""

        def handle_data(self, data):
            self.text += data

    parser = Text()
    parser.feed(page)
    return " ".join(parser.text.split())


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder, story = tmp_path_factory.mktemp("slim"), Story(until="int8")
    make.write_run(folder, slim_config(), slim_records(story), goals(story))
    files = write_report(folder)
    return files, files["html"].read_text(), files["md"].read_text()


def test_it_writes_page_twin_and_figures(page):
    files, text, twin = page
    figures = {"frontier", "widths", "trials"}
    assert set(files) == {"html", "md", *figures, *(f"{name}-dark" for name in figures)}
    assert all(path.stat().st_size > 1000 for path in files.values())
    for shown in (text_of(text), twin):
        for owed in (
            "Target reached",
            "What was cut where",
            "ONNX Runtime",
            "9.05 min",
            "sparing.load",
            "open_chain",
            "a subset",
            "dense INT8",
            "scales per tensor",
            "sparing slim minilm --task sst2",
        ):
            assert owed in shown.replace("\N{NO-BREAK SPACE}", " "), owed


def test_reached_says_speed_score_and_guarantee_with_intervals():
    verdict = decide(read())
    assert verdict.lead == "Target reached"
    assert "2.1× faster than the fastest dense form (2.0–2.2×; both in ONNX Runtime)" in (
        verdict.because
    )
    assert "keeps 99.6 % of its accuracy (at least 99.2 %)" in verdict.because
    assert len(verdict.second) == 1
    assert re.search(r"confidence 95 %, at most 3\.0 % .*7 of 436 held-out", verdict.second[0])


def test_missed_says_what_the_frontier_offers():
    verdict = decide(read(Story(speed=1.6)))
    assert verdict.lead == "The target of 2× at 99 % is not reached"
    assert "1.60× faster" in verdict.because
    assert "fastest within the floor kept" in verdict.second[0]
    assert "at least 2× faster kept" in verdict.second[0]


def test_an_interval_that_holds_the_target_decides_nothing():
    verdict = decide(read(Story(speed=2.03, lost=0.0)))
    assert verdict.lead.endswith("is undecided")
    assert verdict.second[0].startswith("The interval of the speed holds the target")
    both = decide(read(Story(speed=2.03, lost=0.0092, wide=0.004)))
    assert "the speed and the score kept hold" in both.second[0]


def test_a_speed_around_one_claims_no_direction():
    verdict = decide(read(Story(speed=1.01)))
    assert "neither clearly faster nor slower than the fastest dense form (0.97" in verdict.because


def test_a_promise_asked_for_is_given_or_refused_in_its_own_words():
    given = decide(read(Story(epsilon=0.04)))
    assert given.lead == "Target reached"
    assert given.second[-1].startswith("Guarantee: with confidence 0.95 at most 0.04")
    refused = decide(read(Story(epsilon=0.02)))
    assert refused.lead == "Target reached, but not the guarantee"
    assert refused.second[-1].startswith("Not the guarantee that was set: no setting keeps")


@pytest.mark.parametrize("until", ["dense", "survey", "choose", "calibrate"])
def test_an_unfinished_run_has_a_page_without_a_verdict(until):
    page = text_of(rendered(Story(until=until), decided=[])[0])
    assert "No verdict yet: the run is not at its end" in page
    assert "This run is not complete" in page
    assert "No model was saved" in page


def test_a_failed_step_is_told_and_nothing_is_said_to_be_saved():
    failed = [{"cell": "int8", "error": "it broke"}]
    page, twin = rendered(failed=failed)
    for shown in (text_of(page), twin):
        assert "it broke" in shown
        assert "sparing.load" not in shown


def test_goals_without_a_value_decide_nothing():
    empty = [{**goal, "value": None, "interval": None, "met": "undecided"} for goal in goals()]
    failed = [{"cell": "calibrate", "error": "too few inputs"}]
    verdict = decide(Run(slim_config(), slim_records(), empty, failed))
    assert (verdict.lead, verdict.because[:15]) == ("No verdict yet", ": a step failed")


def test_layers_tell_what_is_kept_and_who_leaves():
    run = read()
    layers = cut_rows(run)
    assert [layer[0] for layer in layers] == ["1", "2", "3", "4", "5", "6"]
    plan = final_plan(run)
    assert plan.layers == 5
    first = layers[0][1:]
    assert first[0].text == f"{plan.heads[0]} of 12"
    assert first[0].share == plan.heads[0] / 12
    assert first[1].text == f"{plan.neurons[0]:,} of 1,536"
    assert first[2].text == "none"
    assert layers[4][3].text == "all remaining"
    assert layers[5][1:] == ("never run",)
    running = [layer[4].share for layer in layers[:5]]
    leaving = [layer[5].share for layer in layers[:5]]
    assert running[0] == 1.0
    assert running[-1] == pytest.approx(leaving[-1])
    assert sum(leaving) == pytest.approx(1.0)
    assert "5 of 6 layers" in cut_words(run)


@pytest.mark.parametrize(
    ("threshold", "sentence"),
    [(0.5, "All inputs but exact ties exit"), (0.51, "An input exits")],
)
def test_a_threshold_that_holds_nobody_is_told_as_a_depth(threshold, sentence):
    plan = Plan((2, 2, 2), (4, 4, 4), exits=(1, 2), threshold=threshold)
    assert exit_sentence(plan, 2).startswith(f"{sentence} after layer 1")


def test_without_exit_rates_their_columns_are_left_out():
    layers = cut_rows(read(Story(exits=False)))
    assert {len(layer) for layer in layers} == {2, 4}


def test_forms_stand_against_the_fastest_dense_of_their_batch():
    results = read(Story(until="int8"))
    rows = {(row.family, row.arm): row for row in form_rows(results)}
    assert len(rows) == 10
    dense = rows["batch 1", "dense, ONNX Runtime"]
    assert dense.cells["speed"].text == dense.cells["difference"].text == "fastest dense"
    slim = rows["batch 1", "slim, ONNX Runtime"]
    assert slim.cells["speed"].text == "2.1× faster"
    assert slim.cells["speed"].notes == ("2.0–2.2×",)
    assert (slim.cells["speed"].tone, slim.cells["difference"].tone) == ("gain", "loss")
    assert slim.cells["difference"].text == "−0.40 points"
    assert slim.cells["difference"].notes == ("−0.70 to −0.10",)
    assert rows["batch 8", "dense, eager PyTorch"].cells["speed"].tone == "loss"
    assert rows["batch 1", "slim INT8, ONNX Runtime"].note == "timed separately"
    assert slim.note == ""


def test_correlations_are_not_written_in_per_cent():
    task = {**slim_config()["task"], "metric": "matthews"}
    cells = form_rows(read(task=task))[0].cells
    assert cells["score"].text == "0.920"


def test_notices_tell_a_missing_engine_and_a_part_of_the_test():
    identity = {**slim_config()["identity"], "timed_examples": 300}
    page, _ = rendered(onnxruntime=False, identity=identity)
    shown = text_of(page)
    assert "ONNX Runtime is not installed" in shown
    assert "300 of 1,821 test inputs" in shown
    assert "open_chain" not in shown


def test_hostile_texts_stay_texts():
    evil = HOSTILE[3]
    records = slim_records(Story(until="int8"))
    relabel = {"onnxruntime": evil, "dense int8": f"dense {HOSTILE[1]}", "scales per tensor": evil}
    records = [
        dataclasses.replace(r, labels={k: relabel.get(v, v) for k, v in r.labels.items()})
        for r in records
    ]
    task = {**slim_config()["task"], "name": evil, "metric": evil, "notes": [evil]}
    config = slim_config(name=evil, task=task, model={"name": evil}, command=f"{evil}`````")
    made = build(Run(config, records, goals(), [{"cell": evil, "error": evil}]))
    page, twin = made.html, made.markdown
    assert "<iframe" not in page
    assert "<script" not in page
    assert page.count("</style>") == page.count("</html>") == 1
    assert not re.search(
        r"<(?!/?(picture|source|img|br|sub|details|summary|code|!--))", outside(twin)
    )


def outside(twin):
    """Markdown without its blocks of code."""
    return re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", twin)


@pytest.mark.parametrize("attempt", ["shallow", "fallback"])
def test_the_page_says_which_plan_was_built_on(attempt):
    plain = read()
    first = chosen(plain).value
    other = next(t for t in trials(plain) if t.labels["cost_share"] != first)
    cost = other.labels["cost_share"]
    labels = {"plan": other.labels["plan"], "score": 0.9, "cost_share": cost}
    given = {**labels, "attempt": attempt}
    more = [
        Record("fallback_plan", cost, "share", "measured", labels),
        Record("fixed_width_plan", cost, "share", "measured", given),
    ]
    run = dataclasses.replace(plain, records=[*plain.records, *more])
    assert taken(run).value == {"shallow": first, "fallback": cost}[attempt]
    words = cut_words(run)
    said = {
        "shallow": "It has fewer layers than the plan chosen",
        "fallback": "fast enough, but did",
    }
    assert said[attempt] in words


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("frontier_score", {"kind": "exits", "width": 1.0, "plan": "no"}),
        ("frontier_score", {"kind": "exits", "width": "wide", "plan": "{}"}),
        ("chosen_plan", {"plan": json.dumps({"heads": [], "neurons": []})}),
        ("latency_ms", {"of": "mean", "arm": "slim", "batch": 1}),
    ],
)
def test_damaged_records_are_named(tmp_path, name, labels):
    record = Record(name, 0.5, "", "measured", labels)
    make.write_run(tmp_path, slim_config(), [record])
    with pytest.raises(DataError, match=name):
        write_report(tmp_path)


def test_the_report_is_the_same_for_the_same_records():
    assert rendered() == rendered()


def test_a_template_that_is_given_too_little_says_so():
    with pytest.raises(Exception, match="undefined"):
        environment().from_string("{{ page.verdict.lead }}").render()


def test_layers_in_int8_settings_have_short_names():
    ours = "scales per channel; float32: 0.layers.1.fall, 1.layers.0.rise, 0.exit.dense"
    assert settings_text(ours, (3, 4)) == (
        "scales per channel; float32: layer 2 fall, layer 4 rise, exit 1 dense"
    )
    dense = "scales per channel; float32: 0.model.bert.encoder.layer.0.attention.output.dense"
    assert settings_text(dense) == "scales per channel; float32: layer 1 attention output"
    pooler = "scales per channel; float32: 0.model.bert.pooler.dense, 0.model.classifier"
    assert settings_text(pooler) == "scales per channel; float32: pooler, classifier"
    assert settings_text("scales per tensor") == "scales per tensor"
    assert settings_text("odd; float32: 7.layers.0.fall") == "odd; float32: 7.layers.0.fall"


BUSY = "other programs kept 1.8 of 2 processors busy"


def test_a_busy_machine_goes_first_and_its_speeds_are_not_decided():
    decided = goals()
    decided[0] |= {"met": "undecided", "note": f"not decided: the machine was busy ({BUSY})"}
    load = make.record("machine_load", 0.4, "share", disturbance=BUSY)
    cells = {record.cell for record in slim_records() if record.name == "speed_up"}
    records = slim_records() + [dataclasses.replace(load, cell=cell) for cell in sorted(cells)]
    results = Run(slim_config(), records, decided, [])
    verdict = decide(results)
    assert verdict.lead == "No verdict on speed"
    assert BUSY in verdict.because
    assert "keeps " in verdict.because  # the score has its verdict
    said = " ".join((verdict.lead, verdict.because, *verdict.second))
    assert not re.search("faster|slower|reached", said)
    speeds = [row.cells["speed"].text for row in form_rows(results)]
    assert not any(text.endswith(("faster", "slower")) for text in speeds)
    made = build(Run(slim_config(), records, decided, []))
    page, twin = made.html, made.markdown
    notices = [line for line in twin.splitlines() if line.startswith("> ")]
    assert notices[0].startswith(f"> The machine was busy during {len(cells)} measurements")
    assert "not decided: the machine was busy" in text_of(page)


def test_a_choice_of_int8_that_time_did_not_decide_is_said():
    story = Story(until="int8")
    assert "The fastest whose loss is within the floor" in rendered(story)[1]
    records = [
        dataclasses.replace(r, labels={**r.labels, "alike": 3}) if r.name == "int8_trial" else r
        for r in slim_records(story)
    ]
    twin = build(Run(slim_config(), records, goals(), [])).markdown
    assert "The times of 3 forms of" in twin
    assert "do not differ clearly: the score decided" in twin
