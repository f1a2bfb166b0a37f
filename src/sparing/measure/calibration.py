"""A distribution-free guarantee for a faster model, from held-out inputs alone.

A threshold or budget that looks safe on a few hundred inputs may be so by luck, and the boldest of
many settings is the one that was luckiest. Here each setting must pass a test, in an order fixed
beforehand. So the whole choice errs with a probability of at most delta, for any inputs and any
model.

Source: Angelopoulos, Bates, Candès, Jordan and Lei, "Learn then Test: calibrating predictive
algorithms to achieve risk control", 2021, arXiv 2110.01052 (section 2.3, fixed-sequence testing;
section 2.1, Hoeffding-Bentkus p-value); Schuster et al., "Confident adaptive language modeling",
2022, arXiv 2207.07061 (section 4, consistency with the full model). What differs: for 0/1 losses
the binomial p-value is exact, which needs fewer inputs than a concentration bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from sparing.core.errors import UsageError


@dataclass(frozen=True)
class Guarantee:
    """With confidence 1 - ``delta`` the chosen setting's risk is at most ``epsilon``.

    ``setting`` is the index of the boldest setting that passed, ``None`` when even the safest did
    not. ``disagreements`` is the sum of the losses of that setting (of the safest for ``None``) on
    ``examples`` held-out inputs. ``upper_bound`` bounds the risk in a test of that setting alone;
    after a choice among several only ``epsilon`` is guaranteed.
    """

    setting: int | None
    epsilon: float
    delta: float
    examples: int
    disagreements: float
    upper_bound: float

    def __str__(self) -> str:
        seen = f"{self.disagreements:g} of {self.examples} held-out inputs did"
        if self.setting is None:
            return (
                f"no setting keeps disagreement with the dense model to {self.epsilon:.4g} of "
                f"inputs with confidence {1 - self.delta:.4g}: with the safest {seen}, so that "
                f"up to {self.upper_bound:.4g} may"
            )
        return (
            f"with confidence {1 - self.delta:.4g} at most {self.epsilon:.4g} of inputs are "
            f"answered differently from the dense model: {seen}"
        )


def calibrate(losses: NDArray[Any], *, epsilon: float, delta: float = 0.05) -> Guarantee:
    """Choose the boldest setting with a risk of at most ``epsilon``, with confidence 1 - ``delta``.

    ``losses`` (examples, settings) holds for each held-out input its loss under each setting, the
    settings ordered from safest to boldest before these inputs were seen. A loss is any number from
    0 to 1. A 0/1 loss may say that the answer differs from the dense model's. Or it says that the
    dense model was right and this one is wrong; that rate bounds the drop in accuracy from above.

    Each setting j in turn is tested for risk_j > epsilon at level delta. The first that cannot be
    rejected ends the search, and the one before it is chosen. A false promise needs the first
    setting of too high a risk to be rejected, which happens with probability at most delta. So no
    correction for the number of settings is needed, and risks need not grow with boldness. For 0/1
    losses the p-value is P(Binomial(n, epsilon) <= sum of losses), else Hoeffding-Bentkus.

    The inputs must be independent samples of those in use, and not used for training or for making
    the settings. Raises ``UsageError`` for losses that are not such a matrix, for epsilon or delta
    outside (0, 1), and when there are too few inputs for any setting to pass.
    """
    table = _checked(losses, epsilon, delta)
    examples, settings = table.shape
    binary = bool(((table == 0) | (table == 1)).all())
    p_value = binomial_p_value if binary else hoeffding_bentkus_p_value
    totals = table.sum(axis=0)
    passed = 0
    while passed < settings and p_value(float(totals[passed]), examples, epsilon) <= delta:
        passed += 1
    shown = max(passed - 1, 0)
    return Guarantee(
        setting=passed - 1 if passed else None,
        epsilon=epsilon,
        delta=delta,
        examples=examples,
        disagreements=float(totals[shown]),
        upper_bound=_upper_bound(float(totals[shown]), examples, delta, binary),
    )


def most_changes(examples: int, changed: float, delta: float = 0.05) -> int:
    """The most changed answers to so many inputs that still certify a share of ``changed``.

    It is for a test of one form alone, with confidence 1 - ``delta``; -1 where even none is too
    many.
    """
    count = int(stats.binom.ppf(delta, examples, changed))
    return count if stats.binom.cdf(count, examples, changed) <= delta else count - 1


def examples_needed(epsilon: float, delta: float = 0.05) -> int:
    """The fewest held-out inputs for any guarantee, if all of them have no loss.

    (1 - epsilon)^n <= delta: 299 inputs for 1 % at a confidence of 95 %.
    """
    _check_levels(epsilon, delta)
    return max(1, math.ceil(math.log(delta) / math.log1p(-epsilon) - 1e-9))


def binomial_p_value(total: float | int, examples: int, epsilon: float) -> float:
    """P(Binomial(examples, epsilon) <= total): exact for a sum ``total`` of 0/1 losses."""
    return float(stats.binom.cdf(round(total), examples, epsilon))


def hoeffding_bentkus_p_value(total: float | int, examples: int, epsilon: float) -> float:
    """A valid p-value for risk > epsilon from a sum ``total`` of losses between 0 and 1.

    min(exp(-n h(min(r, epsilon), epsilon)), e P(Binomial(n, epsilon) <= ceil(n r))) with r the
    mean loss and h(a, b) = a log(a/b) + (1 - a) log((1 - a)/(1 - b)). Source: Angelopoulos et al.,
    2021, proposition 4.
    """
    mean = min(total / examples, epsilon)
    entropy = (1 - mean) * math.log((1 - mean) / (1 - epsilon))
    if mean > 0:
        entropy += mean * math.log(mean / epsilon)
    # Rounding of a sum may lift a whole number just above itself, and ceil would add one.
    bentkus = math.e * binomial_p_value(math.ceil(total - 1e-9), examples, epsilon)
    return min(1.0, math.exp(-examples * max(entropy, 0.0)), bentkus)


def upper_bound(disagreements: int, examples: int, delta: float = 0.05) -> float:
    """The disagreement rate that one setting's count bounds with confidence 1 - ``delta``.

    Clopper and Pearson, 1934. It holds for a setting that was fixed before these ``examples`` were
    seen. Raises ``UsageError`` for impossible counts.
    """
    if not 0 <= disagreements <= examples or not examples or not 0 < delta < 1:
        raise UsageError(
            f"impossible counts: {disagreements} of {examples} inputs at delta {delta}"
        )
    return _upper_bound(float(disagreements), examples, delta, binary=True)


def early_answers(
    confidences: NDArray[Any], labels: NDArray[Any], thresholds: Sequence[float]
) -> NDArray[np.int64]:
    """The answers of a model with early exits at each threshold, from one pass through all exits.

    ``confidences`` and ``labels`` (examples, exits) are those of each exit. An input leaves at the
    first exit with a confidence above the threshold, at the last one in any case. Returns
    (examples, settings), the settings in the order of ``thresholds``. With the dense model's labels
    ``dense``, ``early_answers(...) != dense[:, None]`` is the input of ``calibrate``. Raises
    ``UsageError`` when the two tables do not match.
    """
    if confidences.ndim != 2 or confidences.shape != labels.shape or not confidences.size:
        raise UsageError(
            "confidences and labels must both be (examples, exits); got "
            f"{confidences.shape} and {labels.shape}"
        )
    answers = np.empty((len(labels), len(thresholds)), dtype=np.int64)
    for setting, threshold in enumerate(thresholds):
        leaves = confidences > threshold
        leaves[:, -1] = True
        answers[:, setting] = labels[np.arange(len(labels)), leaves.argmax(axis=1)]
    return answers


def _check_levels(epsilon: float, delta: float) -> None:
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if not 0 < value < 1:
            raise UsageError(f"{name} must be between 0 and 1; got {value}")


def _checked(losses: NDArray[Any], epsilon: float, delta: float) -> NDArray[np.float64]:
    """The losses as float64, after checks of them and of the levels."""
    _check_levels(epsilon, delta)
    if losses.ndim != 2 or losses.shape[1] == 0:
        raise UsageError(f"losses must be (examples, settings); got {losses.shape}")
    table = losses.astype(np.float64)
    # Written so that NaN fails too.
    if not ((table >= 0) & (table <= 1)).all():
        raise UsageError("losses must be between 0 and 1")
    needed = examples_needed(epsilon, delta)
    if len(table) < needed:
        raise UsageError(
            f"{len(table)} held-out inputs are too few: a bound of {epsilon:g} with "
            f"confidence {1 - delta:g} takes at least {needed}, and more once there are losses"
        )
    return table


def _upper_bound(total: float, examples: int, delta: float, binary: bool) -> float:
    """The largest risk that this one setting's losses do not reject at level delta."""
    if total >= examples:
        return 1.0
    if binary:  # Clopper and Pearson, 1934
        return float(stats.beta.ppf(1 - delta, total + 1, examples - total))
    # At a risk of the mean itself the p-value is 1; it falls as the risk goes to 1.
    highest = 1 - 1e-12

    def above(risk: float) -> float:
        return hoeffding_bentkus_p_value(total, examples, risk) - delta

    if above(highest) > 0:
        return 1.0
    return float(optimize.brentq(above, max(total / examples, 1e-12), highest))
