"""What the records of benchmarks/mechanisms.py say: speed-ups, crossings, growth, limits."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparing.core.catalogue import current_name
from sparing.core.record import RECORDS, Label, Record, RecordLog

RESULTS = Path(__file__).parent / "results"
BASELINE = "softmax"
PERCENTS = ("p50", "p25", "p75")


@dataclass(frozen=True)
class Spread:
    """A median over rounds, with its quartiles."""

    middle: float
    low: float
    high: float


class Findings:
    """One run's records by question; everything is empty where there is no run."""

    def __init__(self, records: list[Record], config: dict[str, Any]) -> None:
        self.config = config
        self._by_name: dict[str, list[Record]] = {}
        for record in map(_renamed, records):
            self._by_name.setdefault(record.name, []).append(record)

    def find(self, name: str, cell: str = "", **labels: Label) -> float | None:
        """The newest value with these labels, of a cell with a key that begins so."""
        for record in reversed(self._by_name.get(name, [])):
            fits = labels.items() <= record.labels.items() and record.cell.startswith(cell)
            if fits and record.value is not None:
                return float(record.value)
        return None

    def spread(self, name: str, cell: str, **labels: Label) -> Spread | None:
        """The median and quartiles of a quantity that was recorded with them."""
        quartiles = [self.find(name, cell, statistic=p, **labels) for p in PERCENTS]
        return None if None in quartiles else Spread(*quartiles)  # type: ignore[arg-type]

    def speedup(self, arm: str, tokens: int, mode: str = "forward") -> Spread | None:
        """How many times as fast as softmax, in the same rounds."""
        return self.spread("speedup", f"{mode}/", arm=arm, tokens=tokens, compiled=False)

    def lengths(self, arm: str) -> list[int]:
        """The lengths at which the variant was compared with softmax."""
        lengths = {
            int(record.labels["tokens"] or 0)
            for record in self._by_name.get("speedup", [])
            if record.labels.get("arm") == arm and record.cell.startswith("forward/")
        }
        return sorted(lengths)

    def curve(self, arm: str) -> dict[int, float]:
        """The median speed-up at each length."""
        spreads = {tokens: self.speedup(arm, tokens) for tokens in self.lengths(arm)}
        return {tokens: spread.middle for tokens, spread in spreads.items() if spread}

    def peak_ratio(self, arm: str, tokens: int, mode: str = "forward") -> float | None:
        """Peak memory over softmax's."""
        labels: dict[str, Label] = {"mode": mode, "tokens": tokens}
        ours = self.find("peak_bytes", "memory/", arm=arm, **labels)
        dense = self.find("peak_bytes", "memory/", arm=BASELINE, **labels)
        return ours / dense if ours is not None and dense else None

    def memory_growth(self, arm: str) -> float | None:
        """The exponent of peak memory in the tokens, from 4,096 to 16,384."""
        short, long = (
            self.find("peak_bytes", "memory/", arm=arm, tokens=tokens, mode="forward")
            for tokens in (4096, 16384)
        )
        return math.log(long / short, 4) if short and long else None

    def crossover(self, arm: str) -> int | None:
        """The length from which on the variant is faster than softmax at every measured length.

        Between two lengths the speed-up is taken as straight on logarithmic scales. None where it
        is slower at the longest.
        """
        return crossing(self.curve(arm))

    def limit_share(self, arm: str, tokens: int) -> float | None:
        """What part of its time the call needs at least on this machine.

        That is the longer of its matrix products at the machine's rate for large ones and its
        inputs and output at the rate of a copy.
        """
        labels: dict[str, Label] = {"arm": arm, "mode": "forward", "tokens": tokens}
        flops = self.find("matmul_flops", **labels)
        traffic = self.find("traffic_bytes", **labels)
        time_ms = self.find("latency_ms", "forward/", statistic="p50", **labels)
        product = self.find("gemm_flops_per_s", threads=1)
        copy = self.find("copy_bytes_per_s", threads=1)
        if None in (flops, traffic, time_ms, product, copy):
            return None
        return 1e3 * max(flops / product, traffic / copy) / time_ms  # type: ignore[operator]

    def package_speedup(self, case: str, scope: str, tokens: int) -> Spread | None:
        """How many times as fast sparing's form is as the package's."""
        return self.spread("package_speedup", "package/", case=case, scope=scope, tokens=tokens)

    def package_peak_ratio(self, case: str, scope: str, tokens: int) -> float | None:
        """Peak memory of sparing's form over the package's."""
        labels: dict[str, Label] = {"case": case, "scope": scope, "tokens": tokens}
        candidate, package = (
            self.find("peak_bytes", "package-memory/", side=side, **labels)
            for side in ("sparing", "package")
        )
        return candidate / package if candidate is not None and package else None

    def package(self, case: str) -> str:
        """The package that was measured, with its version."""
        for record in self._by_name.get("package_ratio", []):
            if record.labels.get("case") == case:
                return str(record.labels["package"])
        return ""

    def compile_gain(self, arm: str, tokens: int, mode: str) -> tuple[float, float] | None:
        """How many times as fast the compiled form is as the plain one, and as softmax."""
        cell = "compiled-training/" if mode == "training" else "compiled/"
        plain, compiled = (
            self.find("latency_ratio", cell, arm=arm, tokens=tokens, compiled=flag)
            for flag in (False, True)
        )
        return (plain / compiled, 1 / compiled) if plain and compiled else None

    def summary(self, arms: list[str]) -> dict[str, Any]:
        """What ``sparing show`` prints of each mechanism that was measured."""
        by_arm = {}
        for arm in arms:
            curve = self.curve(arm)
            if curve:
                ratios = {tokens: self.peak_ratio(arm, tokens) for tokens in curve}
                by_arm[arm] = {
                    "crossover_tokens": self.crossover(arm),
                    "longest_tokens": max(curve),
                    "speedup": {str(n): _rounded(value) for n, value in curve.items()},
                    "peak_ratio": {str(n): _rounded(v) for n, v in ratios.items() if v},
                }
        return {
            "machine": f"{self.config['machine']['cpu']}, 1 thread",
            "month": self.config["started"][:7],
            "commit": self.config["commit"],
            "mechanisms": by_arm,
        }


def crossing(speedups: Mapping[int, float]) -> int | None:
    """Where a curve of speed-ups rises above 1 for good; see ``Findings.crossover``."""
    lengths = sorted(speedups)
    if not lengths or speedups[lengths[-1]] <= 1:
        return None
    for left, right in reversed(list(itertools.pairwise(lengths))):
        low, high = speedups[left], speedups[right]
        if low <= 1:
            way = math.log(1 / low) / math.log(high / low)
            return round(left * (right / left) ** way)
    return lengths[0]


def _renamed(record: Record) -> Record:
    """The record under the name that its mechanism has today."""
    arm = record.labels.get("arm")
    if not isinstance(arm, str) or current_name(arm) == arm:
        return record
    return replace(record, labels={**record.labels, "arm": current_name(arm)})


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def read(folder: Path) -> Findings:
    """A run's findings."""
    config = json.loads((folder / "config.json").read_text())
    return Findings(RecordLog(folder / RECORDS).read(), config)


def newest() -> Path | None:
    """The newest committed run on a CPU, if there is any."""
    folders = [path for path in RESULTS.glob("mechanisms-*") if (path / "config.json").exists()]
    folders = [path for path in folders if "-cuda-" not in path.name]
    return max(folders, key=lambda path: path.name[-7:], default=None)
