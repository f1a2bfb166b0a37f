"""Slim in two processes with half of each batch ends as in one with all of it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from safetensors.torch import load_file

from sparing.experiment.parallel.leading import PROCESSES
from sparing.experiment.run import Run, read_config
from sparing.slim.state import read_state
from sparing.slim.study import dense_answers, steps_of, task_of
from sparing.train.processes import run_in
from tests.slim.several import TUNED, distil, whole_run, without_dropout

pytestmark = pytest.mark.slow

SAME = 1e-8


def test_two_processes_distil_and_tune_as_one(toy, texts_options, tmp_path):
    model = without_dropout(toy, tmp_path / "model")
    options = replace(texts_options, model=str(model), batch_size=16)
    ends = []
    for processes, folder in ((1, tmp_path / "one"), (2, tmp_path / "two")):
        dense_answers(steps_of(options, task_of(options)[0], folder))
        if processes == 1:
            distil(options, folder)
        else:
            run_in(processes, distil, options, folder)
        models = [folder / "models" / name for name in ("adaptive", TUNED)]
        ends.append([load_file(path / "model.safetensors") for path in models])
    for one, two in zip(*ends, strict=True):
        assert one.keys() == two.keys()
        assert str(next(iter(one.values())).dtype) == "torch.float64"
        assert max(float((one[name] - two[name]).abs().max()) for name in one) < SAME
    steps = [json.loads((path / "result.json").read_text())["steps"] for path in models]
    assert all(count > 10 for count in steps)


def test_a_whole_run_of_two_processes(texts_run, texts_options, tmp_path):
    """Process 1 writes nothing, and all cells end; what no time decides is there too."""
    folder = tmp_path / "run"
    cells = {record.cell for record in texts_run.records}
    assert run_in(2, whole_run, asdict(texts_options), folder) >= len(cells - {"static"})
    records = Run(folder, read_config(folder, "slim")).records()
    shared = {record.cell for record in records if record.name == PROCESSES}
    assert {"distil", "fixed-width"} <= shared <= {"distil", "fixed-width", "static"}
    names = {record.name for record in texts_run.records}
    assert {record.name for record in records} >= names - {"exit_rate", "machine_load"}
    assert read_state(folder).folder == "fixed-width"
    assert (folder / "model" / "torch" / "config.json").is_file()
