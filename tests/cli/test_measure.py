"""What ``sparing measure`` says of ratios, shares and counters that tell little."""

from __future__ import annotations

import pytest

from sparing.cli.measure import _limit, _ratio
from sparing.experiment.measuring.quantities import _mean_energy, _memory_ratio
from sparing.measure.energy import Component, Energy


def test_one_round_has_no_interval():
    assert _ratio({"value": 0.355, "interval": None}) == "0.355 (no interval)"
    assert _ratio({"value": 0.5, "interval": [0.4, 0.6]}) == "0.500 (0.400 to 0.600)"
    assert _ratio(None) == ""


@pytest.mark.parametrize(
    ("share", "gain", "phrase"),
    [
        ([0.4, 0.8], [1.67, 5.0], "more than 2.50 times as fast (95 % interval 1.67 to 5.00)"),
        ([0.4, 0.999], [1.67, 1000.0], None),
        (None, None, None),
    ],
)
def test_what_attention_can_give_follows_from_the_share_that_is_shown(share, gain, phrase):
    facts = {
        "baseline": "softmax",
        "attention_share": {"value": 0.6, "interval": share},
        "largest_gain": {"value": 2.5, "interval": gain},
    }
    line = _limit(facts)
    assert line.startswith("attention takes 60% of softmax")
    assert phrase in line if phrase else "more than" not in line


@pytest.mark.parametrize(
    ("ours", "device", "ratio"),
    [(3 << 20, "cpu", None), (9 << 20, "cpu", 3.0), (6 << 20, "cuda", 2.0)],
)
def test_memory_that_loading_code_may_take_makes_no_ratio(ours, device, ratio):
    base = {"peak_bytes": 3 << 20, "peak_device": device}
    assert _memory_ratio({"peak_bytes": ours, "peak_device": device}, base) == ratio


def test_a_counter_that_was_lost_leaves_the_windows_that_have_it():
    cpu, gpu = (Component(name, 2.0, "measured", "a counter") for name in ("package-0", "gpu 0"))
    windows = [_window((cpu, gpu)), _window((cpu,))]
    energy = _mean_energy(windows, examples=4)
    assert (energy["package-0"]["count"], energy["gpu 0"]["count"]) == (2, 1)
    assert energy["gpu 0"]["value"] == 0.5


def _window(components):
    return Energy(1.0, components)
