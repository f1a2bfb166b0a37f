"""Which machines a run's records were measured on, and what is known of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sparing.experiment.records import measured
from sparing.report import wording
from sparing.report.run import Run

_GIBIBYTE = 2**30


def machine_facts(run: Run) -> list[tuple[str, Any]]:
    """The machine that most records come from, then a line for each other one.

    Who joins records, or judges them anew, need not have measured any. A machine of which a run's
    folder keeps nothing has its id alone.
    """
    config = run.config
    known = {**(config.get("machines") or {}), str(config.get("machine_id")): config["machine"]}
    counts = Counter(record.machine for record in measured(run.records) if record.machine)
    most = [own for own, _ in counts.most_common()]
    own = next((each for each in most if each in known), str(config.get("machine_id")))
    found = [*known[own].items(), ("machine id", own if "machine_id" in config else None)]
    told = known[own].get("sparing") or config.get("sparing_version")
    found = [pair for pair in found if pair[0] != "sparing"] + [("sparing", told)]
    return [*found, *((f"machine {each}", _line(known.get(each))) for each in most if each != own)]


def _line(facts: dict[str, Any] | None) -> str:
    """What tells one machine from another, in one line."""
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
