"""The tables of the HuggingGreen page: variants beside dense and baselines of equal cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from sparing.core.record import Record
from sparing.experiment.records import RecordTable
from sparing.measure.pairs import carbon_g
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.estimates import (
    NONE,
    Form,
    interval_text,
    p_text,
    points_text,
    value_text,
)
from sparing.report.table import Column, table
from sparing_papers.hugginggreen.findings import p_of
from sparing_papers.hugginggreen.groups import Group
from sparing_papers.hugginggreen.names import (
    ATTENTION,
    DENSE,
    GAUSSIAN_HALF,
    PATCHES,
    SCRATCH,
    SOFTMAX_HALF,
    Longer,
)
from sparing_papers.hugginggreen.page.content import TEXT, ratio

TITLES = {PATCHES: "Patches", ATTENTION: "Attention"}
BASELINES = {
    "random": "Random patches",
    "fewer steps": "Fewer steps",
    "larger patches": "Larger patches",
    "convolutions": "Convolutions",
}
LENGTHS = {"energy": "for as much energy", "steps": "for as many steps"}
TARGET = "target_energy_ratio"

ArmCell = Callable[[str], str]


def number_text(value: object) -> str:
    """A number that a record carries beside its value, with two decimals."""
    return f"{value:.2f}" if isinstance(value, int | float) else NONE


def mean_of(group: Group, name: str, form: Form) -> ArmCell:
    """The mean of a quantity over a variant's seeds."""

    def cell(arm: str) -> str:
        value = group.mean(name, arm)
        return NONE if value is None else form(value)

    return cell


def beside_dense(
    group: Group, name: str, text: Callable[[Record | None], str], of_dense: str = NONE
) -> ArmCell:
    """A comparison with dense; ``of_dense`` is the text in the row of dense itself."""

    def cell(arm: str) -> str:
        record = group.records.find(name, arm=arm, to=DENSE)
        return of_dense if arm == DENSE else text(record)

    return cell


def ratio_text(record: Record | None) -> str:
    """A ratio with its interval."""
    return interval_text(record, ratio)


def p_text_of(label: str) -> Callable[[Record | None], str]:
    """A p-value that a comparison carries."""
    return lambda record: p_text(record.labels.get(label) if record else None)


def arm_blocks(groups: Sequence[Group], margin: float) -> list[Block]:
    """Every variant beside dense: a table for each task and depth."""
    return [_arms(group, wording.plain(100 * margin, "point")) for group in groups]


def _arms(group: Group, margin: str) -> Block:
    score, energy = "accuracy_difference", "energy_ratio"
    columns: list[Column[str]] = [
        Column("Variant", str),
        Column("Test accuracy", mean_of(group, "accuracy", wording.share)),
        Column("Beside dense, points", beside_dense(group, score, points_text)),
        Column("Energy", beside_dense(group, energy, ratio_text, "1")),
        Column("FLOPs", beside_dense(group, "flops_ratio", lambda r: value_text(r, ratio), "1")),
        Column("Energy to the target", _target(group, TARGET)),
        Column("FLOPs to it", _target(group, "target_flops_ratio")),
        Column("Energy of a prediction", beside_dense(group, "inference_ratio", ratio_text, "1")),
        Column("Holm's p", beside_dense(group, energy, p_text_of("holm_p"))),
        Column("Not worse, p", beside_dense(group, score, p_text_of("non_inferior_p"))),
    ]
    pairs = wording.count_of(group.pairs, "pair")
    better = _better_dense(group, TARGET) or "not known yet"
    explain = TEXT("variants", pairs=pairs, margin=margin, better=better)
    key = f"{group.question}-{group.task}-{group.depth}"
    return table(key, f"{TITLES[group.question]}: {group.name}", explain, group.arms, columns)


def _better_dense(group: Group, name: str) -> str:
    """The dense variant that the cost of the target is relative to; empty without any."""
    records = group.records.matching(name, {})
    return str(records[-1].labels.get("to")) if records else ""


def _target(group: Group, name: str) -> ArmCell:
    """The cost of the target, or how many seeds reached it if some did not."""
    better = _better_dense(group, name)

    def cell(arm: str) -> str:
        missed = group.records.empty(name, arm=arm)
        if arm == better:
            return "1"
        if missed:
            return "reached by {reached} of {of}".format(**missed.labels)
        return ratio_text(group.records.find(name, arm=arm))

    return cell


def baseline_blocks(groups: Sequence[Group]) -> list[Block]:
    """Each selecting variant beside random patches and baselines of equal cost."""
    blocks = []
    for group in groups:
        held = group.records.values_of("baseline_difference", "arm")
        columns: list[Column[str]] = [Column("Variant", str)]
        columns += [Column(head, _beside_baseline(group, kind)) for kind, head in BASELINES.items()]
        key, title = f"baselines-{group.task}-{group.depth}", f"At the same cost: {group.name}"
        arms = [arm for arm in group.arms if arm in held]
        blocks += [table(key, title, TEXT("baselines"), arms, columns)] if arms else []
    return blocks


def _beside_baseline(group: Group, kind: str) -> ArmCell:
    """The difference in points, its p-value, and the cost over the baseline's."""

    def cell(arm: str) -> str:
        difference = group.records.find("baseline_difference", arm=arm, baseline_kind=kind)
        if difference is None:
            return NONE
        parts = [points_text(difference), f"p {p_text(p_of(difference))}"]
        for name, word in (("baseline_energy_ratio", "energy"), ("baseline_flops_ratio", "FLOPs")):
            record = group.records.find(name, arm=arm, baseline_kind=kind)
            parts += [f"{word} {value_text(record, ratio)}"] if record else []
        return "; ".join(parts)

    return cell


def half_blocks(groups: Sequence[Group]) -> list[Block]:
    """Gaussian keys with half the heads against softmax with as many."""

    def half(group: Group, name: str) -> Record | None:
        return group.records.find(name, arm=GAUSSIAN_HALF, baseline_kind="half the heads")

    rows = [group for group in groups if half(group, "baseline_difference")]
    columns: list[Column[Group]] = [
        Column("Task", lambda group: group.name),
        Column(
            "Test accuracy, points", lambda group: points_text(half(group, "baseline_difference"))
        ),
        Column(
            "p of the difference", lambda group: p_text(p_of(half(group, "baseline_difference")))
        ),
        Column("Energy", lambda group: ratio_text(half(group, "baseline_energy_ratio"))),
    ]
    explain = TEXT("half", half=GAUSSIAN_HALF.capitalize(), softmax=SOFTMAX_HALF)
    return [table("half", "Half the heads", explain, rows, columns)] if rows else []


def stage_blocks(groups: Sequence[Group]) -> list[Block]:
    """Stages against scratch: as short, at equal energy, at equal steps."""
    return [_stages(group, equal) for group in groups for equal in LENGTHS]


def _stages(group: Group, equal: str) -> Block:
    accuracy = mean_of(group, "accuracy", wording.share)

    def beside(name: str, arm: str) -> Record | None:
        return group.records.find(name, arm=arm, to=Longer(arm, equal).name)

    columns: list[Column[str]] = [
        Column("Variant", str),
        Column("Test accuracy", accuracy),
        Column("Scratch as long", lambda arm: accuracy(Longer(arm, equal).name)),
        Column("Beside it, points", lambda arm: points_text(beside("stage_difference", arm))),
        Column("p of the difference", lambda arm: p_text(p_of(beside("stage_difference", arm)))),
        Column("Energy over it", lambda arm: ratio_text(beside("stage_energy_ratio", arm))),
    ]
    pairs = wording.count_of(group.pairs, "pair")
    explain = TEXT("stages", length=LENGTHS[equal], pairs=pairs)
    if SCRATCH in group.arms:
        explain += f" {TEXT('scratch', accuracy=accuracy(SCRATCH))}"
    rows = [arm for arm in group.arms if not arm.startswith(SCRATCH)]
    key, title = f"stages-{equal}-{group.task}", f"Stages at equal {equal}: {group.name}"
    return table(key, title, explain, rows, columns)


def box_blocks(groups: Sequence[Group]) -> list[Block]:
    """Detection with patches chosen and not: mAP, overlap, and the same with every patch."""
    return [_boxes(group) for group in groups]


def _boxes(group: Group) -> Block:
    def share(name: str) -> ArmCell:
        return mean_of(group, name, wording.share)

    columns: list[Column[str]] = [
        Column("Variant", str),
        Column("mAP@0.5", share("map50")),
        Column("Beside dense, points", beside_dense(group, "map50_difference", points_text)),
        Column("Mean IoU", share("mean_iou")),
        Column("Top-1", share("accuracy")),
        Column("Energy", beside_dense(group, "energy_ratio", ratio_text, "1")),
        Column("Holm's p", beside_dense(group, "energy_ratio", p_text_of("holm_p"))),
        Column("mAP@0.5, all patches", share("map50_of_all_patches")),
        Column("Mean IoU, all patches", share("mean_iou_of_all_patches")),
    ]
    explain = TEXT("boxes", pairs=wording.count_of(group.pairs, "pair"))
    key = f"boxes-{group.task}-{group.depth}"
    return table(key, f"Boxes: {group.name}", explain, group.arms, columns)


def absolute_block(groups: Sequence[Group], intensity: float) -> Block:
    """Absolute joules, seconds, scores and carbon."""

    def mean(head: str, name: str, form: Form) -> Column[tuple[Group, str]]:
        return Column(head, lambda row: mean_of(row[0], name, form)(row[1]))

    def milligrams(joules: float) -> str:
        return wording.number(1e3 * carbon_g(joules, intensity))

    def for_a_point(row: tuple[Group, str]) -> str:
        energy, macro = (row[0].mean(name, row[1]) for name in ("train_energy_j", "macro_f1"))
        return wording.energy(energy / (100 * macro)) if energy is not None and macro else NONE

    columns: list[Column[tuple[Group, str]]] = [
        Column("Variant", _named),
        mean("Energy of a training", "train_energy_j", wording.energy),
        mean("Time", "train_time_s", wording.duration),
        mean("Energy of 1,000 predictions", "inference_energy_j", wording.energy),
        mean("Macro-F1", "macro_f1", "{:.3f}".format),
        Column("Energy for a point of F1", for_a_point),
        mean("Carbon, mg", "train_energy_j", milligrams),
        mean("All patches at inference", "accuracy_of_all_patches", wording.share),
    ]
    estimated = all(group.kinds == ("estimated",) for group in groups)
    how = "estimated" if estimated else "obtained as the facts below say"
    explain = TEXT("absolute", how=how, intensity=intensity)
    rows = [(group, arm) for group in groups for arm in group.arms]
    return table("absolute", "In joules", explain, rows, columns)


def _named(row: tuple[Group, object]) -> str:
    group, arm = row
    return f"{group.question}, {group.name}: {arm}"


def component_block(groups: Sequence[Group], records: RecordTable) -> list[Block]:
    """Energy by component and watts before training, if there are several components."""
    rows = [
        (group, component)
        for group in groups
        for component in dict.fromkeys(
            str(r.labels["component"]) for r in group.records.all("train_energy_j", arm=DENSE)
        )
    ]

    def mean(measured: Sequence[Record], form: Form) -> str:
        values = [record.value for record in measured if record.value is not None]
        return form(fmean(values)) if values else NONE

    columns: list[Column[tuple[Group, str]]] = [
        Column("Question and task", lambda row: f"{row[0].question}, {row[0].name}"),
        Column("Component", lambda row: row[1]),
        Column(
            "Energy",
            lambda row: mean(
                row[0].records.all("train_energy_j", arm=DENSE, component=row[1]), wording.energy
            ),
        ),
        Column(
            "Idle", lambda row: mean(records.all("idle_w", component=row[1]), "{:.1f} W".format)
        ),
    ]
    if len({component for _, component in rows}) < 2:
        return []
    return [table("components", "By component", TEXT("components"), rows, columns)]


def tests_block(groups: Sequence[Group]) -> Block:
    """Every test of every energy ratio, including those that the paper plans."""

    def label(row: tuple[Group, Record], name: str) -> object:
        return row[1].labels.get(name)

    columns: list[Column[tuple[Group, Record]]] = [
        Column("Variant", lambda row: _named((row[0], label(row, "arm")))),
        Column("Pairs", lambda row: str(row[1].count)),
        Column("Sign flip, p", lambda row: p_text(label(row, "sign_flip_p"))),
        Column("Shapiro-Wilk, p", lambda row: p_text(label(row, "normal_p"))),
        Column(
            "Then", lambda row: f"{label(row, 'follow_up')}: {p_text(label(row, 'follow_up_p'))}"
        ),
        Column("Cohen's d", lambda row: number_text(label(row, "effect"))),
        Column("Rank-biserial", lambda row: number_text(label(row, "rank_effect"))),
        Column("Hodges-Lehmann", lambda row: number_text(label(row, "typical"))),
    ]
    rows = [(group, record) for group in groups for record in group.records.all("energy_ratio")]
    return table("tests", "Every test", TEXT("tests"), rows, columns)
