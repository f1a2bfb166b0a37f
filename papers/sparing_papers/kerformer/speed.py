"""Table 7 of Kerformer: steps a second of the named backbone, in training and in use; memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch

from sparing.core.checks import Count, NotNegative, at_least, check_fields, some
from sparing.core.record import Label, Record
from sparing.experiment.cells.device import device, lowered
from sparing.experiment.run import Cell
from sparing.measure.latency import PairedLatency, paired_latency
from sparing.measure.memory import peak_memory
from sparing.measure.statistics import median_ratio
from sparing.tasks import Examples, Task
from sparing_papers.long_range.arms import BY_CONTENT, DENSE, KERFORMER, build, require_arms
from sparing_papers.long_range.work import slug

MODEL = "long_range"
PROBE = "sparing_papers.kerformer.speed:call_in_its_own_process"
Kind = Literal["training", "inference"]
KINDS: tuple[Kind, ...] = ("training", "inference")
Labels = dict[str, Label]
LEARNING_RATE = 1e-3
BYTES = 258  # byte values, a pad and a class token


@dataclass(frozen=True)
class SpeedOptions:
    """Table 7: steps a second of the named backbone, ``step_tokens`` tokens in a step.

    Peak memory of a training step is taken at the longest of ``lengths``, of a forward pass alone
    at ``longest`` (0: left out).
    """

    arms: tuple[str, ...] = (
        *("softmax", "local", "reformer", "bigbird", "linear", "performer", "longformer", "dct"),
        *(KERFORMER, BY_CONTENT, "efficient", "linformer", "nystrom"),
    )
    lengths: Annotated[tuple[Annotated[int, at_least(16)], ...], some] = (1024, 2048, 3072, 4096)
    step_tokens: Count = 4096
    rounds: Count = 7
    longest: NotNegative = 65_536

    def __post_init__(self) -> None:
        check_fields(self, "speed")
        require_arms(self.arms)


@dataclass(frozen=True)
class Step:
    """One step: ``batch`` sequences of ``tokens`` bytes drawn at random."""

    arm: str
    tokens: int
    batch: int
    kind: Kind

    def call(self) -> Callable[[], object]:
        """The step as a call; training includes gradients and the optimiser.

        On the accelerator where there is one, in the precision that it trains in.
        """
        place = device()
        model = build(MODEL, _byte_task(self.tokens), self.arm, 0).to(place)
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(2, BYTES, (self.batch, self.tokens), generator=generator).to(place)
        labels = torch.arange(self.batch, device=place) % 2
        if self.kind == "inference":
            model.eval()

            def ask() -> object:
                with torch.inference_mode(), lowered(place):
                    return model(input_ids=ids)

            return ask
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)

        def learn() -> object:
            optimizer.zero_grad()
            with lowered(place):
                loss = model(input_ids=ids, labels=labels).loss
            loss.backward()
            optimizer.step()
            return None

        return learn


def call_in_its_own_process(arm: str, tokens: int, batch: int, kind: Kind) -> Callable[[], object]:
    """For a process of its own: see ``Step``."""
    return Step(arm, tokens, batch, kind).call()


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
        source="drawn at random",
        vocabulary=BYTES,
    )


def speed_cells(options: SpeedOptions, thread_count: int) -> list[Cell]:
    """Paired times at each length, then peak memory of each arm in a process of its own."""
    found = [
        _time_cell(options, tokens, kind, thread_count)
        for tokens in options.lengths
        for kind in KINDS
    ]
    most = max(options.lengths)
    steps = [Step(arm, most, 1, "training") for arm in dict.fromkeys((*options.arms, "eager"))]
    if options.longest:
        steps += [Step(arm, options.longest, 1, "inference") for arm in options.arms]
    return [*found, *(_memory_cell(step, thread_count) for step in steps)]


def _time_cell(options: SpeedOptions, tokens: int, kind: Kind, thread_count: int) -> Cell:
    batch = max(1, options.step_tokens // tokens)
    arms = dict.fromkeys((DENSE, *options.arms))

    def do() -> list[Record]:
        calls = {arm: Step(arm, tokens, batch, kind).call() for arm in arms}
        timed = paired_latency(
            calls, baseline=DENSE, rounds=options.rounds, warmup=1, threads=thread_count
        )
        return _time_records(timed, tokens, kind, batch)

    seconds = len(arms) * (options.rounds + 2) * (0.8 if kind == "training" else 0.3)
    return Cell(f"speed/{kind}/{tokens}", do, weight=seconds * batch * tokens / 4096)


def _time_records(
    timed: Mapping[str, PairedLatency], tokens: int, kind: str, batch: int
) -> list[Record]:
    found = []
    for arm, latency in timed.items():
        labels: Labels = {
            "question": "speed",
            "arm": arm,
            "tokens": tokens,
            "kind": kind,
            "batch": batch,
        }
        count = len(latency.samples_ms)
        rate = 1e3 / latency.p50_ms
        found.append(Record("steps_per_s", rate, "1/s", "measured", dict(labels), count=count))
        for other in (DENSE, KERFORMER):
            if other in timed and other != arm:
                ratio = median_ratio(timed[other].samples_ms, latency.samples_ms)
                own: Labels = {**labels, "over": other}
                interval = ratio.interval
                found.append(
                    Record("speed_up", ratio.value, "ratio", "measured", own, interval, count)
                )
    return found


def _memory_cell(step: Step, thread_count: int) -> Cell:
    labels: Labels = {
        "question": "speed",
        "arm": step.arm,
        "tokens": step.tokens,
        "kind": step.kind,
        "batch": step.batch,
    }

    def do() -> list[Record]:
        arguments: dict[str, Any] = dict(vars(step))
        peak = peak_memory(PROBE, arguments, threads=thread_count, timeout_s=600)
        return [Record("peak_bytes", float(peak.bytes), "bytes", "measured", labels)]

    key = f"speed/memory/{step.kind}/{step.tokens}/{slug(step.arm)}"
    return Cell(key, do, weight=6.0 + step.tokens / 4e3)
