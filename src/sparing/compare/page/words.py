"""What the words of a report mean, in plain sentences."""

from __future__ import annotations

_WORDS = (
    (
        "faster, slower",
        "How {dense}'s time and this arm's compare on identical work. 2.0× faster takes half "
        "the time; 2.0× slower takes double. The factor is never below 1.",
    ),
    (
        "less, more",
        "The same for memory, arithmetic and energy. 2.0× less needs half of what {dense} "
        "needs; 2.0× more needs double.",
    ),
    (
        "interval",
        "The 95 % interval of the number above it. Accuracies have Student's interval over the "
        "seeds. Where the interval of a ratio holds 1, no direction is claimed.",
    ),
    (
        "better",
        "The whole interval of the difference in accuracy lies above 0.",
    ),
    (
        "no worse, worse",
        "The whole interval of the difference lies above minus the stated margin, or below it. "
        "Intervals that decide hold for all arms that are still open at once, and so are wider "
        "than the 95 % interval shown; the goals below are decided by the same rule.",
    ),
    (
        "undecided",
        "The interval is too wide to say any of these. More seeds would help; it does not mean "
        "equal.",
    ),
    (
        "latency",
        "The median time of one call, measured in turns with the baseline, so that both see "
        "the same machine.",
    ),
    (
        "attention core",
        "What mixes the tokens, without the projections before and after it and without the "
        "rest of the model.",
    ),
    (
        "attention's share, largest gain",
        "The part of the {dense} model's time that its attention core takes, and how much "
        "faster the model would be if that part cost nothing. No attention can give more.",
    ),
    (
        "peak memory",
        "The largest memory that the call needs beyond what was there before it.",
    ),
    (
        "measured, integrated",
        "Energy read from a hardware counter, or summed from power readings over time.",
    ),
    (
        "estimated",
        "Energy as a stated constant times processor time. A ratio of two estimates is a ratio "
        "of processor times, not of energy.",
    ),
    ("modelled", "Computed from a formula, not observed."),
    ("paper", "Quoted from a publication."),
)


def words(dense: str) -> list[tuple[str, str]]:
    """(word, meaning) pairs; ``dense`` is the baseline's name in running text."""
    return [(word, meaning.replace("{dense}", dense)) for word, meaning in _WORDS]
