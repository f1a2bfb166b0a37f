"""Peak memory of calls whose need is known."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.measure import memory
from sparing.measure.memory import MeasurementError, OutOfMemory, peak_memory
from tests.measure import subjects

SUBJECTS = "tests.measure.subjects"
MEBI = 2**20


def test_a_tensor_counts_and_neither_what_building_freed_nor_prints_hide_it():
    peak = peak_memory(f"{SUBJECTS}:tensor", {"mebibytes": 64, "freed": 200})
    assert peak.device == "cpu"
    assert peak.obtained == "measured"
    assert abs(peak.bytes - 64 * MEBI) < 2 * MEBI


def test_eager_attention_needs_its_square_and_fused_does_not():
    square = 2 * 1024 * 1024 * 4
    fused = peak_memory(f"{SUBJECTS}:attention", {"name": "softmax", "tokens": 1024})
    eager = peak_memory(f"{SUBJECTS}:attention", {"name": "eager", "tokens": 1024})
    assert fused.bytes < square / 2
    assert 0.9 * square < eager.bytes - fused.bytes < 4 * square


@pytest.mark.parametrize(
    ("cause", "error", "words"),
    [
        ("killed", OutOfMemory, "lack of memory"),
        ("starved", OutOfMemory, "RuntimeError"),
        ("plain", MeasurementError, "ValueError: a plain mistake$"),
    ],
)
def test_a_call_that_dies_gives_one_clear_line(cause, error, words):
    with pytest.raises(error, match=words) as raised:
        peak_memory(f"{SUBJECTS}:failing", {"cause": cause})
    assert "\n" not in str(raised.value)
    assert type(raised.value) is error


def test_a_call_that_takes_too_long_is_ended():
    with pytest.raises(MeasurementError, match=r"within 0\.1 seconds"):
        peak_memory(f"{SUBJECTS}:failing", {"cause": "slow"}, timeout_s=0.1)


def test_wrong_requests_are_refused_before_a_process_starts():
    with pytest.raises(UsageError, match=r"package\.module:function"):
        peak_memory("no_colon")
    with pytest.raises(UsageError, match="JSON"):
        peak_memory(f"{SUBJECTS}:tensor", {"mebibytes": torch.ones(1)})
    with pytest.raises(UsageError, match="threads"):
        peak_memory(f"{SUBJECTS}:tensor", {"mebibytes": 1}, threads=0)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (f"{SUBJECTS}:tenser", "did you mean 'tensor'"),
        ("tests.no_such_module:tensor", "no module 'tests.no_such_module'"),
        (f"{SUBJECTS}:not_a_call", "not int"),
    ],
)
def test_wrong_targets_are_named(target, words):
    with pytest.raises(UsageError, match=words):
        memory._measure(target, {}, 1)


@pytest.mark.parametrize(
    ("code", "words"), [(-6, "by SIGABRT"), (-9, "lack of memory"), (7, r"ended \(7\): the last$")]
)
def test_a_process_without_an_answer_is_explained(code, words):
    done = subprocess.CompletedProcess([], code, "", "the first\nthe last\n")
    with pytest.raises(MeasurementError, match=words):
        memory._answer("a:b", done)


def test_without_the_kernels_record_the_lifetime_peak_or_samples_serve(monkeypatch):
    monkeypatch.setattr(memory, "_reset_kernel_peak", lambda: False)
    peaks = iter([10, 20])
    before = memory.psutil.Process().memory_info().rss
    monkeypatch.setattr(memory, "_lifetime_peak", lambda: next(peaks) * before)
    grown, method = memory._resident_growth(subjects.tensor(1))
    assert method == memory._FROM_LIFETIME
    assert grown > 15 * before
    monkeypatch.setattr(memory, "_lifetime_peak", lambda: 10 * before)

    def holds():
        block = torch.ones(256 * MEBI // 4)
        memory.time.sleep(0.05)
        return block.sum()

    grown, method = memory._resident_growth(holds)
    assert method == memory._FROM_SAMPLES
    assert abs(grown - 256 * MEBI) < 32 * MEBI


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")
def test_weights_that_are_mapped_from_a_file_do_not_count(tmp_path):
    from safetensors.torch import save_file

    file = tmp_path / "model.safetensors"
    save_file({"weight": torch.zeros(4096, 4096)}, file)  # 64 MiB
    peak = peak_memory("tests.measure.subjects:mapped", {"file": str(file)}, threads=1)
    assert peak.bytes < 32 * 2**20
