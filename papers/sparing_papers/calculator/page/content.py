"""What the calculator study's page says around its tables: verdict, notices, facts."""

from __future__ import annotations

from sparing.experiment.claims import FEWEST_SEEDS
from sparing.report import blocks, wording
from sparing.report.estimates import share_text
from sparing.report.facts import facts as run_facts
from sparing.report.prose import Prose
from sparing.report.run import Run
from sparing.report.sections import Verdict
from sparing_papers.calculator.analysis import mean_of
from sparing_papers.calculator.claims import is_clearly_above, ranked, verdict_of
from sparing_papers.calculator.measures import CLAIM
from sparing_papers.calculator.names import CALCULATOR, TWO_WEIGHTS

TEXT = Prose("sparing_papers.calculator.page")


def evaluated_arms(run: Run) -> list[str]:
    """Every variant that was evaluated, in the order of the configuration."""
    evaluated = run.table.values_of("exact", "arm")
    return [str(arm) for arm in run.config["arms"] if arm in evaluated]


def trained_arms(run: Run) -> list[str]:
    """The variants that were trained here."""
    return [arm for arm in evaluated_arms(run) if mean_of(run.table, "train_time_s", arm)]


def seeds(run: Run) -> int:
    """The fewest trainings of a variant."""
    times = (mean_of(run.table, "train_time_s", arm) for arm in trained_arms(run))
    return min((time.count or 0 for time in times if time), default=0)


def verdict(run: Run) -> Verdict:
    """Which network is best, and which claims hold."""
    order = ranked(run.table, trained_arms(run))
    if len(order) < 2:
        return Verdict("No verdict yet", TEXT("few-networks"))
    (best, first), (second, following) = order[:2]
    exact = _exact(run, best)
    if seeds(run) < FEWEST_SEEDS or blocks.missing_cells(run):
        measured = wording.count_of(seeds(run), "seed")
        because = TEXT("few-seeds", seeds=measured, fewest=FEWEST_SEEDS)
        return Verdict("No claim is made", because, (exact,))
    scores = TEXT("scores", first=first, next=following)
    if is_clearly_above(run.table, best, second):
        because, lead = TEXT("best", second=second, scores=scores), f"{best} generalizes best"
    else:
        because = f" {TEXT('undecided', best=best, second=second, scores=scores)}"
        lead = "Undecided which generalizes best,"
    return Verdict(lead, because, (exact, _claims(run)))


def _exact(run: Run, best: str) -> str:
    """What exactness comes to at unseen lengths and numbers."""
    best_exact, two, text = (
        share_text(mean_of(run.table, "exact", arm, set="out+long"))
        for arm in (best, TWO_WEIGHTS, CALCULATOR)
    )
    return TEXT("exact", best=best, own=best_exact, two=two, text=text)


def _claims(run: Run) -> str:
    """How many of the published claims hold and fail."""
    goals = zip(run.goals, run.config.get("claims") or [], strict=False)
    verdicts = [verdict_of(goal) for goal, kind in goals if kind == CLAIM]
    if not verdicts:
        return ""
    supported, refuted, undecided = map(verdicts.count, ("holds", "fails", "undecided"))
    return TEXT(
        "verdicts",
        claims=len(verdicts),
        supported=supported,
        hold="holds" if supported == 1 else "hold",
        refuted=refuted,
        fail="fails" if refuted == 1 else "fail",
        open=undecided,
    )


def notices(run: Run) -> list[str]:
    """What a reader must know before believing a number here."""
    return [
        *blocks.busy_notices(run),
        *blocks.energy_notices(run),
        *blocks.unfinished_notices(run, lambda cells: wording.listing(cells, 6)),
        *blocks.data_notices(run),
    ]


def headline(run: Run) -> list[str]:
    """The few facts above the verdict."""
    networks = wording.count_of(len(trained_arms(run)), "network")
    started = [str(run.config["started"])[:10]] if run.config.get("started") else []
    return ["sums of integers", networks, wording.count_of(seeds(run), "seed"), *started]


def facts(run: Run) -> list[tuple[str, str]]:
    """How networks were trained, then task and machine."""
    training = ("training", TEXT("training", epochs=run.config.get("epochs")))
    rest = (pair for pair in run_facts(run) if pair[0] not in ("baseline", "epochs"))
    return [training, *rest]
