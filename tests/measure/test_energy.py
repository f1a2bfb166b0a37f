"""Energy from fake counters: files that wrap, repeat or refuse, boards with and without."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.measure import _nvml, energy
from sparing.measure._component import Reader
from sparing.measure._nvml import NvmlReader
from sparing.measure._rapl import RaplReader
from sparing.measure.energy import (
    Component,
    Energy,
    EnergyMeter,
    energy_ratios,
    process_cpu_seconds,
)

RANGE_UJ = 262_143_328_850


class Powercap:
    """A powercap folder as the kernel lays it out: zones side by side and linked inside parents."""

    def __init__(self, root):
        self.root = root

    def zone(self, folder, name, microjoules):
        path = self.root / folder
        path.mkdir()
        (path / "name").write_text(f"{name}\n")
        (path / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
        self.set(folder, microjoules)
        parent = self.root / folder.rpartition(":")[0]
        if parent.exists():
            (parent / folder).symlink_to(path)
        return path

    def set(self, folder, microjoules):
        (self.root / folder / "energy_uj").write_text(f"{microjoules}\n")

    def forbid(self, monkeypatch, *folders):
        """Make counters unreadable also for root, which file modes would not stop."""
        allowed = type(self.root).read_text

        def read_text(path, *arguments, **options):
            if path.name == "energy_uj" and path.parent.name in folders:
                raise PermissionError(13, "Permission denied")
            return allowed(path, *arguments, **options)

        monkeypatch.setattr(type(self.root), "read_text", read_text)


@pytest.fixture
def powercap(tmp_path):
    return Powercap(tmp_path)


def joules(reader):
    return {component.name: component.energy_j for component in reader.stop()}


def test_packages_and_their_memory_count_once_and_parts_of_packages_do_not(powercap):
    powercap.zone("intel-rapl:0", "package-0", 5_000_000)
    powercap.zone("intel-rapl:0:0", "core", 1)
    powercap.zone("intel-rapl:0:1", "dram", 3_000_000)
    powercap.zone("intel-rapl:1", "package-1", 90_000_000)
    powercap.zone("intel-rapl:1:0", "dram", 80_000_000)
    powercap.zone("intel-rapl:2", "psys", 7)
    powercap.zone("intel-rapl-mmio:0", "package-0", 5_000_100)
    reader = RaplReader(powercap.root)
    reader.start()
    powercap.set("intel-rapl:0", 17_000_000)
    powercap.set("intel-rapl:0:0", 999_000_000)
    powercap.set("intel-rapl:0:1", 4_500_000)
    powercap.set("intel-rapl:1", 91_000_000)
    assert joules(reader) == {
        "package-0": 12.0,
        "package-0 dram": 1.5,
        "package-1": 1.0,
        "package-1 dram": 0.0,
    }
    assert reader.notes == []


def test_the_platform_counts_where_it_is_alone(powercap):
    powercap.zone("intel-rapl:0", "psys", 0)
    reader = RaplReader(powercap.root)
    reader.start()
    powercap.set("intel-rapl:0", 2_000_000)
    assert joules(reader) == {"psys": 2.0}


def test_memory_alone_is_not_the_processor(powercap):
    powercap.zone("intel-rapl:0", "psys", 0)
    powercap.zone("intel-rapl:1:0", "dram", 0)
    reader = RaplReader(powercap.root)
    reader.start()
    powercap.set("intel-rapl:0", 9_000_000)
    powercap.set("intel-rapl:1:0", 2_000_000)
    assert joules(reader) == {"psys": 9.0}
    memory = Component("package-0 dram", 2.0, "measured", "a counter")
    assert not energy._has_processor(memory)
    assert energy._has_processor(Component("package-0", 2.0, "measured", "a counter"))


def test_one_counter_under_two_dies_counts_once_and_two_counters_twice(powercap):
    powercap.zone("intel-rapl:0", "package-0-die-0", 800_000_000)
    powercap.zone("intel-rapl:1", "package-0-die-1", 800_000_450)
    powercap.zone("intel-rapl:2", "package-1-die-0", 800_000_000)
    powercap.zone("intel-rapl:3", "package-1-die-1", 990_000_000)
    reader = RaplReader(powercap.root)
    reader.start()
    for number, microjoules in ((0, 9_000_000), (1, 9_000_450), (2, 3_000_000), (3, 194_000_000)):
        powercap.set(f"intel-rapl:{number}", 800_000_000 + microjoules)
    assert joules(reader) == {
        "package-0-die-0": 9.0,
        "package-1-die-0": 3.0,
        "package-1-die-1": 4.0,
    }


def test_memory_of_two_dies_under_one_counter_counts_once(powercap):
    for die in (0, 1):
        powercap.zone(f"intel-rapl:{die}", f"package-0-die-{die}", 800_000_000)
        powercap.zone(f"intel-rapl:{die}:0", "dram", 100_000_000)
    reader = RaplReader(powercap.root)
    reader.start()
    for die in (0, 1):
        powercap.set(f"intel-rapl:{die}", 810_000_000)
        powercap.set(f"intel-rapl:{die}:0", 102_000_000)
    assert joules(reader) == {"package-0-die-0": 10.0, "package-0-die-0 dram": 2.0}


def test_counters_that_wrap_around_are_unwrapped_at_every_poll(powercap):
    powercap.zone("intel-rapl:0", "package-0", RANGE_UJ - 1_000_000)
    reader = RaplReader(powercap.root)
    reader.start()
    for reading in (500_000, RANGE_UJ - 500_000, 0):
        powercap.set("intel-rapl:0", reading)
        reader.poll()
    assert joules(reader)["package-0"] == pytest.approx(RANGE_UJ / 1e6 + 1.0)


def test_a_counter_that_falls_without_a_range_is_dropped_and_named(powercap):
    powercap.zone("intel-rapl:0", "package-0", 5_000_000)
    (powercap.root / "intel-rapl:0" / "max_energy_range_uj").unlink()
    reader = RaplReader(powercap.root)
    reader.start()
    powercap.set("intel-rapl:0", 1)
    assert reader.stop() == []
    assert "package-0" in reader.notes[0]


def test_a_second_window_starts_at_zero(powercap):
    powercap.zone("intel-rapl:0", "package-0", 0)
    reader = RaplReader(powercap.root)
    reader.start()
    powercap.set("intel-rapl:0", 5_000_000)
    reader.stop()
    reader.start()
    powercap.set("intel-rapl:0", 6_000_000)
    assert joules(reader) == {"package-0": 1.0}


def test_counters_of_root_alone_are_named_with_what_helps(powercap, monkeypatch):
    powercap.zone("intel-rapl:0", "package-0", 0)
    powercap.forbid(monkeypatch, "intel-rapl:0")
    with EnergyMeter(readers=[RaplReader(powercap.root)], cpu_seconds=lambda: 0.0) as meter:
        pass
    assert [component.obtained for component in meter.energy.components] == ["estimated"]
    assert "package-0" in meter.energy.notes[0]
    assert "chmod a+r" in meter.energy.notes[0]


def test_the_other_interface_serves_where_one_is_forbidden(powercap, monkeypatch):
    powercap.zone("intel-rapl:0", "package-0", 0)
    powercap.zone("intel-rapl-mmio:0", "package-0", 0)
    powercap.forbid(monkeypatch, "intel-rapl:0")
    reader = RaplReader(powercap.root)
    reader.start()
    powercap.set("intel-rapl-mmio:0", 3_000_000)
    assert joules(reader) == {"package-0": 3.0}
    assert reader.notes == []


def test_a_machine_without_counters_says_so(tmp_path):
    reader = RaplReader(tmp_path / "absent")
    reader.start()
    assert reader.stop() == []
    assert "no energy counter" in reader.notes[0]


class FakeNvml:
    """NVML with one board: counter in millijoules, power in milliwatts, or neither."""

    class NVMLError(Exception):
        pass

    def __init__(self, *, millijoules=None, milliwatts=None):
        self.millijoules, self.milliwatts = millijoules, milliwatts
        self.open = 0

    def nvmlInit(self):  # noqa: N802  NVML's own names
        self.open += 1

    def nvmlShutdown(self):  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        if uuid != "GPU-one":
            raise self.NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetName(self, handle):  # noqa: N802
        return "Fake Board"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802
        return self._given(self.millijoules)

    def nvmlDeviceGetPowerUsage(self, handle):  # noqa: N802
        return self._given(self.milliwatts)

    def _given(self, value):
        if value is None:
            raise self.NVMLError("Not Supported")
        return value


def test_a_board_with_a_counter_is_measured():
    nvml = FakeNvml(millijoules=1_000)
    reader = NvmlReader(nvml, ["GPU-one", "GPU-two"])
    reader.start()
    nvml.millijoules = 3_500
    (component,) = reader.stop()
    assert (component.name, component.energy_j) == ("gpu 0", 2.5)
    assert component.obtained == "measured"
    assert "Fake Board" in component.method
    assert "gpu 1" in reader.notes[0]
    assert nvml.open == 0


def test_a_board_without_a_counter_is_integrated():
    nvml = FakeNvml(milliwatts=100_000)
    now = [0.0]
    reader = NvmlReader(nvml, ["GPU-one"], clock=lambda: now[0])
    reader.start()
    for now[0], nvml.milliwatts in ((1.0, 200_000), (3.0, 200_000)):
        reader.poll()
    (component,) = reader.stop()
    assert component.energy_j == pytest.approx(150 + 400)
    assert component.obtained == "integrated"
    assert "4 samples" in component.method


def test_a_board_that_tells_nothing_or_goes_away_is_named():
    reader = NvmlReader(FakeNvml(), ["GPU-one"])
    reader.start()
    assert reader.stop() == []
    assert "Not Supported" in reader.notes[0]
    nvml = FakeNvml(millijoules=5)
    reader = NvmlReader(nvml, ["GPU-one"])
    reader.start()
    nvml.millijoules = 1
    assert reader.stop() == []
    assert "set back" in reader.notes[0]
    nvml = FakeNvml(milliwatts=5)
    reader = NvmlReader(nvml, ["GPU-one"])
    reader.start()
    nvml.milliwatts = None
    assert reader.stop() == []
    assert "stopped answering" in reader.notes[0]


def test_without_nvml_or_without_gpus(monkeypatch):
    assert torch.cuda.is_available() or _nvml.visible_gpus() is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py" in _nvml.visible_gpus()
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(millijoules=1))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid="one")
    )
    reader = _nvml.visible_gpus()
    reader.start()
    assert [component.name for component in reader.stop()] == ["gpu 0"]


def estimated(cpu_s, **options):
    readings = iter([10.0, 10.0 + cpu_s])
    with EnergyMeter(readers=[], cpu_seconds=lambda: next(readings), **options) as meter:
        pass
    return meter.energy


def test_without_counters_energy_is_estimated_and_says_so():
    (component,) = estimated(4.0).components
    assert component.energy_j == pytest.approx(20.0)
    assert component.interval == pytest.approx((8.0, 40.0))
    assert component.obtained == "estimated"
    assert "4 CPU seconds" in component.method
    assert "5 W" in component.method


def test_a_child_that_leaves_takes_no_energy_away():
    energy = estimated(-1.5)
    assert energy.components[0].energy_j == 0.0
    assert any("a child left this process" in note for note in energy.notes)


def test_the_constant_comes_from_argument_environment_or_default(monkeypatch):
    monkeypatch.setenv("SPARING_WATTS_PER_CORE", "12.5")
    (component,) = estimated(2.0).components
    assert component.energy_j == pytest.approx(25.0)
    assert component.interval == pytest.approx((4.0, 25.0))
    assert estimated(2.0, watts_per_core=1.0).components[0].energy_j == pytest.approx(2.0)
    for wrong in ("much", "-1", "0", "nan", "inf"):
        monkeypatch.setenv("SPARING_WATTS_PER_CORE", wrong)
        with pytest.raises(UsageError, match="SPARING_WATTS_PER_CORE"):
            EnergyMeter(readers=[])
    with pytest.raises(UsageError, match="watts_per_core=0"):
        EnergyMeter(watts_per_core=0.0)


def test_the_meter_reads_counters_beside_an_estimate_and_does_not_add_them():
    nvml = FakeNvml(millijoules=0)
    readings, times = iter([0.0, 3.0]), iter([100.0, 104.0])
    meter = EnergyMeter(
        readers=[NvmlReader(nvml, ["GPU-one"])],
        cpu_seconds=lambda: next(readings),
        clock=lambda: next(times),
    )
    with pytest.raises(UsageError, match="after"):
        _ = meter.energy
    with meter:
        nvml.millijoules = 9_000
    energy = meter.energy
    assert energy.window_s == 4.0
    assert {part.name: part.obtained for part in energy.components} == {
        "gpu 0": "measured",
        "cpu": "estimated",
    }
    assert any("window" in note for note in energy.notes)
    with pytest.raises(UsageError, match="estimated and measured"):
        energy.total_j()
    assert energy.total_j(across_methods=True) == pytest.approx(9 + 15)
    assert energy.component("gpu 0").energy_j == 9.0
    with pytest.raises(UsageError, match="there is: gpu 0, cpu"):
        energy.component("package-0")


def test_a_processor_with_a_counter_is_not_estimated(powercap):
    powercap.zone("intel-rapl:0", "package-0", 0)
    with EnergyMeter(readers=[RaplReader(powercap.root)]) as meter:
        powercap.set("intel-rapl:0", 1_000_000)
    assert [part.name for part in meter.energy.components] == ["package-0"]
    assert meter.energy.total_j() == 1.0


def test_readers_are_polled_while_the_block_runs():
    class Counting(Reader):
        poll_every_s = 0.001

        def __init__(self):
            self.notes = []
            self.polls = 0
            self.stopped = False

        def start(self):
            self.polls = 0

        def poll(self):
            assert not self.stopped
            self.polls += 1

        def stop(self):
            self.stopped = True
            return []

    reader = Counting()
    with EnergyMeter(readers=[reader]):
        while reader.polls < 3:
            time.sleep(0.001)
    assert reader.stopped


def test_an_error_in_the_block_passes_through_and_the_energy_is_still_known():
    meter = EnergyMeter(readers=[])
    with pytest.raises(RuntimeError, match="inside"), meter:
        raise RuntimeError("inside")
    assert meter.energy.components


BURN = """
import time
until = time.process_time() + 0.2
while time.process_time() < until:
    pass
print("burnt", flush=True)
input()
"""


def test_cpu_seconds_hold_running_and_finished_children():
    before, times_before = process_cpu_seconds(), sum(os.times()[:2])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", BURN], text=True, **pipes) as child:
        assert child.stdout.readline() == "burnt\n"
        running = process_cpu_seconds() - before
        burnt = sum(os.times()[:2]) - times_before
        child.communicate("end\n")
    assert running - burnt > 0.15
    assert process_cpu_seconds() - before >= running - 0.05


def test_a_window_shorter_than_a_clock_tick_is_not_without_energy():
    with EnergyMeter(readers=[]) as meter:
        sum(range(1000))
    assert meter.energy.component("cpu").energy_j > 0


def window(energy_j, obtained="estimated", name="cpu"):
    return Energy(1.0, (Component(name, energy_j, obtained, "fake"),))


def test_a_ratio_of_estimates_is_said_to_be_of_cpu_time():
    candidate, baseline = [window(2.0), window(8.0)], [window(1.0), window(1.0)]
    ratio = energy_ratios(candidate, baseline)["cpu"]
    assert ratio.ratio.value == pytest.approx(4.0)
    assert ratio.obtained == "estimated"
    assert "ratio of CPU time" in ratio.meaning
    measured = energy_ratios([window(2.0, "measured")], [window(1.0, "measured")])["cpu"]
    assert "CPU time" not in measured.meaning


def test_ratios_never_mix_how_energy_was_obtained():
    assert energy_ratios([window(2.0, "measured")], [window(1.0)]) == {}
    assert energy_ratios([window(1.0), window(1.0, "measured")], [window(1.0)] * 2) == {}
    assert energy_ratios([window(0.0, "measured")], [window(1.0, "measured")]) == {}
    with pytest.raises(UsageError, match="pairs"):
        energy_ratios([window(1.0)], [])


def test_the_real_machine_gives_an_answer_without_failing():
    with EnergyMeter() as meter:
        sum(range(100_000))
    assert meter.energy.components
    assert meter.energy.window_s > 0
