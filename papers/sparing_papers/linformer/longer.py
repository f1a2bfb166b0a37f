"""Longer than trained: models made longer, and how good they are at each length."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.core.catalogue import mechanism
from sparing.core.errors import Unsupported, UsageError
from sparing.core.heads import Heads
from sparing.core.record import Labels, Record, measured
from sparing.experiment.arms import build_arm
from sparing.experiment.run import Cell
from sparing.train import evaluate
from sparing.transfer.positions import interpolated
from sparing_papers.linformer.lengths import by_factor, trained_tokens
from sparing_papers.linformer.options import (
    LINFORMER,
    SHARED,
    Options,
    slots_of,
)
from sparing_papers.long_range.answers import score_records
from sparing_papers.long_range.arms import DENSE, arm_of, options_of
from sparing_papers.long_range.pilot import idle_after_pilot
from sparing_papers.long_range.projection import PROJECTIONS, Way, projection
from sparing_papers.long_range.train import Measurement, arm_cell, training_cells
from sparing_papers.long_range.work import LongWork

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SLICED, INTERPOLATED = f"{LINFORMER}, sliced", f"{LINFORMER}, interpolated"
WAYS: Mapping[str, Way] = {SLICED: "sliced", INTERPOLATED: "interpolated"}
POSITIONS = "position_embeddings.weight"


@dataclass(frozen=True, eq=False)
class LinWork(LongWork):
    """A task with variants that may be forms of Linformer without a name: their options."""

    forms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def mechanism_of(self, arm: str) -> tuple[str, dict[str, Any]]:
        """A variant's mechanism and its options at the trained length."""
        if arm in self.forms:
            return LINFORMER, {**options_of(LINFORMER, self.task.tokens), **self.forms[arm]}
        return arm_of(arm).mechanism, options_of(arm, self.task.tokens)

    def build(self, arm: str, seed: int, tokens: int | None = None) -> PreTrainedModel:
        """A variant before training, for the trained length or for another one."""
        mechanism, options = self.mechanism_of(arm)
        task = self.task if tokens is None else replace(self.task, tokens=tokens)
        return build_arm(self.model, task, mechanism, options, seed, {})


def lengthened(
    work: LinWork, arm: str, seed: int, trained: PreTrainedModel, tokens: int, way: Way = "sliced"
) -> PreTrainedModel:
    """A trained variant for longer inputs, with nothing trained further.

    The variant is built anew for ``tokens`` tokens, with its options as trained, and given the
    trained weights. Position embeddings are interpolated, for every variant alike. A "sliced"
    projection of Linformer keeps its columns and gets random ones beyond. A matrix built for longer
    inputs is the same after training on shorter rows: its other columns get no gradient. An
    "interpolated" one is scaled, so that a constant sequence keeps its slots. Raises
    ``Unsupported`` for a variant with other weights that depend on the length.
    """
    model = work.build(arm, seed, tokens)
    state, given = model.state_dict(), trained.state_dict()
    for name, value in given.items():
        if state[name].shape == value.shape:
            state[name] = value
        elif name.endswith(POSITIONS):
            state[name] = interpolated(value, len(state[name]))
        elif name.endswith(PROJECTIONS):
            state[name] = projection(value, state[name], way)
        else:
            raise Unsupported(f"{arm} cannot be made longer: {name} belongs to one length")
    model.load_state_dict(state)
    return model.eval()


def by_length(
    options: Options, data: Path | None, tests: dict[int, Any] | None = None
) -> Measurement:
    """A measurement of trained variants: the score at each factor, and the drop at the largest.

    The inputs are read once and kept in ``tests``.
    """
    test_tasks = {} if tests is None else tests

    def measure(model: PreTrainedModel, work: LongWork, labels: Labels) -> list[Record]:
        assert isinstance(work, LinWork)
        if not test_tasks:
            test_tasks.update(by_factor(work, options.factors, options.length_examples, data))
        arm, seed = str(labels["arm"]), int(labels["seed"] or 0)
        records: list[Record] = []
        for name in WAYS if arm == LINFORMER else (arm,):
            arm_labels = {**labels, "arm": name}
            records += _by_factor(model, work, arm_labels, seed, test_tasks)
        return records

    return measure


def _by_factor(
    model: PreTrainedModel, work: LinWork, labels: Labels, seed: int, tests: Mapping[int, Any]
) -> list[Record]:
    arm, way = str(labels["arm"]), WAYS.get(str(labels["arm"]), "sliced")
    built = LINFORMER if arm in WAYS else arm
    records, first = list[Record](), 0.0
    for factor, task in tests.items():
        at: Labels = {**labels, "factor": factor}
        longer = model
        if factor > 1:
            longer = lengthened(work, built, seed, copy.deepcopy(model), task.tokens, way)
        evaluation = evaluate(longer, task, batch_size=32 // factor or 1)
        records += score_records(evaluation, at, "length_score")
        records += measured(at, "share", length_chance=task.chance)
        if factor == 1:
            first = evaluation.score
        else:
            records += measured(at, "share", evaluation.count, length_drop=first - evaluation.score)
    return records


def require_lengthening(arms: Sequence[str], tokens: int, longest: int) -> None:
    """Raise ``UsageError`` for a variant that ``lengthened`` cannot serve, before it is trained."""
    for arm in arms:
        arm_settings = options_of(arm, tokens)
        short, long = (
            mechanism(arm_of(arm).mechanism, Heads(4, 32, tokens=n), **arm_settings).state_dict()
            for n in (tokens, longest)
        )
        fixed = [name for name in short if short[name].shape != long[name].shape]
        for name in fixed:
            if not name.endswith(PROJECTIONS):
                raise UsageError(
                    f"{arm} cannot be run on longer inputs: its {name} belongs to one length; "
                    "leave it out of the variants"
                )


def longer_cells(
    options: Options, work: LinWork, data: Path | None, measurements: tuple[Measurement, ...] = ()
) -> list[Cell]:
    """Every variant trained with every seed, and evaluated at each length.

    Dense attention is always trained: its matrices are analysed.
    """
    tokens = trained_tokens(work)
    require_lengthening(work.options.arms_for(work.name), tokens, max(options.factors) * tokens)
    return training_cells(work, (by_length(options, data), *measurements), always=(DENSE,))


def forms_of(options: Options, tokens: int) -> dict[str, dict[str, Any]]:
    """The forms of Linformer beside the usual one: other sharing, other numbers of slots.

    A count that the usual form, or another, has already is left out.
    """
    usual = options_of(LINFORMER, tokens)["slots"]
    forms: dict[str, dict[str, Any]] = {
        f"{LINFORMER}, shared {mode}": {"sharing": mode}
        for mode in options.sharing
        if mode != "headwise"
    }
    taken = {usual}
    for rank in options.ranks:
        slots = slots_of(rank, tokens)
        if slots not in taken:
            taken.add(slots)
            forms[f"{LINFORMER}, k = {slots}"] = {"slots": slots}
    return forms


def sharing_cells(options: Options, work: LinWork) -> list[Cell]:
    """Every form trained with every seed; the usual one is among the trainings of ``longer``."""
    idle = idle_after_pilot(work)
    return [
        replace(arm_cell(replace(work, question=SHARED), form, seed), idle=idle)
        for seed in range(work.options.seeds)
        for form in work.forms
    ]
