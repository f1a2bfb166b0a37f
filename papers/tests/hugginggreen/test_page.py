"""The HuggingGreen page, and the analysis that its figures rest on."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from papers.tests.hugginggreen.records import config, measured, picture, records

from sparing.core.errors import DataError
from sparing.core.record import Record
from sparing.report.page import write_report
from sparing.report.run import Run
from sparing_papers.hugginggreen.analysis import analyse
from sparing_papers.hugginggreen.page import content
from sparing_papers.hugginggreen.page.build import build
from sparing_papers.hugginggreen.page.content import groups_of
from tests.compare import records as make
from tests.compare.test_page import HOSTILE
from tests.slim.test_page import text_of


def read(given: list[Record] | None = None, **changes: object) -> Run:
    return Run(config(**changes), records() if given is None else given, [], [])


def verdict(run):
    return content.verdict(run, groups_of(run))


def notices(run):
    return content.notices(run, groups_of(run))


def headline(run):
    return content.headline(run, groups_of(run))


def block(run, key):
    return next((part for part in build(run).sections if getattr(part, "key", "") == key), None)


def of_name(records, name, **labels):
    return [r for r in records if r.name == name and labels.items() <= r.labels.items()]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("green")
    make.write_run(folder, config(), records())
    files = write_report(folder)
    return files, files["html"].read_text(), files["md"].read_text()


def test_it_writes_page_twin_and_figures(page):
    files, text, twin = page
    named = {"trade-digits-4", "curves-digits-4", "patches-digits"}
    assert {name for name in files if not name.endswith("-dark")} == {"html", "md", *named}
    for shown in (text_of(text), twin.replace("\\", "")):
        plain = " ".join(shown.replace("\N{NO-BREAK SPACE}", " ").split())
        for owed in (
            "joules are CPU seconds times 5 W, an estimate",
            "Noise of measuring, the energy of the dense variant trained a second time",
            "Patches: digits, 4 layers",
            "At the same cost: digits, 4 layers",
            "Attention: digits, 4 layers",
            "Stages at equal energy",
            "Stages at equal steps",
            "Every test",
            "Micro-F1 equals accuracy",
        ):
            assert owed in plain, owed
    assert "<script" not in text


def test_the_first_notice_says_that_joules_are_estimates(page):
    assert notices(read())[0].startswith("This machine shows no counter of energy")
    assert "joules are estimates" in headline(read())[-1]
    counted = [
        replace(r, obtained="measured") if r.obtained == "estimated" else r for r in records()
    ]
    assert not any("no counter" in notice for notice in notices(read(counted)))
    assert "estimates" not in " ".join(headline(read(counted)))


def test_pictures_lie_inside_the_page(page):
    assert re.search(r'href="data:image/png;base64,', page[1])
    assert "ata:image" not in page[1].replace("data:image", "")


def test_the_target_is_held_against_the_better_dense_arm():
    analysed = analyse(measured(), {"digits": 1000}, 0.03)
    (target,) = of_name(analysed, "target_energy_ratio", arm="contrast top 0.7", question="patches")
    assert target.labels["to"] == "fewer steps, as 0.7"
    assert target.value == pytest.approx(72 / 70, abs=0.02)
    assert target.interval[0] < target.value < target.interval[1]


def test_who_misses_the_target_has_no_ratio():
    analysed = analyse(measured(), {"digits": 1000}, 0.005)
    (missed,) = of_name(analysed, "target_energy_ratio", arm="random top 0.7")
    assert (missed.value, missed.labels["reached"], missed.labels["of"]) == (None, 0, 10)
    (reached,) = of_name(analysed, "target_energy_ratio", arm="convolutions, as 0.7")
    assert reached.labels["to"] == "dense"
    assert reached.value < 0.8


def test_differences_are_paired_and_held_against_the_margin():
    analysed = analyse(measured(), {"digits": 1000}, 0.01)
    (ours,) = of_name(analysed, "accuracy_difference", arm="contrast top 0.7")
    (random,) = of_name(analysed, "accuracy_difference", arm="random top 0.7")
    assert ours.value == pytest.approx(-0.005, abs=0.002)
    assert ours.labels["non_inferior_p"] < 0.05 < random.labels["non_inferior_p"]
    (baseline,) = of_name(
        analysed, "baseline_difference", arm="contrast top 0.7", baseline_kind="random"
    )
    assert baseline.interval[0] > 0
    (ratio,) = of_name(analysed, "energy_ratio", arm="contrast top 0.7")
    assert ratio.value == pytest.approx(0.72, abs=0.02)
    assert ratio.labels["sign_flip_p"] == pytest.approx(2 / 2**10)
    assert ratio.labels["holm_p"] > ratio.labels["sign_flip_p"]


def test_measured_energy_is_not_summed_with_estimates():
    measurements = measured()
    counted = [
        replace(
            r, value=1000.0 * r.value, obtained="measured", labels={**r.labels, "component": "gpu"}
        )
        for r in measurements
        if r.name == "train_energy_j"
    ]
    analysed = analyse([*measurements, *counted], {"digits": 1000}, 0.01)
    (ratio,) = of_name(analysed, "energy_ratio", arm="contrast top 0.7")
    assert ratio.obtained == "measured"
    assert ratio.value == pytest.approx(0.72, abs=0.02)


def test_the_plateau_is_the_gain_of_the_last_quarter():
    analysed = analyse(measured(learning=True), {"digits": 1000}, 0.01)
    gains = of_name(analysed, "last_quarter_gain", question="patches")
    assert gains[0].value == pytest.approx(0.05)
    assert not gains[0].labels["at_plateau"]
    still = read(records(learning=True))
    assert any("still gains +5.0" in notice for notice in notices(still))
    assert not any("still gains" in notice for notice in notices(read()))


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_a_short_training_that_still_gains_is_not_at_its_plateau(epochs):
    short = []
    for record in measured(learning=True):
        labels = dict(record.labels)
        if record.name == "curve":
            labels["told"] = json.dumps(json.loads(labels["told"])[:epochs])
        short.append(replace(record, labels=labels))
    analysed = analyse(short, {"digits": 1000}, 0.01)
    [gain] = of_name(analysed, "last_quarter_gain", question="patches")
    assert gain.value > 0.049
    assert not gain.labels["at_plateau"]


def test_a_dense_model_that_still_learns_gives_no_saving():
    assert verdict(read(records())).lead == "Choosing patches saves energy"
    still = verdict(read(records(learning=True)))
    assert still.lead == "Choosing patches does not pay here"


@pytest.mark.parametrize(
    ("pairs", "margin", "lead"),
    [
        (3, 0.01, "No claim is made"),
        (10, 0.01, "Choosing patches saves energy"),
        (10, 0.03, "Choosing patches does not pay here"),
    ],
)
def test_the_verdict_needs_ten_pairs_and_the_better_dense_arm(pairs, margin, lead):
    assert verdict(read(records(pairs, margin=margin))).lead == lead


def test_the_verdict_is_of_the_declared_arm_alone():
    all_records = records()
    lucky = [replace(r, labels={**r.labels, "arm": "entropy top 0.7"}) for r in all_records]
    others = [r for r in all_records if r.labels.get("arm") != "contrast top 0.7"]
    swapped = [r for r in lucky if r.labels.get("arm") == "entropy top 0.7"]
    assert verdict(read([*others, *swapped])).lead == "No verdict yet"
    saves = verdict(read(all_records))
    assert "contrast top 0.7 reaches the dense model's target for on digits 0.7" in saves.because


@pytest.mark.parametrize(
    ("name", "changes", "lead"),
    [
        ("target_energy_ratio", {"interval": (0.6, 1.1)}, "Choosing patches does not pay here"),
        ("target_energy_ratio", {"count": 9}, "Choosing patches does not pay here"),
        ("accuracy_difference", {"non_inferior_p": 0.2}, "Choosing patches does not pay here"),
        (
            "baseline_difference",
            {"holm_p": 0.2},
            "Dropping patches saves energy, choosing them does not",
        ),
    ],
)
def test_the_verdict_asks_for_everything(name, changes, lead):
    changed = []
    for record in records():
        mine = record.labels.get("arm") == "contrast top 0.7"
        if (
            record.name == name
            and mine
            and record.labels.get("baseline_kind", "random") == "random"
        ):
            fields = {k: v for k, v in changes.items() if k in ("interval", "count")}
            labels = {k: v for k, v in changes.items() if k.endswith("_p")}
            record = replace(record, **fields, labels={**record.labels, **labels})
        changed.append(record)
    assert verdict(read(changed)).lead == lead


def test_half_the_heads_are_held_against_as_many():
    analysed = analyse(measured(), {"digits": 1000}, 0.01)
    (half,) = of_name(analysed, "baseline_difference", baseline_kind="half the heads")
    assert half.labels["to"] == "softmax, half the heads"
    assert half.value == pytest.approx(0.008, abs=0.002)
    assert block(read(), "half").rows[0][0] == "digits, 4 layers"


def test_scheduled_arms_have_no_baselines_of_another_cost():
    analysed = analyse(measured(), {"digits": 1000}, 0.01)
    assert not of_name(analysed, "baseline_difference", arm="contrast top 0.7, decay")
    (ratio,) = of_name(
        analysed, "baseline_flops_ratio", arm="contrast top 0.7", baseline_kind="fewer steps"
    )
    assert (ratio.obtained, ratio.value) == ("modelled", pytest.approx(0.69 / 0.7))


def test_sensed_energies_add_up_and_estimates_are_left_out():
    measurements = measured()
    more = []
    for record in measurements:
        if record.name == "train_energy_j":
            for kind, component, factor in (("measured", "package-0", 1), ("integrated", "gpu", 3)):
                labels = {**record.labels, "component": component}
                value = factor * record.value
                more.append(replace(record, value=value, obtained=kind, labels=labels))
    analysed = analyse([*measurements, *more], {"digits": 1000}, 0.01)
    (ratio,) = of_name(analysed, "energy_ratio", arm="contrast top 0.7")
    assert ratio.obtained == "integrated"
    results = read([*measurements, *more])
    assert groups_of(results)[0].mean("train_energy_j", "dense") == pytest.approx(400, rel=0.02)
    assert "Not in any sum, as it is an estimate beside sensors: cpu." in notices(results)
    assert len(block(results, "components").rows) == 6


@pytest.mark.usefixtures("_unpainted")
def test_without_a_training_the_page_says_so(tmp_path):
    make.write_run(tmp_path, config(), [picture()])
    text = text_of(write_report(tmp_path)["html"].read_text())
    assert "No verdict yet" in text
    assert "0 of 1 cells are done" in text


def test_tables_have_a_cell_for_each_head():
    keys = ("patches-digits-4", "baselines-digits-4", "stages-energy-digits", "stages-steps-digits")
    blocks = [block(read(), key) for key in keys]
    for table in blocks:
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.heads)}
    assert [row[0] for row in blocks[0].rows][:2] == ["dense", "dense again"]


@pytest.mark.usefixtures("_unpainted")
def test_hostile_names_stay_text(tmp_path):
    evil = HOSTILE[2]
    hostile = records(3, task=evil)
    hostile = [
        replace(r, labels={**r.labels, "arm": evil})
        if "convolutions" in str(r.labels.get("arm"))
        else r
        for r in hostile
    ]
    made = config(tasks=[evil], name=evil, command=evil, recipes={}, cells=[evil])
    made["task"] = {"name": evil, "notes": [evil]}
    make.write_run(tmp_path, made, hostile)
    files = write_report(tmp_path)
    text = files["html"].read_text()
    assert "<img" not in text
    assert evil in text_of(text) or " ".join(evil.split()) in text_of(text)
    assert all(
        path.parent.parent == tmp_path for name, path in files.items() if name not in ("html", "md")
    )


def test_damaged_content_is_one_line():
    labels = {"task": "digits", "label": "0", "told": "{"}
    with pytest.raises(DataError, match="has no sound content"):
        build(read([*records(2), Record("picture", None, "", "measured", labels)]))
    assert json.loads(picture().labels["told"])["side"] == 2
