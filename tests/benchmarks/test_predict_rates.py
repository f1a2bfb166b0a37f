"""The table of the rates of ``predict``."""

from __future__ import annotations

import importlib


def test_rates_are_over_one_process_of_the_same_round():
    script = importlib.import_module("predict_rates")
    rates = {("predict", 1): (100, 110), ("predict", 2): (190, 198), ("plain loop", 1): (50, 44)}
    rows = [
        {"what": what, "processes": processes, "round": number, "rows_per_s": values[number]}
        for number in (0, 1)
        for (what, processes), values in rates.items()
    ]
    memory = {f"{who}_{when}": 2**20 for who in ("driver", "worker") for when in ("first", "last")}
    lines = script.table_of({"rows": rows, "memory": {"rows": 7, **memory}}).splitlines()
    assert lines[2:5] == [
        "| predict | 1 | 105 | 1 |",
        "| predict | 2 | 194 | 1.80 to 1.90 |",
        "| plain loop | 1 | 47 | 0.40 to 0.50 |",
    ]
    assert lines[-1].endswith("worker 1 MiB in the first quarter of the time, 1 in the last.")
