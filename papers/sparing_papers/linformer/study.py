"""Linformer's open questions: do few slots hold, and do they hold on longer inputs?

``sparing study linformer`` trains small encoders and evaluates them on inputs up to eight times as
long, and on other domains. It analyses attention matrices by layer, head and length, and compares
the errors of projected attention with the published bounds. It times encoders at a fixed number of
tokens. Quick takes about 15 minutes of one core; it shows that everything runs, and decides
nothing. Standard takes about 5 hours and continues where it was stopped.

Source: Wang et al., 2020, arXiv 2006.04768. What differs: everything is small, has seeds, and is
evaluated on lengths that no training has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sparing.core.errors import DataError
from sparing.experiment.conduct import Experiment
from sparing.experiment.inputs.recipes import require_accelerator
from sparing.experiment.plan import clocked
from sparing.experiment.run import DATA, Cell
from sparing.experiment.study import base_config, plain
from sparing.tasks import Task
from sparing.tasks.shared.files import given_folder
from sparing_papers.linformer.analysis import analyse
from sparing_papers.linformer.claims import FEWEST_LENGTHS, decide_goals
from sparing_papers.linformer.cost import cost_cells
from sparing_papers.linformer.error import error_cell
from sparing_papers.linformer.language.cells import digests as language_digests
from sparing_papers.linformer.language.cells import language_cells
from sparing_papers.linformer.language.cells import notes as language_notes
from sparing_papers.linformer.lengths import trained_tokens
from sparing_papers.linformer.longer import WAYS, LinWork, forms_of, longer_cells, sharing_cells
from sparing_papers.linformer.options import BUDGETS as BUDGETS
from sparing_papers.linformer.options import (
    COST,
    ERROR,
    LANGUAGE,
    LINFORMER,
    LONGER,
    NEEDS_ACCELERATOR,
    SHARED,
    SHIFT,
    SPECTRUM,
    SWAPPED,
)
from sparing_papers.linformer.options import Options as Options
from sparing_papers.linformer.shift import by_domain, domains_of, missing_domains
from sparing_papers.linformer.sources import Source, pretrained_source, trained_source
from sparing_papers.linformer.spectrum import spectrum_cell
from sparing_papers.long_range.arms import DENSE
from sparing_papers.long_range.pretrained import notes as swapped_notes
from sparing_papers.long_range.pretrained import pretrained_cells
from sparing_papers.long_range.work import TaskOptions, bare_identity, can_be_had, load

MODEL = "long_range"
OF_PRETRAINED = ("swapped", "swapped_margin")  # of no consequence without such an encoder
HEAD_S = 2e-9  # seconds for each cube of a length, of one head's singular values


@dataclass(frozen=True)
class Loaded:
    """The tasks that there are, what each was loaded with, and notes on what is left out."""

    works: dict[str, LinWork]
    loaded_with: dict[str, dict[str, Any]]
    notes: tuple[str, ...]
    domains: dict[str, Task]

    @property
    def tasks(self) -> dict[str, Task]:
        """The tasks by name."""
        return {name: work.task for name, work in self.works.items()}


def prepare(options: Options, folder: Path, data: Path | None = None) -> Experiment:
    """The study with these options; what needs data is left out without a data folder, and noted.

    Raises ``UsageError`` for unknown names and for a budget that this machine cannot serve.
    """
    require_accelerator(options.needs, NEEDS_ACCELERATOR)
    loaded = _loaded(options, folder, data)
    learned = [*(work.task for work in loaded.works.values()), *loaded.domains.values()]
    config = base_config("linformer", _identity(options, loaded), learned, [options.pretrained])
    if LANGUAGE in options.questions:
        config[DATA] |= language_digests(options.language, data)
    chances = {name: task.chance for name, task in loaded.tasks.items()}
    first = _first(options, loaded)
    forms = [*first.forms] if first else []
    return Experiment(
        "linformer",
        config | _described(options, loaded, folder.name),
        lambda opened: _cells(options, loaded, folder, data),
        lambda records: decide_goals(options, list(loaded.works), records, forms),
        lambda measured: analyse(measured, chances),
        seeds=partial(_planned_seeds, options),
    )


def _planned_seeds(options: Options, goal: str) -> int:
    """Trainings on texts have seeds of their own; all others have those of ``longer``."""
    task = goal.partition(",")[0].partition(":")[0]
    of_texts = task in options.texts.tasks and "pretrained encoder" not in goal
    return (options.texts if of_texts else options.longer).seeds


def _identity(options: Options, loaded: Loaded) -> dict[str, Any]:
    """What makes two runs the same one: settings of no consequence are left out."""
    left_out = ("needs", *(() if options.pretrained else OF_PRETRAINED))
    settings = plain({**asdict(options), "tasks": loaded.loaded_with})
    known = {name: value for name, value in settings.items() if name not in left_out}
    bare = bare_identity(known, seeds_fixed=options.seeds_fixed)
    return bare | {"questions": sorted({*options.questions})}


def _loaded(options: Options, folder: Path, data: Path | None) -> Loaded:
    """The tasks of both kinds of training; those without data are noted."""
    works: dict[str, LinWork] = {}
    loaded_with: dict[str, dict[str, Any]] = {}
    notes: list[str] = []
    for given in (options.longer, options.texts):
        for name in given.tasks:
            try:
                task, loaded_with[name] = _task(given, name, data)
            except DataError as error:
                notes.append(f"{name} is left out: {error}")
                continue
            notes += [f"{name}, {note}" for note in task.notes]
            forms = forms_of(options, task.tokens) if given is options.longer else {}
            works[name] = LinWork(LONGER, name, task, MODEL, folder, given, forms)
    domains: dict[str, Task] = {}
    for name in options.texts.tasks if SHIFT in options.questions else ():
        if name in works:
            read, missing = domains_of(works[name].task, options, data)
            notes += missing
            named = {f"{name}, {domain}": task for domain, task in read.items()}
            domains |= {key: replace(task, name=key) for key, task in named.items()}
    if options.pretrained and given_folder(data) is None:
        notes.append(f"{options.pretrained} is left out: film reviews need a data folder")
    elif options.pretrained and SWAPPED in options.questions:
        notes += swapped_notes(replace(options.swapped, model=options.pretrained), data)
        notes += missing_domains(data) if SHIFT in options.questions else []
    if LANGUAGE in options.questions:
        notes += language_notes(options.language, data)
    return Loaded(works, loaded_with, tuple(dict.fromkeys(notes)), domains)


def _task(given: TaskOptions, name: str, data: Path | None) -> tuple[Task, dict[str, Any]]:
    if not can_be_had(name, data):
        raise DataError("it needs a data folder: give --data or set SPARING_DATA")
    return load(given, name, data)


def _first(options: Options, loaded: Loaded) -> LinWork | None:
    """The task that also trains the forms of Linformer."""
    return next((loaded.works[n] for n in options.longer.tasks if n in loaded.works), None)


def _cells(options: Options, loaded: Loaded, folder: Path, data: Path | None) -> list[Cell]:
    """Trainings first: attention matrices are those of what was trained."""
    questions, cells = options.questions, []
    works = [loaded.works[n] for n in options.longer.tasks if n in loaded.works]
    texts = [loaded.works[n] for n in options.texts.tasks if n in loaded.works]
    if LONGER in questions:
        for work in works:
            cells += longer_cells(options, work, data)
        for work in texts:
            measurements = (by_domain(options, data),) if SHIFT in questions else ()
            cells += longer_cells(options, work, data, measurements)
    if SHARED in questions and (first := _first(options, loaded)):
        cells += sharing_cells(options, first)
    for source in _sources(options, [*works, *texts], data):
        cells += _matrix_cells(options, source)
    if COST in questions:
        cells += cost_cells(options)
    given = options.longer
    spent: dict[str, Any] = {
        "thread_count": given.thread_count,
        "watts_per_core": given.watts_per_core,
    }
    if SWAPPED in questions:
        swaps = replace(options.swapped, model=options.pretrained)
        last = (by_domain(options, data, swapped=True),) if SHIFT in questions else ()
        seeds = given.seeds
        cells += pretrained_cells(swaps, folder, data, seeds=seeds, last_measurements=last, **spent)
    if LANGUAGE in questions:
        cells += language_cells(options.language, folder, data, seeds=given.seeds, **spent)
    return [clocked(cell) for cell in cells]


def _sources(options: Options, works: Sequence[LinWork], data: Path | None) -> list[Source]:
    if not {SPECTRUM, ERROR} & set(options.questions):
        return []
    trained = works if LONGER in options.questions else ()
    sources = [
        trained_source(work, seed, options, data)
        for work in trained
        for seed in range(work.options.seeds)
    ]
    if options.pretrained and given_folder(data) is not None:
        sources.append(pretrained_source(options, data))
    return sources


def _matrix_cells(options: Options, source: Source) -> list[Cell]:
    cells, settings = [], options.error
    heads = 16
    if SPECTRUM in options.questions:
        for tokens in source.lengths(options.spectrum_lengths, FEWEST_LENGTHS):
            seconds = 3.0 + HEAD_S * heads * options.spectrum_texts * tokens**3
            cells.append(spectrum_cell(source, tokens, options, seconds))
    if ERROR in options.questions:
        for tokens in source.lengths(settings.lengths, 1):
            learning = 2e-9 * settings.steps * 8 * heads * tokens * 32 * sum(settings.slots)
            seconds = 3.0 + 2 * HEAD_S * heads * settings.held * tokens**3 + learning
            cells.append(error_cell(source, tokens, options, seconds))
    return cells


def _described(options: Options, loaded: Loaded, name: str) -> dict[str, Any]:
    """What a reader of the page wants to know beside the numbers."""
    works = loaded.works
    trained = dict.fromkeys(arm for work in works.values() for arm in work.options.compared)
    arms = [
        variant for arm in trained for variant in ((*WAYS, arm) if arm == LINFORMER else (arm,))
    ]
    forms = [form for work in works.values() for form in work.forms]
    return {
        "name": name,
        "task": {
            "name": ", ".join(works) or "none",
            "kind": "tokens",
            "metric": "accuracy",
            "licence": "; ".join(dict.fromkeys(t.licence for t in loaded.tasks.values())),
            "source": "; ".join(dict.fromkeys(t.source for t in loaded.tasks.values())),
            "subset": any(task.subset for task in loaded.tasks.values()),
            "notes": list(loaded.notes),
        },
        "model": {"name": MODEL},
        "arms": list(dict.fromkeys((DENSE, *arms, *forms))),
        "forms": {
            form: dict(form_options)
            for work in works.values()
            for form, form_options in work.forms.items()
        },
        "baseline": DENSE,
        "tasks": {n: _facts(work) for n, work in works.items()},
        "factors": list(options.factors),
        "questions": list(options.questions),
        "margin": options.longer.margin,
        "pretrained": Path(options.pretrained).name,
        "cost": asdict(options.cost),
        "watts_per_core": options.longer.watts_per_core,
        "threads": options.longer.thread_count,
    }


def _facts(work: LinWork) -> dict[str, Any]:
    """How a task was trained on, for the page."""
    recipe = work.recipe(0)
    return {
        "examples": len(work.task.train),
        "test_examples": len(work.task.test),
        "tokens": trained_tokens(work),
        "chance": work.task.chance,
        "epochs": recipe.epochs,
        "learning_rate": work.options.rate_text(work.name),
        "batch_size": recipe.batch_size,
        "seeds": work.options.seeds,
        "slots": work.mechanism_of(LINFORMER)[1]["slots"],
    }
