"""The pages of the mechanisms and the packaged summary say what the committed records say."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from sparing.cli.shared import mechanism_facts as _mechanism_facts
from sparing.core.catalogue import MECHANISMS
from sparing.core.record import Record
from sparing.report.figures.drawing import to_png
from sparing.report.figures.palette import LIGHT

CONFIG = {
    "machine": {"cpu": "Example CPU"},
    "started": "2026-01-02T00:00:00+00:00",
    "commit": "0123456789ab",
}
EXTENSION = Path(__file__).parents[2] / "docs" / "_ext"
LENGTHS = (512, 1024, 4096, 16384)


@pytest.fixture
def docs(monkeypatch):
    """The modules that write the pages of the site."""
    monkeypatch.syspath_prepend(str(EXTENSION))
    return {name: importlib.import_module(name) for name in ("page_parts", "speed_page")}


@pytest.fixture
def mechanism_findings():
    return importlib.import_module("mechanism_findings")


@pytest.fixture
def summary_script():
    return importlib.import_module("mechanisms_summary")


def speed(arm, tokens, middle, mode="forward"):
    labels = {"arm": arm, "tokens": tokens, "mode": mode, "compiled": False}
    parts = (("p25", 0.9), ("p50", 1.0), ("p75", 1.1))
    return [
        Record(
            "speedup",
            middle * factor,
            "ratio",
            "measured",
            {**labels, "statistic": percent},
            cell=f"{mode}/{arm}/{tokens}",
        )
        for percent, factor in parts
    ]


def peak(arm, tokens, value):
    labels = {"arm": arm, "tokens": tokens, "mode": "forward"}
    cell = f"memory/{arm}/{tokens}"
    return Record("peak_bytes", value, "bytes", "measured", labels, cell=cell)


@pytest.fixture
def findings(mechanism_findings):
    records = [r for n in LENGTHS for r in speed("linear", n, n / 1024)]
    records += [r for n in LENGTHS[:3] for r in speed("eager", n, 0.5)]
    records += speed("linear", 1024, 3.0, "causal")
    records += [peak("linear", n, 100 * n) for n in LENGTHS]
    records += [peak("softmax", n, 50 * n) for n in LENGTHS]
    rates = (("gemm_flops_per_s", 1e9), ("copy_bytes_per_s", 1e9))
    records += [Record(name, rate, "1/s", "measured", {"threads": 1}) for name, rate in rates]
    labels = {"arm": "linear", "mode": "forward", "tokens": 4096}
    records.append(Record("matmul_flops", 2e6, "FLOP", "modelled", labels))
    records.append(Record("traffic_bytes", 1e6, "bytes", "modelled", labels))
    time = Record("latency_ms", 8.0, "ms", "measured", {**labels, "statistic": "p50"})
    records.append(replace(time, cell="forward/linear/4096"))
    for cell, plain, compiled in (("compiled", 0.1, 0.05), ("compiled-training", 0.5, 0.2)):
        records += [
            Record(
                "latency_ratio",
                ratio,
                "ratio",
                "measured",
                {"arm": "linear", "tokens": 1024, "compiled": ratio == compiled},
                cell=f"{cell}/linear/1024",
            )
            for ratio in (plain, compiled)
        ]
    return mechanism_findings.Findings(records, CONFIG)


def test_records_under_an_earlier_name_count_for_todays(mechanism_findings):
    renamed = mechanism_findings.Findings(speed("delta", 512, 0.5), {})
    assert renamed.curve("difference") == {512: 0.5}
    assert renamed.lengths("delta") == []


def test_the_packaged_summary_is_that_of_the_committed_records(mechanism_findings, summary_script):
    folder = mechanism_findings.newest()
    assert summary_script.MEASURED.exists() == bool(folder)
    if folder:
        expected = mechanism_findings.read(folder).summary(MECHANISMS.names())
        assert json.loads(summary_script.MEASURED.read_text()) == expected


@pytest.mark.parametrize(
    ("speedups", "expected"),
    [
        ({}, None),
        ({64: 0.5, 128: 0.9}, None),
        ({64: 1.5, 128: 2.0}, 64),
        ({64: 0.5, 256: 2.0}, 128),
        ({64: 2.0, 128: 0.5, 512: 2.0}, 256),
        ({64: 2.0, 128: 3.0, 256: 0.9}, None),
    ],
)
def test_crossing(mechanism_findings, speedups, expected):
    assert mechanism_findings.crossing(speedups) == expected


def test_the_speed_page_has_what_was_measured(docs, findings):
    text = docs["speed_page"].speed_page(findings)
    row = next(line for line in text.splitlines() if line.startswith("| kernel | [linear]"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2].replace("\u2060", "") == "0.50\u00d7 [0.45\u20130.55]"
    assert cells[5].startswith("16.0\u00d7")
    assert cells[6:] == ["1,024", "2.00\u00d7", "1.00", "25 %"]
    assert "| dense | [eager](mechanisms/eager.md) |" in text
    assert "not up to 4,096" in text
    assert "| [linear](mechanisms/linear.md) | 3.00\u00d7" in text
    compiled = "2.00\u00d7 (20.0\u00d7) | \u2013 | \u2013 | 2.50\u00d7 (5.00\u00d7)"
    assert f"| [linear](mechanisms/linear.md) | \u2013 | {compiled}" in text


def test_without_records_the_speed_page_says_so(docs):
    assert "Not measured yet" in docs["speed_page"].speed_page(None)


def test_the_summary_is_what_show_reads(findings):
    summary = findings.summary(MECHANISMS.names())
    assert set(_mechanism_facts._ORIGIN) <= set(summary)
    assert set(summary["mechanisms"]) == {"linear", "eager"}
    for facts in summary["mechanisms"].values():
        assert set(_mechanism_facts._RESULTS) == set(facts)
    linear = summary["mechanisms"]["linear"]
    assert linear["crossover_tokens"] == 1024
    assert linear["speedup"]["16384"] == 16.0
    assert linear["peak_ratio"]["512"] == 2.0


def test_the_figure_is_drawn_the_same_each_time(summary_script, findings):
    draw = summary_script.drawing(summary_script.figure_curves(findings))
    first = to_png(draw, LIGHT)
    assert first == to_png(draw, LIGHT)
    assert first.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("uses ``q_k`` and x_i", "uses `q_k` and x\\_i"),
        ("|i - j| <= r", "\\|i - j\\| &lt;= r"),
        ("``a``", "`a`"),
    ],
)
def test_docstrings_become_markdown(docs, text, expected):
    assert docs["page_parts"].prose(text) == expected
