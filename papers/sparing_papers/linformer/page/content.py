"""What the Linformer study's page says around its tables: verdict, notices, facts, words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sparing.core.record import Label, Record
from sparing.report import blocks, wording
from sparing.report.facts import facts as run_facts
from sparing.report.sections import Verdict
from sparing_papers.linformer.page.figures import error_length, sources
from sparing_papers.linformer.page.leads import DECISIVE, leads
from sparing_papers.linformer.page.matrices import growth_words, plain_text
from sparing_papers.linformer.page.tables import SLICED, ratios
from sparing_papers.long_range.page.results import LongResults
from sparing_papers.long_range.page.tables import points_text, ratio_text

GOALS = (
    "The open questions. A goal of accuracy is decided only where its task tells mechanisms "
    "apart and three seeds are done; else it is undecided, whatever its value."
)
OF_TASKS = ("longer", "sharing", "shift", "spectrum", "error")
_WORDS = (
    ("k, slots", "The rows that Linformer projects all keys, and all values, to."),
    ("n", "The number of tokens; in the tables of lengths, the number that was trained on."),
    ("sliced", "Columns of a projection beyond what training saw are left as they were drawn."),
    ("interpolated", "A projection stretched along the tokens to the longer input."),
    ("guessing", "Always the most frequent answer."),
    (
        "undecided",
        "The interval is too wide, or the task does not tell mechanisms apart: dense attention is "
        "not 5 points above guessing, or not clearly better than the mean of all values (uniform).",
    ),
    (
        "interval",
        "95 %: over seeds for scores, over models for what is asked of their matrices (over heads "
        "where there is one model, or in tables of means: heads of a model are alike, and another "
        "one may differ), over rounds for times. Inputs are the same for all seeds.",
    ),
    ("vacuous", "A bound that is 1 or more, or that has no solution: it promises nothing."),
)


def headline(results: LongResults) -> list[str]:
    """The few facts that stand above the verdict."""
    config = results.run.config
    tasks = list(config.get("tasks") or {}) if results.asks(*OF_TASKS) else []
    arms = len(results.arms("longer"))
    found = [", ".join(tasks), wording.count_of(arms, "arm") if arms else ""]
    found += results.seeds_told
    if isinstance(config.get("started"), str):
        found.append(config["started"][:10])
    return [each for each in found if each]


def verdict(results: LongResults) -> Verdict:
    """Whether few slots hold on longer inputs, then what else was answered."""
    second = (
        _counted(results),
        *_trained(results),
        *_ranks(results),
        *_errors(results),
        *(_costs(results) if results.asks(*DECISIVE, "language") else ()),
    )
    lead, because = leads(results) or _decisive(results)
    return Verdict(lead, because, second)


@dataclass(frozen=True)
class _Asked:
    """Linformer on longer inputs than it was trained on, in one kind of encoder."""

    where: str
    gap: Record
    met: str
    loses_more: bool

    @property
    def text(self) -> str:
        """The difference from softmax, and where; said so where it decides nothing."""
        undecided = ", undecided" if self.met == "undecided" else ""
        return f"{points_text(self.gap)} points {self.where}{undecided}"


def _decisive(results: LongResults) -> tuple[str, str]:
    """The experiment that settles most: longer inputs than training saw."""
    asked = [*_from_nothing(results), *_in_the_pretrained(results)]
    asked.sort(key=lambda each: each.met == "undecided")
    if asked:
        return _lead(asked), f": its score less softmax's is {'; '.join(e.text for e in asked)}."
    untold = [(task, results.decides("longer", task)) for task in results.tasks("longer")]
    reasons = "; ".join(f"{task}: {why}" for task, (decided, why) in untold if not decided)
    because = f": {reasons or 'no encoder trained here was asked on them so far'}."
    return _lead(asked), because


def _lead(asked: Sequence[_Asked]) -> str:
    """One that fails is enough to say no; yes is said where all hold."""
    failed = [each for each in asked if each.met == "fails"]
    if failed and not any(each.loses_more for each in failed):
        return "Linformer is behind on longer inputs, and not shown to lose more by length"
    words = "Undecided whether Linformer holds"
    if failed:
        words = "Linformer does not hold"
    elif asked and all(each.met == "holds" for each in asked):
        words = "Linformer holds"
    return f"{words} on longer inputs than it was trained on"


def _from_nothing(results: LongResults) -> Iterator[_Asked]:
    """Encoders that were trained from nothing, on tasks that tell mechanisms apart."""
    factor = _factor(results)
    for task in results.tasks("longer"):
        labels = _labels(task, SLICED, factor)
        gap = results.difference("length_score", labels)
        if gap is not None and results.decides("longer", task)[0]:
            where = f"on {task} at {factor} times the length of training"
            met = _met(results, f"{task}, {SLICED}: score at {factor}n")
            yield _Asked(where, gap, met, _loses_more(results, labels))


def _in_the_pretrained(results: LongResults) -> Iterator[_Asked]:
    """A pretrained encoder, swapped and distilled on short inputs."""
    judged = list(results.all("length_score", question="pretrained", arm="linformer"))
    for task in dict.fromkeys(str(r.labels["task"]) for r in judged):
        lengths = [int(r.labels["tokens"] or 0) for r in judged if r.labels["task"] == task]
        short, long = min(lengths), max(lengths)
        labels: dict[str, Label] = {"question": "pretrained", "task": task, "arm": "linformer"}
        labels |= {"stage": "warm", "tokens": long}
        gap = results.difference("length_score", labels)
        if gap is not None:
            where = f"in the pretrained encoder, distilled at {short} tokens of {task}, at {long:,}"
            met = _met(results, f"{task}, {SLICED} in the pretrained encoder", f"score at {long}")
            yield _Asked(where, gap, met, _loses_more(results, labels))


def _loses_more(results: LongResults, labels: dict[str, Label]) -> bool:
    """Whether length costs Linformer more than softmax: what is behind anyway has other reasons."""
    gap = results.difference("length_drop", labels)
    return gap is not None and gap.interval is not None and gap.interval[0] > 0


def _met(results: LongResults, start: str, within: str = "") -> str:
    """What the goal of this experiment came to, told by how its name starts and what is in it."""
    names = ((str(goal.get("name")), goal.get("met")) for goal in results.run.goals)
    met = [verdict for name, verdict in names if name.startswith(start) and within in name]
    verdict = met[-1] if met else None
    return "holds" if verdict is True else "fails" if verdict is False else "undecided"


def _counted(results: LongResults) -> str:
    verdicts = [goal.get("met") for goal in results.run.goals]
    if not verdicts:
        return "No goal is judged so far."
    met, missed = verdicts.count(True), verdicts.count(False)
    rest = len(verdicts) - met - missed
    return f"Of {len(verdicts)} goals: {met} met, {missed} not met, {rest} undecided."


def _trained(results: LongResults) -> list[str]:
    """How Linformer does at the length of training, where a task tells anything."""
    found = []
    for task in results.tasks("longer"):
        gap = results.difference("score", {"question": "longer", "task": task, "arm": "linformer"})
        if gap is not None and results.decides("longer", task)[0]:
            found.append(f"{task} {points_text(gap)}")
    return [f"At the length of training, points from softmax: {'; '.join(found)}."] * bool(found)


def _ranks(results: LongResults) -> list[str]:
    found = [
        f"{r.labels['source']} {plain_text(r)}: {growth_words(r)}"
        for r in results.all("exponent", of="effective_rank", range="trained")
    ]
    return [f"Effective rank ~ n^a, a: {'; '.join(found)}."] * bool(found)


def _errors(results: LongResults) -> list[str]:
    """What learning gains, and how much of the bounds says anything."""
    found = []
    for source in sources(results, "learned_gain"):
        tokens, beyond = error_length(results, source)
        gains = list(results.all("learned_gain", source=source, tokens=tokens))
        gain = max(gains, key=lambda r: int(r.labels["slots"] or 0))
        here: dict[str, Label] = {"source": source, "tokens": tokens, "slots": gain.labels["slots"]}
        errors = [
            plain_text(results.find("mean_output_error", **here, method=method))
            for method in ("learned", "random")
        ]
        found.append(
            f"{source}, {gain.labels['slots']} slots for {tokens} tokens{beyond}: the output errs "
            f"by {errors[0]} with learned projections, by {errors[1]} with drawn ones."
        )
    return [*found, *_vacuous(results)]


def _vacuous(results: LongResults) -> list[str]:
    found = []
    for theorem in (1, 2):
        bounds = list(results.all("mean_bound", theorem=theorem))
        empty = sum(r.value is None or float(r.value) >= 1 for r in bounds)
        if bounds:
            found.append(f"that of theorem {theorem} in {empty} of {len(bounds)} cases")
    return [f"The printed bounds are vacuous here: {', '.join(found)}."] * bool(found)


def _costs(results: LongResults) -> list[str]:
    shown: dict[str, Record] = {}
    for record in ratios(results):
        shown.setdefault(str(record.labels["arm"]), record)
    found = [
        f"{arm} takes {ratio_text(r)} of fused softmax's time at {r.labels['tokens']:,} tokens"
        for arm, r in shown.items()
    ]
    return [f"Longest length where both ran: {'; '.join(found)}."] * bool(found)


def notices(results: LongResults) -> list[str]:
    """What a reader must know before believing a number here."""
    found = []
    for question in ("longer", "shift"):
        for task in results.tasks(question):
            decided, why = results.decides(question, task)
            if not decided:
                found.append(f"{task} ({question}) decides nothing about accuracy: {why}.")
    busy = blocks.busy_notices(results.run)
    return [*busy, *found, *results.progress(), *blocks.data_notices(results.run)]


def facts(results: LongResults) -> list[tuple[str, str]]:
    """How each task was trained on, then task and machine."""
    config = results.run.config
    own = [
        (f"{task}, training", _recipe(facts_of))
        for task, facts_of in (config.get("tasks") or {}).items()
    ]
    rates = results.rates("longer", "sharing")
    own += [(f"{task}: learning rates chosen", text) for task, text in rates]
    if config.get("pretrained"):
        own.append(("pretrained", str(config["pretrained"])))
    backbone = "4 layers, width 128, feed-forward 256, 4 heads of 32"
    return [
        *own,
        ("backbone", backbone),
        *run_facts(results.run),
    ]


def _recipe(told: dict[str, Any]) -> str:
    return ", ".join(f"{key.replace('_', ' ')} {_number(value)}" for key, value in told.items())


def _number(value: object) -> str:
    if isinstance(value, float):
        return wording.trimmed(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def words() -> list[tuple[str, str]]:
    """What the page's words mean."""
    return list(_WORDS)


def _factor(results: LongResults) -> int:
    return max((int(each) for each in results.run.config.get("factors") or [1]), default=1)


def _labels(task: str, arm: str, factor: int) -> dict[str, Label]:
    return {"question": "longer", "task": task, "arm": arm, "factor": factor}
