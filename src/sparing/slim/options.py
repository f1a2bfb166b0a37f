"""What ``sparing slim`` is asked for: its options and its budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import median
from typing import Annotated, Any

from sparing.core.checks import Count, NotNegative, Positive, check_fields, within
from sparing.core.errors import UsageError
from sparing.experiment.inputs.task import drawn, drawn_order, limited
from sparing.slim.search.frontier import Variant
from sparing.tasks import Task
from sparing.train.elastic import Draw
from sparing.train.recipe import Precision

LONG_TOKENS = 128
LONG_SHARES = (1.0, 0.7, 0.5)


@dataclass(frozen=True)
class Options:
    """What is wanted, and how much work it may take.

    ``speed`` is the factor over the fastest dense form on the task's own texts, ``floor`` the share
    of the dense score to keep. ``epsilon`` asks for a threshold at which, with confidence 1 -
    ``delta``, no more than this share of answers differs from the dense model's; 0 takes what comes
    and bounds it. ``epochs`` are those of distillation, ``dense_epochs`` those of fine-tuning where
    the model does not answer the task yet, ``batch_size`` the rows of a training step (0 takes
    defaults). ``widths`` are shares of heads
    and neurons, ``tokens`` shares of tokens kept after layer ``tokens_after`` (none given: all,
    and for long inputs fewer too). ``int8`` tries INT8 where ONNX Runtime is installed, after
    ``int8_epochs`` of training for it, of the chosen plan and of the dense rival;
    ``front_plans`` of the frontier are timed and scored on test inputs;
    ``memory`` measures every form's peak on the longest test batch, each in a fresh process;
    ``compiled`` adds ``torch.compile`` to the rivals; ``timed_examples`` limits the test inputs.
    ``polish_epochs`` train the chosen plan on by itself, at its final widths, and with
    ``learned_confidence`` inputs may then leave by a learned confidence, where that is better;
    ``continue_dense`` trains the dense rival on as long as ours is trained; ``static_control``
    also trains the best fixed plan of no more arithmetic by itself, with the same steps, and where
    plans were polished serves it if it is the better one;
    ``choose_on`` is the held-out split that plans are chosen and calibrated on; ``head_dims`` is
    the share of every head's coordinates to keep. ``precision`` is that of training; without
    ``attention_dropout`` training drops no attention weights: the fused kernel of the CPU cannot,
    so that long inputs train several times faster. ``unlabelled`` names further tasks, or files of
    texts, that ours is distilled on too, without their labels: ``unlabelled_examples`` of each at
    most (0: all). ``train_tokens`` limits the inputs that are trained on, drawn at random, to so
    many tokens (0: all).
    """

    model: str = "vit"
    task: str = "digits"
    speed: Positive = 2.0
    floor: Annotated[float, within(0, 1, ends="(]")] = 0.995
    epsilon: Annotated[float, within(0, 1, ends="[)")] = 0.0
    delta: Annotated[float, within(0, 1, ends="()")] = 0.05
    epochs: NotNegative = 0
    dense_epochs: NotNegative = 0
    batch_size: NotNegative = 0
    widths: tuple[float, ...] = (1.0, 2 / 3, 1 / 2)
    width_chances: tuple[float, ...] = (0.3, 0.5, 0.2)
    tokens: tuple[float, ...] = ()
    tokens_after: int = 2
    batches: tuple[int, ...] = (1, 8)
    rounds: Count = 3
    timed_examples: Count = 2000
    compiled: bool = False
    polish_epochs: NotNegative = 3
    learned_confidence: bool = False
    continue_dense: bool = False
    static_control: bool = False
    choose_on: str = "validation"
    head_dims: Annotated[float, within(0, 1, ends="(]")] = 1.0
    front_plans: NotNegative = 5
    memory: bool = True
    int8: bool = True
    int8_epochs: NotNegative = 0
    precision: Precision = "auto"
    attention_dropout: bool = True
    unlabelled: tuple[str, ...] = ()
    unlabelled_examples: NotNegative = 10000
    train_tokens: NotNegative = 0
    thread_count: Count = 1
    seed: int = 0
    task_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.learned_confidence and not self.polish_epochs:
            raise UsageError("learned_confidence is fitted to the polished plan: set polish_epochs")

    def token_shares(self, task: Task) -> tuple[float, ...]:
        """Which shares of tokens are looked at: of long inputs, where that may pay, several."""
        if self.tokens:
            return self.tokens
        lengths = task.validation.lengths
        if task.kind == "image":
            lengths = [task.tokens]
        return LONG_SHARES if median(lengths) >= LONG_TOKENS else (1.0,)

    def variants(self, task: Task) -> tuple[Variant, ...]:
        """Which widths and shares of tokens are surveyed."""
        shares = self.token_shares(task)
        return tuple(Variant(w, kept, self.tokens_after) for w in self.widths for kept in shares)

    def draw(self, task: Task) -> Draw:
        """Which plans training draws."""
        return Draw(self.widths, self.width_chances, self.token_shares(task), self.tokens_after)


BUDGETS = {
    "quick": Options(epochs=2, polish_epochs=1, timed_examples=300, rounds=2, train_tokens=100_000),
    "standard": Options(static_control=True),
}


def with_fewer(task: Task, most_tokens: int) -> Task:
    """The task with so many tokens to train on at most (0: all), of inputs drawn at random."""
    if not most_tokens:
        return task
    train = task.train
    sizes = [task.tokens] * len(train) if task.kind == "image" else train.lengths
    sums = accumulate(sizes[index] for index in drawn_order(len(train)))
    count = max(1, sum(total <= most_tokens for total in sums))
    return limited(task, {"train": count}, drawn, f"drawn, {most_tokens:,} tokens at most")
