"""The options of ``sparing slim`` and its budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import median
from typing import Annotated, Any

from sparing.answers import Settings
from sparing.core.checks import Count, NotNegative, Positive, check_fields, within
from sparing.core.errors import UsageError, nearest
from sparing.experiment.inputs.task import drawn, drawn_order, limited
from sparing.measure.calibration import examples_needed
from sparing.slim.answer import Answer, answer_of
from sparing.slim.search.frontier import Variant
from sparing.slim.texts import CALIBRATE
from sparing.tasks import Task
from sparing.train.elastic import Draw
from sparing.train.recipe import Precision

HOLD_OUT = ("random", "last")
DEVICES = ("cpu", "cuda")
ANY_BUDGET = "any-budget"
KEEP = (ANY_BUDGET,)
# The agreement that is served by default.
AGREE = 0.95
LONG_TOKENS = 128
LONG_SHARES = (1.0, 0.7, 0.5)


@dataclass(frozen=True)
class Options:
    """The target of a slim model, its training, and its measurements.

    ``--set NAME=VALUE`` and ``sparing.slim(model, task, NAME=VALUE)`` set these fields.
    """

    # The model and its task
    # A folder of a BERT- or ViT-family model, or "bert" or "vit" for a new one.
    model: str = "vit"
    # A name, such as "sst2", or the path of a data set.
    task: str = "digits"
    # The task's own options, such as {"examples": 20000}; with texts those of their reader.
    task_options: Mapping[str, Any] = field(default_factory=dict)
    # Your own texts instead of a task: a file or a data set. Without labels the dense model's
    # answers take their place.
    texts: str = ""
    # Which texts are held out: "random", or "last" for the newest rows of a log.
    hold_out: str = "random"
    # Decides everything that is sampled.
    seed: int = 0

    # The target
    # Times as fast as the fastest dense form, on the task's own texts.
    speed: Positive = 2.0
    # The share of the dense score to keep.
    floor: Annotated[float, within(0, 1, ends="(]")] = 0.995
    # The share of the dense model's answers that are certified to stay; 0 certifies the frontier
    # of 99 to 92 % and serves its point of 95 %.
    agree: Annotated[float, within(0, 1, ends="[)")] = 0.0
    # Of an embedding: the cosine with the dense model's vector from which two agree; 0.95.
    least_cosine: float | None = None
    # Of several labels: each is given from this probability on; 0.5.
    threshold: float | None = None
    # Of a number: the most that two may differ by and count as the same; has no default.
    most_difference: float | None = None
    # The guarantee on these answers fails with this probability.
    delta: Annotated[float, within(0, 1, ends="()")] = 0.05

    # Which plans are tried
    # Shares of each layer's heads and neurons.
    widths: tuple[float, ...] = (1.0, 2 / 3, 1 / 2)
    # How often training samples each width.
    width_chances: tuple[float, ...] = (0.3, 0.5, 0.2)
    # Shares of tokens to keep; by default all, and for long inputs also fewer.
    tokens: tuple[float, ...] = ()
    # The layer after which tokens are dropped.
    tokens_after: int = 2
    # The held-out split that plans are chosen and calibrated on, one half each.
    choose_on: str = "validation"

    # Training
    # Epochs of distillation; 0 takes a default, which is more for fewer inputs.
    epochs: NotNegative = 0
    # Epochs of fine-tuning, if the model is not a classifier for the task yet; 0 takes a default.
    dense_epochs: NotNegative = 0
    # Epochs of fine-tuning at fixed width, after a plan is chosen; 0 takes a default likewise.
    fixed_width_epochs: NotNegative = 0
    # Rows of a training step; 0 takes a default.
    batch_size: NotNegative = 0
    # Number format of training.
    precision: Precision = "auto"
    # Without it no attention weights are dropped in training. The fused kernel of the CPU cannot
    # drop them, so that long inputs train several times faster.
    attention_dropout: bool = True
    # Inputs that are trained on, sampled up to so many tokens; 0 takes all.
    train_tokens: NotNegative = 0
    # At most so many inputs to choose on, to calibrate on and to test on, sampled; 0 takes all.
    held_out_examples: NotNegative = 0
    # Further tasks, or files of texts, to distil on too, without their labels.
    unlabelled: tuple[str, ...] = ()
    # At most so many inputs of each of these; 0 takes all.
    unlabelled_examples: NotNegative = 10000

    # What the slim model is compared with
    # Where exits are served, distils the best plan without exits of equal FLOPs alone, as long.
    static_control: bool = False

    # What is measured
    # Batch sizes; the first one decides.
    batches: tuple[int, ...] = (1, 8)
    # Times that every form is timed on every input.
    rounds: Count = 3
    # At most so many test inputs are timed.
    timed_examples: Count = 2000
    # Measures every form's peak on the longest test batch, each in a fresh process.
    memory: bool = True
    # Threads of one process.
    thread_count: Count = 1
    # Where all forms run: "cpu" with every engine, or "cuda" with PyTorch, also compiled.
    device: str = "cpu"

    # Also saved, at any time: "any-budget", the model of all widths.
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        if self.hold_out not in HOLD_OUT:
            hint = nearest(self.hold_out, HOLD_OUT)
            raise UsageError(f"hold_out is random or last; got {self.hold_out!r}{hint}")
        if self.device not in DEVICES:
            hint = nearest(self.device, DEVICES)
            raise UsageError(f"device is cpu or cuda; got {self.device!r}{hint}")
        for name in self.keep:
            if name not in KEEP:
                raise UsageError(f"keep may be any-budget; got {name!r}{nearest(name, KEEP)}")

    def answer(self, task: Task) -> Answer:
        """The kind of the task's answer; ``UsageError`` as ``answer_of`` raises it."""
        settings = Settings(self.threshold, self.least_cosine, self.most_difference)
        return answer_of(task.answer, settings)

    @property
    def changed(self) -> float:
        """The share of answers that the served form may change."""
        return round(1 - (self.agree or AGREE), 9)

    def token_shares(self, task: Task) -> tuple[float, ...]:
        """The shares of tokens to try; several for long inputs."""
        if task.answer == "vector" or task.by_token:
            if any(share < 1 for share in self.tokens):
                why = "pools them" if task.answer == "vector" else "answers for each"
                raise UsageError(f"tokens: this model keeps all tokens, as it {why}")
            return (1.0,)
        if self.tokens:
            return self.tokens
        lengths = task.validation.lengths
        if task.kind == "image":
            lengths = [task.tokens]
        return LONG_SHARES if median(lengths) >= LONG_TOKENS else (1.0,)

    def variants(self, task: Task) -> tuple[Variant, ...]:
        """The widths and shares of tokens to survey."""
        shares = self.token_shares(task)
        return tuple(Variant(w, share, self.tokens_after) for w in self.widths for share in shares)

    def draw(self, task: Task) -> Draw:
        """The plans that training samples."""
        return Draw(self.widths, self.width_chances, self.token_shares(task), self.tokens_after)


BUDGETS = {
    "quick": Options(
        train_tokens=100_000, held_out_examples=2000, timed_examples=300, rounds=2, memory=False
    ),
    "standard": Options(static_control=True),
}


def with_fewer(task: Task, options: Options) -> Task:
    """The task with as many inputs as the options allow, sampled at random.

    What is calibrated on is never fewer than a certificate without a change needs. A test of pairs
    or of rankings stays whole: a part of their rows would be another test.
    """
    task = _with_fewer_tokens(task, options.train_tokens)
    most = options.held_out_examples
    if not most:
        return task
    most = max(most, examples_needed(options.changed, options.delta))
    sizes = {options.choose_on: 2 * most}  # one half to choose on, the other to calibrate on
    if CALIBRATE in task.splits:
        sizes = {"validation": most, CALIBRATE: most}
    if task.test.compared is None and task.test.queries is None:
        sizes["test"] = most
    return limited(task, sizes, drawn, "sampled")


def _with_fewer_tokens(task: Task, most_tokens: int) -> Task:
    """The task with at most so many training tokens; 0 takes all."""
    if not most_tokens:
        return task
    train = task.train
    sizes = [task.tokens] * len(train) if task.kind == "image" else train.lengths
    sums = accumulate(sizes[index] for index in drawn_order(len(train)))
    count = max(1, sum(total <= most_tokens for total in sums))
    return limited(task, {"train": count}, drawn, f"sampled, {most_tokens:,} tokens at most")
