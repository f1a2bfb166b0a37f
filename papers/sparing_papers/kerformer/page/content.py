"""What the Kerformer study's page says around its tables: verdict, notices, facts."""

from __future__ import annotations

from sparing.experiment.claims import FEWEST_SEEDS
from sparing.report import blocks, wording
from sparing.report.facts import facts as run_facts
from sparing.report.run import Run
from sparing.report.sections import Verdict
from sparing_papers.kerformer.page import prose
from sparing_papers.long_range.page.lookups import (
    arms,
    decides,
    progress,
    rates,
    seeds,
    seeds_in_words,
    tasks,
)

TRAINED = ("arena", "vision")


def verdict(run: Run) -> Verdict:
    """How many published claims hold, and what the tasks could show."""
    kinds = run.config.get("claims") or []
    met = [str(g.get("met")) for g, kind in zip(run.goals, kinds, strict=False) if kind == "claim"]
    if not met:
        return Verdict("No verdict yet", ": nothing was measured so far.", ())
    holds, fails = met.count("True"), met.count("False")
    rest = len(met) - holds - fails
    lead = f"{holds} of {len(met)} published claims {'holds' if holds == 1 else 'hold'}"
    because = f"; {fails} {'does' if fails == 1 else 'do'} not, and {rest} cannot be decided here."
    return Verdict(lead, because, _second(run))


def _second(run: Run) -> tuple[str, ...]:
    places = [(question, task) for question in TRAINED for task in tasks(run, question)]
    known = [task for _, task in places]
    names: dict[bool, list[str]] = {True: [], False: []}
    for question, task in places:
        name = f"{question}/{task}" if known.count(task) > 1 else task
        names[decides(run, question, task)[0]].append(name)
    return tuple(
        prose("tells-apart", tasks=wording.listing(names[able], 6), verb=verb)
        for able, verb in ((True, "passed"), (False, "did not pass"))
        if names[able]
    )


def notices(run: Run) -> list[str]:
    """What a reader must know before believing a number here."""
    notes = [*blocks.busy_notices(run), *progress(run), *_few_seeds(seeds(run))]
    swapped = len(run.table.values_of("score", "seed", question="pretrained"))
    if 0 < swapped < FEWEST_SEEDS:
        notes.append(prose("few-swapped", seeds=wording.count_of(swapped, "seed")))
    return [*notes, *blocks.data_notices(run)]


def _few_seeds(seeds_of: dict[str, dict[str, int]]) -> list[str]:
    """Which trainings have too few seeds for a claim: all, or those of some tasks or variants."""
    tasks_of: dict[str, list[str]] = {}
    for task, counts in seeds_of.items():
        few = {arm: count for arm, count in counts.items() if count < FEWEST_SEEDS}
        for count in sorted(set(few.values())):
            names = [arm for arm in few if few[arm] == count]
            of = "each training" if len(names) == len(counts) else wording.listing(names, 6)
            tasks_of.setdefault(f"{wording.count_of(count, 'seed')} of {of}", []).append(task)
    return [
        prose(
            "few-seeds",
            tasks="" if len(names) == len(seeds_of) else wording.listing(names) + ": ",
            seeds=few,
        )
        for few, names in tasks_of.items()
    ]


def headline(run: Run) -> list[str]:
    """The few facts above the verdict."""
    parts = ["long ranges, images, swapped encoders"]
    if seeds(run):
        trained = {arm for question in TRAINED for arm in arms(run, question)}
        parts += [wording.count_of(len(trained), "variant"), *seeds_in_words(run)]
    if isinstance(run.config.get("started"), str):
        parts.append(run.config["started"][:10])
    return parts


def facts(run: Run) -> list[tuple[str, str]]:
    """How each task was trained on, then task and machine."""
    trained_on = (run.config.get("trained_on") or {}).items()
    return [
        *((str(task), str(recipe)) for task, recipe in trained_on),
        *((f"{task}: learning rates chosen", text) for task, text in rates(run, *TRAINED)),
        *(pair for pair in run_facts(run) if pair[0] != "task"),
    ]
