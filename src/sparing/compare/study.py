"""The main study: several attentions on one task, trained and measured on identical work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from sparing.compare import cells as compare_cells
from sparing.compare.analysis import analyse
from sparing.compare.claims import claims_of
from sparing.core.checks import Count, Positive, check_fields, distinct, some
from sparing.core.errors import UsageError
from sparing.experiment.arms import DENSE, expand, family_of, resolve_options
from sparing.experiment.cells.expected import of_compare, weighted
from sparing.experiment.claims import decide
from sparing.experiment.conduct import Experiment
from sparing.experiment.inputs.fit import require_kind, require_openable_model, require_reads
from sparing.experiment.inputs.task import load_for
from sparing.experiment.plan import plan_by_kind
from sparing.experiment.records import RecordTable
from sparing.experiment.run import Cell
from sparing.experiment.study import base_config, plain
from sparing.models import default_model, names
from sparing.tasks import Task
from sparing.train import Recipe, default_recipe

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)


@dataclass(frozen=True)
class Options:
    """What is compared, and how long it may take."""

    # The task and its own options, such as {"examples": 20000}.
    task: str = "digits"
    # The variants, the dense one first or added; "all", "controls" and "family:NAME" name several.
    mechanisms: Annotated[tuple[str, ...], some, distinct] = (DENSE, "linformer", "kerformer")
    # Every variant is trained with each of them.
    seeds: Annotated[tuple[int, ...], some, distinct] = (0, 1, 2, 3, 4)
    # The variant that the others are compared with.
    baseline: str = DENSE
    # A built-in model, a folder or a hub name; the task's usual one where it is empty.
    model: str = ""
    # Sizes of a built-in model, such as {"layers": 4}.
    sizes: Mapping[str, Any] = field(default_factory=dict)
    # Options of mechanisms by name, such as {"linformer": {"slots": 32}}.
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    task_options: Mapping[str, Any] = field(default_factory=dict)
    # How variants are trained; the task's own recipe unless given.
    recipe: Recipe | None = None
    # A difference in accuracy that is too small to matter.
    margin: Positive = 0.01
    # Tokens at which the attention core is timed, and at which its memory is measured.
    lengths: Annotated[tuple[Count, ...], some] = LENGTHS
    memory_lengths: tuple[Count, ...] = (256, 1024, 4096)
    # Rounds of paired timing, seconds of each energy measurement, threads of training and timing.
    rounds: Count = 20
    energy_seconds: Positive = 0.5
    thread_count: Count = 1
    # The task's default recipe: with another task or model, changes in ``recipe`` stay.
    usual: Recipe | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_fields(self)
        for name, given in self.options.items():
            if not isinstance(given, Mapping):
                raise UsageError(f"options.{name} holds options, such as options.{name}.slots=32")
        pretrained = self.model not in ("", *names())
        usual = default_recipe(self.task, pretrained=pretrained)
        object.__setattr__(self, "recipe", _carried(self.recipe, self.usual, usual))
        object.__setattr__(self, "usual", usual)
        object.__setattr__(self, "mechanisms", expand(self.mechanisms))
        if self.baseline not in self.mechanisms:
            object.__setattr__(self, "mechanisms", (self.baseline, *self.mechanisms))


def _carried(recipe: Recipe | None, before: Recipe | None, usual: Recipe) -> Recipe:
    """The task's usual recipe with the changes that a given one has to its earlier default."""
    if recipe is None:
        return usual
    if recipe.seed:
        raise UsageError("recipe.seed: every variant is trained with each of the seeds, give those")
    if before is None:
        return recipe
    old = vars(before)
    changes = {name: value for name, value in vars(recipe).items() if value != old[name]}
    return replace(usual, **changes)


BUDGETS = {
    "quick": Options(
        seeds=(0, 1),
        mechanisms=(DENSE, "window", "linear", "kerformer", "linformer"),
        lengths=(64, 256, 1024, 4096),
        memory_lengths=(1024, 4096),
    ),
    "standard": Options(
        mechanisms=(
            DENSE,
            "eager",
            "window",
            "linear",
            "kerformer",
            "linformer",
            "nystrom",
            "probabilistic",
        ),
    ),
}


def prepare(options: Options, folder: Path, data: Path | None = None) -> Experiment:
    """The comparison with these options, fitted to the task; its dense model is built once.

    Raises ``UsageError`` for unknown names.
    """
    require_openable_model(options.model)
    task, given = load_for(options.task, options.task_options, options.model, data)
    options = replace(options, model=options.model or default_model(task), task_options=given)
    resolved = resolve_options(options.mechanisms, options.options, task.tokens)
    config = base_config("compare", _identity(options, resolved), [task], [options.model])
    arms = _arms(options, task, resolved, folder, data)
    require_kind(options.model, task)
    if options.model not in names():
        require_reads(arms.build(options.baseline, 0), task, options.model)
    arms.shape  # noqa: B018  # builds the dense model: wrong names and sizes end the run here
    comparison = (options.mechanisms, options.baseline, options.margin)
    claims = claims_of(*comparison, task.chance, task.tokens)
    return Experiment(
        "compare",
        config | _described(options, task, resolved, folder.name),
        lambda opened: _cells_of(options, arms),
        lambda records: decide(claims, RecordTable(records)),
        lambda measured: analyse(measured, *comparison, len(task.test)),
        estimate=partial(plan_by_kind, parts=1),
    )


def _arms(
    options: Options,
    task: Task,
    resolved: dict[str, dict[str, Any]],
    folder: Path,
    data: Path | None,
) -> compare_cells.Arms:
    return compare_cells.Arms(
        task=task,
        task_name=options.task,
        task_options=dict(options.task_options),
        data=data,
        model=options.model,
        sizes=dict(options.sizes),
        options=resolved,
        given={name: dict(given) for name, given in options.options.items()},
        baseline=options.baseline,
        folder=folder,
        rounds=options.rounds,
        thread_count=options.thread_count,
    )


def _cells_of(options: Options, arms: compare_cells.Arms) -> list[Cell]:
    """Latency first, before work heats the machine; training last, seed by seed."""
    cells = [compare_cells.attention_latency_cell(arms, tokens) for tokens in options.lengths]
    cells += [
        compare_cells.model_latency_cell(arms, batch) for batch in compare_cells.MODEL_BATCHES
    ]
    cells.append(compare_cells.energy_cell(arms, 32, options.energy_seconds))
    for arm in arms.names:
        cells += [
            compare_cells.flops_cell(arms, arm),
            compare_cells.model_memory_cell(arms, arm, 32),
        ]
        cells += [compare_cells.memory_cell(arms, arm, tokens) for tokens in options.memory_lengths]
    for number, seed in enumerate(options.seeds):
        turn = number % len(arms.names)  # no variant is always first
        for arm in (*arms.names[turn:], *arms.names[:turn]):
            assert options.recipe is not None  # set when the options were made
            recipe = replace(options.recipe, seed=seed)
            cells.append(compare_cells.training_cell(arms, arm, seed, recipe))
    assert options.recipe is not None
    seconds = of_compare(
        arms.shape,
        arms.task,
        arms=len(arms.names),
        rounds=options.rounds,
        epochs=options.recipe.epochs,
        energy_s=options.energy_seconds,
    )
    return weighted(cells, seconds)


def _identity(options: Options, resolved: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What makes two runs the same one, as plain JSON values."""
    settings = asdict(replace(options, options={}))
    settings.pop("options")
    settings.pop("usual")
    return {name: plain(value) for name, value in (settings | {"arm_options": resolved}).items()}


def _described(
    options: Options, task: Task, resolved: dict[str, dict[str, Any]], name: str
) -> dict[str, Any]:
    """Facts for the reader of the page beside the numbers."""
    splits = {split: len(task.split(split)) for split in ("train", "validation", "test")}
    return {
        "name": name,
        "task": {
            "name": task.name,
            "kind": task.kind,
            "metric": task.metric,
            "subset": task.subset,
            "notes": list(task.notes),
            "chance": task.chance,
            "classes": task.classes,
            "licence": task.licence,
            "source": task.source,
            "tokens": task.tokens,
            "examples": splits,
        },
        "model": {"name": Path(options.model).name, **dict(options.sizes)},
        "arms": list(options.mechanisms),
        "families": {arm: family_of(arm) for arm in options.mechanisms},
        "arm_options": resolved,
        "baseline": options.baseline,
        "seeds": list(options.seeds),
        "margin": options.margin,
        "threads": options.thread_count,
    }
