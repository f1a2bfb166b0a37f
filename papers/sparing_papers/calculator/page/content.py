"""What the calculator study's page says around its tables: verdict, notices, facts, words."""

from __future__ import annotations

from sparing.experiment.claims import FEWEST_SEEDS
from sparing.measure.statistics import mean_difference
from sparing.report import blocks, wording
from sparing.report.facts import facts as run_facts
from sparing.report.sections import Verdict
from sparing_papers.calculator.page.results import ValueResults
from sparing_papers.calculator.page.tables import share_text, verdict_of

UNTRAINED = ("two weights", "linear regression", "always 0", "calculator (text)", "baseline")
_WORDS = (
    (
        "value",
        "What most networks here read: operands as they are, + as 1, - as 0, and 0.5 for what is "
        "absent of fifteen slots. The calculator and language models read characters.",
    ),
    (
        "two weights",
        "The sum of (w0 + w1 c) x over numbers x and the codes c of their operators, by least "
        "squares. It is right everywhere: the input's form leaves two weights to learn.",
    ),
    (
        "calculator (text)",
        "The network that comes with sparing: it reads characters and writes them. It was trained "
        "on other sums, of up to four operands of up to three digits.",
    ),
    ("NAU, NAC", "Neural accumulators: the same two weights, trained by gradients."),
    (
        "xVal",
        "A transformer whose numbers are one embedding times their value.",
    ),
    (
        "FNN, RNN, LSTM, GRU",
        "Feed-forward network; simple recurrent network; long short-term memory; gated recurrent "
        "units.",
    ),
    (
        "bounded score",
        "100 times the geometric mean over in, out, long and out+long of b / (b + e), with the "
        "mean error e and the baseline's b.",
    ),
    (
        "published score",
        "The mean of four squared ratios of the baseline's errors over the network's: in range, "
        "out of range where operands' sizes add to 22, long of four operands, relative out of "
        "range. Without bound: mostly it measures the error in range.",
    ),
    ("baseline", "A feed-forward network of 30 and 30 neurons, as in the published score."),
    ("interval", "95 %, over seeds (Student): of other seeds on the same sums."),
)


def verdict(results: ValueResults) -> Verdict:
    """Which network is best, and which claims stand."""
    exact = _exact(results)
    if not _ranked(results):
        return Verdict("No verdict yet", ": no network was trained so far.", ())
    if results.seeds < FEWEST_SEEDS or results.missing:
        seeds = wording.count_of(results.seeds, "seed")
        because = f": every network has {seeds} so far, and a claim asks for {FEWEST_SEEDS} and "
        because += "for all cells; what stands below shows that everything runs."
        return Verdict("No claim is made", because, (exact,))
    (best, first), (second, next_) = _ranked(results)[:2]
    ours, theirs = (results.by_seed("bounded_score", arm) for arm in (best, second))
    seeds_ = sorted(ours.keys() & theirs.keys())
    gap = mean_difference([ours[n] for n in seeds_], [theirs[n] for n in seeds_])
    told = (exact, _claims(results))
    scores = f"({first:.1f} and {next_:.1f}, where 50 is a small network and 100 is exact)"
    if gap.interval is None or gap.interval[0] <= 0:
        because = f" {best} and {second} {scores}: their seeds overlap."
        return Verdict("Undecided which generalizes best,", because, told)
    because = f": its bounded score is clearly above that of {second}, the next {scores}. "
    because += "Networks with an accumulator built in are left out."
    return Verdict(f"{best} generalizes best", because, told)


def _ranked(results: ValueResults) -> list[tuple[str, float]]:
    """Trained networks without an accumulator built in, the highest bounded score first."""
    scored = [
        (arm, float(found.value))
        for arm in results.trained
        if arm not in (*UNTRAINED, "NAU", "NAC")
        if (found := results.mean("bounded_score", arm)) is not None and found.value is not None
    ]
    return sorted(scored, key=lambda pair: -pair[1])


def _exact(results: ValueResults) -> str:
    """What exactness comes to at unseen lengths and numbers."""
    ranked = _ranked(results)
    if not ranked:
        return ""
    best = ranked[0][0]
    own, two, text = (
        share_text(results.mean("exact", arm, set="out+long"))
        for arm in (best, "two weights", "calculator (text)")
    )
    return (
        f"Longer sums of unseen numbers: {best} gets {own} right, two weights {two}, and the "
        f"calculator, which reads text, {text}."
    )


def _claims(results: ValueResults) -> str:
    kinds = results.run.config.get("claims") or []
    goals = zip(results.run.goals, kinds, strict=False)
    found = [verdict_of(goal) for goal, kind in goals if kind == "claim"]
    if not found:
        return ""
    stand, fall = found.count("stands"), found.count("falls")
    return (
        f"Of {len(found)} published claims {stand} {'stands' if stand == 1 else 'stand'}, {fall} "
        f"{'falls' if fall == 1 else 'fall'}, and {found.count('undecided')} cannot be told."
    )


def notices(results: ValueResults) -> list[str]:
    """What a reader must know before believing a number here."""
    found = []
    if results.estimated and results.trained:
        watts = float(results.run.config.get("watts_per_core") or 0.0)
        found.append(
            f"This machine shows no counter of energy: joules are CPU seconds times {watts:g} W, "
            "an estimate, and every comparison is one of computing time."
        )
    planned, missing = len(results.run.config.get("cells") or []), results.missing
    if missing:
        found.append(
            f"This run is not complete: {planned - len(missing):,} of {planned:,} cells "
            f"are done; missing are {wording.listing(missing, 6)}. The same command goes on."
        )
    busy = blocks.busy_notices(results.run)
    return [*busy, *found, *blocks.data_notices(results.run)]


def headline(results: ValueResults) -> list[str]:
    """The few facts that stand above the verdict."""
    config = results.run.config
    found = [
        "sums of integers",
        wording.count_of(len(results.trained), "network"),
        wording.count_of(results.seeds, "seed"),
    ]
    if isinstance(config.get("started"), str):
        found.append(config["started"][:10])
    return found


def facts(results: ValueResults) -> list[tuple[str, str]]:
    """How networks were trained, then task and machine."""
    epochs = results.run.config.get("epochs")
    own = [
        (
            "training",
            f"at most {epochs} epochs of 1,907 sums of three operands from -5 to 4, batches of 32, "
            "squared error; ended after 10 epochs without a gain of 0.0001 on 636 others",
        )
    ]
    rest = run_facts(results.run)
    return [*own, *(pair for pair in rest if pair[0] not in ("baseline", "epochs"))]


def words() -> list[tuple[str, str]]:
    """(word, meaning) pairs."""
    return list(_WORDS)
