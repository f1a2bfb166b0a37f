"""The tables of tasks and of the records of each study."""

from __future__ import annotations

from page_parts import prose, table
from sparing.experiment.installed import study_names
from sparing.experiment.registry import Study, find_study
from sparing.experiment.schema import schema_of
from sparing.tasks import facts, names

Pages = dict[str, str]
RECORDS = """\
# Records

A run keeps what it measured as records: a name, a value, a unit, and labels that say of what.
The label `arm` names the variant: the model, mechanism or setting that was measured.
The tables here are those of `sparing list records STUDY`.
"""
STUDY = """\
# Records of {name}

A name with a star is a pattern: `mean_*` is written for each record whose mean is taken.
"""
TASKS = """\
# Tasks

The first metric chooses the best epoch, and is what `compare` calls accuracy. The chance level is
the score of the best answer that never changes. Their files: [data of the tasks](tasks.md).
"""


def record_pages() -> Pages:
    """The records of each study and their index, by path below ``reference``."""
    studies = {name: find_study(name) for name in study_names()}
    for name in ("advise", "agree"):  # not studies that one runs
        studies[name] = Study(name, f"sparing.{name}.study", "")
    pages = {f"records/{name}.md": _records(name, study) for name, study in studies.items()}
    links = "\n".join(f"- [{name}]({name}.md)" for name in sorted(studies))
    toctree = "\n".join(["```{toctree}", ":hidden:", "", *sorted(studies), "```"])
    pages["records/index.md"] = f"{RECORDS}\n{links}\n\n{toctree}\n"
    return pages


def _records(name: str, study: Study) -> str:
    schema = schema_of(study)
    rows = [
        [
            f"`{record}`",
            prose(schema.unit(record)),
            prose(entry.means),
            prose(", ".join(entry.labels)),
        ]
        for record, entry in sorted(schema.entries.items())
    ]
    heads = ["Record", "Unit", "Meaning", "Labels"]
    return f"{STUDY.format(name=name)}\n{table(heads, rows)}\n"


def task_pages() -> Pages:
    """The facts of all tasks, by path below ``reference``."""
    rows = []
    for name in names():
        task = facts(name)
        chance = "depends on the data" if task.chance is None else f"{task.chance:.3f}"
        known = (", ".join(task.metrics), task.source, task.licence, task.splits)
        metrics, source, licence, splits = map(prose, known)
        rows.append([f"`{name}`", metrics, chance, splits, licence, source])
    heads = ["Task", "Metrics", "Chance", "Test split", "Licence", "Source"]
    return {"task-facts.md": f"{TASKS}\n{table(heads, rows)}\n"}
