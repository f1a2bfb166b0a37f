"""The fingerprint names no person's machine, and pinned threads are given back."""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.measure import machine as module
from sparing.measure.machine import commit, machine, machine_id, threads


def test_facts_are_complete_and_plain():
    facts = machine()
    assert {"cpu", "cores", "threads", "memory_bytes", "accelerator", "system"} <= set(facts)
    assert {"python", "torch", "transformers", "sparing"} <= set(facts)
    assert json.loads(json.dumps(facts)) == facts
    assert facts["cpu"]
    assert facts["cores"] >= 1
    assert facts["threads"] >= 1
    assert torch.__version__.startswith(facts["torch"])  # a wheel may leave out how it was built


def test_facts_tell_no_host_name_and_no_path():
    text = json.dumps(machine())
    assert platform.node() not in text or not platform.node()
    assert str(Path.home()) not in text
    assert str(Path.cwd()) not in text


def test_id_follows_hardware_and_versions_but_not_a_few_bytes():
    facts = machine()
    assert machine_id(facts) == machine_id(dict(reversed(facts.items())))
    assert len(machine_id(facts)) == 8
    assert machine_id({**facts, "torch": "0"}) != machine_id(facts)
    assert machine_id({**facts, "cores": 999}) != machine_id(facts)
    assert machine_id({**facts, "instructions": "none"}) != machine_id(facts)
    gibibytes = round(int(facts["memory_bytes"]) / 2**30)
    nearly = {**facts, "memory_bytes": gibibytes * 2**30 + 4096}
    assert machine_id(nearly) == machine_id(facts)


def test_commit_is_of_the_code_and_marks_changes(tmp_path, monkeypatch):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True
        )

    code = tmp_path / "code.py"
    code.write_text("one\n")
    monkeypatch.setattr(module, "__file__", str(code))
    assert commit() == ""
    git("init")
    assert commit() == "", "a checkout around code that it does not track is another's"
    git("add", "code.py")
    git("commit", "-m", "one")
    clean = commit()
    assert len(clean) == 12
    (tmp_path / "untracked.txt").write_text("a run's output\n")
    assert commit() == clean
    code.write_text("two\n")
    assert commit() == clean + "+"


def test_threads_are_pinned_and_restored():
    before = torch.get_num_threads()
    with threads(before + 1) as count:
        assert count == torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    with threads(None) as count:
        assert count == before


def test_threads_are_restored_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="inside"), threads(before + 1):
        raise RuntimeError("inside")
    assert torch.get_num_threads() == before
    with pytest.raises(UsageError, match="at least 1"), threads(0):
        pass
