"""The page of ``slim`` in a browser: nothing overflows, nothing is fetched, light and dark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparing.report.page import write_report
from sparing.slim.evidence.changed import write_changed
from tests.compare import records as make
from tests.report.test_browser import look
from tests.report.test_browser import pytestmark as pytestmark
from tests.slim.records import DENSE, NOTHING, Story, changed, goals, slim_config, slim_records

STORIES = {
    "reached": Story(),
    "dense": DENSE,
    "kept": NOTHING,
    "begun": Story(until="survey"),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    pages = {}
    for name, story in STORIES.items():
        folder = tmp_path_factory.mktemp(name)
        failed = [{"cell": "x" * 90, "error": "y" * 300}]
        config = slim_config(story, command="sparing slim " + "z" * 200)
        make.write_run(folder, config, slim_records(story), goals(story), failed)
        write_changed(folder, [replace(one, texts=("w" * 400, "a " * 200)) for one in changed()])
        page = write_report(folder)["html"].read_text()
        pages[name] = page.replace("<details", "<details open")
    return pages


@pytest.mark.parametrize("width", [320, 390, 760, 761, 1123, 1280])
@pytest.mark.parametrize("name", list(STORIES))
def test_nothing_overflows_and_nothing_is_fetched(written, tmp_path, name, width):
    layout, requests = look(written[name], tmp_path / "profile", width)
    assert layout["over"] == []
    assert layout["scroll"] <= width
    assert layout["small"] == 0
    assert layout["drawings"] >= 1
    assert layout["resources"] == []
    assert layout["scripts"] == 0
    assert requests == ["/probe"]


def test_light_and_dark(written, tmp_path):
    light, _ = look(written["reached"], tmp_path / "light", 1280)
    dark, _ = look(written["reached"], tmp_path / "dark", 1280, dark=True)
    assert light["ground"] != dark["ground"]
    assert light["line"] != dark["line"]
