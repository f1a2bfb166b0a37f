"""A page tells the machines that its records come from, not the one that wrote it."""

from __future__ import annotations

from dataclasses import replace

from sparing.core.record import Record
from sparing.report.machines import machine_facts
from sparing.report.run import Run

HERE = {"cpu": "a laptop's", "threads": 2, "memory_bytes": 2**33, "torch": "2.13.0"}
THERE = {"cpu": "a server's", "accelerator": "a large card", "threads": 16, "torch": "2.11.0"}


def run_of(machines, config):
    record = Record("score", 0.5, "share", "measured", cell="a")
    records = [replace(record, machine=machine) for machine in machines]
    full_config = {"machine": HERE, "machine_id": "here", "sparing_version": "0", **config}
    return Run(full_config, records, [], [])


def test_a_new_analysis_of_records_is_no_measurement():
    run = run_of(["there"], {"machines": {"there": THERE}})
    assert dict(machine_facts(run)) == {**THERE, "machine id": "there", "sparing": "0"}


def test_most_records_first_then_a_line_for_each_other_machine():
    run = run_of(["here", "there", "there", "gone"], {"machines": {"there": THERE}})
    facts = dict(machine_facts(run))
    assert facts["machine id"] == "there"
    assert facts["machine here"] == "a laptop's, 2 threads, 8.0 GiB, torch 2.13.0"
    assert facts["machine gone"] == "nothing is kept of it"


def test_without_other_machines_it_is_the_runs_own():
    for machines in ([], [""], ["here"], ["gone"]):
        facts = dict(machine_facts(run_of(machines, {})))
        assert facts["machine id"] == "here"
        assert facts["cpu"] == "a laptop's"
