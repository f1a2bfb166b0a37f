"""Shared by the steps of ``slim``: models, engines, data, options, and the state of the run."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.core.record import Label, Record
from sparing.experiment.inputs.fit import token_limit
from sparing.export.forms import Forms
from sparing.layers.plan import Plan
from sparing.measure.inputs import InputTimes, speed_up, time_inputs
from sparing.slim.answer import Answer
from sparing.slim.engines import BothForms, Engines, Runs
from sparing.slim.evidence.candidates import DENSE as DENSE
from sparing.slim.evidence.candidates import OURS as OURS
from sparing.slim.evidence.candidates import SOME as SOME
from sparing.slim.evidence.candidates import Candidate
from sparing.slim.evidence.certified import EPSILONS
from sparing.slim.inputs import alone, answers_to, inputs_of, texts_of, tokenizer_call
from sparing.slim.models import Models, adaptive_form, held_out_parts
from sparing.slim.options import Options
from sparing.slim.search.exits import dense_flops
from sparing.slim.search.resampling import good_enough, score_difference
from sparing.slim.state import State, read_state, served, write_state
from sparing.tasks import Examples, Task
from sparing.tasks.shared.scores import metric
from sparing.transfer.adaptive import AdaptiveClassifier
from sparing.transfer.embedding.dense import SentenceEncoder

STATIC, TOKENIZER = "static", "tokenizer"
BLOCK = 8


@dataclass(frozen=True, eq=False)
class Steps:
    """The models, engines and options that the steps work with."""

    models: Models
    engines: Engines
    options: Options

    @property
    def task(self) -> Task:
        """The task; of texts without labels, with the dense model's answers as labels."""
        return self.models.task

    @property
    def state(self) -> State:
        """The results of the steps so far, from the run's folder."""
        return read_state(self.models.folder)

    def keep(self, **results: Any) -> None:
        """Add a step's results to the state; each step calls it once, at its end."""
        write_state(self.models.folder, replace(self.state, **results))

    @property
    def answer(self) -> Answer:
        """The kind of answer."""
        return self.models.answer

    @property
    def epsilon(self) -> float:
        """The share of changed answers that the served form is certified for."""
        return self.options.changed

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The shares of the frontier: the one of ``agree``, or five."""
        return (self.epsilon,) if self.options.agree else EPSILONS

    def served(self) -> Candidate:
        """The form that is served; raises ``UsageError`` if an earlier step has failed."""
        form = served(self.state, self.epsilon)
        if form is None:
            raise UsageError("no form is certified yet: an earlier step has failed")
        return form

    def plan(self) -> Plan:
        """The plan that was cut out, with all its exits; raises ``UsageError`` before that.

        Its threshold only says that there are exits: each form has a threshold of its own.
        """
        plan = self.model().plan
        return replace(plan, threshold=SOME) if plan.exits else plan

    def model(self) -> AdaptiveClassifier:
        """The model that was cut out and fine-tuned at its width."""
        folder = self.state.folder
        if not folder:
            raise UsageError("no plan is cut out yet: an earlier step has failed")
        return self.models.opened(folder)

    def static(self) -> AdaptiveClassifier | None:
        """The static pruned model that is timed as a control, if there is one."""
        folder = self.state.static
        return self.models.opened(folder) if folder else None

    @cached_property
    def forms(self) -> BothForms:
        """The dense model and slim's in every engine and precision; files are written once.

        They read inputs up to the dense model's limit, also longer ones than the task has.
        """
        baseline, model, plan = self.models.baseline(), self.model(), self.plan()
        ends = (*plan.stops, plan.layers) if self.answer.exits else ()
        slim, cuts = self.engines.ours(model, plan, "slim"), self.engines.cuts(model, plan, ends)
        encoder = baseline.encoder if isinstance(baseline, SentenceEncoder) else baseline
        longest = token_limit(encoder) if self.task.kind == "tokens" else None
        return BothForms(self.dense_forms, slim, self.engines.thread_count, longest, cuts)

    @cached_property
    def dense_forms(self) -> Forms:
        """The dense model in every engine and precision."""
        return self.engines.dense(self.models.baseline())

    @cached_property
    def parts(self) -> tuple[Examples, Examples]:
        """The examples to choose on and those to calibrate on."""
        return held_out_parts(self.task, self.models.choose_on)

    @cached_property
    def timed(self) -> Examples:
        """The test examples that are timed: all, or a random sample of ``timed_examples``."""
        test, most = self.task.test, self.options.timed_examples
        if len(test) <= most:
            return test
        return test.subset(sorted(random.Random(0).sample(range(len(test)), most)))

    @cached_property
    def dense_flops(self) -> float:
        """The mean FLOPs of the dense model for the inputs that plans are chosen on."""
        return float(dense_flops(adaptive_form(self.models.dense()), self.parts[0]).mean())

    @cached_property
    def dense_logits(self) -> Tensor:
        """The answers of the dense baseline to the inputs that plans are chosen on."""
        return answers_to(self.task, self.parts[0], self.models.baseline())

    @cached_property
    def calibration_logits(self) -> Tensor:
        """The answers of the dense baseline to the inputs that forms are certified on."""
        return answers_to(self.task, self.parts[1], self.models.baseline())

    def keeps_floor(self, logits: Tensor) -> bool:
        """Whether these answers to the choosing inputs keep the floor of the score there.

        Always, if the score is the agreement with the dense model: that is certified.
        """
        if self.models.labelless:
            return True
        labels, floor = self.parts[0].labels, self.options.floor
        return good_enough(self.task.metric, logits, self.dense_logits, labels, floor)[2]

    def time(
        self, runs: Runs, examples: Examples, batch: int, rounds: int
    ) -> tuple[dict[str, InputTimes[Tensor]], dict[str, Tensor]]:
        """Times of every run on the examples, and its answers in the examples' order.

        ``TOKENIZER`` is timed among them on the same texts, where the task has one.
        """
        batches = inputs_of(self.task, examples, batch)
        random.Random(0).shuffle(batches)
        inputs = [inputs for _, inputs in batches]
        calls: dict[str, Callable[[Any], Any]] = {**runs, **self._tokenizer(batches, examples)}
        threads = self.engines.thread_count
        times = time_inputs(calls, inputs, rounds=rounds, threads=threads, block=BLOCK)
        task = self.task
        return times, {name: _in_order(task, batches, times[name], examples) for name in runs}

    def _tokenizer(
        self, batches: Sequence[tuple[list[int], Any]], examples: Examples
    ) -> dict[str, Callable[[Any], Any]]:
        """The tokenizer as a call that takes a batch's inputs and makes them from its texts."""
        tokenize = tokenizer_call(self.task)
        if tokenize is None:
            return {}
        texts = {
            id(inputs): [texts_of(self.task, examples, index) for index in indices]
            for indices, inputs in batches
        }
        return {TOKENIZER: lambda inputs: tokenize(texts[id(inputs)])}


def logits_one_by_one(steps: Steps, run: Any, examples: Examples, at_once: int = 1) -> Tensor:
    """A run's answers to each input alone, in their order; ``at_once`` of them side by side."""
    task = steps.task
    logits = torch.zeros(len(examples), task.width)
    for row, made in enumerate(alone(task, examples, run, at_once)):
        logits[row] = task.read(made.float(), examples, [row])[0]
    return logits


def _in_order(
    task: Task,
    batches: Sequence[tuple[list[int], Any]],
    taken: InputTimes[Any],
    examples: Examples,
) -> Tensor:
    """The answers of the timed calls in the order of the examples."""
    logits = torch.zeros(len(examples), task.width)
    for (indices, _), answer in zip(batches, taken.answers, strict=True):
        logits[indices] = task.read(answer.float(), examples, indices)
    return logits


def records_of(
    name: str,
    taken: InputTimes[Any],
    reference: InputTimes[Any] | None,
    logits: tuple[Tensor, Tensor],
    truth: Tensor,
    labels: dict[str, Label],
) -> list[Record]:
    """Time, speed, score and difference of one form; ``logits`` are its and the reference's.

    ``name`` is the metric; without ``reference`` the form is the baseline itself.
    """
    records = time_records("latency_ms", taken, labels)
    if reference is not None:
        records.append(speed_record("speed_up", taken, reference, labels))
    scored: dict[str, Label] = {**labels, "metric": name, "split": "test"}
    score = metric(name).score(logits[0], truth)
    records.append(Record("score", score, "score", "measured", scored, count=len(truth)))
    return [*records, gap_record("score_difference", name, logits, truth, scored)]


def time_records(name: str, taken: InputTimes[Any], labels: dict[str, Label]) -> list[Record]:
    """The mean and two percentiles of a call's times over the inputs."""
    values = {"mean": float(taken.typical_ms.mean())}
    values |= {f"p{share:g}": taken.percentile_ms(share) for share in (50.0, 99.0)}
    count = taken.times_ms.shape[1]
    return [
        Record(name, value, "ms", "measured", {**labels, "of": of}, count=count)
        for of, value in values.items()
    ]


def speed_record(
    record: str, taken: InputTimes[Any], reference: InputTimes[Any], labels: dict[str, Label]
) -> Record:
    """How many times faster a form is than another, with its interval over inputs."""
    ratio = speed_up(taken, reference)
    return Record(record, ratio.value, "ratio", "measured", labels, ratio.interval, ratio.inputs)


def gap_record(
    record: str, name: str, logits: tuple[Tensor, Tensor], truth: Tensor, labels: dict[str, Label]
) -> Record:
    """The difference of a metric between two forms, the first less the second."""
    gap = score_difference(name, *logits, truth)
    return Record(record, gap.value, "score", "measured", labels, gap.interval, gap.count)
