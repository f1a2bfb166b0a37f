"""The models of ``slim``: the dense one, given or fine-tuned, and its adaptive form, distilled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sparing.core.errors import UsageError
from sparing.experiment.cells.probe import Shape, shape_of
from sparing.experiment.inputs.fit import is_classifier, require_kind, require_reads
from sparing.experiment.inputs.folder import configuration
from sparing.layers.plan import Plan
from sparing.models import build_model, names
from sparing.models.shared.labels import require_order
from sparing.models.shared.shape import image_config
from sparing.slim.answer import CLASS, Answer
from sparing.slim.options import Options
from sparing.slim.texts import CALIBRATE, LABELLESS, answered, without_labels
from sparing.tasks import Examples, Task
from sparing.train import Distillation, Recipe, TrainResult, default_recipe, train
from sparing.train.elastic import Draw, ElasticLoss
from sparing.train.surroundings import generators_kept
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.adapting.ordering import order_by_importance
from sparing.transfer.adaptive import AdaptiveClassifier
from sparing.transfer.dropout import without_dropout
from sparing.transfer.embedding.adaptive import adapt_embedder, require_embedder
from sparing.transfer.embedding.dense import SentenceEncoder, open_sentences, vector_importance
from sparing.transfer.families.dense import require_classifier, require_token_model
from sparing.transfer.families.forms import layer_sizes
from sparing.transfer.folding.fold import fold_if_possible
from sparing.transfer.freezing import freeze
from sparing.transfer.gradual import labelled_batches
from sparing.transfer.importance import importance
from sparing.transfer.opening import open_model
from sparing.transfer.tokens.adaptive import token_importance

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from sparing.slim.inputs import Dense

IMPORTANCE_EXAMPLES = 512
# Inputs that a pretrained model is trained on by default, at least; with 6,400 four layers of
# MiniLM learned nothing, and with 16,000 they did.
DISTILLED, FINE_TUNED, MOST_EPOCHS = 20_000, 24_000, 60
FOLLOW = Distillation(labels=0.3, outputs=1.0, hidden_states=1.0, temperature=2.0)


@dataclass(frozen=True, eq=False)
class Models:
    """The models of a run: each is made once and then read from its folder.

    ``source`` is the user's model, a built-in name or a path; it is never written to. ``given`` is
    the task as it was read. ``choose_on`` is the split that plans are chosen and calibrated on.
    Without ``attention_dropout`` no model is trained with any.
    ``fixed_width_epochs`` are the epochs of fine-tuning at fixed width; the baselines get as many.
    ``taught`` is the task with more texts, without labels, for distillation, if there is one.
    """

    source: str
    given: Task
    folder: Path
    dense_recipe: Recipe
    recipe: Recipe
    draw: Draw
    seed: int
    choose_on: str = "validation"
    attention_dropout: bool = True
    fixed_width_epochs: int = 0
    taught: Task | None = None
    answer: Answer = CLASS

    @property
    def labelless(self) -> bool:
        """Whether the dense model's answers take the place of labels."""
        return self.given.metric in LABELLESS

    @property
    def scored(self) -> tuple[str, ...]:
        """The metrics of the labels, where the dense model's answers only take their place."""
        return self.given.metrics[1:] if self.labelless else ()

    @cached_property
    def task(self) -> Task:
        """The task; without labels ``UsageError`` before the dense model has answered."""
        return (
            self.given
            if not self.labelless
            else answered(self.given, self.folder, self.seed, self.answer)
        )

    @cached_property
    def shown(self) -> Task:
        """The task without the calibration rows, so that a training may keep its best epoch.

        If plans are chosen on validation, its validation is the part for choosing.
        """
        if self.choose_on != "validation":
            return self.task
        return replace(self.task, validation=held_out_parts(self.task, "validation")[0])

    @cached_property
    def taught_on(self) -> Task:
        """The task for distillation: with the texts without labels, if there are any."""
        more = self.taught or self.task
        if self.labelless:  # labels are the teacher's answers, which the objective follows already
            more = without_labels(more)
        return replace(more, validation=self.shown.validation, metrics=self.shown.metrics)

    @cached_property
    def fine_tuned(self) -> bool:
        """Whether the source is already a classifier for the task: then it is the dense model."""
        if self.source in names():
            return False
        if self.embeds or self.given.by_token:
            return True
        same_classes = self.own_classes == self.given.classes
        if same_classes:
            require_order(
                configuration(self.source).get("id2label"), self.given.labels, self.source
            )
        return same_classes

    @property
    def embeds(self) -> bool:
        """Whether the answer is a vector."""
        return self.given.answer == "vector"

    @cached_property
    def own_classes(self) -> int:
        """The number of classes of the source; 0 if it is not a classifier."""
        if self.source in names() or not is_classifier(self.source):
            return 0
        # transformers leaves num_labels out of the file and writes the names of the classes
        return len(configuration(self.source).get("id2label") or "01")

    @property
    def new_head(self) -> str:
        """A note if the source has other classes than the task; else empty."""
        if not self.own_classes or self.fine_tuned:
            return ""
        return (
            f"{Path(self.source).name} has {self.own_classes} classes and the task "
            f"{self.given.classes}: a new head is fine-tuned first"
        )

    def require_source(self) -> None:
        """Raise ``UsageError`` or ``Unsupported`` for a source that slim does not support."""
        require_kind(self.source, self.given)
        self.shape  # noqa: B018  # opens the source and checks it

    @cached_property
    def shape(self) -> Shape:
        """The sizes of the dense model; raises what ``require_source`` raises."""
        with generators_kept():
            fine_tuned = self.fine_tuned
            if self.embeds:
                model = require_embedder(open_sentences(self.source))
            elif self.given.by_token:
                model = require_token_model(open_model(self.source))
            else:
                source = self.source
                given = open_model(source) if fine_tuned else build_model(source, self.given)
                model = require_classifier(given)
        require_reads(model, self.given, self.source)
        return shape_of(image_config(model.config))

    def dense(self) -> Dense:
        """The dense model; raises ``UsageError`` before it has been trained."""
        if self.embeds:
            return open_sentences(self.source).float().eval()
        if self.fine_tuned:
            require = require_token_model if self.given.by_token else require_classifier
            given = require(open_model(self.source)).float()
            return self._with_attention_dropout(given).eval()
        return require_classifier(open_model(str(self._trained("dense")))).eval()

    def baseline(self) -> Dense:
        """The dense baseline: the dense model, without gradients, folded where it can be."""
        model = self.dense().requires_grad_(False)
        fold_if_possible(model.encoder if isinstance(model, SentenceEncoder) else model)
        return model

    def objective(self, draw: Draw) -> ElasticLoss:
        """The loss against the baseline's answers for plans that are sampled."""
        return self.answer.objective(self.task, self.baseline(), FOLLOW, draw, self.seed)

    def adaptive(self) -> AdaptiveClassifier:
        """The distilled adaptive model; raises ``UsageError`` before it has been trained."""
        return self.opened("adaptive")

    def opened(self, folder: str) -> AdaptiveClassifier:
        """A model of this run by the folder of its training.

        Raises ``UsageError`` before it has been trained.
        """
        model = open_model(str(self._trained(folder)))
        assert isinstance(model, AdaptiveClassifier)
        return model

    @property
    def whole_recipe(self) -> Recipe:
        """The baselines' recipe: as many epochs as distillation and fine-tuning together."""
        return replace(self.recipe, epochs=self.recipe.epochs + self.fixed_width_epochs)

    def train_dense(self) -> TrainResult | None:
        """Fine-tune the source if it is not a classifier for the task yet."""
        if self.fine_tuned:
            return None
        model = self._with_attention_dropout(build_model(self.source, self.task, seed=self.seed))
        require_classifier(model)
        folder = self.folder / "models" / "dense"
        return train(model, self.shown, self.dense_recipe, output_dir=folder)

    def train_adaptive(self) -> TrainResult:
        """Order by importance, then distil with plans sampled anew for every batch.

        It starts as the dense model and is distilled from the baseline. Embeddings are not trained:
        they cost no FLOPs.
        """
        model = self.ordered()
        model.embeddings.requires_grad_(False)
        model.plan = self.draw.typical(model)
        return self._distil(model, self.draw, self.recipe, "adaptive")

    def train_static(self, plan: Plan, folder: str) -> TrainResult:
        """Distil one plan alone: cut from the dense model in the same order, trained as long.

        A training that has ended is read back.
        """
        fixed = replace(plan, exits=(), threshold=1.0)
        model = freeze(self.ordered(exits=[plan.layers]), fixed)
        model.embeddings.requires_grad_(False)
        draw = Draw((1.0,), (1.0,), (plan.tokens_kept,), plan.tokens_after)
        return self._distil(model, draw, self.whole_recipe, folder)

    def _distil(
        self,
        model: AdaptiveClassifier,
        draw: Draw,
        recipe: Recipe,
        name: str,
    ) -> TrainResult:
        return train(
            model,
            self.taught_on,
            replace(recipe, distillation=FOLLOW),
            output_dir=self.folder / "models" / name,
            objective=self.objective(draw),
        )

    def ordered(self, exits: Sequence[int] | None = None) -> AdaptiveClassifier:
        """The adaptive form before training, heads and neurons in order of importance.

        ``exits`` are the layers with a head; unless given, those from a third of the depth on.
        """
        dense = self.dense()
        depth = len(layer_sizes(dense.config))
        model = adaptive_form(dense, exits or range(max(1, depth // 3), depth + 1))
        batches = labelled_batches(self.task, IMPORTANCE_EXAMPLES, self.seed)
        if isinstance(dense, SentenceEncoder):
            ranked = vector_importance(dense, batches, self.seed)
        elif self.given.by_token:
            ranked = token_importance(dense, batches, self.seed)
        else:
            ranked = importance(dense, batches)
        order_by_importance(model, ranked)
        return model

    def _with_attention_dropout(self, model: PreTrainedModel) -> PreTrainedModel:
        """The model with or without attention dropout; only training differs."""
        return model if self.attention_dropout else without_dropout(model, hidden=False)

    def _trained(self, name: str) -> Path:
        folder = self.folder / "models" / name
        if not (folder / "result.json").is_file():
            raise UsageError(f"the {name} model of this run has not been trained to its end yet")
        return folder


def adaptive_form(dense: Dense, exits: Sequence[int] | None = None) -> AdaptiveClassifier:
    """The adaptive form of a dense model, with heads after these layers."""
    if isinstance(dense, SentenceEncoder):
        return adapt_embedder(dense, exits)
    return adapt(dense, exits)


def recipes(
    options: Options, task: Task, name: str, more: Task | None = None
) -> tuple[Recipe, Recipe, int]:
    """The recipes of fine-tuning the dense model and of distilling the adaptive one.

    The third value is the epochs of fine-tuning at fixed width. Counts of 0 are replaced: a model
    trained from scratch is distilled twice as long as it was trained, then fine-tuned for three
    epochs. A pretrained one sees ``DISTILLED`` inputs and then ``FINE_TUNED`` ones, or two and
    three times its own: small models learn nothing from a few thousand. It sees none more than
    ``MOST_EPOCHS`` times. ``name`` is the task's and ``more`` the task with the texts without
    labels.
    """
    pretrained = options.model not in names()
    dense = default_recipe(name, pretrained=pretrained)
    dense = replace(
        dense,
        epochs=options.dense_epochs or dense.epochs,
        batch_size=options.batch_size or dense.batch_size,
        seed=options.seed,
        precision=options.precision,
    )
    count = len((more or task).train)
    default, fixed = 2 * dense.epochs, 3
    if pretrained:
        default = min(MOST_EPOCHS, max(2, ceil(DISTILLED / count)))
        fixed = min(MOST_EPOCHS, max(3, ceil(FINE_TUNED / count)))
    rate = 1e-4 if pretrained else dense.learning_rate
    epochs = options.epochs or default
    ours = replace(dense, epochs=epochs, learning_rate=rate, patience=None)
    return dense, ours, options.fixed_width_epochs or fixed


def held_out_parts(task: Task, split: str) -> tuple[Examples, Examples]:
    """The examples to choose on and those to calibrate on.

    They are parts of their own in a task of texts; else a split is halved.
    """
    if CALIBRATE in task.more_tests:
        return task.validation, task.more_tests[CALIBRATE]
    return halves(task.split(split))


def halves(examples: Examples) -> tuple[Examples, Examples]:
    """A held-out split in two: one to choose plans on, one to calibrate the choice.

    The halves are sampled, as classes may alternate in a file. They do not depend on the seed of a
    model and keep the order of the rows.
    """
    drawn = np.random.default_rng(0).permutation(len(examples)).tolist()
    middle = (len(drawn) + 1) // 2
    return examples.subset(sorted(drawn[:middle])), examples.subset(sorted(drawn[middle:]))
