"""A swapped encoder that was trained on short inputs, asked on longer ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparing.core.record import Label, Record
from sparing.studies._ker_answers import answers_record
from sparing.train import evaluate

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from sparing.tasks import Task

JUDGED_AT_ONCE = 32


def length_records(
    model: PreTrainedModel, tasks: Mapping[int, Task], labels: Mapping[str, Label]
) -> list[Record]:
    """Score, chance and right answers at each length; ``tasks`` are by tokens.

    The inputs are the same at every length, but for what is cut off.
    """
    found = []
    for tokens, task in tasks.items():
        judged = evaluate(model, task, batch_size=JUDGED_AT_ONCE)
        own: dict[str, Label] = {**labels, "tokens": tokens}
        if judged.right is not None:
            found.append(answers_record(judged.right, own))
        found += [
            Record("length_score", judged.score, "share", "measured", own, count=judged.count),
            Record("length_chance", task.chance, "share", "measured", own),
        ]
    return found
