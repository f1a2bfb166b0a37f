"""What the AdaAttention page says around its tables: verdict, notices, facts, words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sparing.core.record import Record
from sparing.report import content, wording
from sparing.report.adaattention_results import (
    ADAPTIVE,
    AS_PRINTED,
    FREE,
    OURS,
    AdaResults,
    name_of_arm,
)
from sparing.report.run import Config

CLAIMED = 1.76
_FEW_EXAMPLES = 3000
_CONTROLS = ("random", "global", "uniform")
_WORDS = (
    (
        "speed",
        "The full model's time for the same inputs over the arm's: 2\N{MULTIPLICATION SIGN} takes "
        "half the time, 0.5\N{MULTIPLICATION SIGN} twice. All arms take turns on every input.",
    ),
    (
        "full",
        "The dense model with fused attention, trained on for as many epochs as every other arm, "
        "so that more training alone favours nobody. All keep their best validation, but where "
        "scores are learned: the printed rule keeps the last one above 95 % of the dense score.",
    ),
    (
        "adaptive",
        "The paper's mechanism with its faults mended: the loss has the right sign, gradients pass "
        "the threshold, widths are those of heads.",
    ),
    ("the printed loss", "The same with the loss as it is printed: it rewards high scores."),
    ("random scores", "A score drawn once for each head, never learned."),
    ("fixed global scores", "A learned score for each head, the same for every input."),
    ("uniform half width", "Every head compares half its coordinates."),
    ("skip tokens", "Half the tokens are dropped by the attention they receive, for good."),
    (
        "prune heads",
        "Half the heads are removed, the least important first (Michel et al., 2019), then what is "
        "left is trained on; with training between, a share goes after each epoch of as many.",
    ),
    (
        "rotated",
        "Heads turned before the cut, so that their first coordinates say most on the data; "
        "folded into the weights.",
    ),
    (
        "slim (ours)",
        "Early exits and narrower layers, distilled from the dense model; its plan is chosen on "
        "half of validation. Eager PyTorch here, like all arms: sparing slim also exports it.",
    ),
    ("INT8", "Linear layers in 8 bits by torch.ao, dynamic, one scale a tensor, not trained for."),
    (
        "interval",
        "95 %: of speeds over inputs or rounds, of scores by resampling test examples. It says "
        "nothing of other trainings.",
    ),
    (
        "mean score",
        "What the scorer gives heads on average over test inputs; the share of heads "
        "that is cut stands under it.",
    ),
    ("arithmetic", "Matrix products that really ran, counted; a multiply-add is two."),
)


@dataclass(frozen=True)
class Verdict:
    """The page's first sentences."""

    lead: str
    because: str
    second: tuple[str, ...]


def verdict(results: AdaResults) -> Verdict:
    """Whether the printed speed is there, and what saves instead."""
    found = results.speed(ADAPTIVE)
    if found is None or found.value is None:
        because = ": the adaptive arm was not timed in this run so far."
        return Verdict("No verdict yet", because, ())
    high = found.interval[1] if found.interval else found.value
    low = found.interval[0] if found.interval else found.value
    lead = f"The printed {CLAIMED}{wording.TIMES} is not there"
    if low >= CLAIMED:
        lead = f"The printed {CLAIMED}{wording.TIMES} is reached"
    elif high >= CLAIMED:
        lead = f"The printed {CLAIMED}{wording.TIMES} is undecided"
    second = [_on_texts(results, found), _accuracy(results), _ours(results)]
    kept = tuple(sentence for sentence in second if sentence)
    return Verdict(lead, _because(results, found), kept)


def _because(results: AdaResults, found: Record) -> str:
    """At BERT-base's shape, beside what arithmetic allows; else on the tasks' own texts."""
    longest = max(results.lengths, default=0)
    shaped = results.shape_speed(AS_PRINTED, longest)
    if shaped is None:
        place = f"{results.inputs} of {wording.listing(results.ablations)}"
        return f": on the {place} the paper's method makes the model {_pace(found)}."
    text = (
        f": at the shape of BERT-base and {wording.length(longest)} the paper's method makes the "
        f"whole model {_pace(shaped)}"
    )
    most = results.all.value("largest_speed_up", tokens=longest, kind="printed")
    if most is None:
        return f"{text}."
    return f"{text}; arithmetic allows {most:.3f}{wording.TIMES} at best, its scorer unpaid."


def _on_texts(results: AdaResults, found: Record) -> str:
    """What no attention at all would bring, and the speed on the tasks' texts."""
    longest = max(results.lengths, default=0)
    free, tasks = results.shape_speed(FREE, longest), wording.listing(results.ablations)
    if free is None:
        return ""
    return (
        f"With no attention at all that model would be {_pace(free)}: nothing that changes "
        f"attention alone can do more. On the {results.inputs} of {tasks}, with this run's own "
        f"model, the method makes it {_pace(found)}."
    )


def _pace(found: Record) -> str:
    value = found.value or 1.0
    if found.interval and found.interval[0] < 1 < found.interval[1]:
        return f"neither clearly faster nor slower ({_ends(found)})"
    word = wording.ratio(value, "slower", "faster")
    ends = f" ({wording.ratio_interval(found.interval)})" if found.interval else ""
    return f"{word}{ends}"


def _ends(found: Record) -> str:
    if found.interval is None:
        return "no interval"
    return f"{found.interval[0]:.2f}{wording.DASH}{found.interval[1]:.2f}{wording.TIMES}"


def _accuracy(results: AdaResults) -> str:
    """What adapting to inputs brings over not adapting."""
    mine = results.difference(ADAPTIVE)
    if mine is None or mine.value is None:
        return ""
    text = f"Its score is {_points(mine)} against the full model"
    others = [
        f"{wording.points(other.value or 0.0, 1.0)} with {name_of_arm(arm)}"
        for arm in _CONTROLS
        if (other := results.difference(arm)) is not None
    ]
    if not others:
        return f"{text}."
    return f"{text}; it is {wording.listing(others)}. {_apart(results)}"


def _apart(results: AdaResults) -> str:
    """Whether the intervals of the adaptive arm and its controls keep apart."""
    mine = results.difference(ADAPTIVE)
    for other in map(results.difference, _CONTROLS):
        if mine is None or other is None or not mine.interval or not other.interval:
            continue
        if mine.interval[0] > other.interval[1]:
            return "It does better than some of these controls, beyond the intervals."
        if mine.interval[1] < other.interval[0]:
            return "It does worse than some of these controls, beyond the intervals."
    return "The intervals overlap: nothing here says that adapting to the input is worth it."


def _points(found: Record) -> str:
    value = found.value or 0.0
    ends = f" ({wording.points_interval(value, found.interval)})" if found.interval else ""
    return f"{wording.points(value, *(found.interval or ()))} points{ends}"


def _ours(results: AdaResults) -> str:
    """What saves instead."""
    speed, gap = results.speed(OURS), results.difference(OURS)
    int8 = results.speed("full int8")
    parts = []
    if speed is not None and gap is not None:
        parts.append(
            f"early exits and narrower layers (slim) make it {_pace(speed)} at {_points(gap)}"
        )
    if int8 is not None:
        parts.append(f"INT8 alone {_pace(int8)}{_int8_shape(results)}")
    if not parts:
        return ""
    return f"What saves is not in the attention: on the same {results.inputs} {', '.join(parts)}."


def _int8_shape(results: AdaResults) -> str:
    found = results.shape_speed("full int8", max(results.lengths, default=0))
    return "" if found is None else f", at BERT-base's shape {_pace(found)}"


def headline(results: AdaResults) -> list[str]:
    """The few facts above the verdict."""
    config = results.run.config
    facts = ["adaattention", *results.tasks]
    facts.append(wording.count_of(results.seeds, "seed"))
    if isinstance(config.get("started"), str):
        facts.append(config["started"][:10])
    return [" ".join(str(fact).split()) for fact in facts if fact]


def notices(results: AdaResults) -> list[str]:
    """What this run does not decide."""
    run, found = results.run, [*_unfinished(results), *_training_notes(results)]
    model = run.config["model"].get("name") or "a small model"
    layers, width = (run.config["model"].get(name) for name in ("layers", "width"))
    if layers:
        found.append(
            f"The model is a {model} of {layers} layers and {width} features with random weights "
            "to begin with: what it says of accuracy is not what BERT-base would say. Speeds at "
            "BERT-base's shape stand in a table of their own."
        )
    if results.seeds < 3:
        found.append(
            f"{wording.count_of(results.seeds, 'seed').capitalize()}: intervals speak of other "
            "test examples, not of other trainings, so that small differences decide nothing."
        )
    count = sum(_tested(results, task) for task in results.tasks)
    if 0 < count < _FEW_EXAMPLES:
        found.append(
            f"{count:,} test examples in all: a difference of less than about "
            f"{wording.number(196 * (0.1 / count) ** 0.5, 2)} points is chance."
        )
    return [*found, *content.record_notices(run)]


def _unfinished(results: AdaResults) -> list[str]:
    """How much of the plan is done, and what is missing, by task and kind of work."""
    missing = results.missing
    if not missing:
        return []
    planned = results.run.config.get("cells") or []
    kinds = Counter("/".join(key.split("/")[:2]) for key in missing)
    whole = Counter("/".join(str(key).split("/")[:2]) for key in planned)
    parts = [
        f"{name} (all {count})" if count == whole[name] else f"{name} ({count} of {whole[name]})"
        for name, count in kinds.items()
    ]
    return [
        f"This run is not complete: {len(planned) - len(missing):,} of {len(planned):,} cells are "
        f"done. Missing: {', '.join(parts)}. The same command goes on from here."
    ]


def _training_notes(results: AdaResults) -> list[str]:
    """What is unusual about the way models were trained."""
    recipes = results.run.config.get("recipes")
    found = [each for each in recipes.values() if isinstance(each, dict)] if recipes else []
    notes = []
    kinds = {str(each.get("precision")) for each in found} - {"auto", "float32"}
    if kinds:
        notes.append(
            f"Models were trained in {wording.listing(sorted(kinds))} (mixed precision); scores "
            "and times are of float32."
        )
    if any(each.get("attention_dropout") is False for each in found):
        notes.append("No attention weights were dropped in training, for the dense model neither.")
    ended = [r for r in results.run.records if r.name == "train_time_s" and r.labels.get("early")]
    if ended:
        arms = sorted({name_of_arm(record.labels.get("arm")) for record in ended})
        notes.append(
            f"Training ended early for {wording.listing(arms)}, as printed: below 95 % of the "
            "dense model's validation score. The weights are those of the last validation above."
        )
    return notes


def _tested(results: AdaResults, task: str) -> int:
    examples = results.run.config["task"].get("examples")
    own = examples.get(task) if isinstance(examples, dict) else None
    count = own.get("test") if isinstance(own, dict) else None
    return count if isinstance(count, int) else 0


def facts(results: AdaResults) -> list[tuple[str, str]]:
    """How everything was trained and run, then task and machine."""
    config = results.run.config
    own = [("engine", str(config.get("engine") or ""))]
    recipes = config.get("recipes") or {"": _first_recipe(config)}
    for task, recipe in recipes.items():
        if isinstance(recipe, dict) and recipe:
            own.append((f"training, {task}" if task else "training", _training(recipe)))
    rest = content.facts(results.run, results.all)
    return [*own, *(pair for pair in rest if pair[0] != "baseline")]


def _first_recipe(config: Config) -> dict[str, object]:
    """The one recipe of runs that were written before each task had its own."""
    recipe = config.get("recipe")
    return {**recipe, "dense_epochs": config.get("dense_epochs")} if recipe else {}


def _training(recipe: Config) -> str:
    """One task's training in a line."""
    model = f"{recipe['model']}, " if recipe.get("model") else ""
    precision = recipe.get("precision", "auto")
    told = "" if precision == "auto" else f", {precision}"
    return (
        f"{model}dense {recipe.get('dense_epochs')} epochs, then every arm {recipe.get('epochs')} "
        f"more; batches of {recipe.get('batch_size')}, rate {recipe.get('learning_rate'):g}{told}"
    )


def words() -> list[tuple[str, str]]:
    """(word, meaning) pairs."""
    return list(_WORDS)
