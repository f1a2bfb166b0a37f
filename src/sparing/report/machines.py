"""The machines that a run's records were measured on, and the facts of each."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sparing.experiment.records import measured
from sparing.report import wording
from sparing.report.run import Run

_GIBIBYTE = 2**30


def machine_facts(run: Run) -> list[tuple[str, Any]]:
    """The machine that most records come from, then a line for each other one.

    The machine that merges or evaluates records again may have measured none of them. A machine
    without facts in the run's folder has its id alone.
    """
    config = run.config
    known = {**(config.get("machines") or {}), str(config.get("machine_id")): config["machine"]}
    counts = Counter(record.machine for record in measured(run.records) if record.machine)
    machines = [machine for machine, _ in counts.most_common()]
    first = next((one for one in machines if one in known), str(config.get("machine_id")))
    pairs = [*known[first].items(), ("machine id", first if "machine_id" in config else None)]
    version = known[first].get("sparing") or config.get("sparing_version")
    pairs = [pair for pair in pairs if pair[0] != "sparing"] + [("sparing", version)]
    others = (one for one in machines if one != first)
    return [*pairs, *((f"machine {one}", _line(known.get(one))) for one in others)]


def _line(facts: dict[str, Any] | None) -> str:
    """The facts that differ between machines, in one line."""
    if not facts:
        return "nothing is kept of it"
    memory, threads = facts.get("memory_bytes"), facts.get("threads")
    parts = [
        facts.get("accelerator"),
        facts.get("cpu"),
        wording.count_of(threads, "thread") if isinstance(threads, int) else None,
        f"{memory / _GIBIBYTE:.1f} GiB" if isinstance(memory, int) else None,
        f"torch {facts['torch']}" if facts.get("torch") else None,
    ]
    return ", ".join(str(part) for part in parts if part)
