"""What the Kerformer study's page says around its tables: verdict, notices, facts, words."""

from __future__ import annotations

from sparing.experiment.claims import FEWEST_SEEDS
from sparing.report import blocks, wording
from sparing.report.facts import facts as run_facts
from sparing.report.sections import Verdict
from sparing_papers.long_range.page.results import LongResults

ASKED = ("arena", "vision")
_WORDS = (
    (
        "kerformer",
        "Linear attention with the sigmoid of queries, the softmax of keys over their features, "
        "and a weight for each key from a squeeze-and-excitation; as published its weights belong "
        "to positions, so that a length is fixed.",
    ),
    (
        "kerformer, by content",
        "The same with weights that follow from the keys themselves: any length.",
    ),
    (
        "plain queries, plain keys",
        "Kerformer without the one map or the other; weights then have either sign, and sums are "
        "divided by the weights of keys alone.",
    ),
    ("SE-K", "The squeeze-and-excitation that weighs the keys."),
    ("uniform", "A control: every query gets the mean of all values."),
    ("none", "A control: no attention at all."),
    ("dct, rfa", "DCT-Former; random feature attention."),
    ("local", "Attention inside blocks of neighbours."),
    (
        "interval",
        "95 %: of scores in tables over seeds (Student), in claims over test examples too where "
        "right answers are kept; of times over interleaved rounds.",
    ),
    (
        "weight at a distance",
        "The mean weight of keys that far from the query, over each key's own mean: 1 is what "
        "distance does not change. Weights are read off mechanisms whose outputs are linear in the "
        "values; those with negative weights have none.",
    ),
)


def verdict(results: LongResults) -> Verdict:
    """How many published claims hold, and what the tasks could tell."""
    kinds = results.run.config.get("claims") or []
    met = [
        str(goal.get("met"))
        for goal, kind in zip(results.run.goals, kinds, strict=False)
        if kind == "claim"
    ]
    if not met:
        return Verdict("No verdict yet", ": nothing was measured so far.", ())
    holds, fails = met.count("True"), met.count("False")
    rest = len(met) - holds - fails
    lead = f"{holds} of {len(met)} published claims {'holds' if holds == 1 else 'hold'}"
    because = f"; {fails} {'does' if fails == 1 else 'do'} not, and {rest} cannot be told here."
    return Verdict(lead, because, _second(results))


def _second(results: LongResults) -> tuple[str, ...]:
    tasks = [(question, task) for question in ASKED for task in results.tasks(question)]
    known = [task for _, task in tasks]
    can, cannot = list[str](), list[str]()
    for question, task in tasks:
        name = f"{question}/{task}" if known.count(task) > 1 else task
        (can if results.decides(question, task)[0] else cannot).append(name)
    told = []
    for which, verb in ((can, "can"), (cannot, "cannot")):
        if which:
            names = wording.listing(which, 6)
            told.append(f"At these sizes and lengths {names} {verb} tell mechanisms apart.")
    return tuple(told)


def notices(results: LongResults) -> list[str]:
    """What a reader must know before believing a number here."""
    found = results.progress()
    found += _few_seeds(results.seeds)
    swapped = {r.labels.get("seed") for r in results.all("score", question="pretrained")}
    if 0 < len(swapped) < FEWEST_SEEDS:
        found.append(
            f"Swapped encoders have {wording.count_of(len(swapped), 'seed')}: neither Table 4's "
            "claim nor what distilled ones keep is decided."
        )
    busy = blocks.busy_notices(results.run)
    return [*busy, *found, *blocks.data_notices(results.run)]


def _few_seeds(seeds: dict[str, dict[str, int]]) -> list[str]:
    """Which trainings have too few seeds for a claim: all, those of some tasks, or of some arms."""
    told: dict[str, list[str]] = {}
    for task, arms in seeds.items():
        few = {arm: count for arm, count in arms.items() if count < FEWEST_SEEDS}
        for count in sorted(set(few.values())):
            names = [arm for arm in few if few[arm] == count]
            of = "each training" if len(names) == len(arms) else wording.listing(names, 6)
            told.setdefault(f"{wording.count_of(count, 'seed')} of {of}", []).append(task)
    return [
        f"{'' if len(tasks) == len(seeds) else wording.listing(tasks) + ': '}{what}: no claim "
        "about scores is decided by fewer than three."
        for what, tasks in told.items()
    ]


def headline(results: LongResults) -> list[str]:
    """The few facts that stand above the verdict."""
    config = results.run.config
    found = [
        "long ranges, images, swapped encoders",
    ]
    if results.seeds:
        arms = {arm for question in ("arena", "vision") for arm in results.arms(question)}
        found.append(wording.count_of(len(arms), "arm"))
        found += results.seeds_told
    if isinstance(config.get("started"), str):
        found.append(config["started"][:10])
    return found


def facts(results: LongResults) -> list[tuple[str, str]]:
    """How each task was trained on, then task and machine."""
    told = results.run.config.get("trained_on") or {}
    own = [(f"{task}", str(text)) for task, text in told.items()]
    rates = results.rates("arena", "vision")
    own += [(f"{task}: learning rates chosen", text) for task, text in rates]
    rest = run_facts(results.run)
    return [*own, *(pair for pair in rest if pair[0] != "task")]


def words() -> list[tuple[str, str]]:
    """(word, meaning) pairs."""
    return list(_WORDS)
