"""Table 7 of Kerformer: steps a second of the named backbone, in training and in use; memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import torch

from sparing.core.checks import Count, NotNegative, at_least, check_fields, some
from sparing.core.record import Labels, Record
from sparing.experiment.cells.device import device, lowered
from sparing.experiment.cells.sweep import Point, Sweep, ratio_record
from sparing.experiment.run import Cell, slug
from sparing.tasks import Examples, Task
from sparing_papers.long_range.arms import BY_CONTENT, DENSE, KERFORMER, build, require_arms

MODEL = "long_range"
Kind = Literal["training", "inference"]
KINDS: tuple[Kind, ...] = ("training", "inference")
LEARNING_RATE = 1e-3
BYTES = 258  # byte values, a pad and a class token


@dataclass(frozen=True)
class SpeedOptions:
    """Table 7: steps a second of the named backbone, ``step_tokens`` tokens in a step.

    Peak memory of a training step is taken at the longest of ``lengths``, of a forward pass alone
    at ``longest`` (0: left out).
    """

    variants: tuple[str, ...] = (
        *("softmax", "local", "reformer", "bigbird", "linear", "performer", "longformer", "dct"),
        *(KERFORMER, BY_CONTENT, "efficient", "linformer", "nystrom"),
    )
    lengths: Annotated[tuple[Annotated[int, at_least(16)], ...], some] = (1024, 2048, 3072, 4096)
    step_tokens: Count = 4096
    rounds: Count = 7
    longest: NotNegative = 65_536

    def __post_init__(self) -> None:
        check_fields(self, "speed")
        require_arms(self.variants)


def step_call(arm: str, tokens: int, batch: int, kind: Kind) -> Callable[[], object]:
    """One step of ``batch`` sequences of ``tokens`` random bytes.

    Training includes gradients and the optimiser. On the accelerator where there is one, in the
    precision that it trains in.
    """
    target_device = device()
    model = build(MODEL, _byte_task(tokens), arm, 0).to(target_device)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, BYTES, (batch, tokens), generator=generator).to(target_device)
    labels = torch.arange(batch, device=target_device) % 2
    if kind == "inference":
        model.eval()

        def infer() -> object:
            with torch.inference_mode(), lowered(target_device):
                return model(input_ids=ids)

        return infer
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)

    def learn() -> object:
        optimizer.zero_grad()
        with lowered(target_device):
            loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        return None

    return learn


def _byte_task(tokens: int) -> Task:
    """The shape of a task of bytes with two classes."""
    empty = Examples("input_ids", [torch.ones(1, dtype=torch.long)], torch.zeros(1).long())
    return Task(
        "bytes",
        "tokens",
        empty,
        empty,
        empty,
        labels=("0", "1"),
        tokens=tokens,
        licence="",
        source="sampled at random",
        vocabulary=BYTES,
    )


def speed_cells(options: SpeedOptions, thread_count: int) -> list[Cell]:
    """Paired times at each length, then peak memory of each variant in a process of its own."""
    sweep = Sweep(step_call, options.rounds, thread_count)
    cells = [_time_cell(sweep, options, n, kind) for n in options.lengths for kind in KINDS]
    most = max(options.lengths)
    steps = [
        _point(arm, most, 1, "training") for arm in dict.fromkeys((*options.variants, "eager"))
    ]
    if options.longest:
        steps += [_point(arm, options.longest, 1, "inference") for arm in options.variants]
    for step in steps:
        kind, tokens = step.labels["kind"], step.arguments["tokens"]
        key = f"speed/memory/{kind}/{tokens}/{slug(step.arm)}"
        cells.append(sweep.memory_cell(key, step, 6.0 + tokens / 4e3))
    return cells


def _point(arm: str, tokens: int, batch: int, kind: Kind) -> Point:
    step: Labels = {"arm": arm, "tokens": tokens, "kind": kind, "batch": batch}
    return Point(arm, dict(step), {"question": "speed", **step})


def _time_cell(sweep: Sweep, options: SpeedOptions, tokens: int, kind: Kind) -> Cell:
    batch = max(1, options.step_tokens // tokens)
    points = [_point(arm, tokens, batch, kind) for arm in dict.fromkeys((DENSE, *options.variants))]
    seconds = len(points) * (options.rounds + 3) * (0.8 if kind == "training" else 0.3)
    weight = seconds * batch * tokens / 4096
    return Cell(f"speed/{kind}/{tokens}", partial(_rates, sweep, points), weight)


def _rates(sweep: Sweep, points: Sequence[Point]) -> list[Record]:
    timed, records = sweep.time(points), []
    for point in points:
        latency = timed[point.arm]
        rate, count = 1e3 / latency.p50_ms, len(latency.samples_ms)
        records.append(Record("steps_per_s", rate, "1/s", "measured", point.labels, count=count))
        for over in (DENSE, KERFORMER):
            if over in timed and over != point.arm:
                about: Labels = {**point.labels, "over": over}
                records.append(ratio_record("speed_up", timed[over], latency, about))
    return records
