"""The tables of the calculator study: networks, the published table beside, claims, lengths."""

from __future__ import annotations

from collections.abc import Mapping

from scipy.stats import binomtest

from sparing.core.record import Label, Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing_papers.calculator.page.published import (
    ARCHITECTURE,
    ARMS,
    LANGUAGE_MODELS,
    OPTIMIZER,
    ROWS,
    PrintedLanguageModel,
)
from sparing_papers.calculator.page.results import SETS, ValueResults

NONE = wording.DASH
PUBLISHED_SETS = ("in", "published out", "published long")
LOST = ("empty", "malformed")


def number_text(record: Record | None) -> str:
    """A mean with its interval over seeds."""
    if record is None or record.value is None:
        return NONE
    text = _number(float(record.value))
    if record.interval is not None:
        low, high = (_number(float(end)) for end in record.interval)
        text += f" ({low} to {high})"
    return text


def _number(value: float) -> str:
    if abs(value) < 1e-4:
        return "0" if abs(value) < 1e-9 else f"{value:.0e}"
    if abs(value) < 1e4:
        return f"{value:.4f}" if abs(value) < 0.1 else f"{value:.2f}"
    return f"{value:.2g}"


def share_text(record: Record | None) -> str:
    """A share in per cent."""
    return NONE if record is None or record.value is None else wording.share(float(record.value))


def network_blocks(results: ValueResults) -> list[Block]:
    """Every arm on every corrected set: right answers, then errors and what they cost."""
    means = (
        f"Means over {wording.count_of(results.seeds, 'seed')}, with 95 % intervals over seeds "
        "behind errors and scores."
    )
    right = (
        f"{means} Exact is the share of answers that round to the value. Out has operands of 5 to "
        "9 and -6 to -9, none of them seen; long has 4 to 8 operands, out+long both. The bounded "
        "score is 50 for the baseline and 100 for an exact network."
    )
    wrong = (
        f"{means} An error is the mean distance from the value. Behind the published score stand "
        "the least and the largest that a single seed of the network and of its baseline makes of "
        "it. Energy and time are of one training."
    )
    exact = ("Network", "Weights", *(f"Exact, {name}" for name in SETS), "Bounded score")
    errors = ("Network", *(f"Error, {name}" for name in SETS), "Published score", "Energy", "Time")
    return [
        Block(
            "networks", "Networks", right, exact, tuple(_exact(results, a) for a in results.arms)
        ),
        Block("errors", "Errors", wrong, errors, tuple(_errors(results, a) for a in results.arms)),
    ]


def _exact(results: ValueResults, arm: str) -> tuple[str, ...]:
    size = results.mean("parameters", arm, of="architecture")
    return (
        arm,
        NONE if size is None or size.value is None else f"{size.value:,.0f}",
        *(share_text(results.mean("exact", arm, set=name)) for name in SETS),
        number_text(results.mean("bounded_score", arm)),
    )


def _errors(results: ValueResults, arm: str) -> tuple[str, ...]:
    energy, time = results.energy(arm), results.mean("train_time_s", arm)
    return (
        arm,
        *(number_text(results.mean("mean_error", arm, set=name)) for name in SETS),
        _legacy(results, arm),
        NONE if energy is None else wording.energy(energy.value or 0.0),
        NONE if time is None or time.value is None else wording.duration(time.value),
    )


def _legacy(results: ValueResults, arm: str) -> str:
    """The published score with what the choice of the baseline's seed makes of it."""
    found = results.mean("legacy_score", arm)
    if found is None or found.value is None:
        errors = [results.mean("mean_error", arm, set=name) for name in SETS]
        exact = all(each is not None and (each.value or 0.0) < 1e-9 for each in errors)
        return "infinite" if exact else NONE
    own = [
        r for r in results.run.records if r.name == "legacy_score" and r.labels.get("arm") == arm
    ]
    low = min(float(r.labels["lowest"] or 0.0) for r in own)
    high = max(float(r.labels["highest"] or 0.0) for r in own)
    return f"{_number(float(found.value))} ({_number(low)} to {_number(high)})"


def published_block(results: ValueResults) -> Block:
    """Each printed figure, the later one, ours, and why they differ."""
    rows = []
    for printed in ROWS:
        for place, arm in enumerate(ARMS):
            labels = {"set": printed.set} if printed.set else {}
            ours = results.mean(printed.record, arm, **labels)
            later = NONE if printed.later is None else f"{printed.later[place]:g}"
            told = (f"{printed.first[place]:.4g}", later, number_text(ours), printed.why)
            rows.append((f"{printed.title}: {arm}", *told))
    rows += [_sizes(results, place) for place in range(len(ARMS))]
    heads = ("Quantity", "Printed", "Later revision", "Here", "Why they differ")
    explain = "Quoted figures are single runs; the later revision prints means of five."
    return Block("published", "Beside the published table", explain, heads, tuple(rows))


def _sizes(results: ValueResults, place: int) -> tuple[str, str, str, str, str]:
    """Weights and the optimiser's numbers of one column, printed and here."""
    arm = ARMS[place]
    own = [results.mean("parameters", arm, of=kind) for kind in ("architecture", "optimizer")]
    ours = " + ".join(NONE if r is None else f"{r.value or 0:,.0f}" for r in own)
    told = f"{ARCHITECTURE[place]:,} + {OPTIMIZER[place]:,}"
    why = "the same" if told == ours else ""
    return (f"Weights + optimiser's numbers: {arm}", told, NONE, ours, why)


def verdict_of(goal: Mapping[str, object]) -> str:
    """What a goal's verdict says of its claim."""
    met = goal.get("met")
    return "undecided" if met not in (True, False) else "stands" if met else "falls"


def claims_block(results: ValueResults) -> Block:
    """Each claim with its number and verdict."""
    rows = []
    for goal in results.run.goals:
        text, _, quantity = str(goal.get("name")).partition(": ")
        interval = goal.get("interval")
        value = goal.get("value")
        spread = NONE if not interval else " to ".join(_number(float(end)) for end in interval)
        rows.append(
            (
                text,
                quantity,
                _number(float(value)) if isinstance(value, int | float) else str(value or NONE),
                spread,
                verdict_of(goal),
            )
        )
    explain = (
        "A claim stands where the whole interval over seeds is above 0 (or what is asked for), and "
        "falls where it is below; three seeds at least. Intervals are wide enough that all claims "
        "together err in one study of twenty. The last is a proposal of the text, which did not "
        "try it; the fifth asks a claim of the network that the text describes."
    )
    heads = ("Claim", "Measured by", "Value", "Interval", "Verdict")
    return Block("claims", "The published claims", explain, heads, tuple(rows))


def along_blocks(results: ValueResults) -> list[Block]:
    """Errors by number of operands and by distance from training, for every arm."""
    found = []
    for key, title, along, name in (
        ("operands", "Error by number of operands", "operands", "published long"),
        ("far", "Error by number of operands, out of range too", "operands", "out+long"),
        ("largest", "Error by size of the largest operand", "largest", "out"),
    ):
        lines = {a: results.line("mean_error", a, along, set=name) for a in results.arms}
        places = sorted({place for line in lines.values() for place, _ in line})
        rows = tuple(
            (arm, *(number_text(dict(line).get(place)) for place in places))
            for arm, line in lines.items()
            if line
        )
        heads = ("Network", *(str(place) for place in places))
        explain = (
            f"Mean error on {name} with intervals over seeds, by {title.partition(' by ')[2]}."
        )
        found += [Block(key, title, explain, heads, rows)] if rows else []
    return found


def sensitivity_block(results: ValueResults) -> list[Block]:
    """How an answer follows each operand, by place and by size."""
    rows = []
    for arm in results.arms:
        line = results.line("sensitivity", arm, "place", operands=3)
        sizes = results.line("sensitivity", arm, "size", operands=3)
        weight = results.mean("attention_size", arm)
        closer = results.mean("closer_to_last", arm)
        if line:
            shown = [
                ", ".join(_number(float(r.value or 0)) for _, r in each) for each in (line, sizes)
            ]
            rows.append((arm, *shown, number_text(weight), share_text(closer)))
    if not rows:
        return []
    heads = (
        "Network",
        "By place, 1 to 3",
        "By size, 0 to 5",
        "Weight and size of a number",
        "Answers nearer to the last number",
    )
    explain = (
        "How much an answer changes where one operand of a sum in range grows by one, its sign "
        "that of the true change: 1 is right. Weight and size is the rank correlation between "
        f"attention on a number and its size. Of the true values {_truth(results)} are nearer to "
        "the last number than to the first, of those that are nearer to one: half of the last "
        "numbers are subtracted."
    )
    return [Block("sensitivity", "What answers hang on", explain, heads, tuple(rows))]


def _truth(results: ValueResults) -> str:
    found = (r.labels.get("truth") for r in results.run.records if r.name == "closer_to_last")
    return wording.share(float(next(found) or 0.0))


def language_blocks(results: ValueResults) -> list[Block]:
    """Language models: as printed, and tuned here, with and without their own words."""
    found = [_printed_models(results)]
    epochs = _epochs(results)
    return [*found, epochs] if epochs.rows else found


def _printed_models(results: ValueResults) -> Block:
    rows = [_as_printed(model) for model in LANGUAGE_MODELS]
    records = list(results.language("right"))
    ways = dict.fromkeys((r.labels["language_model"], r.labels["way"]) for r in records)
    rows += [_tuned(results, {"language_model": name, "way": way}) for name, way in ways]
    heads = ("Model", "Weights", "In range", "Out of range", "Long", "Note")
    explain = (
        "Right replies with Wilson's 95 % interval, on the published sets; models tuned here are "
        f"asked up to {results.run.config.get('language_model_tests')} sums of each, evenly from "
        "the whole. A model called tiny has "
        "random weights and no pretraining: it shows that the tuning works, not what pretraining "
        "gives."
    )
    return Block("language", "Language models", explain, heads, tuple(rows))


def _as_printed(model: PrintedLanguageModel) -> tuple[str, ...]:
    pairs = zip(model.printed, model.asked, strict=True)
    shares = (_right(round(percent * asked / 100), asked) for percent, asked in pairs)
    return (f"{model.name} (printed)", model.weights, *shares, model.note)


def _tuned(results: ValueResults, own: dict[str, Label]) -> tuple[str, ...]:
    """A model that was tuned here, by its own labels."""

    def mine(name: str) -> list[Record]:
        return [r for r in results.language(name) if own.items() <= r.labels.items()]

    rights = {record.labels["set"]: record for record in mine("right")}
    size = next((float(r.value or 0) for r in mine("parameters")), 0.0)
    lost = [f"{kind} {sum(r.value or 0 for r in mine(kind)):,.0f}" for kind in LOST]
    shares = (
        _right(int(rights[name].value or 0), rights[name].count) if name in rights else NONE
        for name in PUBLISHED_SETS
    )
    title = f"{own['language_model']}, {own['way']}"
    return (title, f"{size:,.0f}", *shares, f"replies {', '.join(lost)}")


def _right(right: int, asked: int) -> str:
    low, high = binomtest(right, asked).proportion_ci(method="wilson")
    return f"{100 * right / asked:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def _epochs(results: ValueResults) -> Block:
    names = ("with_prompt", "tokens", "whole_answers", "exact")
    found: dict[tuple[str, int], dict[str, Record]] = {}
    for name in names:
        for record in results.language(name):
            key = (str(record.labels["way"]), int(record.labels["epoch"] or 0))
            found.setdefault(key, {})[name] = record
    rows = tuple(
        (f"{way}, epoch {epoch}", *(share_text(each.get(name)) for name in names))
        for (way, epoch), each in sorted(found.items())
    )
    heads = (
        "Tuning",
        "Right tokens, prompt's among them",
        "Right tokens of answers",
        "Answers right throughout",
        "Exact, written freely",
    )
    explain = (
        "The mismatch that the published text leaves unexplained, on held-out sums: the first "
        "three columns are given every earlier token of the right answer, as a training's accuracy "
        "is; the last is what the model writes by itself. An answer has several tokens, of which "
        'the end and ".0" are always the same.'
    )
    return Block("epochs", "Tokens and answers", explain, heads, rows)
