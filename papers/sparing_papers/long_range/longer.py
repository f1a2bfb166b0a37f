"""A swapped encoder that was trained on short inputs, evaluated on longer ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparing.core.record import Label, Labels, Record, measured
from sparing.train import evaluate
from sparing_papers.long_range.answers import score_records
from sparing_papers.long_range.projection import other_form

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from sparing.tasks import Task

EVALUATED_AT_ONCE = 32


def length_records(
    model: PreTrainedModel, tasks: Mapping[int, Task], labels: Mapping[str, Label], trained: int
) -> list[Record]:
    """Score, chance and which examples were right at each length; ``tasks`` are by tokens.

    The same inputs are cut to every length, and all of them fill the longest. Linformer is
    evaluated a second time, as "ARM, interpolated" or "ARM, as many slots" (see ``other_form``).
    Up to the tokens that it was ``trained`` on, both forms are the same.
    """
    records = []
    for tokens, task in tasks.items():
        arms = {str(labels["arm"]): model}
        other = other_form(model, trained, max(tokens, trained))
        if other is not None:
            arms[f"{labels['arm']}, {other[0]}"] = other[1] if tokens > trained else model
        for arm, form in arms.items():
            records += _evaluated(form, task, {**labels, "arm": arm, "tokens": tokens})
    return records


def _evaluated(model: PreTrainedModel, task: Task, labels: Labels) -> list[Record]:
    evaluation = evaluate(model, task, batch_size=EVALUATED_AT_ONCE)
    chance = measured(labels, "share", length_chance=task.chance)
    return [*score_records(evaluation, labels, "length_score"), *chance]
