"""Inputs a second in batches of like length, as a server would group them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from sparing.core.record import Label, Record
from sparing.experiment.run import Cell
from sparing.measure.latency import paired_latency
from sparing.slim.models import inputs_of
from sparing_papers.adaattention.arms import BATCH, Work
from sparing_papers.adaattention.cells.training import Timing, timed
from sparing_papers.adaattention.names import FULL

BUDGET_S = 240.0


def throughput_cell(work: Work, arms: Sequence[str], seed: int, timing: Timing) -> Cell:
    """Each trained arm over the timed inputs in batches of 32, in turn with the full model."""

    def do() -> list[Record]:
        examples = timed(work, timing)
        batches = [inputs for _, inputs in inputs_of(work.task, examples, BATCH)]
        models = {arm: work.open(arm, seed) for arm in dict.fromkeys((FULL, *arms))}
        calls = {arm: _over(model, batches) for arm, model in models.items()}
        times = paired_latency(
            calls, baseline=FULL, rounds=7, warmup=1, threads=timing.threads, budget_s=BUDGET_S
        )
        found = []
        for arm, time in times.items():
            labels: dict[str, Label] = {"task": work.name, "arm": arm, "batch": BATCH}
            value = 1e3 * len(examples) / time.p50_ms
            found.append(Record("throughput", value, "1/s", "measured", labels))
            if arm != FULL:
                low, high = time.ratio.interval or (time.ratio.value, time.ratio.value)
                speed, ends = 1 / time.ratio.value, (1 / high, 1 / low)
                count = time.ratio.count
                found.append(
                    Record("batch_speed_up", speed, "ratio", "measured", labels, ends, count)
                )
        return found

    return Cell(f"{work.name}/throughput", do)


def _over(model: nn.Module, batches: Sequence[dict[str, torch.Tensor]]) -> Callable[[], object]:
    model.eval()

    def call() -> None:
        with torch.inference_mode():
            for batch in batches:
                model(**batch)

    return call
