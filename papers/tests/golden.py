"""A committed run, analysed and decided again from its folder: nothing is loaded or trained."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparing.compare import analysis as compare_analysis
from sparing.compare import study as compare
from sparing.core.record import RECORDS, Record, RecordLog
from sparing.experiment.claims import decide
from sparing.experiment.installed import study_names
from sparing.experiment.records import RecordTable
from sparing.experiment.registry import find_study
from sparing.experiment.run import ANALYSIS
from sparing.report.page import Page
from sparing.report.run import read_run
from sparing.slim import study as slim
from sparing.tasks import Task
from sparing.tasks.scenes import HELD_OUT
from sparing_papers.adaattention import claims as ada_claims
from sparing_papers.adaattention import options as ada_options
from sparing_papers.adaattention.arms import Work
from sparing_papers.calculator import analysis as value_analysis
from sparing_papers.calculator import claims as value_claims
from sparing_papers.hugginggreen import analysis as green_analysis
from sparing_papers.hugginggreen import claims as green_goals
from sparing_papers.hugginggreen import options as green_options
from sparing_papers.kerformer import claims as ker_claims
from sparing_papers.linformer import analysis as lin_analysis
from sparing_papers.linformer import claims as lin_goals
from sparing_papers.linformer import options as lin_options
from sparing_papers.long_range import analysis as long_analysis
from sparing_papers.long_range import answers

ROOT = Path(__file__).resolve().parents[2]
RESULTS = (ROOT / "benchmarks" / "results", ROOT / "papers" / "results")
ANSWERS = {"stsb": "value", "squad": "span"}  # other tasks ask for a class
IMAGES = ("cifar10",)


Config, Records = Mapping[str, Any], Sequence[Record]


@dataclass(frozen=True)
class Again:
    """What today's program makes of a run's measurements: its analysis, goals and page."""

    analysis: list[Record]
    goals: list[dict[str, Any]]
    page: Page


def folders() -> list[Path]:
    """The committed runs of studies that have a page, by name."""
    runs = []
    for folder in sorted(path for results in RESULTS for path in results.iterdir()):
        if (folder / "config.json").is_file():
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            runs += [folder] if config.get("study") in study_names() else []
    return runs


def stored(folder: Path) -> tuple[list[Record], list[Record]]:
    """The records of a run: what was measured, and what its analysis made of that."""
    records = RecordLog(folder / RECORDS).read()
    return (
        [record for record in records if record.cell != ANALYSIS],
        [record for record in records if record.cell == ANALYSIS],
    )


def again(folder: Path) -> Again:
    """The run's measurements, analysed, decided and written up by today's program."""
    run = read_run(folder)
    measured, before = stored(folder)
    analysis, decide_goals = STUDIES[run.config["study"]](run.config, measured, before)
    names = {record.name for record in analysis}
    others = [record for record in before if record.name not in names]
    goals = [goal.to_dict() for goal in decide_goals([*measured, *analysis, *others])]
    page = find_study(run.config["study"]).page(run)
    return Again(analysis, json.loads(json.dumps(goals)), page)


def of_adaattention(config: Config, measured: Records, before: Records) -> Any:
    """Its analysis needs the tasks' labels, which no run holds: it stays as it is."""
    options = options_of(ada_options.Options, config["identity"])
    tasks = {
        name: _only(
            Task, kind="image" if name in IMAGES else "tokens", answer=ANSWERS.get(name, "class")
        )
        for name in config["tasks"]
    }
    works = [_only(Work, name=name, task=task) for name, task in tasks.items()]
    return [], lambda records: ada_claims.decide_goals(records, options, works)


def of_calculator(config: Config, measured: Records, before: Records) -> Any:
    questions = config["identity"].get("questions", ["networks"])  # older runs do not say so
    return value_analysis.analyse(measured), lambda records: value_claims.decide_goals(
        records, questions
    )


def of_compare(config: Config, measured: Records, before: Records) -> Any:
    options = options_of(compare.Options, config["identity"])
    facts = config["task"]
    compared = (options.mechanisms, options.baseline, options.margin)
    claims = compare.claims_of(*compared, facts["chance"], facts["tokens"])
    analysis = compare_analysis.analyse(measured, *compared, facts["examples"]["test"])
    return analysis, lambda records: decide(claims, RecordTable(records))


def of_hugginggreen(config: Config, measured: Records, before: Records) -> Any:
    options = options_of(green_options.Options, config["identity"])
    task = _only(Task, pixel_mean=0.5, pixel_deviation=0.5)  # names do not depend on them
    tasks = dict.fromkeys(config["tasks"], task)
    tested = {name: splits["test"] for name, splits in config["task"]["examples"].items()}
    tested["scenes"] = HELD_OUT["test"]
    analysis = green_analysis.analyse(measured, tested, options.margin)
    return analysis, lambda records: green_goals.decide_goals(options, tasks, records)


def of_kerformer(config: Config, measured: Records, before: Records) -> Any:
    chances = {r.labels["task"]: r.labels["chance"] for r in before if r.name == "decides"}
    analysis = [*long_analysis.analyse(measured, chances), *answers.paired_records(measured)]
    return analysis, lambda records: ker_claims.decide_goals(
        records, config["identity"]["questions"]
    )


def of_linformer(config: Config, measured: Records, before: Records) -> Any:
    standard = lin_options.BUDGETS["standard"]  # whose variants the committed runs have
    options = _typed(lin_options.Options, config["identity"], standard)
    tasks = config["tasks"]
    analysis = lin_analysis.analyse(measured, {name: t["chance"] for name, t in tasks.items()})
    forms = list(config["forms"])
    return analysis, lambda records: lin_goals.decide_goals(options, list(tasks), records, forms)


def of_slim(config: Config, measured: Records, before: Records) -> Any:
    options = options_of(slim.Options, config["identity"])
    return [], lambda records: decide(slim.claims_of(options), RecordTable(records))


STUDIES = {
    "adaattention": of_adaattention,
    "calculator": of_calculator,
    "compare": of_compare,
    "hugginggreen": of_hugginggreen,
    "kerformer": of_kerformer,
    "linformer": of_linformer,
    "slim": of_slim,
}


def _only(kind: type[Any], /, **facts: Any) -> Any:
    """One of a kind that has these facts alone: asking it for another raises."""
    made = object.__new__(kind)
    for name, value in facts.items():
        object.__setattr__(made, name, value)
    return made


def options_of(kind: Any, identity: Mapping[str, Any]) -> Any:
    """A study's options as a run's configuration holds them, the rest by default.

    Variants may be added to a run, so they are not in its identity: those by default are taken.
    """
    hints = typing.get_type_hints(kind)
    given = {}
    for field in dataclasses.fields(kind):
        if field.init and field.name in identity:
            value, default = identity[field.name], field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            given[field.name] = _typed(hints[field.name], value, default)
    return kind(**given)


def _typed(hint: Any, value: Any, default: Any = None) -> Any:
    """A value out of JSON as the type that its field has."""
    inner = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in inner if kind is not type(None)]
        return None if value is None else _typed(kinds[0], value, default)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        known = {field.name for field in dataclasses.fields(hint) if field.init}
        if not isinstance(default, hint):
            return options_of(hint, value)
        hints = typing.get_type_hints(hint)
        changes = {
            name: _typed(hints[name], field, getattr(default, name))
            for name, field in value.items()
            if name in known
        }
        return dataclasses.replace(default, **changes)
    if isinstance(value, list | dict) and typing.get_origin(hint) is tuple:
        return tuple(_typed(inner[0], item) for item in value)
    if isinstance(value, dict) and inner:
        return {name: _typed(inner[-1], item) for name, item in value.items()}
    return value
