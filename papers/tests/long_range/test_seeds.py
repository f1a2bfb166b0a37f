"""A page tells of which tasks seeds are few, and not that all trainings have as few."""

from __future__ import annotations

import pytest

from sparing.core.record import Record
from sparing.report.run import Run
from sparing_papers.kerformer.page import content as ker_content


def _both(counts):
    return counts if isinstance(counts, tuple) else (counts, counts)


def run_of(**counts):
    records = [
        Record(
            "mean_score",
            0.5,
            "share",
            "measured",
            {"question": "arena", "task": task, "arm": arm, "over": "seeds"},
            count=count,
        )
        for task, both in counts.items()
        for arm, count in zip(("softmax", "linear"), _both(both), strict=True)
    ]
    config = {"task": {}, "model": {}, "machine": {}, "arms": [], "baseline": "softmax"}
    return Run(config, records, [], [])


@pytest.mark.parametrize(
    ("counts", "head", "notice"),
    [
        ({"listops": 5, "cifar10": 1}, "1 to 5 seeds", "arena/cifar10: 1 seed of each training"),
        ({"listops": 2, "cifar10": 2}, "2 seeds", "2 seeds of each training"),
        ({"listops": 5, "cifar10": 3}, "3 to 5 seeds", None),
        ({"listops": 3, "cifar10": (3, 2)}, "2 to 3 seeds", "arena/cifar10: 2 seeds of linear: no"),
        ({"cifar10": (3, 1)}, "1 to 3 seeds", "1 seed of linear: no"),
    ],
)
def test_few_seeds_are_told_of_the_tasks_that_have_them(counts, head, notice):
    run = run_of(**counts)
    assert head in ker_content.headline(run)
    lines = [line for line in ker_content.notices(run) if "no claim" in line]
    assert len(lines) == bool(notice)
    assert not notice or lines[0].startswith(notice)
