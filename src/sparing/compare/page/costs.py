"""The costs of a variant, as ratios to the baseline with their direction in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparing.compare.page.lookups import Setting, arm_failed, setting
from sparing.core.record import Label, Record
from sparing.report import wording
from sparing.report.cells import Cell, Tone
from sparing.report.run import Run


@dataclass(frozen=True)
class Quantity:
    """A cost that is shown as a ratio to the baseline, with the words for less and for more."""

    key: str
    title: str
    name: str
    ratio_name: str
    words: tuple[str, str]
    show: Callable[[float], str]

    @property
    def sized(self) -> bool:
        """Whether it is taken at a size, not over a whole training."""
        return not self.key.startswith("train")


FASTER, LESS = ("faster", "slower"), ("less", "more")
SECONDS, JOULES = wording.duration, wording.energy
QUANTITIES = (
    Quantity("latency", "Latency", "latency_ms", "latency_ratio", FASTER, wording.latency),
    Quantity("train_time", "Training time", "train_time_s", "train_time_ratio", FASTER, SECONDS),
    Quantity("memory", "Peak memory", "peak_bytes", "peak_ratio", LESS, wording.size_of_bytes),
    Quantity("flops", "FLOPs", "flops", "flops_ratio", LESS, wording.flops),
    Quantity("energy", "Inference energy", "energy_j", "energy_ratio", LESS, JOULES),
    Quantity(
        "train_energy", "Training energy", "train_energy_j", "train_energy_ratio", LESS, JOULES
    ),
)


@dataclass(frozen=True)
class _Part:
    """A quantity, or one component of an energy: its mean over rounds or seeds."""

    component: Label
    value: float
    obtained: str


def setting_words(size: Setting) -> str:
    """A size in words."""
    scope = "whole model" if size.scope == "model" else "attention core alone"
    return f"{scope}, {wording.length(size.tokens)}, batch {size.batch}"


def quantity_note(run: Run, quantity: Quantity) -> str:
    """At which size a column's numbers were taken."""
    if not quantity.sized:
        return "a whole run, mean over seeds"
    size = _setting(run, quantity)
    if size is None:
        return ""
    return setting_words(size) + (", for one example" if quantity.name == "energy_j" else "")


def missing_cell(run: Run, arm: str, *names: str) -> Cell:
    """An empty cell that says why: the record's own reason, a failure, or not reached."""
    empty = next((r for name in names if (r := run.table.empty(name, arm=arm))), None)
    if empty is not None:
        reason = str(empty.labels.get("reason") or "the measurement gave no number")
    elif arm_failed(run, arm):
        reason = "failed, see below"
    else:
        reached = any(run.table.all(name) for name in names)
        reason = "not reached yet" if reached else "not part of this run so far"
    return Cell("not measured", (reason,), "missing")


def cost_cell(run: Run, arm: str, quantity: Quantity) -> Cell:
    """One cost of one variant; the baseline shows the quantity itself.

    An energy of several components shows the ratio of the one that is largest in the baseline,
    named, and lists them all. Their sum would mix what was obtained in different ways.
    """
    parts = _parts(run, arm, quantity)
    sizes = _sizes(quantity, parts)
    obtained = " and ".join(sorted({part.obtained for part in parts}))
    if arm == run.config["baseline"]:
        if not parts:
            return missing_cell(run, arm, quantity.name)
        notes = (*sizes[0][1:], *(", ".join(size) for size in sizes[1:]))
        return Cell(sizes[0][0], notes, "neutral", 1.0, obtained=obtained)
    ratio = _ratio(run, arm, quantity, parts)
    if ratio is None or ratio.value is None:
        return missing_cell(run, arm, quantity.ratio_name, quantity.name)
    text, tone = _ratio_text(run, ratio, ratio.value, quantity)
    exact = quantity.key == "flops" or text == wording.SAME
    spread = "" if exact else "no interval"
    if ratio.interval:
        spread = wording.ratio_interval(ratio.interval)
    component = ratio.labels.get("component")
    if component is not None and len(parts) > 1:
        spread = f"{component}: {spread}" if spread else f"{component} alone"
    notes = tuple(note for note in (spread, *(", ".join(size) for size in sizes)) if note)
    return Cell(text, notes, tone, ratio.value, ratio.interval, obtained or ratio.obtained)


def _sizes(quantity: Quantity, parts: list[_Part]) -> list[tuple[str, ...]]:
    """Each part as its number and, where it must be said, how it was obtained.

    Energy always shows it, other quantities where they were not measured.
    """
    sizes = []
    for part in parts:
        named = f"{part.component} " if len(parts) > 1 else ""
        said = quantity.name.endswith("energy_j") or part.obtained != "measured"
        sizes.append((named + quantity.show(part.value), *([part.obtained] if said else [])))
    return sizes


def _setting(run: Run, quantity: Quantity) -> Setting | None:
    return setting(run, quantity.ratio_name, quantity.name)


def _labels(run: Run, quantity: Quantity) -> dict[str, Label] | None:
    """The labels of a quantity at the size that is shown, None where there is no such size."""
    size = _setting(run, quantity) if quantity.sized else None
    if size is None:
        return None if quantity.sized else {}
    return size.labels()


def _parts(run: Run, arm: str, quantity: Quantity) -> list[_Part]:
    """The quantity by component, the one that is largest in the baseline first."""
    labels = _labels(run, quantity)
    if labels is None:
        return []
    if quantity.name == "latency_ms":
        labels["statistic"] = "p50"
    by_component: dict[Label, list[Record]] = {}
    for record in run.table.all(quantity.name, arm=arm, **labels):
        by_component.setdefault(record.labels.get("component"), []).append(record)
    parts = [
        _Part(
            component,
            sum(float(record.value or 0.0) for record in records) / len(records),
            " and ".join(sorted({record.obtained for record in records})),
        )
        for component, records in by_component.items()
    ]
    baseline = run.config["baseline"]
    if len(parts) < 2 or arm == baseline:
        return sorted(parts, key=lambda part: -part.value)
    order = [part.component for part in _parts(run, baseline, quantity)]
    order += [part.component for part in parts if part.component not in order]
    return sorted(parts, key=lambda part: order.index(part.component))


def _ratio(run: Run, arm: str, quantity: Quantity, parts: list[_Part]) -> Record | None:
    """The recorded ratio; before it is recorded, the ratio of the two values, without interval."""
    labels: dict[str, Label] = {"arm": arm, **(_labels(run, quantity) or {})}
    component = parts[0].component if parts else None
    named = {**labels, "component": component} if component is not None else labels
    record = run.table.find(quantity.ratio_name, **named)
    record = record or run.table.find(quantity.ratio_name, **labels)
    if record is not None:
        return record
    baseline = _parts(run, run.config["baseline"], quantity)
    known = {(part.component, part.obtained): part.value for part in baseline}
    against = known.get((component, parts[0].obtained), 0.0) if parts else 0.0
    if against <= 0:
        return None
    value = parts[0].value / against
    return Record(quantity.ratio_name, value, "ratio", "measured", {"component": component})


def _ratio_text(run: Run, ratio: Record, value: float, quantity: Quantity) -> tuple[str, Tone]:
    """A ratio in words; an interval around 1 is no difference that could be claimed."""
    if run.table.disturbance(ratio):
        return "not decided: the machine was busy", "neutral"
    if ratio.interval is not None and ratio.interval[0] < 1 < ratio.interval[1]:
        return "no clear difference", "neutral"
    text = wording.ratio(value, *quantity.words)
    tone: Tone = "neutral" if text == wording.SAME else "gain" if value < 1 else "loss"
    return text, tone
