from __future__ import annotations

import html.parser
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from sparing.compare.page.build import table_html
from sparing.compare.page.lineup import lineup
from sparing.compare.page.tables import table_rows
from sparing.compare.page.verdict import decide
from sparing.core.errors import DataError
from sparing.core.record import RecordLog
from sparing.report.markdown import escape
from sparing.report.page import write_report
from sparing.report.run import read_run
from tests.compare import records as make
from tests.report.unpainted import unpainted

HOSTILE = (
    "softmax",
    "<script>alert(1)</script>",
    "\"'><img src=http://example.com/x.png onerror=alert(1)>",
    "</style></svg></title><iframe src=//example.com>",
    "{{ 7 * 7 }}{% raise %}",
    "a|b`c`*d*[e](http://example.com)",
    "x" * 120,
    "$\\frac{1}{$",
)
FIGURES = ("crossover", "pareto", "memory", "learning")


class Elements(html.parser.HTMLParser):
    """Every element that a browser would build, with its attributes, and all text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data


def write(folder, arms=("softmax", "linear", "kerformer"), seeds=2, **changes):
    config = make.config(arms, seeds, **changes)
    return make.write_run(folder, config, make.records(arms, seeds))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """The page and the Markdown of a run in which every text attacks."""
    evil = HOSTILE[1]
    config = make.config(HOSTILE, 2, name=evil, command=f"sparing compare {evil} `````")
    config["task"] = {**config["task"], "name": evil, "source": evil, "metric": evil}
    config["machine"] = {**config["machine"], evil: evil}
    records = make.records(HOSTILE, 2)
    records.append(make.record("x", 1.0, "<b>", None, "paper", arm=evil, source=evil, reason=evil))
    goals = [{"name": evil, "target": evil, "value": evil, "interval": [0, 1], "met": evil}]
    failed = [{"cell": evil, "error": f"{evil}\n{evil}"}]
    folder = make.write_run(tmp_path_factory.mktemp("hostile"), config, records, goals, failed)
    with unpainted():
        files = write_report(folder)
    return files["html"].read_text(), files["md"].read_text()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("full")
    arms = ("softmax", "linear", "kerformer")
    records = make.records(arms, 3) + make.CLAIMS
    failed = [{"cell": "train/linear/seed=3", "error": "loss is not finite"}]
    make.write_run(folder, make.config(arms, 3), records, make.GOALS, failed)
    with unpainted():
        return write_report(folder)["html"].read_text()


def test_it_writes_the_page_its_twin_and_the_figures(tmp_path):
    files = write_report(write(tmp_path / "run"))
    expected_files = {"html", "md", *FIGURES, *(f"{name}-dark" for name in FIGURES)}
    assert set(files) == expected_files
    assert all(path.is_file() and path.stat().st_size > 1000 for path in files.values())
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "config.json",
        "figures",
        "records.jsonl",
        "report.html",
        "report.md",
    ]


def test_the_page_builds_nothing_that_fetches_or_runs(page, hostile):
    for text in (page, hostile[0]):
        for tag, attributes in Elements(text).tags:
            assert tag not in {
                "script",
                "img",
                "iframe",
                "object",
                "embed",
                "video",
                "base",
                "image",
            }
            assert not any(name.startswith("on") for name in attributes)
            assert "src" not in attributes
            links = [attributes.get("href"), attributes.get("xlink:href")]
            assert all(link is None or link[0] == "#" or link == "data:," for link in links)
            assert not re.search(r"url\((?!#)", attributes.get("style") or "")
        style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
        assert "url(" not in style
        assert "@import" not in style
        assert text.count("<style>") == 1


def test_hostile_names_are_shown_as_they_are(hostile):
    shown = Elements(hostile[0]).text
    for name in HOSTILE:
        assert name in shown


def test_hostile_names_stay_text_in_markdown(hostile):
    text = hostile[1]
    ours = r"/?(br|sub|picture|details|summary|code)|source [^<>]*|img src=\"figures/[^<>]*"
    body = re.sub(rf"<({ours})>", "", text)
    body = re.sub(r"(`{3,})sh\n.*?\n\1", "", body.replace("<!-- -->", ""), flags=re.DOTALL)
    assert "<" not in body
    assert "``````sh\n" in text
    table = [line for line in text.splitlines() if line.startswith("| ")]
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table}
    assert widths == {4, 10, 6, 3}


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a_b*c", "a\\_b\\*c"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("1. one", "\\1. one"),
        ("- one\n# two", "\\- one \\# two"),
        ("a|b", "a\\|b"),
        ("@all", "&#64;all"),
        ("http://a", "http<!-- -->://a"),
    ],
)
def test_markdown_escape(text, escaped):
    assert escape(text) == escaped


def test_the_page_holds_everything_it_owes(page):
    elements = Elements(page)
    order = [a["id"] for tag, a in elements.tags if tag == "section"]
    assert order == [
        *("figure-crossover", "table", "figure-pareto", "figure-memory", "figure-learning"),
        *("goals", "failed", "claims", "run", "words", "repeat"),
    ]
    text = " ".join(elements.text.split()).replace("\u00a0", " ")
    records = make.records(("softmax", "linear", "kerformer"), 3)
    config = make.config(("softmax", "linear", "kerformer"), 3)
    decided = decide(make.run_of(records, config, [{"cell": "train/linear/seed=3"}]))
    for sentence in (decided.first, decided.second):
        assert sentence in text
    run = make.run_of(records, config)
    for row in table_rows(run, lineup(run)):
        for key, cell in row.cells.items():
            for part in (cell.text, *cell.notes) if key != "crossover" else ():
                assert part in text
    for words in (
        *("chance 10 %", "margin 1 point", "estimated", "modelled", "not met", "undecided"),
        *("loss is not finite", "arXiv 2006.04768", "0.4 of dense", "Example CPU @ 2.10 GHz"),
        *("16.0 GiB", "2.13.0", "sparing compare digits --mechanisms", "CC BY 4.0"),
    ):
        assert words in text


@pytest.mark.usefixtures("_unpainted")
@pytest.mark.parametrize("count", [0, 1, 40, 120, 200])
def test_a_run_that_still_goes_has_a_page(tmp_path, count):
    arms = ("softmax", "linear", "kerformer")
    folder = make.write_run(tmp_path, make.config(arms, 2), make.records(arms, 2)[:count])
    text = Elements(write_report(folder)["html"].read_text()).text
    assert "not measured" in text
    if count <= 120:
        assert "This run is not complete" in text


def test_a_configuration_with_only_its_arms_has_a_page(tmp_path):
    folder = make.write_run(tmp_path, {"arms": ["softmax"], "baseline": "softmax"}, [])
    assert "Nothing to compare" in write_report(folder)["html"].read_text()


@pytest.mark.usefixtures("_unpainted")
def test_a_baseline_among_no_arms_has_a_page(tmp_path):
    config = make.config(("linear", "window"), 2, baseline="softmax")
    folder = make.write_run(tmp_path, config, make.records(("linear", "window"), 2))
    assert write_report(folder)["html"].is_file()


@pytest.mark.usefixtures("_unpainted")
def test_it_warns_of_several_machines_and_of_uncommitted_code(tmp_path):
    folder = write(tmp_path)
    lines = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    lines[0] = lines[0].replace("example-2c-1a2b3c", "another").replace("0123456789ab", "abc+")
    (folder / "records.jsonl").write_text("".join(lines))
    text = write_report(folder)["html"].read_text()
    assert "come from 2 machines" in text
    measured = [r for r in read_run(folder).records if r.obtained != "paper"]
    whole = f"{sum(record.value is not None for record in measured):,}"
    sentence = f"1 of {whole} measured values are of code with changes that no commit holds"
    assert text.count(sentence) == 1


def test_writing_again_gives_the_same_bytes(tmp_path):
    folder = write(tmp_path)
    first = {name: path.read_bytes() for name, path in write_report(folder).items()}
    assert {name: path.read_bytes() for name, path in write_report(folder).items()} == first


@pytest.mark.usefixtures("_unpainted")
def test_what_cannot_be_written_gives_one_clear_line(tmp_path):
    folder = write(tmp_path)
    (folder / "figures").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot write .*figures"):
        write_report(folder)
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


def test_the_notebook_form_is_the_escaped_table_alone():
    records, config = make.records(HOSTILE, 2), make.config(HOSTILE, 2)
    elements = Elements(table_html(make.run_of(records, config)))
    assert {tag for tag, _ in elements.tags} <= {
        *("table", "caption", "thead", "tbody", "tr", "th", "td", "span", "div", "small")
    }
    assert HOSTILE[1] in elements.text


def test_importing_the_package_draws_nothing_in():
    code = "import sparing.report, sys; print({'matplotlib', 'jinja2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.usefixtures("_unpainted")
def test_a_page_says_which_code_measured(tmp_path):
    folder = write(tmp_path / "run")
    later = make.record("latency_ms", 1.0, "ms")
    log = RecordLog(folder / "records.jsonl")
    log.append([replace(later, commit="f" * 12, cell="analysis")])
    write_report(folder)
    assert "They were measured at" not in (folder / "report.md").read_text()
    log.append([replace(later, commit="f" * 12)])
    write_report(folder)
    sentence = "They were measured at 2 commits: 0123456789ab, ffffffffffff."
    assert sentence in (folder / "report.md").read_text()


@pytest.mark.usefixtures("_unpainted")
def test_what_the_meter_noted_stands_on_page_and_twin_once(tmp_path):
    folder = write(tmp_path / "run")
    note = make.record("meter_note", None, told="The counter of <b>DRAM</b> was left out.")
    RecordLog(folder / "records.jsonl").append([note, note])
    write_report(folder)
    twin = (folder / "report.md").read_text()
    assert twin.count("The counter of") == 1
    assert (
        "The counter of &lt;b&gt;DRAM&lt;/b&gt; was left out."
        in (folder / "report.html").read_text()
    )
