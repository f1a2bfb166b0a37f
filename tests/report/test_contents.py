"""The list of sections at the head of a long page."""

from __future__ import annotations

import re

import pytest

from sparing.report.blocks import Block
from sparing.report.figures.drawing import no_plot
from sparing.report.page import Page
from sparing.report.run import Run
from sparing.report.sections import Pair, Section, Text, Verdict, figure

SHORT = [Block("goals", "Goals", "None.")]
LONG = [
    *SHORT,
    figure(no_plot("speed", "Speed & memory", "No times.")),
    Pair((Section("left", "<Left>", (Text("One."),)), Section("right", "Right", ()))),
]
CLOSING = [("run", "Task, machine and versions"), ("words", "What the words mean")]


def page(sections, command=""):
    config = {"name": "demo", "task": {}, "command": command}
    run = Run(config, [], [], [])
    return Page(run, "a test", [], Verdict("It works", ".", ("So.",)), ["Busy."], sections, (), ())


def test_contents_lists_every_section_in_order():
    assert page(LONG).contents == [
        ("goals", "Goals"),
        ("figure-speed", "Speed & memory"),
        ("left", "<Left>"),
        ("right", "Right"),
        *CLOSING,
    ]
    assert page(LONG, "sparing demo").contents[-1] == ("repeat", "Repeat it")


def test_contents_link_to_sections_and_work_without_scripts():
    html = page(LONG, "sparing demo").html
    lists = re.findall(r'<nav class="contents (\w+)".*?</nav>', html, re.DOTALL)
    assert lists == ["narrow", "wide"]
    links = re.findall(r'<a href="#([^"]*)">', html)
    anchors = re.findall(r'<section id="([^"]*)">', html)
    assert len(anchors) == 7
    assert links == 2 * anchors
    assert html.count(">&lt;Left&gt;</a>") == 2
    assert "<script" not in html
    assert re.search(r"@media print \{ \.contents \{ display: none; \}", html)
    assert html.index("<h1>") < html.index("<nav") < html.index("Busy.")


@pytest.mark.parametrize(("command", "count"), [("", 3), ("sparing demo", 4)])
def test_a_short_page_has_no_contents(command, count):
    short = page(SHORT, command)
    assert short.contents == ()
    assert short.html.count("<section ") == count
    assert "<nav" not in short.html


def test_markdown_has_no_contents():
    assert "(#" not in page(LONG, "sparing demo").markdown
