"""Kerformer's Table 4: a pretrained encoder with its attention swapped, before and after training.

A dense model is fine-tuned. Swapped models get another mechanism in every layer and are evaluated
untrained. They are then trained with labels alone and, separately for as many steps, to imitate the
dense model, first layer by layer and then end to end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from sparing.core.errors import UsageError, nearest
from sparing.experiment.arms import shuffled
from sparing.experiment.inputs.budgets import load_budgets
from sparing.experiment.inputs.task import require_tasks
from sparing.experiment.run import Cell, slug
from sparing.tasks.shared.files import given_folder
from sparing.transfer.opening import require_openable
from sparing_papers.long_range.answers import DENSE_MODEL
from sparing_papers.long_range.arms import require_arms
from sparing_papers.long_range.stages import Stages
from sparing_papers.long_range.swapped import (
    Measurement,
    SwappedWork,
    arm_records,
    dense_records,
    has_only_dev,
)

QUESTION = "pretrained"
# What each task is here, and its folder below the data folder.
PLACES = {
    "sst2": "glue/SST-2",
    "qqp": "glue/QQP",
    "mnli": "glue/MNLI",
    "imdb": "imdb",
    "amazon": "amazon/amazon_cells_labelled.txt.gz",
}
# The published table's task that another takes the place of, and what is known of the rest.
REPLACED = {
    "amazon": "Amazon is not the published set (Ni et al., 2019) but 1,000 sentences of it with "
    "two classes (Sentiment Labelled Sentences, Kotzias et al., 2015), a fifth of them to test on",
    "qqp": "QQP is evaluated by F1, as GLUE does; the published table does not name its metric",
}
# Tasks among those that all-MiniLM-L6-v2, the usual small sentence encoder, was tuned on before.
SEEN = {"mnli": "MultiNLI", "qqp": "Quora's duplicate questions"}
# Of MiniLM (6 layers, width 384) on one core of a server, in seconds for each token. Trained with
# dense attention, which grows with the length, as its dropout is not fused; with linear attention;
# layer by layer; end to end beside a teacher; and evaluated.
DENSE_TOKEN_S, DENSE_PAIR_S, PLAIN_TOKEN_S = 1.0e-3, 2.5e-6, 1.0e-3
LAYERS_TOKEN_S, TAUGHT_TOKEN_S, EVALUATED_TOKEN_S = 0.6e-3, 1.4e-3, 0.35e-3
STEP_S = 0.15
TYPICAL_TOKENS = {"sst2": 14, "amazon": 16, "qqp": 32, "mnli": 40, "imdb": 290}
USUAL_EXAMPLES = {"amazon": 720}


@dataclass(frozen=True)
class PretrainedOptions:
    """Which pretrained model is swapped, and what the swapped models are trained on.

    ``model`` is a folder or hub name; without one nothing is run. ``stages`` say how all tasks are
    trained; ``stages_of`` overrides them for one task, which may be one that is not run.
    ``task_options`` are by task those of ``load_task``; "amazon" is the task ``text`` on its file.
    """

    model: str = ""
    tasks: tuple[str, ...] = ("sst2",)
    stages: Stages = field(default_factory=Stages)
    stages_of: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    task_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for part in ("tasks", "stages_of", "task_options"):
            require_tasks(f"pretrained.{part}", getattr(self, part), PLACES)
        if len(set(self.tasks)) != len(self.tasks) or not self.tasks:
            raise UsageError("pretrained.tasks must be named, each once")
        stage_names = [option.name for option in fields(Stages)]
        for task, changes in self.stages_of.items():
            for name in changes:
                if name not in stage_names:
                    raise UsageError(
                        f"pretrained.stages_of.{task} has no {name!r}{nearest(name, stage_names)}"
                    )
        for task in {*self.tasks, *self.stages_of}:
            require_arms(self.of(task).variants)

    def of(self, task: str) -> Stages:
        """How one task is trained."""
        changes: dict[str, Any] = dict(self.stages_of.get(task, {}))
        for name in ("variants", "read_at"):
            if name in changes:
                changes[name] = tuple(changes[name])
        return replace(self.stages, **changes)


def pretrained_cells(
    options: PretrainedOptions,
    folder: Path,
    data: Path | None,
    *,
    seeds: int,
    thread_count: int,
    watts_per_core: float,
    measurements: Sequence[Measurement] = (),
    last_measurements: Sequence[Measurement] = (),
) -> list[Cell]:
    """Task by task and seed by seed: the dense model first, then every variant in a random order.

    ``measurements`` measure every swapped model that was trained with labels alone,
    ``last_measurements`` every one that imitated the dense model.
    """
    if not options.model:
        return []
    require_openable(options.model)
    cells = []
    for task in options.tasks:
        if not can_be_had(task, data):
            continue
        stages = options.of(task)
        work = SwappedWork(
            name=task,
            model=options.model,
            stages=stages,
            task_options=dict(options.task_options.get(task, {})),
            folder=folder / "models" / f"{QUESTION}-{slug(task)}",
            data=data,
            thread_count=thread_count,
            watts_per_core=watts_per_core,
            measurements=tuple(measurements),
            last_measurements=tuple(last_measurements),
        )
        for seed in range(min(seeds, stages.most_seeds or seeds)):
            cells += _cells_of(work, seed)
    return cells


def _cells_of(work: SwappedWork, seed: int) -> list[Cell]:
    arms = shuffled(work.stages.compared, f"{QUESTION}:{work.name}:{seed}")
    seconds = _seconds(work)
    start = f"{QUESTION}/{work.name}/{seed}"
    cells = [Cell(f"{start}/{DENSE_MODEL}", partial(dense_records, work, seed), seconds[0])]
    for arm in arms:
        do = partial(arm_records, work, arm, seed)
        cells.append(Cell(f"{start}/{slug(arm)}", do, seconds[1]))
    return cells


def _seconds(work: SwappedWork) -> tuple[float, float]:
    """A first guess for the dense model and for a variant, from examples, epochs and lengths."""
    stages, given = work.stages, work.task_options
    examples = int(given.get("examples") or USUAL_EXAMPLES.get(work.name, 5000))
    most = int(given.get("max_tokens") or 128)
    tokens = min(most, TYPICAL_TOKENS.get(work.name, most))
    steps = -(-examples // stages.batch_size)

    def epoch(token_s: float) -> float:
        return steps * STEP_S + examples * tokens * token_s

    evaluation_s = (stages.test_examples or 1000) * tokens * EVALUATED_TOKEN_S
    dense = stages.dense_epochs * epoch(DENSE_TOKEN_S + tokens * DENSE_PAIR_S) + evaluation_s
    arm = stages.layer_epochs * epoch(LAYERS_TOKEN_S) + stages.later_epochs * epoch(TAUGHT_TOKEN_S)
    arm += stages.plain * stages.swapped_epochs * epoch(PLAIN_TOKEN_S)
    evaluations = (4 + len(work.measurements) if stages.plain else 3) + len(work.last_measurements)
    return 5.0 + dense, 10.0 + arm + evaluations * evaluation_s


def can_be_had(task: str, data: Path | None) -> bool:
    """Whether a task needs no files, or they are in the data folder."""
    if task not in PLACES:
        return True
    root = given_folder(data)
    return root is not None and (root / PLACES[task]).exists()


def notes(options: PretrainedOptions, data: Path | None) -> list[str]:
    """What a reader must know of the data: what is left out, and what replaces what.

    How many rows each split has is a record of the cell of its dense model.
    """
    if not options.model:
        return [
            "swapped pretrained models were left out: no pretrained model was named "
            "(pretrained.model is a folder or a hub name)"
        ]
    texts = []
    for task in options.tasks:
        if not can_be_had(task, data):
            texts.append(f"{task} was left out: {PLACES[task]} is not in the data folder")
            continue
        if task in REPLACED:
            texts.append(REPLACED[task])
        if task in SEEN and "minilm" in options.model.lower():
            texts.append(f"the pretrained model saw {SEEN[task]} before: its score is not clean")
        texts += _missing_parts(task, options, data)
    return texts


def _missing_parts(task: str, options: PretrainedOptions, data: Path | None) -> Sequence[str]:
    """What is smaller than what was published, as far as the options and files show."""
    texts = []
    examples = options.task_options.get(task, {}).get("examples")
    if examples:
        texts.append(f"{task}: fine-tuned on {examples:,} training examples at most")
    if has_only_dev(task, data):
        texts.append(f"{task} has no training file: all splits are cut from the matched dev file")
    return texts


BUDGETS = load_budgets("sparing_papers.long_range", PretrainedOptions, "pretrained.toml")
