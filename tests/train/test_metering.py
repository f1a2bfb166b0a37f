"""What training steps spend: counted in steps alone, and not lost when a training is resumed."""

from __future__ import annotations

import pytest

from sparing.core.errors import UsageError
from sparing.measure.energy import EnergyMeter
from sparing.measure.windows import EnergyWindows
from sparing.tasks import Examples
from sparing.train import Recipe, train
from sparing.train.metering import Totals
from tests.train.small import token_model, token_task

RECIPE = Recipe(epochs=3, batch_size=20, device="cpu")


class Counter:
    """A meter that counts its windows and the steps inside them."""

    def __init__(self, clock):
        self.clock, self.open, self.windows = clock, False, 0

    def start(self):
        assert not self.open
        self.open, self.begun = True, self.clock()

    def stop(self):
        assert self.open
        self.open, self.windows = False, self.windows + 1
        return {"ticks": self.clock() - self.begun}


class Ticking(Examples):
    """Examples that count how often one is taken."""

    taken = 0

    def __getitem__(self, index):
        Ticking.taken += 1
        return super().__getitem__(index)


def _clock():
    return Ticking.taken


def _task():
    task = token_task()
    validation = task.validation
    object.__setattr__(
        task, "validation", Ticking("input_ids", validation.inputs, validation.labels)
    )
    return task


def test_validation_is_outside_every_window(tmp_path):
    meter = Counter(_clock)
    result = train(token_model(_task()), _task(), RECIPE, output_dir=tmp_path, meter=meter)
    assert Ticking.taken > 0
    assert [entry["ticks"] for entry in result.curve] == [0, 0, 0]
    assert not meter.open
    assert meter.windows == 3


def test_energy_grows_from_validation_to_validation(tmp_path):
    windows = EnergyWindows(EnergyMeter(readers=[]))
    task = token_task()
    result = train(token_model(task), task, RECIPE, output_dir=tmp_path, meter=windows)
    spent = [entry["cpu_j"] for entry in result.curve]
    assert 0 < spent[0] < spent[1] < spent[2]
    assert [component.obtained for component in windows.components] == ["estimated"]


def test_a_window_ends_only_once():
    windows = EnergyWindows(EnergyMeter(readers=[]))
    for _ in range(2):
        with pytest.raises(UsageError, match="no window of energy was begun"):
            windows.stop()
        windows.start()
        assert set(windows.stop()) == {"cpu_j"}


def test_a_resumed_training_goes_on_counting(tmp_path):
    steps = iter(range(1000))
    task = token_task()

    def interrupt(fraction, text):
        if fraction >= 0.5:
            raise KeyboardInterrupt

    recipe = Recipe(epochs=3, batch_size=20, device="cpu", save_every_steps=1)
    meter = Counter(lambda: next(steps))
    with pytest.raises(KeyboardInterrupt):
        train(
            token_model(task),
            task,
            recipe,
            output_dir=tmp_path,
            meter=meter,
            on_progress=interrupt,
        )
    assert not meter.open
    before = meter.windows
    result = train(token_model(task), task, recipe, output_dir=tmp_path, meter=meter)
    # Each window takes one tick; the one that was cut off in the middle is done again.
    assert result.curve[-1]["ticks"] in (meter.windows, meter.windows - 1)
    assert meter.windows > before > 1


def test_without_a_meter_nothing_is_counted(tmp_path):
    task = token_task()
    result = train(token_model(task), task, RECIPE, output_dir=tmp_path)
    assert "ticks" not in result.curve[-1]
    totals = Totals(None)
    totals.go_on()
    assert totals.read() == {}
