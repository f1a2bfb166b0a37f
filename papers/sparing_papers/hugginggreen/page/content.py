"""The texts around the tables of the HuggingGreen page: verdict, notices, facts."""

from __future__ import annotations

from collections.abc import Sequence

from sparing.measure.pairs import FEWEST_FOR_A_CLAIM
from sparing.report import blocks, wording
from sparing.report.estimates import interval_text, points_text, value_text
from sparing.report.facts import facts as run_facts
from sparing.report.prose import Prose
from sparing.report.run import Run
from sparing.report.sections import Verdict
from sparing_papers.hugginggreen import findings
from sparing_papers.hugginggreen.groups import Group, groups
from sparing_papers.hugginggreen.names import (
    AGAIN,
    ATTENTION,
    BOXES,
    DENSE,
    GAUSSIAN_HALF,
    MEDIAN_BOX,
    PATCHES,
    STAGES,
    Longer,
)
from sparing_papers.hugginggreen.options import ATTENTIONS

TEXT = Prose("sparing_papers.hugginggreen.page")
MANY = 100


def ratio(value: float) -> str:
    """A ratio; with few pairs its interval may be unbounded."""
    return f"{value:.2f}" if value < MANY else f"over {MANY}"


def groups_of(run: Run) -> list[Group]:
    """The groups of a run that have a training, in the order of its tasks."""
    order = {task: number for number, task in enumerate(run.config.get("tasks") or [])}
    trained = [group for group in groups(run.records, {}) if group.arms]
    return sorted(trained, key=lambda group: (order.get(group.task, len(order)), group.depth))


def of(groups: Sequence[Group], question: str) -> list[Group]:
    """The groups of one question."""
    return [group for group in groups if group.question == question]


def declared(run: Run) -> str:
    """The variant of the goals: the first that selects."""
    return str([*run.config["arms"], ""][1])


def margin(run: Run) -> float:
    """The largest loss of accuracy that counts as none."""
    return float(run.config.get("margin") or 0.01)


def verdict(run: Run, groups: Sequence[Group]) -> Verdict:
    """Whether the declared choice of patches saves energy, and the other questions' results."""
    arm, sentences = (
        declared(run),
        (
            _choices(groups),
            _attention(groups),
            _expectation(groups),
            _stages(groups),
            _boxes(groups),
        ),
    )
    second = tuple(sentence for sentence in sentences if sentence)
    trained = findings.declared_groups(groups, arm)
    if not trained and groups and PATCHES not in _questions(run):
        return _of_goals(run, second)
    if not trained:
        return Verdict("No verdict yet", TEXT("nothing-trained"), second)
    fewest = min(len(group.values("accuracy", arm)) for group in trained)
    if fewest < FEWEST_FOR_A_CLAIM:
        pairs = wording.count_of(fewest, "pair")
        because = TEXT("few-pairs", pairs=pairs, fewest=FEWEST_FOR_A_CLAIM)
        return Verdict("No claim is made", because, second)
    saving = [group for group in trained if findings.saving(group, arm)]
    if not saving:
        return Verdict("Choosing patches does not pay here", TEXT("no-saving", arm=arm), second)
    parts = "; ".join(_saving(group, arm) for group in saving)
    others = wording.count_of(len(trained) - len(saving), "other task")
    rest = TEXT("saving-rest", others=others) if len(saving) < len(trained) else "."
    chosen = any(findings.beats_random(group, arm) for group in saving)
    lead = "Choosing patches saves energy" if chosen else TEXT("dropping")
    return Verdict(lead, TEXT("saving", arm=arm, parts=parts, rest=rest), second)


def _questions(run: Run) -> Sequence[str]:
    """The questions of a run, of a merged one all of them."""
    listed = run.config.get("questions") or run.config["identity"].get("questions")
    return listed or (PATCHES,)


def _of_goals(run: Run, second: tuple[str, ...]) -> Verdict:
    """How many goals a run without selected patches met: it has no declared variant."""
    mets = [goal.get("met") for goal in run.goals]
    lead = TEXT("goals-lead", met=mets.count(True), goals=wording.count_of(len(mets), "goal"))
    return Verdict(lead, TEXT("goals-rest", missed=mets.count(False)), second)


def _saving(group: Group, arm: str) -> str:
    record = findings.saving(group, arm)
    to = "" if record is None else record.labels["to"]
    return TEXT("saving-part", task=group.task, ratio=interval_text(record, ratio), to=to)


def _choices(groups: Sequence[Group]) -> str:
    """RQ2 in a sentence: whether any score is better than chance."""
    sides = findings.choice_sides(groups)
    if not sides:
        return ""
    better = sides.count(1)
    return TEXT(
        "choices",
        choices=wording.count_of(len(sides), "choice"),
        better=better,
        are="is" if better == 1 else "are",
        worse=sides.count(-1),
        level=findings.LEVEL,
    )


def _attention(groups: Sequence[Group]) -> str:
    """RQ1 in a sentence."""
    parts = []
    for group in of(groups, ATTENTION):
        difference = group.records.find("accuracy_difference", arm=GAUSSIAN_HALF, to=DENSE)
        energy = group.records.find("energy_ratio", arm=GAUSSIAN_HALF, to=DENSE)
        half = group.records.find(
            "baseline_difference", arm=GAUSSIAN_HALF, baseline_kind="half the heads"
        )
        if difference is None or energy is None:
            continue
        points, of_energy = points_text(difference), interval_text(energy, ratio)
        part = TEXT("attention-part", task=group.task, points=points, ratio=of_energy)
        beside = f" {TEXT('attention-half', points=points_text(half))}" if half else ""
        parts.append(part + beside)
    return TEXT("attention", parts="; ".join(parts)) if parts else ""


def _expectation(groups: Sequence[Group]) -> str:
    """RQ1 by expectation maximisation: points and FLOPs beside softmax, variant by variant."""
    parts = []
    for group in of(groups, ATTENTION):
        for arm in (arm for arm in ATTENTIONS if arm in group.arms):
            difference = group.records.find("accuracy_difference", arm=arm, to=DENSE)
            flops = group.records.find("flops_ratio", arm=arm, to=DENSE)
            if difference is not None and flops is not None:
                points, share = points_text(difference), value_text(flops, ratio)
                parts.append(TEXT("em-part", task=group.task, arm=arm, points=points, flops=share))
    return TEXT("em", parts="; ".join(parts)) if parts else ""


def _boxes(groups: Sequence[Group]) -> str:
    """Detection beside a guess of the box, in a sentence."""
    parts = []
    for group in of(groups, BOXES):
        guess = group.records.find("map50_difference", arm=MEDIAN_BOX, to=DENSE)
        if guess is not None:
            parts.append(TEXT("boxes-part", task=group.task, points=points_text(guess)))
    return TEXT("boxes-verdict", parts="; ".join(parts)) if parts else ""


def _stages(groups: Sequence[Group]) -> str:
    """RQ3 in a sentence."""
    differences = {
        f"{group.task}, {arm}": group.records.find(
            "stage_difference", arm=arm, to=Longer(arm, "energy").name
        )
        for group in of(groups, STAGES)
        for arm in group.arms
    }
    parts = [f"{name}: {points_text(r)} points" for name, r in differences.items() if r]
    return TEXT("stages-verdict", parts="; ".join(parts)) if parts else ""


def notices(run: Run, groups: Sequence[Group]) -> list[str]:
    """The limits of the numbers of this run."""
    patches = of(groups, PATCHES)
    gains = [(group, findings.gain_left(group)) for group in patches]
    still = [
        TEXT("still-gains", group=group.name, points=wording.points(gain.value))
        for group, gain in gains
        if gain is not None and gain.value is not None
    ]
    return [
        *blocks.busy_notices(run),
        *_energy_notices(run),
        *_meter_notes(run, groups),
        *blocks.unfinished_notices(run, _kinds_of_cells),
        *_noise(patches),
        *still,
        *blocks.data_notices(run),
    ]


def _energy_notices(run: Run) -> list[str]:
    """That joules are estimates: another meter has other constants than sparing."""
    notices, meter = blocks.energy_notices(run), str(run.config.get("meter") or "own")
    return [TEXT("other-meter", meter=meter)] if notices and meter != "own" else notices


def words(run: Run, groups: Sequence[Group]) -> list[tuple[str, str]]:
    """What the words of the page mean: those of every run, and of the variants that it has."""
    arms = {arm for group in groups for arm in group.arms}
    more = {
        "words-attention": bool(arms & {*ATTENTIONS}),
        "words-boxes": MEDIAN_BOX in arms,
        "words-training": run.config.get("at_inference") is False,
    }
    keys = ["words", *(key for key, shown in more.items() if shown)]
    return [pair for key in keys for pair in TEXT.pairs(key)]


def _noise(patches: Sequence[Group]) -> list[str]:
    """The energy ratio of the same variant run twice: no smaller difference is claimed."""
    again = {g.name: g.records.find("energy_ratio", arm=AGAIN, to=DENSE) for g in patches}
    parts = [f"{name} {interval_text(record, ratio)}" for name, record in again.items() if record]
    return [TEXT("noise", parts="; ".join(parts))] if parts else []


def _kinds_of_cells(keys: list[str]) -> str:
    kinds = list(dict.fromkeys("/".join(key.split("/")[:2]) for key in keys))
    return f"parts of {wording.listing(kinds, 8)}"


def _meter_notes(run: Run, groups: Sequence[Group]) -> list[str]:
    """The notes of the meter, each once, and the components that are left out."""
    notes = [
        str(record.labels.get("told")) for record in run.records if record.name == "meter_note"
    ]
    left = {
        str(record.labels.get("component"))
        for group in groups
        for record in group.records.all("train_energy_j")
        if record.obtained not in group.kinds
    }
    without = [TEXT("left-out", components=", ".join(sorted(left)))] if left else []
    return [*dict.fromkeys(notes), *without]


def headline(run: Run, groups: Sequence[Group]) -> list[str]:
    """The facts above the verdict."""
    pairs = wording.count_of(max((group.pairs for group in groups), default=0), "pair")
    started = [str(run.config["started"])[:10]] if run.config.get("started") else []
    estimates = [TEXT("estimates")] if blocks.energy_notices(run) else []
    return [*map(str, run.config.get("tasks") or []), pairs, *started, *estimates]


def facts(run: Run) -> list[tuple[str, str]]:
    """The training of each task, then task and machine."""
    trained = []
    for task, recipe in (run.config.get("recipes") or {}).items():
        image, patch = (run.config.get("patches") or {}).get(task, ("?", "?"))
        trained.append((f"training, {task}", TEXT("training", image=image, patch=patch, **recipe)))
    return [*trained, *(pair for pair in run_facts(run) if pair[0] != "baseline")]
