"""What a page says around its table and figures, shared by its HTML and Markdown forms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparing.core.record import Record
from sparing.measure.load import disturbance_words
from sparing.report import wording
from sparing.report.cells import Column
from sparing.report.machines import machine_facts, measured
from sparing.report.results import Results
from sparing.report.run import Run
from sparing.report.tables import crossing_words, dense_name

Texts = tuple[str, ...]
_PUBLISHED = {True: "a subset of what was published", False: "as published"}
_LONGEST_HEAD_NOTE = 18
MANY_ROWS = 26
"""Longer tables are folded up under a line that sums them up."""


@dataclass(frozen=True)
class Block:
    """A titled table of plain text; ``explain`` stands above it, or alone when it is empty."""

    key: str
    title: str
    explain: str
    heads: Texts = ()
    rows: tuple[Texts, ...] = ()

    @property
    def summary(self) -> str:
        """What stands for the rows where they are too many to show at once; else empty."""
        if len(self.rows) <= MANY_ROWS:
            return ""
        counted = Counter(row[-1] for row in self.rows if self.key == "goals")
        parts = ", ".join(f"{count} {word}" for word, count in counted.most_common())
        return f"{len(self.rows)} rows" + (f": {parts}" if parts else "")


def name_of(run: Run) -> str:
    """The run's name on one line."""
    named = run.config.get("name") or run.config["task"].get("name") or "run"
    return wording.shortened(str(named), 80)


def headline(results: Results) -> list[str]:
    """The few facts that stand above the verdict."""
    config, task = results.config, results.config["task"]
    facts = [str(task[key]) for key in ("name", "kind") if task.get(key)]
    if results.task_tokens:
        facts.append(wording.length(results.task_tokens))
    facts.append(wording.count_of(len(results.arms), "arm"))
    seeds = _seeds(config.get("seeds"))
    if seeds:
        facts.append(wording.count_of(seeds, "seed"))
    if isinstance(config.get("started"), str):
        facts.append(config["started"][:10])
    own_name = name_of(Run(config, [], [], []))
    return [fact for fact in map(_line, facts) if fact != own_name]


def notices(run: Run, results: Results) -> list[str]:
    """What a reader must know before believing a number here."""
    found = busy_notices(run)
    seeds = _seeds(run.config.get("seeds"))
    planned = len(run.config["arms"]) * seeds
    done = sum(len(results.accuracies(arm)) for arm in run.config["arms"])
    if done < planned:
        found.append(
            f"This run is not complete: {done:,} of {wording.count_of(planned, 'training')} "
            "have ended. What is missing says so."
        )
    if seeds == 1:
        found.append("One seed says nothing about the spread between trainings.")
    noted = (str(r.labels.get("told")) for r in run.records if r.name == "meter_note")
    return [*found, *dict.fromkeys(noted), *data_notices(run)]


def busy_notices(run: Run) -> list[str]:
    """That the machine was busy while times were taken, where it was: it goes before the others."""
    words = disturbance_words(run.records)
    return [words] if words else []


def data_notices(run: Run) -> list[str]:
    """What any run's data and records may carry that weakens its numbers."""
    found = []
    task = run.config["task"]
    if task.get("subset") is True:
        found.append("The data is a subset of what was published, so scores are this subset's.")
    found += [str(note) for note in task.get("notes") or []]
    if run.failed:
        found.append(f"{wording.count_of(len(run.failed), 'cell')} failed; see below.")
    own = measured(run)
    machines, commits = ({getattr(r, name): r for r in own} for name in ("machine", "commit"))
    machines.pop("", None)
    commits.pop("", None)
    if len(machines) > 1:
        found.append(
            f"The records come from {len(machines)} machines: times between them do not compare."
        )
    if len(commits) > 1:
        found.append(f"They were measured at {len(commits)} commits: {', '.join(commits)}.")
    elif commits and run.config.get("commit") not in (None, *commits):
        found.append(f"They were measured at commit {next(iter(commits))}.")
    if any(record.commit.endswith("+") for record in run.records):
        found.append("The code had changes that no commit holds when this was measured.")
    return found


def caption(columns: Sequence[Column]) -> tuple[list[Column], str]:
    """The columns with their short notes alone, and the long ones as sentences to stand below.

    Columns that were taken at one size share a sentence.
    """
    long: dict[str, list[str]] = {}
    for column in columns:
        if len(column.note) > _LONGEST_HEAD_NOTE:
            long.setdefault(column.note, []).append(column.title)
    sentences = [
        f"{wording.listing([titles[0], *map(str.lower, titles[1:])], 9)}: {note}."
        for note, titles in long.items()
    ]
    kept = [Column(c.key, c.title, "" if c.note in long else c.note) for c in columns]
    return kept, " ".join(sentences)


def table_words(results: Results) -> str:
    """How a table of many arms is ordered, and what its grey rows are; else empty."""
    if not results.crowded:
        return ""
    words = "By family, the fastest of each first."
    if results.beaten:
        words += (
            " Grey rows: other arms, named there, are at least as accurate and at least as fast, "
            "both here and at the longest length measured."
        )
    return words


def crossings(results: Results) -> list[tuple[str, str]]:
    """Each arm with where its attention core becomes faster than the baseline's, first first."""
    found: list[tuple[float, str, str]] = []
    for arm in results.others:
        newest = results.crossover(arm)
        if newest is None:
            continue
        if newest.value is not None:
            found.append((newest.value, arm, f"faster from {crossing_words(results, arm)} on"))
            continue
        longest = newest.labels.get("longest_tokens")
        until = f" up to {wording.length(longest)}" if isinstance(longest, int) else ""
        found.append((float("inf"), arm, f"not faster{until}"))
    return [(arm, text) for _, arm, text in sorted(found)]


def shares(results: Results) -> list[tuple[str, str, str]]:
    """(tokens, attention's share of the model's time, largest gain) as texts, by length."""
    lines = []
    for tokens in results.lengths("attention_share"):
        share = results.value("attention_share", tokens=tokens)
        gain = results.value("largest_gain", tokens=tokens)
        shown = "not measured" if gain is None else wording.factor(gain)
        lines.append((f"{tokens:,}", wording.share_of_gain(share or 0.0), shown))
    return lines


def blocks(run: Run, results: Results) -> list[Block]:
    """Goals, failed cells and the papers' claims; the goals always, the others if there are any."""
    found = [goals_block(run), *failed_blocks(run)]
    if results.claims:
        found.append(_claims(results))
    return found


def failed_blocks(run: Run) -> list[Block]:
    """The cells that ended in an error, as one block or none."""
    if not run.failed:
        return []
    rows = tuple((_line(_text(f.get("cell"))), _text(f.get("error"))) for f in run.failed)
    explain = "These cells ended in an error; everything else went on without them."
    return [Block("failed", "Failed cells", explain, ("Cell", "Error"), rows)]


def goals_block(
    run: Run,
    explain: str = "Declared in the study's code before it ran.",
    interval: str = "95 % interval",
) -> Block:
    """The goals with their verdicts; ``interval`` heads the column of intervals."""
    if not run.goals:
        return Block("goals", "Goals", "This run declared no goals.")
    verdicts = {"True": "met", "False": "not met"}
    rows = tuple(
        (
            _line(_text(goal.get("name"))),
            _with_unit(goal.get("target"), goal.get("unit")),
            _with_unit(goal.get("value"), goal.get("unit")),
            _interval(goal.get("interval")),
            str(goal.get("note") or verdicts.get(str(goal.get("met")), "undecided")),
        )
        for goal in run.goals
    )
    heads = ("Goal", "Target", "Value", interval, "Verdict")
    return Block("goals", "Goals", explain, heads, rows)


def _claims(results: Results) -> Block:
    rows = []
    for claim in results.claims:
        labels = {k: v for k, v in claim.labels.items() if k not in ("source", "reason")}
        where = ", ".join(f"{key} {value}" for key, value in labels.items() if key != "arm")
        what = f"{labels.get('arm', 'model')}: {claim.name.replace('_', ' ')}"
        ours = results.find(claim.name, **labels)
        rows.append(
            (
                _line(f"{what} ({where})" if where else what),
                _claimed(results, claim),
                _claimed(results, ours),
                _line(_text(claim.labels.get("source"))),
                _text(claim.labels.get("reason")),
            )
        )
    explain = "Quoted from papers, never measured here; ours stands beside them."
    heads = ("Claim", "Paper", "Here", "Source", "Why they differ")
    return Block("claims", "What the papers say", explain, heads, tuple(rows))


def _claimed(results: Results, record: Record | None) -> str:
    if record is None or record.value is None:
        return "not measured"
    value = _with_unit(record.value, record.unit)
    if record.name.endswith("_ratio"):
        value += f" of {dense_name(results.config)}"
    return f"{value} ({_interval(record.interval)})" if record.interval else value


def facts(run: Run, results: Results) -> list[tuple[str, str]]:
    """Task, model, machine and versions as pairs of words."""
    config = run.config
    task = {key: value for key, value in config["task"].items() if key not in ("subset", "notes")}
    found: list[tuple[str, Any]] = [("task", task), ("model", config["model"])]
    if isinstance(config["task"].get("subset"), bool):
        found.append(("data", _PUBLISHED[config["task"]["subset"]]))
    found += [("baseline", f"{results.baseline} ({dense_name(config)})")]
    if results.baseline != "softmax":
        found[-1] = ("baseline", results.baseline)
    found += [(key, config.get(key)) for key in ("seeds", "budget", "commit", "started")]
    found += machine_facts(run)
    found += _energy_facts(results)
    return [
        (_line(str(key).removesuffix("_bytes").replace("_", " ")), _fact(str(key), value))
        for key, value in found
        if value not in (None, "", {}, [])
    ]


def _energy_facts(results: Results) -> list[tuple[str, str]]:
    """How the energy of each component came about, by the words of one record."""
    found: dict[str, str] = {}
    for name in ("train_energy_j", "energy_j"):
        for record in results.all(name):
            method = record.labels.get("method")
            if method:
                component = str(record.labels.get("component") or "all")
                found.setdefault(f"energy, {component}", f"{record.obtained}, such as {method}")
    return list(found.items())


def _fact(key: str, value: Any) -> str:
    if key.endswith("_bytes") and isinstance(value, (int, float)):
        return wording.size_of_bytes(value)
    if isinstance(value, dict):
        return ", ".join(_part(str(k), v) for k, v in value.items() if v not in (None, ""))
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if key == "started":
        return str(value).replace("T", " ").replace("+00:00", " UTC")
    return _text(value)


def _part(key: str, value: Any) -> str:
    """One entry of a fact that has several: a name speaks for itself."""
    shown = _fact(key, value)
    if key == "name":
        return shown
    named = key.removesuffix("_bytes").replace("_", " ")
    return f"{named} ({shown})" if isinstance(value, dict) else f"{named} {shown}"


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(entry)}" for key, entry in value.items())
    if isinstance(value, float):
        return wording.trimmed(value)
    return str(value)


def _line(text: str) -> str:
    return " ".join(text.split())


def _with_unit(value: object, unit: object) -> str:
    if value is None:
        return "not measured"
    shown = _text(value)
    plain = isinstance(value, str) or unit in (None, "", "ratio", "share")
    return shown if plain else f"{shown} {unit}"


def _interval(interval: object) -> str:
    if not isinstance(interval, (list, tuple)) or len(interval) != 2:
        return ""
    return " to ".join(_text(float(end)) for end in interval)


def _seeds(seeds: object) -> int:
    if isinstance(seeds, list):
        return len(seeds)
    return seeds if isinstance(seeds, int) else 0
