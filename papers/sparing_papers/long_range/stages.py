"""How a pretrained encoder and its swapped models are trained."""

from __future__ import annotations

from dataclasses import dataclass

from sparing.core.checks import Count, NotNegative, Positive, check_fields
from sparing.core.errors import UsageError
from sparing.train.recipe import Distillation, Precision
from sparing_papers.long_range.arms import BY_CONTENT, DENSE, UNIFORM, require_arms


@dataclass(frozen=True)
class Stages:
    """How the models of a task are trained.

    The dense model is fine-tuned for ``dense_epochs``. Every swapped model is then trained in two
    ways, each for ``layer_epochs`` + ``later_epochs``. One uses labels alone; ``plain=False``
    leaves it out. The other imitates the dense model, for ``layer_epochs`` layer by layer, then end
    to end. Rates are those of the three kinds of training. The weights of the end-to-end loss are
    ``labels``, ``outputs`` and ``hidden_states``, its temperature ``temperature`` (see
    ``train.recipe.Distillation``).

    - ``most_seeds`` limits the seeds (0: no limit).
    - ``validation_examples`` and ``test_examples`` limit what is held out (0: all).
    - ``compared_batches`` are the batches of the test split on which outputs are compared.
    - ``precision`` is that of trainings end to end; layers imitate in float32.
    - ``mechanism_rate_factor`` multiplies the rate of a mechanism's new parameters where labels or
      the dense model's answers teach it.
    - ``read_at`` are other lengths at which a swapped model is evaluated in the end, on test
      inputs that fill the longest of them, cut to each length.
    - ``keep`` keeps the weights of swapped models.
    """

    variants: tuple[str, ...] = (DENSE, BY_CONTENT, "linear", "efficient", UNIFORM)
    dense_epochs: Count = 3
    layer_epochs: NotNegative = 2
    later_epochs: NotNegative = 2
    plain: bool = True
    batch_size: Count = 32
    dense_rate: Positive = 5e-5
    layer_rate: Positive = 3e-3
    later_rate: Positive = 1e-4
    labels: float = 0.5
    outputs: float = 0.5
    hidden_states: float = 1.0
    temperature: float = 2.0
    mechanism_rate_factor: Positive = 1.0
    precision: Precision = "auto"
    most_seeds: NotNegative = 0
    validation_examples: NotNegative = 400
    test_examples: NotNegative = 1000
    compared_batches: Count = 4
    read_at: tuple[Count, ...] = ()
    keep: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        require_arms(self.variants)
        if not self.swapped_epochs:
            raise UsageError("layer_epochs and later_epochs are both 0: nothing would be trained")
        self.distillation  # noqa: B018  # raises for bad weights

    @property
    def swapped_epochs(self) -> int:
        """Of each way of training a swapped copy."""
        return self.layer_epochs + self.later_epochs

    @property
    def compared(self) -> tuple[str, ...]:
        """The variants with dense attention, trained on as long as they, and the control."""
        return tuple(dict.fromkeys((DENSE, *self.variants, UNIFORM)))

    @property
    def distillation(self) -> Distillation:
        """The weights of the end-to-end loss."""
        return Distillation(self.labels, self.outputs, self.hidden_states, self.temperature)
