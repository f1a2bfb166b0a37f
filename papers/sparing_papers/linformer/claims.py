"""The open questions as claims, each with what would settle it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from sparing.core.record import Label, Labels, Record
from sparing.experiment.claims import (
    Claim,
    Condition,
    Estimate,
    GoalResult,
    Guard,
    decide,
    of_record,
    recorded,
)
from sparing.experiment.records import RecordTable
from sparing_papers.linformer.analysis import WITHIN
from sparing_papers.linformer.error import LEARNED, MEANS, RANDOM
from sparing_papers.linformer.guards import dense_learned, had_it, sensitive
from sparing_papers.linformer.language.claims import language_claims
from sparing_papers.linformer.longer import INTERPOLATED, SLICED
from sparing_papers.linformer.options import (
    LANGUAGE,
    LINFORMER,
    LONGER,
    POOLED,
    SHARED,
    SHIFT,
    SWAPPED,
    Options,
)
from sparing_papers.linformer.shift import ALL, swapped_name
from sparing_papers.linformer.sources import PRETRAINED
from sparing_papers.long_range.arms import DENSE, UNIFORM
from sparing_papers.long_range.projection import AS_MANY_SLOTS
from sparing_papers.long_range.swapped import WARM

NEAREST_SLOTS = 64
FEWEST_LENGTHS = 3
OTHER_MODELS = "other models: this one has no further heads"


def decide_goals(
    options: Options,
    tasks: Sequence[str],
    records: Sequence[Record],
    forms: Sequence[str] = (),
) -> list[GoalResult]:
    """Each claim: met, missed or undecided.

    ``tasks`` are those that were trained on, ``forms`` those of Linformer that were trained on the
    first of them.
    """
    table = RecordTable(records)
    return decide(claims_of(options, tasks, table, forms), table)


def claims_of(
    options: Options, tasks: Sequence[str], records: RecordTable, forms: Sequence[str]
) -> Iterator[Claim]:
    """The claims of the run's questions that have records.

    One of accuracy needs three seeds, and a task that passes the sensitivity check.
    """
    if LONGER in options.questions:
        for task in tasks:
            yield from _of_lengths(options, task)
    if SHARED in options.questions:
        for form in forms:
            text = f"{tasks[0]}, {form}: score less softmax's"
            yield _against_dense(text, -options.longer.margin, SHARED, tasks[0], "score", form, {})
    if SHIFT in options.questions:
        yield from _of_shift(options, tasks)
    if SWAPPED in options.questions and options.pretrained:
        yield from _of_swapped(options)
    yield from _of_matrices(records)
    yield from _of_cost(records)
    if LANGUAGE in options.questions:
        yield from language_claims(options.language, records)


def _against_dense(
    text: str,
    bound: float,
    question: str,
    task: str,
    name: str,
    arm: str,
    labels: Labels,
    *,
    at_most: bool = False,
) -> Claim:
    """A variant's quantity less dense attention's, on a task that passes the sensitivity check.

    Where dense attention itself guesses, or is no better than the mean of all values, every variant
    is as good; and a variant loses only what it had.
    """
    measure = recorded(
        f"{name}_difference", question=question, task=task, arm=arm, less=DENSE, **labels
    )
    guards: list[Guard] = [sensitive(question, task)]
    kind = "domain" if name == "domain_drop" else "length"
    if name.endswith("_drop"):
        home: Labels = {"question": question, "task": task, "arm": arm}
        if kind == "domain":
            guards.append(had_it("score", "home_chance", home))
        else:
            guards.append(had_it("length_score", "length_chance", {**home, "factor": 1}))
    if name != "score":
        guards.append(dense_learned(kind, {"question": question, "task": task, **labels}))
    return Claim(text, measure, bound, "share", at_most, guards=guards, family=question)


def _of_lengths(options: Options, task: str) -> Iterator[Claim]:
    """At the trained length and at the longest: each form beside dense attention."""
    margin, factor = options.longer.margin, max(options.factors)
    there: Labels = {"factor": factor}
    compared = (options.longer if task in options.longer.tasks else options.texts).compared
    of_task = partial(_against_dense, question=LONGER, task=task)
    if LINFORMER in compared:
        text = f"{task}, {LINFORMER}: score at the trained length less softmax's"
        yield of_task(text, -margin, name="score", arm=LINFORMER, labels={})
    for arm, trained in ((SLICED, LINFORMER), (POOLED, POOLED)):
        if trained in compared:
            text = f"{task}, {arm}: score at {factor}n less softmax's"
            yield of_task(text, -margin, name="length_score", arm=arm, labels=there)
    if LINFORMER in compared:
        text = f"{INTERPOLATED}: what it loses from n to {factor}n less what softmax loses"
        yield of_task(
            f"{task}, {text}",
            margin,
            name="length_drop",
            arm=INTERPOLATED,
            labels=there,
            at_most=True,
        )


def _of_shift(options: Options, tasks: Sequence[str]) -> Iterator[Claim]:
    """What a variant loses in other domains beside what dense attention loses there."""
    everywhere: Labels = {"domain": ALL}
    for task in options.texts.tasks:
        if task in tasks:
            text = f"{task}, {LINFORMER}: what it loses in other domains less what softmax loses"
            quantity = (SHIFT, task, "domain_drop", LINFORMER, everywhere)
            yield _against_dense(text, options.texts.margin, *quantity, at_most=True)
    if SWAPPED not in options.questions or not options.pretrained:
        return
    for task in options.swapped.tasks:
        for arm in options.swapped.of(task).compared:
            if arm not in (DENSE, UNIFORM):
                text = f"{task}, {arm} in the pretrained encoder: what it loses in other domains"
                quantity = (SHIFT, swapped_name(task), "domain_drop", arm, everywhere)
                yield _against_dense(
                    f"{text} less what softmax loses",
                    options.swapped_margin,
                    *quantity,
                    at_most=True,
                )


def _of_swapped(options: Options) -> Iterator[Claim]:
    """At the longest of its lengths: what a variant is below dense attention, and what it lost
    there.

    Both in the same encoder, distilled on the shortest of them.
    """
    margin = options.swapped_margin
    for task in options.swapped.tasks:
        stages = options.swapped.of(task)
        if not stages.read_at:
            continue
        long, cut = max(stages.read_at), options.swapped.task_options.get(task, {})
        short = f"distilled at {cut['max_tokens']} tokens" if "max_tokens" in cut else "distilled"
        here: Labels = {"question": PRETRAINED, "task": task, "stage": WARM}
        for arm in _forms(stages.compared):
            shown = SLICED if arm == LINFORMER else arm
            text = f"{task}, {shown} in the pretrained encoder, {short}"
            labels: Labels = {**here, "arm": arm, "tokens": long}
            first: Labels = {**here, "arm": arm, "tokens": min(stages.read_at)}
            dense = dense_learned("length", labels)
            score = recorded("length_score_difference", less=DENSE, **labels)
            at_long = f"{text}: score at {long} less softmax's"
            yield Claim(at_long, score, -margin, "share", guards=(dense,), family=SWAPPED)
            drop = recorded("length_drop_difference", less=DENSE, **labels)
            lost = f"{text}: what it loses at {long} less what softmax loses"
            both = (dense, had_it("length_score", "length_chance", first))
            yield Claim(lost, drop, margin, "share", True, guards=both, family=SWAPPED)


def _forms(arms: Sequence[str]) -> Iterator[str]:
    """The variants that are held against dense attention; Linformer's in both ways."""
    for arm in arms:
        if arm not in (DENSE, UNIFORM):
            yield arm
        if arm == LINFORMER:
            yield INTERPOLATED
        if arm == POOLED:
            yield f"{POOLED}, {AS_MANY_SLOTS}"


def _of_matrices(records: RecordTable) -> Iterator[Claim]:
    """How ranks grow, and what learned projections are worth, of each source of matrices."""
    for source in records.values_of("exponent", "source"):
        growth = records.find("exponent", source=source, of="effective_rank", range=WITHIN)
        if growth is None:
            continue
        first, last, count = (growth.labels[name] for name in ("shortest", "longest", "lengths"))
        text = (
            f"{source}: effective rank grows no faster than log n, {first} to {last} tokens "
            "(exponent)"
        )
        enough = int(count or 0) >= FEWEST_LENGTHS
        bound = _of_logarithm(growth)
        yield _of_models(text, growth, bound, unit="", at_most=True, enough=enough)
    for source in records.values_of("learned_gain", "source"):
        slots, tokens = _nearest(records, source)
        here: Labels = {"source": source, "slots": slots, "tokens": tokens}
        sizes = f"{slots} slots, {tokens} tokens"
        for baseline, name in ((RANDOM, "random ones"), (MEANS, "means of as many stretches")):
            gain = records.find("learned_gain", **here, less=baseline)
            text = f"{source}: error of learned projections less that of {name}, {sizes}"
            yield _of_models(text, gain, 0.0, unit="share", at_most=True)
        linked = records.find("rank_correlation", **here, method=LEARNED)
        text = f"{source}: heads of a higher effective rank lose more (rank correlation), {sizes}"
        yield _of_models(text, linked, 0.0, unit="")


def _of_models(
    text: str,
    record: Record | None,
    bound: float,
    *,
    unit: str,
    at_most: bool = False,
    enough: bool = True,
) -> Claim:
    """Needs three models, of a task that passes the sensitivity check.

    Attention that a task does not need shows nothing, nor do inputs that are longer than any that a
    model learned on. Of the one model that was trained elsewhere its own heads decide, for it
    alone.
    """

    def measure(records: RecordTable, confidence: float) -> Estimate | None:
        if record is None:
            return None
        models = None if alone else int(record.labels.get("models") or 1)
        measured = of_record(record, confidence)
        if alone:
            return replace(measured, count=None, forecast=None, lacks=OTHER_MODELS)
        return replace(measured, count=models)

    alone = record is not None and record.labels["source"] == PRETRAINED
    lengths = f"at least {FEWEST_LENGTHS} lengths"
    guards: list[Guard] = [Condition(lambda records, result: enough, lengths)]
    if record is not None and not alone:
        within = not record.labels.get("beyond")
        guards.append(Condition(lambda records, result: within, "lengths that it learned on"))
        guards.append(sensitive(LONGER, str(record.labels["source"])))
    name = f"{text}; of this model alone" if alone else text
    return Claim(name, measure, bound, unit, at_most, guards=guards, family="matrices")


def _of_logarithm(growth: Record) -> float:
    """The exponent that log n itself would have between the lengths that were measured."""
    short, long = (float(growth.labels[name] or 0) for name in ("shortest", "longest"))
    return math.log(math.log(long) / math.log(short)) / math.log(long / short)


def _nearest(records: RecordTable, source: Label) -> tuple[int, int]:
    """The longest length of those that were trained on, and the slots nearest to 64 there."""
    of_source = [r.labels for r in records.all("learned_gain", source=source)]
    of_source = [labels for labels in of_source if not labels["beyond"]] or of_source
    tokens = max(int(labels["tokens"] or 0) for labels in of_source)
    slots = [int(labels["slots"] or 0) for labels in of_source if labels["tokens"] == tokens]
    return min(slots, key=lambda k: abs(k - NEAREST_SLOTS)), tokens


def _of_cost(records: RecordTable) -> Iterator[Claim]:
    """Each form's time in an encoder at the longest length, over fused dense attention's."""
    ratios = records.all("latency_ratio")
    for arm in dict.fromkeys(str(r.labels["arm"]) for r in ratios):
        timed = [r for r in ratios if r.labels["arm"] == arm and r.labels["subject"] == "model"]
        if not timed or not arm.startswith(f"{LINFORMER}, k"):
            continue
        last = max(timed, key=lambda r: int(r.labels["tokens"] or 0))
        tokens = last.labels["tokens"]
        text = f"{arm}: time of the encoder at {tokens:,} tokens over fused softmax's"
        measure = partial(_timed, last)
        yield Claim(text, measure, 1.0, "ratio", at_most=True, family="cost")


def _timed(record: Record, records: RecordTable, confidence: float) -> Estimate:
    return of_record(record, confidence, records, scale="log", of_seeds=False)
