"""Energy of NVIDIA GPUs from NVML: the board's counter, or its power integrated over time."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from sparing.measure._component import Component, Reader

_COUNTER = "NVML energy counter of the whole board ({name}); it steps every 0.1 s or so"
_POWER = "NVML power of the whole board ({name}), {count} samples integrated by trapezoids"


@dataclass
class _Board:
    """One GPU: its NVML handle, its counter's first reading or the power samples so far."""

    index: int
    handle: Any
    name: str
    first_mj: int | None = None
    samples: list[tuple[float, float]] = field(default_factory=list)


class NvmlReader(Reader):
    """Reads the GPUs that this process may use, identified by ``uuids``.

    ``nvml`` is the module ``pynvml`` or a compatible one. Boards without an energy counter (before
    Volta, many virtual ones) are integrated from power, sampled twenty times a second.
    """

    poll_every_s = 0.05

    def __init__(
        self,
        nvml: Any,
        uuids: Sequence[str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.notes: list[str] = []
        self._nvml = nvml
        self._uuids = list(uuids)
        self._clock = clock
        self._boards: list[_Board] = []
        self._open = False

    def start(self) -> None:
        """Find the boards and take their first readings."""
        self.notes, self._boards = [], []
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            self.notes.append(f"gpu: NVML does not start ({error})")
            return
        self._open = True
        for index, uuid in enumerate(self._uuids):
            try:
                self._boards.append(self._board(index, uuid))
            except self._nvml.NVMLError as error:
                self.notes.append(f"gpu {index}: NVML reports neither energy nor power ({error})")

    def poll(self) -> None:
        """Sample the power of boards without a counter."""
        for board in list(self._boards):
            if board.first_mj is None:
                self._sample(board)

    def stop(self) -> list[Component]:
        """One component for each board that could be read to the end."""
        self.poll()
        components = [self._component(board) for board in self._boards]
        if self._open:
            self._nvml.nvmlShutdown()
            self._open = False
        return [component for component in components if component is not None]

    def _board(self, index: int, uuid: str) -> _Board:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        name = nvml.nvmlDeviceGetName(handle)
        board = _Board(index, handle, name.decode() if isinstance(name, bytes) else str(name))
        try:
            board.first_mj = int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        except nvml.NVMLError:
            board.samples.append((self._clock(), self._power_w(board)))
        return board

    def _power_w(self, board: _Board) -> float:
        return int(self._nvml.nvmlDeviceGetPowerUsage(board.handle)) / 1e3

    def _sample(self, board: _Board) -> None:
        try:
            board.samples.append((self._clock(), self._power_w(board)))
        except self._nvml.NVMLError as error:
            self._drop(board, error)

    def _drop(self, board: _Board, error: Exception) -> None:
        self.notes.append(f"gpu {board.index}: NVML stopped answering ({error})")
        self._boards.remove(board)

    def _component(self, board: _Board) -> Component | None:
        name = f"gpu {board.index}"
        if board.first_mj is None:
            pairs = zip(board.samples[:-1], board.samples[1:], strict=True)
            energy_j = sum((t1 - t0) * (p0 + p1) / 2 for (t0, p0), (t1, p1) in pairs)
            method = _POWER.format(name=board.name, count=len(board.samples))
            return Component(name, energy_j, "integrated", method)
        try:
            last_mj = int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(board.handle))
        except self._nvml.NVMLError as error:
            self.notes.append(f"{name}: NVML stopped answering ({error})")
            return None
        used_j = (last_mj - board.first_mj) / 1e3
        if used_j < 0:
            self.notes.append(f"{name}: its energy counter was set back during the window")
            return None
        return Component(name, used_j, "measured", _COUNTER.format(name=board.name))


def visible_gpus() -> NvmlReader | str | None:
    """A reader for the GPUs that PyTorch sees; a note where NVML is missing; None without GPUs."""
    if not torch.cuda.is_available():
        return None
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return "gpu: pip install nvidia-ml-py to read its energy"
    count = torch.cuda.device_count()
    uuids = [f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in range(count)]
    return NvmlReader(nvml, uuids)
