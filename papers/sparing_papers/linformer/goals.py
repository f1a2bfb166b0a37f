"""The open questions as goals, each with what would settle it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparing.core.record import Label, Record
from sparing.experiment.claims import Goal, GoalResult
from sparing_papers.linformer.analysis import WITHIN
from sparing_papers.linformer.error import LEARNED, MEANS, RANDOM
from sparing_papers.linformer.found import FEWEST_SEEDS, Found, judged
from sparing_papers.linformer.language.goals import language_goals
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
from sparing_papers.long_range.work import ABOVE_CHANCE

ASKED_SLOTS = 64
FEWEST_LENGTHS = 3


def judge(
    options: Options,
    tasks: Sequence[str],
    records: Sequence[Record],
    forms: Sequence[str] = (),
) -> list[GoalResult]:
    """Each goal: met, missed or undecided.

    One of accuracy is undecided where the task does not tell mechanisms apart or seeds are fewer
    than three; ``tasks`` are those that were trained on, ``forms`` those of Linformer that were
    trained on the first of them.
    """
    found = Found(records)
    return [
        *_of_lengths(options, tasks, found),
        *_of_sharing(options, tasks, forms, found),
        *_of_shift(options, tasks, found),
        *_of_swapped(options, found),
        *_of_matrices(found),
        *_of_cost(found),
        *(language_goals(options.language, found) if LANGUAGE in options.questions else ()),
    ]


def _of_lengths(options: Options, tasks: Sequence[str], found: Found) -> Iterator[GoalResult]:
    for task in tasks if LONGER in options.questions else ():
        yield from _of_task(options, task, found)


def _of_task(options: Options, task: str, found: Found) -> Iterator[GoalResult]:
    margin, factor = options.longer.margin, max(options.factors)
    there: dict[str, Label] = {"factor": factor}
    asked: tuple[tuple[str, str, str, dict[str, Label]], ...] = (
        (f"{LINFORMER}: score at the trained length less softmax's", "score", LINFORMER, {}),
        (
            f"{SLICED}: score at {factor}n less softmax's",
            "length_score",
            SLICED,
            there,
        ),
        (
            f"{POOLED}: score at {factor}n less softmax's",
            "length_score",
            POOLED,
            there,
        ),
    )
    given = options.longer if task in options.longer.tasks else options.texts
    for text, name, arm, labels in asked:
        if (LINFORMER if arm == SLICED else arm) not in given.compared:
            continue
        goal = Goal(f"{task}, {text}", -margin, "share")
        yield _decided(goal, found, LONGER, task, name, arm, labels)
    text = f"{INTERPOLATED}: what it loses from n to {factor}n less what softmax loses"
    if LINFORMER in given.compared:
        drop = Goal(f"{task}, {text}", margin, "share", at_most=True)
        yield _decided(drop, found, LONGER, task, "length_drop", INTERPOLATED, there)


def _of_sharing(
    options: Options, tasks: Sequence[str], forms: Sequence[str], found: Found
) -> Iterator[GoalResult]:
    """Fewer projections and other numbers of slots, each against softmax, at the trained length."""
    for form in forms if SHARED in options.questions else ():
        goal = Goal(f"{tasks[0]}, {form}: score less softmax's", -options.longer.margin, "share")
        yield _decided(goal, found, SHARED, tasks[0], "score", form, {})


def _of_shift(options: Options, tasks: Sequence[str], found: Found) -> Iterator[GoalResult]:
    if SHIFT not in options.questions:
        return
    for task in options.texts.tasks:
        if task in tasks:
            text = f"{task}, {LINFORMER}: what it loses in other domains less what softmax loses"
            goal = Goal(text, options.texts.margin, "share", at_most=True)
            labels: dict[str, Label] = {"domain": ALL}
            yield _decided(goal, found, SHIFT, task, "domain_drop", LINFORMER, labels)
    if SWAPPED not in options.questions or not options.pretrained:
        return
    for task in options.swapped.tasks:
        for arm in options.swapped.of(task).compared:
            if arm in (DENSE, UNIFORM):
                continue
            text = f"{task}, {arm} in the pretrained encoder: what it loses in other domains"
            less = f"{text} less what softmax loses"
            goal = Goal(less, options.swapped_margin, "share", at_most=True)
            place = (SHIFT, swapped_name(task), "domain_drop", arm)
            yield _decided(goal, found, *place, {"domain": ALL})


def _of_swapped(options: Options, found: Found) -> Iterator[GoalResult]:
    """At the longest of its lengths: what an arm is below dense attention, and what it lost there.

    Both in the same encoder, distilled on the shortest of them.
    """
    if SWAPPED not in options.questions or not options.pretrained:
        return
    for task in options.swapped.tasks:
        stages = options.swapped.of(task)
        if not stages.read_at:
            continue
        long, cut = max(stages.read_at), options.swapped.task_options.get(task, {})
        short = f"distilled at {cut['max_tokens']} tokens" if "max_tokens" in cut else "distilled"
        here: dict[str, Label] = {"question": PRETRAINED, "task": task, "stage": WARM}
        for arm in _forms(stages.compared):
            shown = SLICED if arm == LINFORMER else arm
            text = f"{task}, {shown} in the pretrained encoder, {short}"
            goal = Goal(f"{text}: score at {long} less softmax's", -options.swapped_margin, "share")
            yield _swapped_goal(goal, found, "length_score", {**here, "arm": arm, "tokens": long})
            text += f": what it loses at {long} less what softmax loses"
            drop = Goal(text, options.swapped_margin, "share", at_most=True)
            result = _swapped_goal(drop, found, "length_drop", {**here, "arm": arm, "tokens": long})
            first = {**here, "arm": arm, "tokens": min(stages.read_at)}
            had = _had(found, "length_score", "length_chance", first, result)
            yield result if had else replace(result, met="undecided")


def _forms(arms: Sequence[str]) -> Iterator[str]:
    """The arms that are held against dense attention; Linformer's in both ways."""
    for arm in arms:
        if arm not in (DENSE, UNIFORM):
            yield arm
        if arm == LINFORMER:
            yield INTERPOLATED
        if arm == POOLED:
            yield f"{POOLED}, {AS_MANY_SLOTS}"


def _swapped_goal(goal: Goal, found: Found, name: str, labels: dict[str, Label]) -> GoalResult:
    """Of three seeds and more, where dense attention tells of that length."""
    told = _tells(found, "length_score", "length_chance", {**labels, "arm": DENSE})
    gap = found.one(f"{name}_difference", less=DENSE, **labels)
    few = gap is None or gap.count < FEWEST_SEEDS
    result = judged(goal, gap)
    return result if told and not few else replace(result, met="undecided")


def _decided(
    goal: Goal,
    found: Found,
    question: str,
    task: str,
    name: str,
    arm: str,
    labels: dict[str, Label],
) -> GoalResult:
    gap = found.one(
        f"{name}_difference", question=question, task=task, arm=arm, less=DENSE, **labels
    )
    result = judged(goal, gap)
    few = gap is None or gap.count < FEWEST_SEEDS
    place: dict[str, Label] = {"question": question, "task": task, **labels}
    told = found.decides(question, task) and _can_tell(found, name, arm, place, result)
    return result if told and not few else replace(result, met="undecided")


def _can_tell(
    found: Found, name: str, arm: str, place: dict[str, Label], result: GoalResult
) -> bool:
    """Whether there was something to lose, and to fall behind.

    Where softmax itself guesses, or is no better than the mean of all values, everyone is as good.
    """
    own: dict[str, Label] = {"question": place["question"], "task": place["task"], "arm": arm}
    kind = "domain" if name == "domain_drop" else "length"
    if name.endswith("_drop"):
        first, chance = "score", "home_chance"
        if kind == "length":
            first, chance, own["factor"] = "length_score", "length_chance", 1
        if not _had(found, first, chance, own, result):
            return False
    dense = {**place, "arm": DENSE}
    return name == "score" or _tells(found, f"{kind}_score", f"{kind}_chance", dense)


def _had(found: Found, name: str, chance: str, first: dict[str, Label], result: GoalResult) -> bool:
    """Whether an arm had what it is said to have lost, or not.

    Who only guesses loses nothing, and who learned less has less to lose; who loses more has lost
    it all the same.
    """
    near = result.met is False or _near(found, name, first)
    return near and _learned(found, name, chance, first)


def _tells(found: Found, name: str, chance: str, dense: dict[str, Label]) -> bool:
    """Whether softmax is above chance there, and clearly better than uniform."""
    return found.apart(name, dense) and _learned(found, name, chance, dense)


def _learned(found: Found, name: str, chance: str, labels: dict[str, Label]) -> bool:
    """Whether a mean score lies 5 points above chance by its whole interval."""
    score = found.one(f"mean_{name}", **labels)
    guess = found.one(f"mean_{chance}", **labels)
    if score is None or score.interval is None or guess is None:
        return False
    return score.interval[0] - float(guess.value or 0.0) >= ABOVE_CHANCE


def _near(found: Found, name: str, labels: dict[str, Label]) -> bool:
    """Whether a score is less than 5 points below softmax's by its whole interval."""
    gap = found.one(f"{name}_difference", less=DENSE, **labels)
    return gap is not None and gap.interval is not None and gap.interval[0] > -ABOVE_CHANCE


def _of_matrices(found: Found) -> Iterator[GoalResult]:
    for source in found.every("exponent", "source"):
        growth = found.one("exponent", source=source, of="effective_rank", range=WITHIN)
        if growth is None:
            continue
        first, last, count = (growth.labels[each] for each in ("shortest", "longest", "lengths"))
        text = (
            f"{source}: effective rank grows no faster than log n, {first} to {last} tokens "
            "(exponent)"
        )
        goal = Goal(text, _of_logarithm(growth), "", at_most=True)
        result = _of_models(goal, growth, found)
        yield result if int(count or 0) >= FEWEST_LENGTHS else replace(result, met="undecided")
    for source in found.every("learned_gain", "source"):
        slots, tokens = _place(found, source)
        here: dict[str, Label] = {"source": source, "slots": slots, "tokens": tokens}
        asked = f"{slots} slots, {tokens} tokens"
        for rival, told in ((RANDOM, "random ones"), (MEANS, "means of as many stretches")):
            gain = found.one("learned_gain", **here, less=rival)
            text = f"{source}: error of learned projections less that of {told}, {asked}"
            yield _of_models(Goal(text, 0.0, "share", at_most=True), gain, found)
        linked = found.one("rank_correlation", **here, method=LEARNED)
        text = f"{source}: heads of a higher effective rank lose more (rank correlation), {asked}"
        yield _of_models(Goal(text, 0.0, ""), linked, found)


def _of_models(goal: Goal, record: Record | None, found: Found) -> GoalResult:
    """Decided by three models and more, of a task that tells mechanisms apart.

    What attends to no avail tells nothing, nor do inputs that are longer than any it learned on. Of
    the one model that was trained elsewhere its own heads decide, for it alone.
    """
    result = judged(goal, record)
    if record is None:
        return result
    if record.labels["source"] == PRETRAINED:
        return replace(result, name=f"{result.name}; of this model alone")
    if record.labels.get("beyond"):
        return replace(result, met="undecided")
    told = found.decides(LONGER, str(record.labels["source"]))
    enough = int(record.labels.get("models") or 1) >= FEWEST_SEEDS
    return result if told and enough else replace(result, met="undecided")


def _of_logarithm(growth: Record) -> float:
    """The exponent that log n itself would have between the lengths that were measured."""
    short, long = (float(growth.labels[name] or 0) for name in ("shortest", "longest"))
    return math.log(math.log(long) / math.log(short)) / math.log(long / short)


def _place(found: Found, source: Label) -> tuple[int, int]:
    """The longest length of those that were trained on, and the slots nearest to 64 there."""
    own = [r.labels for r in found.records if r.name == "learned_gain"]
    own = [labels for labels in own if labels["source"] == source]
    own = [labels for labels in own if not labels["beyond"]] or own
    tokens = max(int(labels["tokens"] or 0) for labels in own)
    slots = [int(labels["slots"] or 0) for labels in own if labels["tokens"] == tokens]
    return min(slots, key=lambda k: abs(k - ASKED_SLOTS)), tokens


def _of_cost(found: Found) -> Iterator[GoalResult]:
    ratios = [r for r in found.records if r.name == "latency_ratio"]
    for arm in dict.fromkeys(str(r.labels["arm"]) for r in ratios):
        own = [r for r in ratios if r.labels["arm"] == arm and r.labels["subject"] == "model"]
        if not own or not arm.startswith(f"{LINFORMER}, k"):
            continue
        last = max(own, key=lambda r: int(r.labels["tokens"] or 0))
        goal = Goal(
            f"{arm}: time of the encoder at {last.labels['tokens']:,} tokens over fused softmax's",
            1.0,
            "ratio",
            at_most=True,
        )
        yield judged(goal, last)
