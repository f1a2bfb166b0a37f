"""The benchmark runs, goes on after an interruption, and says how it measured; no timing counts."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time

import pytest

from sparing.core.catalogue import mechanism
from sparing.core.folder import Folder
from sparing.core.heads import Heads
from sparing.core.record import RecordLog
from tests.benchmarks.conftest import FOLDER

KEYS = ("forward/kerformer/64", "forward/linear/64")


def start(folder, *more):
    command = [sys.executable, str(FOLDER / "mechanisms.py"), "--output-dir", str(folder)]
    command += ["--only", *KEYS, "--rounds", "2", *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def finished(folder):
    return [r.cell for r in RecordLog(folder / "records.jsonl").read() if r.name == "cell"]


@pytest.mark.slow
def test_it_goes_on_where_it_was_killed(tmp_path):
    folder = tmp_path / "run"
    running = start(folder)
    deadline = time.monotonic() + 120
    while not finished(folder) and time.monotonic() < deadline:
        time.sleep(0.005)
    running.kill()
    running.communicate()
    before = RecordLog(folder / "records.jsonl").read()
    with (folder / "records.jsonl").open("a") as file:
        file.write('{"name": "latency_ms", "val')

    _, said = start(folder).communicate(timeout=240)
    after = RecordLog(folder / "records.jsonl").read()
    assert after[: len(before)] == before
    assert sorted(finished(folder)) == sorted(KEYS), said
    named = {(r.labels["arm"], r.name) for r in after if r.name != "cell"}
    for arm in ("kerformer", "linear"):
        assert {(arm, "latency_ms"), (arm, "latency_ratio"), (arm, "speedup")} <= named

    _, said = start(folder).communicate(timeout=240)
    assert "forward/" not in said
    assert RecordLog(folder / "records.jsonl").read() == after


def test_what_grows_quadratically_runs_on_one_head_and_says_so():
    cells = importlib.import_module("mechanism_cells")
    setup = cells.Setup(rounds=2, heads=2, dim=8)
    assert cells.growth("softmax") == pytest.approx(2, abs=0.05)
    assert cells.growth("window") <= cells.LINEAR
    assert setup.job("softmax", 4096, "forward").heads == 2
    assert setup.job("softmax", 16384, "forward").heads == 1
    assert setup.job("window", 16384, "forward").heads == 2


def test_one_head_counts_as_often_as_there_are_heads():
    cells = importlib.import_module("mechanism_cells")
    job = cells.Job("linear", 8, heads=2, dim=8)
    dense = cells.Job("softmax", 8, heads=1, dim=8)
    setup = cells.Setup(rounds=2, heads=2, dim=8)
    records = cells.timed(setup, {"softmax": dense, "linear": job}, 1.0)
    halves = {r.labels["arm"]: r for r in records if r.labels.get("statistic") == "p50"}
    assert halves["softmax"].labels["scaled"] == 2
    assert halves["linear"].labels["scaled"] == 1
    gain = next(r for r in records if r.name == "speedup" and r.labels["statistic"] == "p25")
    assert gain.labels["arm"] == "linear"


@pytest.mark.parametrize("mode", ["forward", "causal", "padded", "training"])
def test_every_mode_can_be_called(mode):
    calls = importlib.import_module("attention_calls")
    job = calls.Job("linear", 16, mode, heads=2, dim=8)
    assert calls.build(**job.arguments())() is not None
    assert job.batch == (4 if mode == "padded" else 1)


def test_cells_are_chosen_by_part_pattern_or_length():
    command = importlib.import_module("mechanisms")
    keys = ("forward/linear/64", "forward/window/512", "package/window/512")
    cells = [command.Cell(key, lambda _: [], 1.0) for key in keys]

    def named(*only, lengths=()):
        return [cell.key for cell in command.chosen(cells, only, lengths)]

    assert named() == list(keys)
    assert named("window") == list(keys[1:])
    assert named("forward/*/512") == [keys[1]]
    assert named(lengths=(64,)) == [keys[0]]


def test_runs_before_are_remembered(tmp_path):
    command = importlib.import_module("mechanisms")
    assert command.earlier(tmp_path) == []
    first = {"commit": "a", "started": "yesterday"}
    (tmp_path / "config.json").write_text(json.dumps(first))
    assert command.earlier(tmp_path) == [first]
    second = {"commit": "b", "started": "today"}
    (tmp_path / "config.json").write_text(json.dumps({**second, "earlier": [first]}))
    assert command.earlier(tmp_path) == [first, second]


def test_compiled_forms_are_measured_where_they_gain():
    cells = importlib.import_module("mechanism_cells")

    def keys(arm):
        return {cell.key.split("/")[0] for cell in cells.compiled_cells(cells.Setup(), arm)}

    assert keys("linear") == {"compiled", "compiled-training"}
    assert keys("efficient") == {"compiled-training"}
    assert keys("window") == set()


def test_sparings_form_beside_every_package_can_be_built():
    packages = importlib.import_module("packages")
    known = Folder("sparing.mechanisms", "mechanism").names()
    for form in packages.PACKAGES.values():
        assert form.mechanism in known
        mechanism(form.mechanism, Heads(2, 8, width=16, tokens=64), **form.options)


def test_both_sides_read_and_write_the_same_shape():
    packages = importlib.import_module("packages")
    for scope in packages.SCOPES:
        for side in packages.SIDES:
            output = packages.call_of("longformer", side, scope, 512, width=128)()
            assert output.shape == (1, 512, 128)
