"""What the AdaAttention page says around its tables: verdict, notices, facts, words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sparing.core.record import Record
from sparing.report import blocks, wording
from sparing.report.facts import facts as run_facts
from sparing.report.run import Config
from sparing.report.sections import Verdict
from sparing_papers.adaattention.page.results import (
    ADAPTIVE,
    AS_PRINTED,
    FREE,
    MEAN,
    OURS,
    AdaResults,
    name_of_arm,
)

CLAIMED = 1.76
_FEW_EXAMPLES = 3000
_CONTROLS = ("random", "global", "uniform")
_COUNTS = {1: "one comparison", 2: "two comparisons", 3: "three comparisons"}
_NO_HEADS = 0.005


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
    mine, unused = results.difference(ADAPTIVE), _nothing_cut(results)
    if mine is None or mine.value is None:
        return unused
    text = f"Its score is {_points(mine)} against the full model"
    if unused:
        return f"{text}. {unused}"
    others = [
        f"{wording.points(other.value or 0.0, 1.0)} with {name_of_arm(arm)}"
        for arm in _CONTROLS
        if (other := results.difference(arm)) is not None
    ]
    if not others:
        return f"{text}."
    return f"{text}; it is {wording.listing(others)}. {_apart(results)}"


def _nothing_cut(results: AdaResults) -> str:
    """What the adaptive arm is where its scorer leaves heads whole."""
    cut = results.all.value("cut_share", arm=ADAPTIVE, task=MEAN)
    if cut is None or cut >= _NO_HEADS:
        return ""
    shown = wording.share(cut)
    told = "no head" if shown == wording.share(0.0) else f"no head to speak of ({shown} of them)"
    return (
        f"The adaptive arm's scorer cut {told}: its scores and speeds are those of dense "
        "attention plus a scorer, and say nothing of adapting."
    )


def _apart(results: AdaResults) -> str:
    """Whether the adaptive arm differs from its controls: paired where that was reckoned."""
    found = {}
    for arm in _CONTROLS:
        record = results.all.find("control_difference", arm=ADAPTIVE, to=arm, task=MEAN)
        if record is not None and record.interval is not None:
            found[arm] = record
    return _paired(found) if found else _by_overlap(results)


def _paired(found: Mapping[str, Record]) -> str:
    """Each control by itself: the more comparisons, the likelier one is off by chance."""
    said: dict[str, list[str]] = {"better": [], "worse": [], "": []}
    for arm, record in found.items():
        low, high = record.interval or (0.0, 0.0)
        side = "better" if low > 0 else "worse" if high < 0 else ""
        said[side].append(f"{name_of_arm(arm)}{_gap(record) if side else ''}")
    inside = f"In {_COUNTS[len(found)]} (each by itself, 95 %) it"
    sides = [side for side in ("better", "worse") if said[side]]
    parts = [f"{side} than {wording.listing(said[side])}" for side in sides]
    if not parts:
        return (
            f"{inside} is not shown to differ from any of them: nothing here says that adapting to "
            "the input is worth it."
        )
    rest = f"; it is not shown to differ from {wording.listing(said[''])}" if said[""] else ""
    return f"{inside} does {' and '.join(parts)}{rest}."


def _gap(record: Record) -> str:
    value, ends = record.value or 0.0, record.interval or (0.0, 0.0)
    return f" ({wording.points(value, *ends)} points, {wording.points_interval(value, ends)})"


def _by_overlap(results: AdaResults) -> str:
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
    notes = (_model_note(results), _seeds_note(results), _examples_note(results))
    return [
        *blocks.busy_notices(results.run),
        *_unfinished(results),
        *_training_notes(results),
        *(note for note in notes if note),
        *blocks.data_notices(results.run),
    ]


def _model_note(results: AdaResults) -> str:
    """Of which model accuracies speak, where it is not BERT-base."""
    model = results.run.config["model"]
    name, layers, width = (model.get(key) for key in ("name", "layers", "width"))
    apart = "Speeds at BERT-base's shape stand in a table of their own."
    if layers:
        return (
            f"The model is a {name or 'small model'} of {layers} layers and {width} features with "
            "random weights to begin with: what it says of accuracy is not what BERT-base would "
            f"say. {apart}"
        )
    parts = []
    if name and not str(name).lower().startswith("bert-base"):
        parts.append(
            f"The pretrained model is {name}: what is said of accuracy is said of this model, not "
            f"of BERT-base. {apart}"
        )
    own = [task for task, each in results.recipes.items() if each.get("pretrained") is False]
    if own:
        parts.append(f"Models of {wording.listing(own)} begin with random weights.")
    return " ".join(parts)


def _seeds_note(results: AdaResults) -> str:
    """What too few seeds leave open."""
    if results.seeds == 2:
        return (
            "2 seeds: too few to know how far trainings differ, so that small differences of "
            "scores decide nothing, whatever their intervals."
        )
    if results.seeds < 2:
        return (
            f"{wording.count_of(results.seeds, 'seed').capitalize()}: intervals speak of other "
            "test examples, not of other trainings, so that small differences decide nothing."
        )
    return ""


def _examples_note(results: AdaResults) -> str:
    """What few test examples leave open, of the tasks that run every arm."""
    count = sum(_tested(results, task) for task in results.ablations)
    if not 0 < count < _FEW_EXAMPLES:
        return ""
    return (
        f"{count:,} test examples of {wording.listing(results.ablations)}: a difference of less "
        f"than about {wording.number(196 * (0.1 / count) ** 0.5, 2)} points is chance."
    )


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
    found = list(results.recipes.values())
    notes = []
    named = {str(each["precision"]) for each in found if each.get("precision")}
    kinds = {_precision(name) for name in named - {"auto", "float32"}}
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


def _precision(name: str) -> str:
    """What a recipe's word for a precision comes to; older runs kept the word alone."""
    return "fast (bfloat16 where the processor has it)" if name == "fast" else name


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
    rest = run_facts(results.run)
    return [*own, *(pair for pair in rest if pair[0] != "baseline")]


def _first_recipe(config: Config) -> dict[str, object]:
    """The one recipe of runs that were written before each task had its own."""
    recipe = config.get("recipe")
    return {**recipe, "dense_epochs": config.get("dense_epochs")} if recipe else {}


def _training(recipe: Config) -> str:
    """One task's training in a line."""
    model = f"{recipe['model']}, " if recipe.get("model") else ""
    precision = recipe.get("precision", "auto")
    told = "" if precision == "auto" else f", {_precision(str(precision))}"
    factor = float(recipe.get("mechanism_rate_factor") or 1.0)
    own = "" if factor == 1 else f" ({factor:.3g} times that for what mechanisms bring)"
    rate = f"{recipe.get('learning_rate'):g}{own}"
    return (
        f"{model}dense {recipe.get('dense_epochs')} epochs, then every arm {recipe.get('epochs')} "
        f"more; batches of {recipe.get('batch_size')}, rate {rate}{told}"
    )
