"""Training the calculator on sums of at most four numbers of at most three digits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparing.calculator.alphabet import adder_cells, digits_of
from sparing.calculator.network import Calculator
from sparing.calculator.rows import ADDER, SIZER, WRITER, Keys, Lesson
from sparing.calculator.scan import Scan
from sparing.calculator.scanner import Scanner, Softness, encode
from sparing.calculator.texts import Sum, draw_sums
from sparing.core.errors import UsageError
from sparing.measure.machine import threads
from sparing.tasks.shared.expressions import Expression
from sparing.tasks.shared.published import corrected, published
from sparing.train.surroundings import generators_kept

Telling = Callable[[float, str], None]
LESSONS = {"adder": ADDER, "sizer": SIZER, "writer": WRITER}
PARTS = (*LESSONS, "scanner")
TESTED = ("in", "out", "long", "out+long")
KEPT_HARD, AVERAGING = 128, 0.99
FRESH, FRESH_TEXTS = 4096, 512  # samples for the check whether a part has learned
OTHER_WEIGHTS = 1000  # added to the seed for each further training
# Rows and columns of the tape while the scanner learns: more than any sum there needs.
ROWS, COLUMNS = 5, 7


@dataclass(frozen=True)
class CalculatorRecipe:
    """Training steps of each part, in batches of ``batch`` rows.

    The scanner learns last, through the trained adder. ``gate_noise`` off is an ablation. A part
    with errors on fresh samples is trained again, from other weights, in ``attempts`` trainings at
    most: a training may fail or succeed depending on a processor's rounding.
    """

    adder_steps: int = 3000
    sizer_steps: int = 1200
    writer_steps: int = 1200
    scanner_steps: int = 2500
    batch: int = 384
    scanner_batch: int = 96
    learning_rate: float = 5e-3
    scanner_learning_rate: float = 8e-3
    attempts: int = 3
    gate_noise: float = 2.0
    symbol_noise: bool = True

    def __post_init__(self) -> None:
        for name in (
            "adder_steps",
            "sizer_steps",
            "writer_steps",
            "scanner_steps",
            "batch",
            "attempts",
        ):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1; got {getattr(self, name)}")


@dataclass(frozen=True, eq=False)
class TrainedCalculator:
    """The network, each part's processor and clock seconds, and its number of trainings.

    ``unlearned`` names the parts with errors on fresh samples after their last training.
    """

    network: Calculator
    process_s: Mapping[str, float]
    wall_s: Mapping[str, float]
    attempts: Mapping[str, int]
    unlearned: tuple[str, ...]


def train_calculator(
    seed: int = 0,
    recipe: CalculatorRecipe | None = None,
    *,
    through: Calculator | None = None,
    on_progress: Telling = lambda share, text: None,
) -> TrainedCalculator:
    """Train all four parts; minutes on one thread. The same seed gives the same network.

    The scans see single steps of sums, with running totals and the last total's size as labels; the
    scanner sees texts, spaced in several ways, and the running totals alone. Wrong answers of one
    batch come again in the next. Training uses nothing longer than four numbers of three digits, no
    sum of the published test sets, and no proof. ``through`` is a calculator that provides adder,
    sizer and writer: then the scanner alone learns.
    """
    recipe = recipe or CalculatorRecipe()
    process_s: dict[str, float] = {}
    wall_s: dict[str, float] = {}
    attempts: dict[str, int] = {}
    unlearned = []
    with generators_kept(), threads(1):  # sums of several threads round differently
        torch.manual_seed(seed)
        network = Calculator()
        parts = PARTS if through is None else PARTS[-1:]
        for part in LESSONS if through is not None else ():
            getattr(network, part).load_state_dict(getattr(through, part).state_dict())
        for number, part in enumerate(parts):
            begun, process = time.perf_counter(), time.process_time()

            def tell(share: float, start: float = number, name: str = part) -> None:
                on_progress((start + share) / len(parts), f"{name}, {share:.0%}")

            attempts[part], learned = _train_until_learned(network, part, recipe, seed, tell)
            unlearned += [] if learned else [part]
            process_s[part] = time.process_time() - process
            wall_s[part] = time.perf_counter() - begun
    return TrainedCalculator(network.eval(), process_s, wall_s, attempts, tuple(unlearned))


def _train_until_learned(
    network: Calculator,
    part: str,
    recipe: CalculatorRecipe,
    seed: int,
    tell: Callable[[float], None],
) -> tuple[int, bool]:
    """The number of trainings of a part, and whether the last one learned it."""
    for attempt in range(recipe.attempts):
        if not attempt:
            _train_part(network, part, recipe, (seed, attempt), tell)
        else:
            with torch.random.fork_rng(
                devices=[]
            ):  # the next part learns as without the repetition
                torch.manual_seed(seed + OTHER_WEIGHTS * attempt)
                other = Calculator()
                getattr(network, part).load_state_dict(getattr(other, part).state_dict())
                _train_part(network, part, recipe, (seed, attempt), _ignored)
        if _has_learned(network, part, (seed, attempt)):
            return attempt + 1, True
    return recipe.attempts, False


def _ignored(share: float) -> None:
    """Ignore progress: the bar waits at the part's end while it is trained again."""


@torch.no_grad()
def _has_learned(network: Calculator, part: str, training: tuple[int, int]) -> bool:
    """Whether a part gets all of 4,096 fresh samples right; of 512 texts for the scanner.

    They are sampled as in training: neither a test set nor a proof is used.
    """
    seed, attempt = training
    if part == "scanner":
        fresh = random.Random(f"fresh scanner {seed} {attempt}")
        return not _misread(network, draw_sums(fresh, FRESH_TEXTS, held_out_sums()))
    lesson, scan = LESSONS[part], getattr(network, part)
    chance = np.random.default_rng([seed, *part.encode(), attempt, FRESH])
    cells, expected = lesson.lay_out(lesson.draw(chance, FRESH), lesson.widths[1])
    return bool((scan(cells, last_first=lesson.last_first).argmax(-1) == expected).all())


def _train_part(
    network: Calculator,
    part: str,
    recipe: CalculatorRecipe,
    training: tuple[int, int],
    tell: Callable[[float], None],
) -> None:
    seed, attempt = training
    again = [attempt] if attempt else []
    if part == "scanner":
        tested = held_out_sums()
        train_scanner(
            network,
            recipe,
            lambda chance, count: draw_sums(chance, count, tested),
            random.Random(" ".join(map(str, ["scanner", seed, *again]))),
            tell,
        )
        return
    chance = np.random.default_rng([seed, *part.encode(), *again])
    steps = getattr(recipe, f"{part}_steps")
    train_scan(getattr(network, part), LESSONS[part], steps, recipe, chance, tell)


class _Descent:
    """AdamW with warm-up and a falling rate, and the average of the weights on the way."""

    def __init__(self, module: nn.Module, rate: float, steps: int) -> None:
        self.rate, self.steps, self.taken = rate, steps, 0
        self.parameters = list(module.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=rate, weight_decay=1e-4)
        self.mean = [parameter.detach().clone() for parameter in self.parameters]

    def step(self, loss: Tensor) -> None:
        """One step down."""
        done = self.taken / self.steps
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * min(1.0, (self.taken + 1) / 100) * (1 - 0.99 * done)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.taken += 1
        torch._foreach_lerp_(self.mean, [p.detach() for p in self.parameters], 1 - AVERAGING)

    @torch.no_grad()
    def finish(self) -> None:
        """Take the averaged weights."""
        for parameter, mean in zip(self.parameters, self.mean, strict=True):
            parameter.copy_(mean)


def train_scan(
    scan: Scan,
    lesson: Lesson,
    steps: int,
    recipe: CalculatorRecipe,
    chance: np.random.Generator,
    tell: Callable[[float], None],
) -> None:
    """Soft symbols first, then noisy ones, then the final hard ones.

    The noise tries wrong transitions differently; errors without noise come again.
    """
    descent = _Descent(scan, recipe.learning_rate, steps)
    hard: Keys | None = None
    for step in range(steps):
        done = step / steps
        soft, noise = _annealing(done) if recipe.symbol_noise else (False, 0.0)
        keys = lesson.draw(chance, recipe.batch)
        keys = keys if hard is None else np.concatenate([keys, hard])
        cells, expected = lesson.lay_out(keys, int(chance.integers(*lesson.widths, endpoint=True)))
        given = scan(cells, last_first=lesson.last_first, noise=noise, soft=soft)
        descent.step(F.cross_entropy(given.flatten(0, 1), expected.flatten()))
        if done > 0.2:
            with torch.no_grad():
                plain = scan(cells, last_first=lesson.last_first)
            wrong = (plain.argmax(-1) != expected).any(1).numpy()
            hard = np.unique(keys[wrong], axis=0)
            if len(hard) > KEPT_HARD:
                hard = chance.choice(hard, KEPT_HARD, replace=False)
        tell((step + 1) / steps)
    descent.finish()


def _annealing(done: float) -> tuple[bool, float]:
    """Whether symbols are soft and the size of their noise, by the share of steps taken."""
    if done < 0.2:
        return True, done / 0.2
    return False, min(1.0, max(0.0, (0.7 - done) / 0.2))


def train_scanner(
    network: Calculator,
    recipe: CalculatorRecipe,
    draw: Callable[[random.Random, int], list[Sum]],
    chance: random.Random,
    tell: Callable[[float], None],
) -> None:
    """Texts in, running totals out, through the adder, with fixed weights."""
    steps = recipe.scanner_steps
    descent = _Descent(network.scanner, recipe.scanner_learning_rate, steps)
    network.adder.requires_grad_(False)
    hard: list[Sum] = []
    for step in range(steps):
        sums = draw(chance, recipe.scanner_batch) + hard
        softness = _gates_at(step / steps, recipe.gate_noise)
        given, expected = read_and_add(network.scanner, network.adder, sums, softness)
        descent.step(F.cross_entropy(given.flatten(0, 1), expected.flatten()))
        if step % 2 and step > steps // 5:
            hard = _misread(network, sums)[: 2 * recipe.scanner_batch // 3]
        tell((step + 1) / steps)
    network.adder.requires_grad_(True)
    descent.finish()


def held_out_sums() -> set[Expression]:
    """Every sum of the published and of the corrected test sets: excluded from all training."""
    known = (published(), corrected())
    return {one for sets in known for name in TESTED for one in sets.get(name, ())}


def _gates_at(done: float, noise: float) -> Softness:
    """Half-open gates for the first half, then noisy ones, by the share of steps taken."""
    return Softness(
        most_logit=3 + 17 * min(1.0, max(0.0, (done - 0.5) / 0.15)),
        noise=noise * min(1.0, max(0.0, (done - 0.6) / 0.15)),
    )


@torch.no_grad()
def _misread(network: Calculator, sums: list[Sum]) -> list[Sum]:
    """The sums that rounded gates misread."""
    given, expected = read_and_add(network.scanner, network.adder, sums, None)
    right = (given.argmax(-1) == expected).all(1).reshape(len(sums), ROWS).all(1)
    return [one for one, good in zip(sums, right.tolist(), strict=True) if not good]


def read_and_add(
    scanner: Scanner, adder: Scan, sums: list[Sum], softness: Softness | None
) -> tuple[Tensor, Tensor]:
    """Logits of every running total, each added to the true one before, and the right digits.

    Rows behind the last number must not change the total.
    """
    tape = scanner.write(
        encode([one.text for one in sums], scanner.text), ROWS, COLUMNS, softness=softness
    )
    totals = torch.tensor([one.totals(ROWS) for one in sums])
    digits = digits_of(totals.flatten(), COLUMNS).reshape(len(sums), ROWS + 1, COLUMNS)
    before = F.one_hot(digits[:, :-1].flatten(0, 1), 10).float()
    cells = adder_cells(tape.rows.flatten(0, 1), tape.switches.flatten(0, 1), before)
    return adder(cells), digits[:, 1:].flatten(0, 1)
