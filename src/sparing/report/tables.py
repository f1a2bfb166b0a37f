"""The comparison table as data: the page, the command line and notebooks only lay it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sparing.core.record import Record
from sparing.report import wording
from sparing.report.results import Results, Setting
from sparing.report.run import Config

Tone = Literal["gain", "loss", "neutral", "missing"]
Failed = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Column:
    """One column: its key in ``Row.cells``, its title, and at which size it was taken."""

    key: str
    title: str
    note: str = ""


@dataclass(frozen=True)
class Cell:
    """One cell: its text, the lines under it, and the number and interval behind it.

    ``value`` is the number in the column's own sense (a share, a difference of shares, a ratio to
    the baseline, tokens), None where nothing was measured; ``tone`` says whether it speaks for the
    arm; ``obtained`` how the number came about.
    """

    text: str
    notes: tuple[str, ...] = ()
    tone: Tone = "neutral"
    value: float | None = None
    interval: tuple[float, float] | None = None
    obtained: str = ""


@dataclass(frozen=True)
class Row:
    """One arm: its name, whether it is the baseline, a note, and its cells by column key."""

    arm: str
    baseline: bool
    note: str
    cells: dict[str, Cell]


@dataclass(frozen=True)
class _Quantity:
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
    _Quantity(
        "latency", "Latency", "latency_ms", "latency_ratio", "faster", "slower", wording.latency
    ),
    _Quantity(
        "train_time",
        "Training time",
        "train_time_s",
        "train_time_ratio",
        "faster",
        "slower",
        wording.duration,
        sized=False,
    ),
    _Quantity(
        "memory", "Peak memory", "peak_bytes", "peak_ratio", "less", "more", wording.size_of_bytes
    ),
    _Quantity("flops", "Arithmetic", "flops", "flops_ratio", "less", "more", wording.flops),
    _Quantity(
        "energy", "Energy, one call", "energy_j", "energy_ratio", "less", "more", wording.energy
    ),
    _Quantity(
        "train_energy",
        "Energy, training",
        "train_energy_j",
        "train_energy_ratio",
        "less",
        "more",
        wording.energy,
        sized=False,
    ),
)


def table_columns(records: Sequence[Record], config: Config) -> list[Column]:
    """The columns of ``table_rows`` in order, with the size at which each was taken."""
    results = Results(records, config)
    chance = config["task"].get("chance")
    chance_note = f"chance {100 * chance:.3g} %" if isinstance(chance, (int, float)) else ""
    columns = [
        Column("accuracy", metric_name(config).capitalize(), chance_note),
        Column("difference", f"Against {dense_name(config)}", _margin_note(results)),
    ]
    for quantity in QUANTITIES:
        setting = _setting(results, quantity) if quantity.sized else None
        whole_run = "" if quantity.sized else "a whole run, mean over seeds"
        note = setting_words(setting) if setting else whole_run
        columns.append(Column(quantity.key, quantity.title, note))
    columns.insert(3, Column("crossover", f"Faster than {dense_name(config)}", "attention core"))
    return columns


def table_rows(records: Sequence[Record], config: Config, failed: Failed = ()) -> list[Row]:
    """The table: one row an arm, the baseline first; a pure function of the records.

    ``failed`` are the cells that ended in an error: they explain what is missing. Costs are ratios
    to the baseline, with direction and interval in words; ``Cell.value`` keeps the plain ratio.
    """
    results = Results(records, config)
    first = [results.baseline] if results.baseline in results.arms else []
    return [_row(results, arm, failed) for arm in (*first, *results.others)]


def dense_name(config: Config) -> str:
    """What to call the baseline in running text: exact attention is plainly dense."""
    baseline = str(config["baseline"])
    return "dense" if baseline == "softmax" else wording.shortened(baseline, 32)


def metric_name(config: Config) -> str:
    """The task's metric in words."""
    return wording.shortened(str(config["task"].get("metric") or "accuracy"), 24).replace("_", " ")


def setting_words(setting: Setting) -> str:
    """A size in words."""
    scope = "whole model" if setting.scope == "model" else "attention core alone"
    return f"{scope}, {wording.length(setting.tokens)}, batch {setting.batch}"


def arm_failed(arm: str, failed: Failed) -> bool:
    """Whether a cell of this arm ended in an error."""
    return any(_cell_names(entry.get("cell"), arm) for entry in failed)


def _cell_names(cell: object, arm: str) -> bool:
    if isinstance(cell, dict):
        return cell.get("arm") == arm
    separated = str(cell)
    for separator in "/:;,=| ":
        separated = separated.replace(separator, "\0")
    return arm in separated.split("\0")


def _row(results: Results, arm: str, failed: Failed) -> Row:
    cells = {
        "accuracy": _accuracy_cell(results, arm, failed),
        "difference": _difference_cell(results, arm, failed),
        "crossover": _crossover_cell(results, arm, failed),
    }
    for quantity in QUANTITIES:
        cells[quantity.key] = _cost_cell(results, arm, quantity, failed)
    params = results.value("params", arm=arm)
    note = "" if params is None else f"{params:,.0f} parameters"
    return Row(arm, arm == results.baseline, note, cells)


def _missing(results: Results, arm: str, failed: Failed, *names: str) -> Cell:
    """An empty cell that says why: the record's own reason, a failure, or not reached."""
    empty = next((r for name in names if (r := results.empty(name, arm=arm))), None)
    if empty is not None and empty.labels.get("reason"):
        reason = str(empty.labels["reason"])
    elif empty is not None:
        reason = "the measurement gave no number"
    elif arm_failed(arm, failed):
        reason = "failed, see below"
    elif any(results.all(name) for name in names):
        reason = "not reached yet"
    else:
        reason = "not part of this run so far"
    return Cell("not measured", (reason,), "missing")


def _accuracy_cell(results: Results, arm: str, failed: Failed) -> Cell:
    found = results.accuracy(arm)
    if found is None:
        return _missing(results, arm, failed, "accuracy")
    value, interval = found
    seeds = wording.count_of(len(results.accuracies(arm)), "seed")
    if interval is None:
        return Cell(wording.share(value), (f"{seeds}, no interval",), value=value)
    low, high = (wording.share(end).removesuffix(" %") for end in interval)
    notes = (f"{low}{wording.DASH}{high}", seeds)
    return Cell(wording.share(value), notes, "neutral", value, interval, "measured")


def _difference_cell(results: Results, arm: str, failed: Failed) -> Cell:
    if arm == results.baseline:
        return Cell("baseline")
    found = results.find("accuracy_difference", arm=arm)
    if found is None or found.value is None:
        return _missing(results, arm, failed, "accuracy_difference")
    verdict = str(found.labels.get("verdict") or "undecided")
    tones: dict[str, Tone] = {"better": "gain", "worse": "loss", "undecided": "missing"}
    notes = [f"{wording.points(found.value, *(found.interval or ()))} points"]
    if found.interval:
        notes.append(wording.points_interval(found.value, found.interval))
    return Cell(
        verdict,
        tuple(notes),
        tones.get(verdict, "neutral"),
        found.value,
        found.interval,
        found.obtained,
    )


def _crossover_cell(results: Results, arm: str, failed: Failed) -> Cell:
    if arm == results.baseline:
        return Cell("baseline")
    found = results.find("crossover_tokens", arm=arm)
    if found is not None and found.value is not None:
        return Cell(f"from about {wording.length(found.value)}", (), "neutral", found.value)
    empty = results.empty("crossover_tokens", arm=arm)
    longest = empty.labels.get("longest_tokens") if empty else None
    if isinstance(longest, int):
        return Cell("never measured faster", (f"up to {wording.length(longest)}",))
    return _missing(results, arm, failed, "crossover_tokens")


def _setting(results: Results, quantity: _Quantity) -> Setting | None:
    return results.setting(quantity.ratio_name, quantity.name)


def _absolute(results: Results, arm: str, quantity: _Quantity) -> tuple[float, str] | None:
    """The quantity itself and how it was obtained; training costs are means over the seeds."""
    if quantity.sized:
        setting = _setting(results, quantity)
        labels = setting.labels() if setting else {}
        if quantity.name == "latency_ms":
            labels["statistic"] = "p50"
        found = results.find(quantity.name, arm=arm, **labels) if setting else None
        return None if found is None or found.value is None else (found.value, found.obtained)
    own = results.all(quantity.name, arm=arm)
    seeds = {r.labels.get("seed") for r in own}
    if not own:
        return None
    total = sum(r.value for r in own if r.value is not None)
    return total / len(seeds), " and ".join(sorted({r.obtained for r in own}))


def _cost_cell(results: Results, arm: str, quantity: _Quantity, failed: Failed) -> Cell:
    absolute = _absolute(results, arm, quantity)
    obtained = absolute[1] if absolute else ""
    shown = "" if absolute is None else quantity.show(absolute[0])
    if arm == results.baseline:
        if absolute is None:
            return _missing(results, arm, failed, quantity.name)
        how = _how(quantity, obtained)
        return Cell(shown, (how,) if how else (), "neutral", 1.0, obtained=obtained)
    found = _ratio(results, arm, quantity, absolute)
    if found is None:
        names = (quantity.ratio_name, quantity.name)
        return _missing(results, arm, failed, *names)
    value, interval, ratio_obtained = found
    obtained = obtained or ratio_obtained
    text, tone = _ratio_text(value, interval, quantity)
    exact = quantity.key == "flops" or text == "the same"
    spread = wording.ratio_interval(interval) if interval else "" if exact else "no interval"
    size = ", ".join(part for part in (shown, _how(quantity, obtained)) if part)
    notes = tuple(note for note in (spread, size) if note)
    return Cell(text, notes, tone, value, interval, obtained)


def _how(quantity: _Quantity, obtained: str) -> str:
    """How a number was obtained is always said for energy, elsewhere where it was not measured."""
    if obtained and (quantity.name.endswith("energy_j") or obtained != "measured"):
        return obtained
    return ""


def _ratio(
    results: Results, arm: str, quantity: _Quantity, absolute: tuple[float, str] | None
) -> tuple[float, tuple[float, float] | None, str] | None:
    """The recorded ratio; before it is recorded, the ratio of the two values, without interval."""
    setting = _setting(results, quantity)
    labels = setting.labels() if quantity.sized and setting else {}
    found = results.find(quantity.ratio_name, arm=arm, **labels)
    if found is not None and found.value is not None:
        return found.value, found.interval, found.obtained
    against = _absolute(results, results.baseline, quantity)
    if absolute is None or against is None or against[0] <= 0:
        return None
    return absolute[0] / against[0], None, absolute[1]


def _ratio_text(
    value: float, interval: tuple[float, float] | None, quantity: _Quantity
) -> tuple[str, Tone]:
    """A ratio in words; an interval around 1 is no difference that could be claimed."""
    if interval is not None and interval[0] < 1 < interval[1]:
        return "no clear difference", "neutral"
    text = wording.ratio(value, quantity.below, quantity.above)
    if text == "the same":
        return text, "neutral"
    return text, "gain" if value < 1 else "loss"


def _margin_note(results: Results) -> str:
    found = results.find("accuracy_difference")
    margin = found.labels.get("margin") if found else None
    if not isinstance(margin, (int, float)):
        return ""
    return "margin " + wording.plain(100 * margin, "point")
