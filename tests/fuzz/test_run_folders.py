"""Run folders with any content are reported and merged, or refused in a line."""

from __future__ import annotations

import json
import shutil
from functools import cache

from hypothesis import strategies as st

from sparing.core.compressed import compress_file
from sparing.experiment.registry import find_study
from tests.compare.records import CLAIMS, GOALS, config, records, write_run
from tests.fuzz.harness import (
    CHANGES,
    CUTS,
    TEXTS,
    command,
    fuzzed,
    spoilt_bytes,
    spoilt_tree,
    text_of,
)

ARMS = ("softmax", "linear")
FILES = st.sampled_from(["config.json", "records.jsonl", "records.jsonl", "goals.json"])
OTHER = st.sampled_from(["failed.json", "answers.safetensors", ".lock", "models/x", "figures"])


@cache
def _files():
    """The files of a small run of compare, and of one that can be merged."""
    import tempfile
    from pathlib import Path

    from tests.experiment.test_merge import WHOLE

    files = {}
    for kind in ("compare", "kerformer"):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "run"
            if kind == "compare":
                made = [*records(ARMS, seeds=2), *CLAIMS]
                write_run(folder, config(ARMS, 2), made, GOALS, [{"cell": "a", "error": "b"}])
            else:
                find_study("kerformer").run(WHOLE, folder, minutes=0.0)
            files[kind] = {
                file.relative_to(folder).as_posix(): file.read_bytes()
                for file in folder.rglob("*")
                if file.is_file() and not file.name.startswith("report")
            }
    return files


def _write(run_dir, kind):
    shutil.rmtree(run_dir, ignore_errors=True)
    for name, content in _files()[kind].items():
        (run_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (run_dir / name).write_bytes(content)


def _spoil(run_dir, name, changes, cuts):
    """Change values, or bytes where there are cuts."""
    file = run_dir / name
    content = (file.read_bytes() if file.is_file() else b"") or b"{}"
    if cuts:
        content = spoilt_bytes(content, cuts)
    elif name.endswith(".jsonl"):
        rows = content.decode().splitlines() or ["{}"]
        for number, change in enumerate(changes):
            at = change[0][0] * 7 % len(rows)
            steps = change[0][1:] or [number]
            rows[at] = text_of(spoilt_tree(json.loads(rows[at]), [(steps, *change[1:])]))
        content = "\n".join([*rows, ""]).encode()
    else:
        content = text_of(spoilt_tree(json.loads(content), changes)).encode()
    if not file.is_dir():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


@fuzzed(
    1,
    0.03,
    kind=st.sampled_from(["compare", "compare", "kerformer"]),
    name=FILES | OTHER,
    changes=CHANGES,
    cuts=st.just([]) | st.lists(CUTS, max_size=2),
    as_json=st.booleans(),
    packed=st.booleans(),
    verb=st.sampled_from(["report", "report", "pack"]),
)
def test_a_run_is_reported(folder, kind, name, changes, cuts, as_json, packed, verb):
    """``sparing report`` and ``sparing pack`` on a folder with one damaged file, or packed."""
    run_dir = folder / "run"
    _write(run_dir, kind)
    if packed and cuts and name == "records.jsonl":
        compress_file(run_dir / name)
        name = "records.jsonl.xz"
    _spoil(run_dir, name, changes, cuts)
    if packed and (run_dir / "records.jsonl").is_file():
        compress_file(run_dir / "records.jsonl")
    inputs = {"kind": kind, "name": name, "changes": changes, "cuts": cuts, "packed": packed}
    command([verb, "run", *(["--json"] if as_json else [])], folder, verb=verb, **inputs)


@fuzzed(
    4,
    0.04,
    name=FILES | OTHER,
    changes=CHANGES,
    cuts=st.just([]) | st.lists(CUTS, max_size=2),
    study=st.sampled_from(["", "", "compare", "slim"]) | TEXTS,
    second=st.booleans(),
)
def test_runs_are_merged(folder, name, changes, cuts, study, second):
    """``sparing merge`` of two folders, one of them damaged."""
    shutil.rmtree(folder / "whole", ignore_errors=True)
    for name_of_run in ("first", "second"):
        _write(folder / name_of_run, "kerformer")
    run_dir = folder / ("second" if second else "first")
    if study:
        saved_config = json.loads((run_dir / "config.json").read_text())
        (run_dir / "config.json").write_text(text_of({**saved_config, "study": study}))
    _spoil(run_dir, name, changes, cuts)
    inputs = {"study": study, "second": second, "name": name, "changes": changes, "cuts": cuts}
    command(["merge", "first", "second", "--output-dir", "whole"], folder, **inputs)
