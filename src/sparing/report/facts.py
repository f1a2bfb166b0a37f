"""Task, model, machine and versions of a run, as pairs of words."""

from __future__ import annotations

from typing import Any

from sparing.experiment.records import RecordTable
from sparing.report import wording
from sparing.report.blocks import on_one_line, text_of
from sparing.report.machines import machine_facts
from sparing.report.run import Config, Run

_METRICS = {
    "entity_f1": "entity F1",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "map": "MAP",
    "mrr": "MRR",
    "ndcg@10": "nDCG@10",
}
_PUBLISHED = {True: "a subset of what was published", False: "as published"}


def dense_name(config: Config) -> str:
    """The baseline's name in running text: exact attention is called dense."""
    baseline = str(config["baseline"])
    return "dense" if baseline == "softmax" else wording.shortened(baseline, 32)


def metric_name(config: Config) -> str:
    """The task's metric in words."""
    name = str(config["task"].get("metric") or "accuracy")
    return _METRICS.get(name) or wording.shortened(name, 24).replace("_", " ")


def metric_heading(config: Config) -> str:
    """The same as a heading."""
    name = metric_name(config)
    return name[:1].upper() + name[1:]


def facts(run: Run) -> list[tuple[str, str]]:
    """Task, model, machine and versions as pairs of words."""
    config = run.config
    baseline = str(config["baseline"])
    task = {key: value for key, value in config["task"].items() if key not in ("subset", "notes")}
    pairs: list[tuple[str, Any]] = [("task", task), ("model", config["model"])]
    if isinstance(config["task"].get("subset"), bool):
        pairs.append(("data", _PUBLISHED[config["task"]["subset"]]))
    pairs += [("baseline", f"{baseline} ({dense_name(config)})")]
    if baseline != "softmax":
        pairs[-1] = ("baseline", baseline)
    pairs += [(key, config.get(key)) for key in ("seeds", "budget", "commit", "started")]
    pairs += machine_facts(run)
    pairs += _energy_facts(run.table)
    return [
        (on_one_line(str(key).removesuffix("_bytes").replace("_", " ")), _fact(str(key), value))
        for key, value in pairs
        if value not in (None, "", {}, [])
    ]


def _energy_facts(records: RecordTable) -> list[tuple[str, str]]:
    """How the energy of each component was obtained, as one record describes it."""
    methods: dict[str, str] = {}
    for name in ("train_energy_j", "energy_j"):
        for record in records.all(name):
            method = record.labels.get("method")
            if method:
                component = str(record.labels.get("component") or "all")
                methods.setdefault(f"energy, {component}", f"{record.obtained}, such as {method}")
    return list(methods.items())


def _fact(key: str, value: Any) -> str:
    if key.endswith("_bytes") and isinstance(value, (int, float)):
        return wording.size_of_bytes(value)
    if isinstance(value, dict):
        return ", ".join(_part(str(k), v) for k, v in value.items() if v not in (None, ""))
    if isinstance(value, list):
        return ", ".join(map(text_of, value))
    if key == "started":
        return str(value).replace("T", " ").replace("+00:00", " UTC")
    return text_of(value)


def _part(key: str, value: Any) -> str:
    """One entry of a fact that has several; a name needs no key."""
    shown = _fact(key, value)
    if key == "name":
        return shown
    named = key.removesuffix("_bytes").replace("_", " ")
    return f"{named} ({shown})" if isinstance(value, dict) else f"{named} {shown}"
