"""The parts of any page around its figures: titled tables, goals, failed cells and notices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparing.core.errors import listed
from sparing.experiment.forecasts.needs import Need
from sparing.experiment.parallel.leading import PROCESSES
from sparing.experiment.plan import BESIDE
from sparing.experiment.records import measured, uncommitted
from sparing.measure.load import disturbance_words
from sparing.measure.seeds import TRAINING
from sparing.report import wording
from sparing.report.run import Run

Texts = tuple[str, ...]
MANY_ROWS = 26
"""Longer tables are folded up under a line that sums them up."""
VERDICT, WOULD_NEED = "Verdict", "Would need"
TOGETHER = (
    "Those of one table are decided together: their intervals are wider than 95 % where several "
    "are still open."
)


@dataclass(frozen=True)
class Block:
    """A titled table of plain text; ``explain`` is above it, or alone when it is empty."""

    key: str
    title: str
    explain: str
    heads: Texts = ()
    rows: tuple[Texts, ...] = ()

    @property
    def summary(self) -> str:
        """The text in place of the rows where they are too many to show at once; else empty."""
        if len(self.rows) <= MANY_ROWS:
            return ""
        verdicts = [self.heads.index(VERDICT)] if VERDICT in self.heads else []
        counted = Counter(row[n] for row in self.rows for n in verdicts if self.key == "goals")
        parts = ", ".join(f"{count} {word}" for word, count in counted.most_common())
        return f"{len(self.rows)} rows" + (f": {parts}" if parts else "")


def name_of(run: Run) -> str:
    """The run's name on one line."""
    named = run.config.get("name") or run.config["task"].get("name") or "run"
    return wording.shortened(str(named), 80)


def busy_notices(run: Run) -> list[str]:
    """The notice that the machine was busy while times were taken; the first of a page."""
    words = disturbance_words(run.records)
    return [words] if words else []


def energy_notices(run: Run) -> list[str]:
    """The notice that joules of trainings are estimates, where the machine has no counter."""
    kinds = {record.obtained for record in run.table.all(TRAINING)}
    if kinds != {"estimated"}:
        return []
    watts = float(run.config.get("watts_per_core") or 0.0)
    return [
        f"This machine shows no counter of energy: joules are CPU seconds times {watts:g} W, an "
        "estimate, and every comparison is one of computing time."
    ]


def missing_cells(run: Run) -> list[str]:
    """The cells that were planned and have not ended."""
    done = {record.cell for record in run.records}
    return [str(key) for key in run.config.get("cells") or [] if key not in done]


def unfinished_notices(run: Run, named: Callable[[list[str]], str]) -> list[str]:
    """How much of the plan is done; ``named`` puts the cells that are missing into words."""
    planned, missing = len(run.config.get("cells") or []), missing_cells(run)
    if not missing:
        return []
    return [
        f"This run is not complete: {planned - len(missing):,} of {planned:,} cells are done; "
        f"missing are {named(missing)}. The same command goes on."
    ]


def data_notices(run: Run) -> list[str]:
    """Notices on the data and records of a run that weaken its numbers."""
    notices = []
    task = run.config["task"]
    if task.get("subset") is True:
        notices.append("The data is a subset of what was published, so scores are this subset's.")
    notices += [str(note) for note in task.get("notes") or []]
    if run.failed:
        notices.append(f"{wording.count_of(len(run.failed), 'cell')} failed; see below.")
    run_records = measured(run.records)
    machines, commits = (
        {getattr(r, name): r for r in run_records} for name in ("machine", "commit")
    )
    machines.pop("", None)
    commits.pop("", None)
    if len(machines) > 1:
        notices.append(
            f"The records come from {len(machines)} machines: times between them do not compare."
        )
    beside = [record for record in run_records if record.name == BESIDE]
    if beside:
        notices.append(
            f"{wording.count_of(len(beside), 'cell')} ran beside others on one machine: times and "
            "energies there are not measured."
        )
    shared = [record for record in run_records if record.name == PROCESSES]
    if shared:
        counts = listed(sorted({f"{record.value:g}" for record in shared}))
        notices.append(
            f"Trainings of {wording.count_of(len(shared), 'cell')} were shared by {counts} "
            "processes: their times do not compare with those of another number."
        )
    if len(commits) > 1:
        notices.append(f"They were measured at {len(commits)} commits: {', '.join(commits)}.")
    elif commits and run.config.get("commit") not in (None, *commits):
        notices.append(f"They were measured at commit {next(iter(commits))}.")
    return [*notices, *_uncommitted_notices(run)]


def _uncommitted_notices(run: Run) -> list[str]:
    """The notice on measured values of code that no commit holds, and on their cells."""
    records = uncommitted(run.records)
    if not records:
        return []
    count = sum(record.value is not None for record in measured(run.records))
    cells = listed(dict.fromkeys(record.cell.partition("/")[0] or "all" for record in records))
    share = f"All {count:,}" if len(records) == count else f"{len(records):,} of {count:,}"
    return [
        f"{share} measured values are of code with changes that no commit holds. They are in the "
        f"cells of: {cells}."
    ]


def failed_blocks(run: Run) -> list[Block]:
    """The cells that ended in an error, as one block or none."""
    if not run.failed:
        return []
    rows = tuple((on_one_line(text_of(f.get("cell"))), text_of(f.get("error"))) for f in run.failed)
    explain = "These cells ended in an error; everything else went on without them."
    return [Block("failed", "Failed cells", explain, ("Cell", "Error"), rows)]


def goals_block(
    run: Run,
    explain: str = f"Declared in the study's code before it ran. {TOGETHER}",
) -> Block:
    """The goals with their verdicts, each beside the interval that decided it."""
    if not run.goals:
        return Block("goals", "Goals", "This run declared no goals.")
    verdicts = {"True": "met", "False": "not met"}
    rows = tuple(
        (
            on_one_line(text_of(goal.get("name"))),
            with_unit(goal.get("target"), goal.get("unit")),
            with_unit(goal.get("value"), goal.get("unit")),
            interval_text(goal.get("interval")),
            str(goal.get("note") or verdicts.get(str(goal.get("met")), "undecided")),
            need_text(goal),
        )
        for goal in run.goals
    )
    heads = ("Goal", "Target", "Value", "Interval", VERDICT, WOULD_NEED)
    if not any(row[-1] for row in rows):
        return Block("goals", "Goals", explain, heads[:-1], tuple(row[:-1] for row in rows))
    return Block("goals", "Goals", explain, heads, rows)


def need_text(goal: Mapping[str, Any]) -> str:
    """What an undecided goal would need; empty for a decided one."""
    return str(Need.from_dict(goal.get("need") or {}))


def text_of(value: object) -> str:
    """A value as a page shows it."""
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{key} {text_of(entry)}" for key, entry in value.items())
    if isinstance(value, float):
        return wording.trimmed(value)
    return str(value)


def on_one_line(text: str) -> str:
    """The text on one line."""
    return " ".join(text.split())


def with_unit(value: object, unit: object) -> str:
    """A value with its unit, where the unit says more than the value."""
    if value is None:
        return "not measured"
    shown = text_of(value)
    plain = isinstance(value, str) or unit in (None, "", "ratio", "share")
    return shown if plain else f"{shown} {unit}"


def interval_text(interval: object) -> str:
    """An interval's ends in words; empty without one."""
    if not isinstance(interval, (list, tuple)) or len(interval) != 2:
        return ""
    return " to ".join(text_of(float(end)) for end in interval)
