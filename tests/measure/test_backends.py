"""Other meters' figures arrive in joules, under the label that they deserve."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from sparing.core.errors import UsageError
from sparing.measure.energy import EnergyMeter


class Tracker:
    """CodeCarbon's offline tracker, as far as it is used."""

    mode = "constant"
    boards = 0

    def __init__(self, **options):
        assert options["save_to_file"] is False
        self.running = False
        self._hardware = [SimpleNamespace(), SimpleNamespace(_mode=type(self).mode)]

    def start(self):
        self.running = True

    def stop(self):
        assert self.running
        self.final_emissions_data = SimpleNamespace(
            cpu_energy=2e-6, ram_energy=1e-6, gpu_energy=3e-6, gpu_count=type(self).boards
        )


@pytest.fixture
def codecarbon(monkeypatch):
    module = ModuleType("codecarbon")
    module.OfflineEmissionsTracker = type("Fresh", (Tracker,), {})
    monkeypatch.setitem(sys.modules, "codecarbon", module)
    return module.OfflineEmissionsTracker


def energy_of(backend):
    with EnergyMeter(backend=backend) as meter:
        sum(range(1000))
    return meter.energy


def test_a_constant_is_estimated_whatever_it_is_called(codecarbon):
    energy = energy_of("codecarbon")
    assert {c.name: c.obtained for c in energy.components} == {
        "cpu": "estimated",
        "ram": "estimated",
    }
    assert energy.component("cpu").energy_j == pytest.approx(7.2)
    assert energy.component("ram").energy_j == pytest.approx(3.6)
    assert any("no counter" in note and "constant" in note for note in energy.notes)


def test_counters_are_measured(codecarbon):
    codecarbon.mode, codecarbon.boards = "intel_rapl", 1
    energy = energy_of("codecarbon")
    obtained = {c.name: c.obtained for c in energy.components}
    assert obtained == {"cpu": "measured", "ram": "estimated", "gpu": "measured"}
    assert energy.component("gpu").energy_j == pytest.approx(10.8)
    with pytest.raises(UsageError, match="not summed"):
        energy.total_j()


def test_every_window_has_a_tracker_of_its_own(codecarbon):
    meter = EnergyMeter(backend="codecarbon")
    for _ in range(2):
        with meter:
            pass
        assert meter.energy.component("cpu").energy_j == pytest.approx(7.2)


@pytest.fixture
def zeus(monkeypatch):
    window = SimpleNamespace(gpu_energy={0: 5.0, 1: 6.0}, cpu_energy={0: 7.0}, dram_energy=None)
    monitor = SimpleNamespace(begin_window=lambda name: None, end_window=lambda name: window)
    package, module = ModuleType("zeus"), ModuleType("zeus.monitor")
    module.ZeusMonitor = lambda: monitor
    monkeypatch.setitem(sys.modules, "zeus", package)
    monkeypatch.setitem(sys.modules, "zeus.monitor", module)
    return window


def test_zeus_gives_boards_and_packages(zeus):
    energy = energy_of("zeus")
    components = {c.name: (c.energy_j, c.obtained) for c in energy.components}
    assert components == {
        "gpu 0": (5.0, "measured"),
        "gpu 1": (6.0, "measured"),
        "package 0": (7.0, "measured"),
    }
    assert any("dram" in note for note in energy.notes)


def test_what_zeus_cannot_read_of_the_processor_is_our_estimate(zeus):
    zeus.cpu_energy = None
    energy = energy_of("zeus")
    assert energy.component("cpu").obtained == "estimated"
    assert any("package" in note for note in energy.notes)


@pytest.mark.parametrize("name", ["codecarbon", "zeus"])
def test_what_is_not_installed_is_named_with_its_cure(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "zeus.monitor", None)
    with pytest.raises(UsageError, match=rf"pip install '\.\[{name}\]'"):
        EnergyMeter(backend=name)


def test_an_unknown_meter_is_named_with_the_nearest():
    with pytest.raises(UsageError, match="codecarbon"):
        EnergyMeter(backend="codecarbons")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["codecarbon", "zeus"])
def test_the_real_meter_where_it_is_installed(name):
    pytest.importorskip(name)
    energy = energy_of(name)
    assert energy.component("cpu").energy_j >= 0
