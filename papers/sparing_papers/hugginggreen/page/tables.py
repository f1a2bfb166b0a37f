"""The tables of the HuggingGreen page: every arm beside dense, and beside the same cost."""

from __future__ import annotations

from sparing.core.record import Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing_papers.hugginggreen.page.results import (
    AGAIN,
    ATTENTION,
    BOXES,
    DENSE,
    PATCHES,
    STAGES,
    GreenResults,
    Group,
)

NONE = wording.DASH
RIVALS = ("random", "fewer steps", "larger patches", "convolutions")
HALF, SOFTMAX_HALF = "gaussian keys, half the heads", "softmax, half the heads"
JOULES_PER_KWH = 3.6e6
TARGETS = ("target_energy_ratio", "target_flops_ratio")
_ARM_WORDS = (
    "Means over {pairs} of equal seed and order of data, against dense; intervals are 95 %. "
    "Energy and FLOPs are those of the whole training, below 1 is less. The target is a "
    "validation accuracy {margin} below the best of the dense arm of the same seed: energy until "
    "it is first reached, over that of the dense arm that gets there cheapest ({better}). Holm's "
    "p is that of the energy, corrected for all arms of the table; the last column tests whether "
    "an arm is worse by {margin} or more, small p says that it is not."
)
_STAGE_WORDS = (
    "Arms with all their stages against training from scratch {kind}, in points of test accuracy; "
    "{pairs}."
)


def ratio_text(record: Record | None) -> str:
    """A ratio with its interval."""
    if record is None or record.value is None:
        return NONE
    text = f"{record.value:.2f}"
    if record.interval is not None:
        low, high = record.interval
        text += f" ({_bound(low)} to {_bound(high)})"
    return text


def _bound(value: float) -> str:
    return f"{value:.2f}" if value < 100 else "over 100"


def points_text(record: Record | None) -> str:
    """A difference in points with its interval."""
    if record is None or record.value is None:
        return NONE
    text = wording.points(record.value, *(record.interval or ()))
    if record.interval is not None:
        text += f" ({wording.points_interval(record.value, record.interval)})"
    return text


def p_text(value: object) -> str:
    """A p-value."""
    if not isinstance(value, int | float):
        return NONE
    return "under 0.001" if value < 0.001 else f"{value:.3f}"


def arm_blocks(results: GreenResults, question: str) -> list[Block]:
    """A table for each task and depth."""
    return [_arms(results, group) for group in results.of(question)]


def _arms(results: GreenResults, group: Group) -> Block:
    heads = (
        "Arm",
        "Test accuracy",
        "Beside dense, points",
        "Energy",
        "FLOPs",
        "Energy to the target",
        "FLOPs to it",
        "Energy of a prediction",
        "Holm's p",
        "Not worse, p",
    )
    title = {PATCHES: "Patches", ATTENTION: "Attention"}[group.question]
    explain = _ARM_WORDS.format(
        pairs=wording.count_of(group.pairs, "pair"),
        margin=wording.plain(100 * results.margin, "point"),
        better=_better(group),
    )
    rows = tuple(_arm_row(group, arm) for arm in group.arms)
    key = f"{group.question}-{group.task}-{group.depth}"
    return Block(key, f"{title}: {group.name}", explain, heads, rows)


def _better(group: Group, name: str = TARGETS[0]) -> str:
    found = [r for r in group.records if r.name == name]
    return str(found[-1].labels.get("to")) if found else "not known yet"


def _arm_row(group: Group, arm: str) -> tuple[str, ...]:
    accuracy = group.mean("accuracy", arm)
    first = (arm, NONE if accuracy is None else wording.share(accuracy))
    if arm == DENSE:
        targets = (_target_text(group, arm, name) for name in TARGETS)
        return (*first, NONE, "1", "1", *targets, "1", NONE, NONE)
    energy = group.find("energy_ratio", arm=arm, to=DENSE)
    difference = group.find("accuracy_difference", arm=arm, to=DENSE)
    arithmetic = group.find("flops_ratio", arm=arm, to=DENSE)
    return (
        *first,
        points_text(difference),
        ratio_text(energy),
        NONE if arithmetic is None or arithmetic.value is None else f"{arithmetic.value:.2f}",
        *(_target_text(group, arm, name) for name in TARGETS),
        ratio_text(group.find("inference_ratio", arm=arm, to=DENSE)),
        p_text(energy.labels.get("holm_p") if energy else None),
        p_text(difference.labels.get("non_inferior_p") if difference else None),
    )


def _target_text(group: Group, arm: str, name: str) -> str:
    if arm == _better(group, name):
        return "1"
    found = group.find(name, arm=arm)
    if found is None:
        return NONE
    reached, of = found.labels.get("reached"), found.labels.get("of")
    return f"reached by {reached} of {of}" if found.value is None else ratio_text(found)


def rival_blocks(results: GreenResults) -> list[Block]:
    """Each selecting arm beside random patches and what the same cost buys otherwise."""
    found = []
    for group in results.of(PATCHES):
        rows = tuple(
            (arm, *(_rival_text(group, arm, rival) for rival in RIVALS))
            for arm in group.arms
            if any(group.find("rival_difference", arm=arm, rival=rival) for rival in RIVALS)
        )
        if not rows:
            continue
        explain = (
            "Points of test accuracy beside random patches of the same share, beside a dense model "
            "trained for fewer steps, beside one with larger patches for as much arithmetic, and "
            "beside a small convolutional network for as much energy. Above 0 the choice of "
            "patches is worth something; p is of the sign flip, beside random patches with Holm's "
            "correction over the table. Behind stands what the arm took of the rival's energy and "
            "FLOPs: epochs are whole and rounded up, in the rival's favour. Arms with a "
            "schedule cost more than these rivals and stand above alone."
        )
        heads = ("Arm", "Random patches", "Fewer steps", "Larger patches", "Convolutions")
        key = f"rivals-{group.task}-{group.depth}"
        found.append(Block(key, f"At the same cost: {group.name}", explain, heads, rows))
    return found


def _rival_text(group: Group, arm: str, rival: str) -> str:
    difference = group.find("rival_difference", arm=arm, rival=rival)
    if difference is None:
        return NONE
    p = difference.labels.get("holm_p", difference.labels.get("sign_flip_p"))
    behind = f"; p {p_text(p)}"
    for name, word in (("rival_energy_ratio", "energy"), ("rival_flops_ratio", "FLOPs")):
        ratio = group.find(name, arm=arm, rival=rival)
        if ratio is not None and ratio.value is not None:
            behind += f"; {word} {ratio.value:.2f}"
    return points_text(difference) + behind


def half_blocks(results: GreenResults) -> list[Block]:
    """Gaussian keys with half the heads against softmax with as many."""
    rows = []
    for group in results.of(ATTENTION):
        named = {"arm": HALF, "rival": "half the heads"}
        difference = group.find("rival_difference", **named)
        if difference is None:
            continue
        energy = group.find("rival_energy_ratio", **named)
        p = p_text(difference.labels.get("sign_flip_p"))
        rows.append((group.name, points_text(difference), p, ratio_text(energy)))
    if not rows:
        return []
    explain = (
        f"{HALF.capitalize()}, beside {SOFTMAX_HALF}: what the Gaussian keys themselves are worth."
    )
    heads = ("Task", "Test accuracy, points", "p of the difference", "Energy")
    return [Block("half", "Half the heads", explain, heads, tuple(rows))]


def stage_blocks(results: GreenResults) -> list[Block]:
    """Stages against scratch: as short, at equal energy, at equal steps."""
    found = []
    for group in results.of(STAGES):
        staged = [arm for arm in group.arms if not arm.startswith("scratch")]
        for kind, words in (("energy", "for as much energy"), ("steps", "for as many steps")):
            rows = tuple(_stage_row(group, arm, kind) for arm in staged)
            heads = (
                "Arm",
                "Test accuracy",
                "Scratch as long",
                "Beside it, points",
                "p of the difference",
                "Energy over it",
            )
            explain = _STAGE_WORDS.format(kind=words, pairs=wording.count_of(group.pairs, "pair"))
            scratch = group.mean("accuracy", "scratch")
            if scratch is not None:
                explain += f" Scratch for the last stage's epochs alone: {wording.share(scratch)}."
            title = f"Stages at equal {kind}: {group.name}"
            key = f"stages-{kind}-{group.task}"
            found.append(Block(key, title, explain, heads, rows))
    return found


def _stage_row(group: Group, arm: str, kind: str) -> tuple[str, ...]:
    longer = f"scratch, {kind} of {arm}"
    difference = group.find("stage_difference", arm=arm, to=longer)
    energy = group.find("stage_energy_ratio", arm=arm, to=longer)
    own, rival = group.mean("accuracy", arm), group.mean("accuracy", longer)
    return (
        arm,
        NONE if own is None else wording.share(own),
        NONE if rival is None else wording.share(rival),
        points_text(difference),
        p_text(difference.labels.get("sign_flip_p") if difference else None),
        ratio_text(energy),
    )


def box_blocks(results: GreenResults) -> list[Block]:
    """Detection with patches chosen and not: mAP, overlap, and the same with every patch."""
    heads = (
        "Arm",
        "mAP@0.5",
        "Beside dense, points",
        "Mean IoU",
        "Top-1",
        "Energy",
        "Holm's p",
        "mAP@0.5, all patches",
        "Mean IoU, all patches",
    )
    found = []
    for group in results.of(BOXES):
        rows = tuple(_box_row(group, arm) for arm in group.arms)
        explain = (
            f"One object an image, its class and its box; {wording.count_of(group.pairs, 'pair')}. "
            "A detection is right where the class is and the boxes overlap by half (IoU). The last "
            "columns are of the same models with every patch in evaluation."
        )
        key = f"boxes-{group.task}-{group.depth}"
        found.append(Block(key, f"Boxes: {group.name}", explain, heads, rows))
    return found


def _box_row(group: Group, arm: str) -> tuple[str, ...]:
    def share(name: str) -> str:
        value = group.mean(name, arm)
        return NONE if value is None else wording.share(value)

    energy = group.find("energy_ratio", arm=arm, to=DENSE)
    return (
        arm,
        share("map50"),
        points_text(group.find("map50_difference", arm=arm, to=DENSE)),
        share("mean_iou"),
        share("accuracy"),
        "1" if arm == DENSE else ratio_text(energy),
        p_text(energy.labels.get("holm_p") if energy else None),
        share("map50_of_all_patches"),
        share("mean_iou_of_all_patches"),
    )


def absolute_block(results: GreenResults) -> Block:
    """Joules, seconds, scores and carbon as they are."""
    intensity = float(results.run.config.get("intensity_g_per_kwh") or 0.0)
    heads = (
        "Arm",
        "Energy of a training",
        "Time",
        "Energy of 1,000 predictions",
        "Macro-F1",
        "Energy for a point of F1",
        "Carbon, mg",
        "All patches at inference",
    )
    rows = tuple(_absolute(group, arm, intensity) for group in results.groups for arm in group.arms)
    how = "estimated" if results.estimated else "as the facts below say"
    explain = (
        f"Means over seeds, as they were obtained ({how}). Carbon is the training's energy times a "
        f"stated {intensity:g} g of CO2 a kWh; nothing was looked up. Micro-F1 equals accuracy "
        "where each image has one class. The last column is the test accuracy of arms that select, "
        "given every patch in evaluation."
    )
    return Block("absolute", "In joules", explain, heads, rows)


def _absolute(group: Group, arm: str, intensity: float) -> tuple[str, ...]:
    energy, time = group.mean("train_energy_j", arm), group.mean("train_time_s", arm)
    thousand, macro = group.mean("inference_energy_j", arm), group.mean("macro_f1", arm)
    every = group.mean("accuracy_of_all_patches", arm)
    known = energy is not None and bool(macro)
    return (
        f"{group.question}, {group.name}: {arm}",
        NONE if energy is None else wording.energy(energy),
        NONE if time is None else wording.duration(time),
        NONE if thousand is None else wording.energy(thousand),
        NONE if macro is None else f"{macro:.3f}",
        wording.energy((energy or 0.0) / (100 * (macro or 1.0))) if known else NONE,
        NONE if energy is None else wording.number(1e3 * energy / JOULES_PER_KWH * intensity),
        NONE if every is None else wording.share(every),
    )


def component_block(results: GreenResults) -> list[Block]:
    """Energy by component and watts at idle, where there is more than one component."""
    found: dict[tuple[str, str, str], list[float]] = {}
    idle: dict[str, list[float]] = {}
    for record in results.run.records:
        name, value = str(record.labels.get("component")), record.value
        if value is None:
            continue
        if record.name == "idle_w":
            idle.setdefault(name, []).append(value)
        if record.name == "train_energy_j" and record.labels.get("arm") == DENSE:
            key = (str(record.labels.get("question")), str(record.labels.get("task")), name)
            found.setdefault(key, []).append(value)
    if len({name for *_, name in found}) < 2:
        return []
    rows = tuple(
        (
            f"{question}, {task}",
            name,
            wording.energy(sum(values) / len(values)),
            f"{sum(idle[name]) / len(idle[name]):.1f} W" if name in idle else NONE,
        )
        for (question, task, name), values in found.items()
    )
    explain = "Of the dense arm's training, means over seeds; watts before each training, idle."
    heads = ("Question and task", "Component", "Energy", "Idle")
    return [Block("components", "By component", explain, heads, rows)]


def tests_block(results: GreenResults) -> Block:
    """Every test of every energy ratio, the planned ones of the paper among them."""
    rows = []
    for group in results.groups:
        for record in group.records:
            if record.name != "energy_ratio":
                continue
            labels = record.labels
            rows.append(
                (
                    f"{group.question}, {group.name}: {labels.get('arm')}",
                    str(record.count),
                    p_text(labels.get("sign_flip_p")),
                    p_text(labels.get("normal_p")),
                    f"{labels.get('follow_up')}: {p_text(labels.get('follow_up_p'))}",
                    _number(labels.get("effect")),
                    _number(labels.get("rank_effect")),
                    _number(labels.get("typical")),
                )
            )
    heads = (
        "Arm",
        "Pairs",
        "Sign flip, p",
        "Shapiro-Wilk, p",
        "Then",
        "Cohen's d",
        "Rank-biserial",
        "Hodges-Lehmann",
    )
    explain = (
        "Of the logarithms of energy over dense. The sign flip is the primary test, declared "
        "before any training; Shapiro-Wilk and then t or Wilcoxon are what the paper plans. A "
        "normal distribution that is not refuted is not shown."
    )
    return Block("tests", "Every test", explain, heads, tuple(rows))


def _number(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else NONE


def noise_text(results: GreenResults) -> str:
    """How far the same arm, run twice, lies from itself: what no difference below may claim."""
    found = []
    for group in results.of(PATCHES):
        record = group.find("energy_ratio", arm=AGAIN, to=DENSE)
        if record is not None and record.value is not None:
            found.append(f"{group.name} {ratio_text(record)}")
    return "; ".join(found)
