"""The variants of the AdaAttention study: one dense model, its attention changed, trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from sparing.core.catalogue import mechanism_class
from sparing.core.errors import UsageError, nearest
from sparing.core.options import option_defaults
from sparing.experiment.arms import fitted_options
from sparing.experiment.inputs.recipes import recipe_for
from sparing.foreign.pretrained import write_pretrained
from sparing.layers.plan import full_plan
from sparing.models import build_model, default_model, names
from sparing.slim.inputs import answers_to
from sparing.slim.models import FOLLOW, Models, halves
from sparing.slim.search.exits import dense_flops
from sparing.slim.search.frontier import Variant, best, survey
from sparing.tasks import Task
from sparing.train import Auxiliary, Recipe, TrainResult, default_recipe, evaluate, train
from sparing.train.elastic import Draw, ElasticLoss
from sparing.train.recipe import Precision
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.dropout import without_dropout
from sparing.transfer.gradual import labelled_batches, prune_gradually
from sparing.transfer.opening import open_model
from sparing.transfer.pruning import prune
from sparing.transfer.rotating import rotate
from sparing.transfer.swap import swap
from sparing_papers.adaattention.further.teaching import (
    layer_recipe,
    name_of_taught,
    require_taught,
    stage_facts,
    teach,
    with_stage,
)
from sparing_papers.adaattention.names import ADAPTIVE, DENSE, FULL, OURS, SCORER_SHARES
from sparing_papers.adaattention.published import rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Kind = Literal["full", "swap", "skip", "prune", "gradual", "slim"]
WEIGHT, LAST_WEIGHT = 0.01, 0.05
SKIP_KEPT, SKIP_AFTER = 0.5, 2
PRUNED = 0.5
FLOOR = 0.995
BATCH = 32
IMPORTANCE_EXAMPLES = 512
_IMPORTANCE_TOKENS = 65_536


@dataclass(frozen=True)
class Arm:
    """One way to change the dense model's attention.

    ``weight`` is that of the loss that rewards low scores (the paper's lambda). It rises to 0.05 at
    the end as printed; a variant that begins above that, or at 0, keeps its weight. Variants of one
    ``group`` are timed together. ``everywhere`` marks the rows of Tables I to III, which every task
    runs. A ``rotated`` variant rotates queries and keys first, so that the first coordinates of a
    head matter most. ``rate`` multiplies the learning rate of the mechanism's parameters. The
    layers of a ``taught`` one imitate the dense model's first.
    """

    name: str
    kind: Kind
    group: str
    mechanism: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    weight: float = WEIGHT
    everywhere: bool = False
    rotated: bool = False
    rate: float = 1.0
    taught: bool = False

    def fits(self, answer: str) -> bool:
        """Whether the variant exists for such answers: only classifiers can drop tokens."""
        return answer == "class" or self.kind not in ("skip", "slim")

    @property
    def last_weight(self) -> float:
        """The weight at the end of training."""
        return max(self.weight, LAST_WEIGHT) if self.weight else 0.0


def _adaptive(name: str, group: str, weight: float = WEIGHT, **options: Any) -> Arm:
    return Arm(name, "swap", group, "adaptive", options, weight)


def _main(name: str, kind: Kind, mechanism: str = "") -> Arm:
    return Arm(name, kind, "rivals", mechanism, everywhere=True)


_HALF: Mapping[str, Any] = {"scores": "fixed", "score": 0.5, "threshold": None}
ARMS = (
    _main(FULL, "full"),
    _main(ADAPTIVE, "swap", "adaptive"),
    _main("linformer", "swap", "linformer"),
    _main("bigbird", "swap", "bigbird"),
    _main("skip", "skip"),
    _main("prune", "prune"),
    Arm("prune-gradual", "gradual", "rivals"),
    _adaptive("random", "rivals", scores="random"),
    # a single number must move as far as the many weights of a scorer together
    replace(_adaptive("global", "rivals", scores="global"), rate=10.0),
    _adaptive("uniform", "rivals", **_HALF),
    Arm("uniform-rotated", "swap", "rotation", "adaptive", _HALF, rotated=True),
    Arm("adaptive-rotated", "swap", "rotation", "adaptive", rotated=True),
    *(_adaptive(name, "scorers", scorer_share=share) for name, share in SCORER_SHARES.items()),
    _adaptive("weight-0", "weights", 0.0),
    _adaptive("weight-0.05", "weights", 0.05),
    _adaptive("weight-0.1", "weights", 0.1),
    _adaptive("threshold-0.3", "weights", threshold=0.3),
    _adaptive("threshold-0.7", "weights", threshold=0.7),
    _adaptive("no-threshold", "weights", threshold=None),
    _adaptive("literal-loss", "weights", literal_loss=True),
    _main(OURS, "slim"),
)


TABLE_ONE = tuple(arm for arm in ARMS if arm.name in rows("Table I"))


def chosen(names: tuple[str, ...], taught: tuple[str, ...] = ()) -> tuple[Arm, ...]:
    """The variants of these names, all if none is given; always with full, the baseline.

    Each of ``taught`` is followed by itself with layers that imitate the dense model's first.
    """
    known = {arm.name: arm for arm in ARMS}
    for name in names:
        if name not in known:
            raise UsageError(f"unknown variant {name!r}{nearest(name, known)}")
    arms = [arm for arm in ARMS if not names or arm.name in (*names, FULL)]
    swapped = [arm.name for arm in ARMS if arm.kind == "swap"]
    require_taught(taught, swapped, [arm.name for arm in arms])
    return tuple(form for arm in arms for form in (arm, *_taught(arm, taught)))


def _taught(arm: Arm, names: tuple[str, ...]) -> tuple[Arm, ...]:
    return (replace(arm, name=name_of_taught(arm.name), taught=True),) if arm.name in names else ()


@dataclass(frozen=True)
class Length:
    """The length and precision of training; counts and a rate of 0 take defaults."""

    dense_epochs: int = 0
    epochs: int = 0
    batch_size: int = BATCH
    learning_rate: float = 0.0
    mechanism_rate_factor: float = 1.0
    precision: Precision = "auto"
    attention_dropout: bool = True
    layer_epochs: int = 2
    layer_rate: float = 3e-3


@dataclass(frozen=True, eq=False)
class Work:
    """One task with its models: their folders and how they are built."""

    name: str
    task: Task
    folder: Path
    model: str
    sizes: Mapping[str, Any]
    length: Length

    @property
    def pretrained(self) -> bool:
        """Whether the dense model starts from pretrained weights."""
        return bool(self.model) and self.model not in names()

    def recipe(self, seed: int, *, dense: bool) -> Recipe:
        """The recipe of the dense model's fine-tuning, or of further training, the same for all."""
        length, usual = self.length, default_recipe(self.name, pretrained=self.pretrained).epochs
        if not self.pretrained:
            usual = max(3, usual) if dense else max(2, usual // 2)
        epochs = (length.dense_epochs if dense else length.epochs) or usual
        return recipe_for(
            self.name,
            {"epochs": epochs, "learning_rate": length.learning_rate},
            pretrained=self.pretrained,
            batch_size=length.batch_size,
            mechanism_rate_factor=length.mechanism_rate_factor,
            precision=length.precision,
            seed=seed,
        )

    def model_dir(self, arm: str, seed: int) -> Path:
        """The folder of one trained model."""
        return self.folder / "models" / f"{self.name.replace('/', '-')}-{arm}-{seed}"

    def open(self, arm: str, seed: int) -> PreTrainedModel:
        """A trained model, in evaluation mode; raises ``UsageError`` before its training."""
        folder = self.model_dir(arm, seed)
        if not (folder / "config.json").is_file():
            raise UsageError(
                f"{arm} of seed {seed} on {self.name} is missing: its cell failed or was left out"
            )
        return open_model(str(folder)).eval()

    def build(self, seed: int) -> PreTrainedModel:
        """The dense model before training."""
        name = self.model or default_model(self.task)
        sizes = {} if self.pretrained else self.sizes
        built = build_model(name, self.task, seed=seed, **sizes)
        if self.task.answer == "number":
            _answer_the_mean(built, self.task)
        return built if self.length.attention_dropout else without_dropout(built, hidden=False)


def _answer_the_mean(model: PreTrainedModel, task: Task) -> None:
    """Let a new head begin at the mean of the answers, not at 0.

    Otherwise a few hundred steps at a fine-tuning rate would go into reaching it, and variants
    would differ by how soon they do.
    """
    heads = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m.out_features == 1]
    bias = heads[-1].bias if heads else None
    if bias is None or bool(bias.detach().any()):  # a bias that is not 0 was trained
        return
    with torch.no_grad():
        bias.fill_(float(task.train.labels.double().mean()))


def train_dense(work: Work, seed: int) -> TrainResult:
    """Fine-tune the dense model, from which every variant of this seed begins."""
    recipe = work.recipe(seed, dense=True)
    return train(work.build(seed), work.task, recipe, output_dir=work.model_dir(DENSE, seed))


def train_arm(work: Work, arm: Arm, seed: int) -> tuple[TrainResult, dict[str, Any]]:
    """Change the dense model's attention and train on; also gives what was changed."""
    recipe = replace(work.recipe(seed, dense=False), auxiliary=_auxiliary(work, arm, seed))
    recipe = replace(recipe, mechanism_rate_factor=arm.rate * recipe.mechanism_rate_factor)
    if arm.kind == "slim":
        return _train_ours(work, recipe, seed)
    dense = work.open(DENSE, seed)
    folder = work.model_dir(arm.name, seed)
    if arm.kind == "skip":
        return _train_skipping(work, dense, recipe, seed, folder)
    changes: dict[str, Any] = {}
    if arm.kind == "gradual":
        return _train_gradually(work, dense, recipe, seed, folder)
    if arm.rotated:
        rotate(dense, inputs_for_moments(work, seed))
    if arm.kind == "swap":
        changes = options_of(arm, work.task.tokens, seed)
        swap(dense, arm.mechanism, tokens=work.task.tokens, **changes)
    elif arm.kind == "prune":
        weighed = labelled_batches(work.task, importance_examples(work.task), seed)
        report = prune(dense, PRUNED, weighed)
        changes = {"removed_heads": report.removed, "heads": report.heads}
    if arm.taught:
        stage = teach(
            dense, work.open(DENSE, seed), work.task, _of_layers(work, seed), folder / "layers"
        )
        later = train(dense, work.task, recipe, output_dir=folder)
        return with_stage(stage, later), {**changes, "taught": stage_facts(stage)}
    return train(dense, work.task, recipe, output_dir=folder), changes


def _of_layers(work: Work, seed: int) -> Recipe:
    length = work.length
    return layer_recipe(work.recipe(seed, dense=False), length.layer_epochs, length.layer_rate)


def importance_examples(task: Task) -> int:
    """How many inputs the importance of heads is measured on: fewer where they are long."""
    return min(IMPORTANCE_EXAMPLES, max(1, _IMPORTANCE_TOKENS // task.tokens))


def options_of(arm: Arm, tokens: int, seed: int) -> dict[str, Any]:
    """A mechanism's options, those that count tokens fitted to the length."""
    options = {**fitted_options(arm.mechanism, tokens), **arm.options}
    if "seed" in option_defaults(mechanism_class(arm.mechanism)):
        options["seed"] = seed
    return options


def _auxiliary(work: Work, arm: Arm, seed: int) -> Auxiliary:
    """The printed schedule with the dense model's validation score as baseline, for all variants.

    The printed rule ends a training that falls below 95 % and keeps the last validation above, not
    the best. If the other variants kept their best, that choice alone would gain a point on SST-2.
    """
    dense = evaluate(work.open(DENSE, seed), work.task, "validation")
    return Auxiliary(weight=arm.weight, last_weight=arm.last_weight, baseline=dense.score)


def inputs_for_moments(work: Work, seed: int) -> list[dict[str, torch.Tensor]]:
    """Training inputs that the rotation of heads is computed from."""
    batches = labelled_batches(work.task, importance_examples(work.task), seed)
    names = ("input_ids", "attention_mask", "token_type_ids", "pixel_values")
    return [{name: batch[name] for name in names if name in batch} for batch in batches]


def _train_gradually(
    work: Work, dense: PreTrainedModel, recipe: Recipe, seed: int, folder: Path
) -> tuple[TrainResult, dict[str, Any]]:
    """Remove as many heads in as many epochs as ``prune``, but an equal share after each epoch.

    The stages count as one training, with the sum of their times.
    """
    stages = recipe.epochs
    report = prune_gradually(
        dense,
        work.task,
        PRUNED,
        recipe=replace(recipe, epochs=1),
        stages=stages,
        examples=importance_examples(work.task),
        folder=folder / "stages",
    )
    write_pretrained(dense, folder)
    if work.task.tokenizer is not None:
        write_pretrained(work.task.tokenizer, folder)
    reported = report.to_dict()
    for stage in reported["stages"]:
        del stage["train_time_s"]  # a time in a label would stay where trainings run side by side
    changes = {"removed_heads": report.removed, "heads": report.heads, "stages": reported}
    last = report.stages[-1].trained
    whole = sum(stage.trained.train_time_s for stage in report.stages)
    steps = sum(stage.trained.steps for stage in report.stages)
    return replace(last, train_time_s=whole, steps=steps), changes


def skip_after(layers: int) -> int:
    """The layer after which the skipping variant drops tokens."""
    return max(1, min(SKIP_AFTER, layers - 1))


def _train_skipping(
    work: Work, dense: PreTrainedModel, recipe: Recipe, seed: int, folder: Path
) -> tuple[TrainResult, dict[str, Any]]:
    """Half the tokens dropped by the attention they receive, distilled from the dense model."""
    model = adapt(dense, exits=())
    after = skip_after(len(model.encoder.sizes))
    plan = replace(full_plan(model.encoder.sizes), tokens_kept=SKIP_KEPT, tokens_after=after)
    model.plan = plan
    draw = Draw((1.0,), (1.0,), (SKIP_KEPT,), after)
    loss = ElasticLoss(dense, FOLLOW, draw, seed)
    recipe = replace(recipe, distillation=FOLLOW)
    result = train(model, work.task, recipe, output_dir=folder, objective=loss)
    return result, {"tokens_kept": SKIP_KEPT, "tokens_after": after}


def _train_ours(work: Work, recipe: Recipe, seed: int) -> tuple[TrainResult, dict[str, Any]]:
    """The adaptive form of ``slim``, distilled as long; half of validation chooses its plan."""
    folder = work.model_dir(OURS, seed)
    dense = str(work.model_dir(DENSE, seed))
    draw = Draw()
    models = Models(dense, work.task, folder, recipe, recipe, draw, seed)
    result = models.train_adaptive()
    model = models.adaptive()
    held, _ = halves(work.task.validation)
    variants = [Variant(width) for width in draw.widths]
    reference = answers_to(work.task, held, models.dense())
    surveyed = survey(model, work.task, held, variants, reference)
    points = [point for *_, measured in surveyed for point in measured]
    whole = float(dense_flops(model, held).mean())
    # the better of the two, since full, its baseline, was trained on
    aim = FLOOR * max(_score_on(work, arm, seed, held) for arm in (DENSE, FULL))
    good = [point for point in best(points) if point.score >= aim]
    point = good[0] if good else max(points, key=lambda candidate: candidate.score)
    model.plan = point.plan
    write_pretrained(model, folder)
    changes = {"plan": point.plan.to_dict(), "cost_share": point.cost_share}
    return result, {**changes, "dense_flops": whole, "floor_held": bool(good)}


def _score_on(work: Work, arm: str, seed: int, examples: Any) -> float:
    """A trained variant's score on a part of validation."""
    part = replace(work.task, validation=examples)
    return evaluate(work.open(arm, seed), part, "validation").score
