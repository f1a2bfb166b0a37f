"""What an arm costs, as ratios to the baseline with their direction in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparing.compare.page.missing import missing_cell
from sparing.compare.page.results import Results, Setting
from sparing.core.record import Label
from sparing.report import wording
from sparing.report.cells import Cell, Failed, Tone


@dataclass(frozen=True)
class Quantity:
    """A cost that is shown as a ratio to the baseline."""

    key: str
    title: str
    name: str
    ratio_name: str
    below: str
    above: str
    show: Callable[[float], str]
    sized: bool = True


QUANTITIES = (
    Quantity(
        "latency", "Latency", "latency_ms", "latency_ratio", "faster", "slower", wording.latency
    ),
    Quantity(
        "train_time",
        "Training time",
        "train_time_s",
        "train_time_ratio",
        "faster",
        "slower",
        wording.duration,
        sized=False,
    ),
    Quantity(
        "memory", "Peak memory", "peak_bytes", "peak_ratio", "less", "more", wording.size_of_bytes
    ),
    Quantity("flops", "Arithmetic", "flops", "flops_ratio", "less", "more", wording.flops),
    Quantity(
        "energy", "Inference energy", "energy_j", "energy_ratio", "less", "more", wording.energy
    ),
    Quantity(
        "train_energy",
        "Training energy",
        "train_energy_j",
        "train_energy_ratio",
        "less",
        "more",
        wording.energy,
        sized=False,
    ),
)


def setting_words(setting: Setting) -> str:
    """A size in words."""
    scope = "whole model" if setting.scope == "model" else "attention core alone"
    return f"{scope}, {wording.length(setting.tokens)}, batch {setting.batch}"


def quantity_note(results: Results, quantity: Quantity) -> str:
    """At which size a column's numbers were taken."""
    if not quantity.sized:
        return "a whole run, mean over seeds"
    setting = _setting(results, quantity)
    if setting is None:
        return ""
    per = ", for one example" if quantity.name == "energy_j" else ""
    return setting_words(setting) + per


@dataclass(frozen=True)
class _Part:
    """A quantity, or one component of an energy: its mean over rounds or seeds."""

    component: Label
    value: float
    obtained: str


@dataclass(frozen=True)
class _Ratio:
    """A ratio to the baseline; ``component`` is the part that it speaks of, if it has any."""

    value: float
    interval: tuple[float, float] | None
    obtained: str
    component: Label = None
    disturbance: str = ""


def cost_cell(results: Results, arm: str, quantity: Quantity, failed: Failed) -> Cell:
    """One cost of one arm; the baseline shows the quantity itself.

    An energy of several components shows the ratio of the one that is largest in the baseline,
    named, and lists them all: their sum would mix what was obtained in different ways.
    """
    parts = _parts(results, arm, quantity)
    sizes = _sizes(quantity, parts)
    obtained = " and ".join(sorted({part.obtained for part in parts}))
    if arm == results.baseline:
        if not parts:
            return missing_cell(results, arm, failed, quantity.name)
        return Cell(sizes[0][0], _baseline_notes(sizes), "neutral", 1.0, obtained=obtained)
    ratio = _ratio(results, arm, quantity, parts)
    if ratio is None:
        return missing_cell(results, arm, failed, quantity.ratio_name, quantity.name)
    text, tone = _ratio_text(ratio, quantity)
    exact = quantity.key == "flops" or text == "the same"
    spread = wording.ratio_interval(ratio.interval) if ratio.interval else ""
    spread = spread or ("" if exact else "no interval")
    if ratio.component is not None and len(parts) > 1:
        spread = f"{ratio.component}: {spread}" if spread else f"{ratio.component} alone"
    notes = tuple(note for note in (spread, *(", ".join(size) for size in sizes)) if note)
    return Cell(text, notes, tone, ratio.value, ratio.interval, obtained or ratio.obtained)


def _sizes(quantity: Quantity, parts: list[_Part]) -> list[tuple[str, ...]]:
    """Each part as its number and, where it must be said, how it was obtained."""
    found = []
    for part in parts:
        named = f"{part.component} " if len(parts) > 1 else ""
        how = (part.obtained,) if _must_say(quantity, part.obtained) else ()
        found.append((named + quantity.show(part.value), *how))
    return found


def _baseline_notes(sizes: list[tuple[str, ...]]) -> tuple[str, ...]:
    return (*sizes[0][1:], *(", ".join(size) for size in sizes[1:]))


def _must_say(quantity: Quantity, obtained: str) -> bool:
    """How a number was obtained is always said for energy, elsewhere where it was not measured."""
    return quantity.name.endswith("energy_j") or obtained != "measured"


def _setting(results: Results, quantity: Quantity) -> Setting | None:
    return results.setting(quantity.ratio_name, quantity.name)


def _parts(results: Results, arm: str, quantity: Quantity) -> list[_Part]:
    """The quantity by component, the one that is largest in the baseline first."""
    labels: dict[str, Label] = {}
    if quantity.sized:
        setting = _setting(results, quantity)
        if setting is None:
            return []
        labels = setting.labels()
    if quantity.name == "latency_ms":
        labels["statistic"] = "p50"
    by_component: dict[Label, list[float]] = {}
    obtained: dict[Label, set[str]] = {}
    for record in results.all(quantity.name, arm=arm, **labels):
        component = record.labels.get("component")
        by_component.setdefault(component, []).append(float(record.value or 0.0))
        obtained.setdefault(component, set()).add(record.obtained)
    parts = [
        _Part(component, sum(values) / len(values), " and ".join(sorted(obtained[component])))
        for component, values in by_component.items()
    ]
    if len(parts) < 2:
        return parts
    if arm == results.baseline:
        return sorted(parts, key=lambda part: -part.value)
    order = [part.component for part in _parts(results, results.baseline, quantity)]
    known = [part for part in parts if part.component in order]
    return [
        *sorted(known, key=lambda part: order.index(part.component)),
        *(part for part in parts if part.component not in order),
    ]


def _ratio(results: Results, arm: str, quantity: Quantity, parts: list[_Part]) -> _Ratio | None:
    """The recorded ratio; before it is recorded, the ratio of the two values, without interval."""
    setting = _setting(results, quantity)
    labels = setting.labels() if quantity.sized and setting else {}
    component = parts[0].component if parts else None
    if component is not None:
        labels["component"] = component
    found = results.find(quantity.ratio_name, arm=arm, **labels)
    if found is None and component is not None:
        found = results.find(
            quantity.ratio_name, arm=arm, **{k: v for k, v in labels.items() if k != "component"}
        )
    if found is not None and found.value is not None:
        component, busy = found.labels.get("component"), results.disturbance(found)
        return _Ratio(found.value, found.interval, found.obtained, component, busy)
    baseline = _parts(results, results.baseline, quantity)
    against = {(part.component, part.obtained): part.value for part in baseline}
    of_baseline = against.get((component, parts[0].obtained), 0.0) if parts else 0.0
    if of_baseline <= 0:
        return None
    return _Ratio(parts[0].value / of_baseline, None, parts[0].obtained, component)


def _ratio_text(ratio: _Ratio, quantity: Quantity) -> tuple[str, Tone]:
    """A ratio in words; an interval around 1 is no difference that could be claimed."""
    if ratio.disturbance:
        return "not decided: the machine was busy", "neutral"
    if ratio.interval is not None and ratio.interval[0] < 1 < ratio.interval[1]:
        return "no clear difference", "neutral"
    text = wording.ratio(ratio.value, quantity.below, quantity.above)
    if text == "the same":
        return text, "neutral"
    return text, "gain" if ratio.value < 1 else "loss"
